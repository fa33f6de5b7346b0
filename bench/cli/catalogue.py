"""`bench list` and `bench show`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.card_sections import format_card, format_explanation
from bench.cli.commands import bench_command
from bench.cli.options import (
    PATH,
    data_option,
    load_plugin_options,
    plugin_option,
    results_option,
    set_option,
    text_column_option,
    warn_unused_tables,
)
from bench.cli.sections import Section, format_sections
from bench.cli.strict_options import strict_option
from bench.errors import DataError, InputError, not_one_of, printable

if TYPE_CHECKING:
    from bench.config.profiles import Profile
    from bench.config.run_spec import MethodRequest
    from bench.method_card import MethodCard

NameRows = list[tuple[str, str]]
_LISTED = ("methods", "families", "suites", "profiles", "sweeps", "probes", "campaigns")
_NO_FAMILY = "yours"
"""Heading of plug-in methods whose card has no family."""


@bench_command("list")
@click.argument("what", type=click.Choice(_LISTED))
@strict_option(
    "--family",
    shell_complete=completion.family,
    metavar="NAME",
    help="Only methods of this family, without headings.",
)
@plugin_option
@results_option
def list_command(what: str, family: str | None, plugins: tuple[str, ...], results: Path) -> None:
    """List methods, suites, profiles and other names.

    The other names are families, sweeps, probes and campaigns. Methods are grouped by family. With --plugin,
    only the methods of that file or package. A campaign's line has its profiles, methods, records (with
    failed and damaged ones) and the day of the last record.
    """
    for option, value in (("--family", family), ("--plugin", plugins)):
        if value and what != "methods":
            raise InputError(f"only methods have it, not {what}", where=option, expected="bench list methods")
    if what == "methods":
        _print_methods(_group_methods(plugins, results), family)
        return
    rows = list(_list_campaigns(results)) if what == "campaigns" else _list_shipped(what)
    _print_rows(rows, max((len(name) for name, _ in rows), default=0))


def _print_methods(groups: Mapping[str, NameRows], family: str | None) -> None:
    from bench.method_card import FAMILIES

    if family is not None:
        if family not in FAMILIES:
            raise not_one_of(f"no family '{family}'", family, FAMILIES, where="--family")
        rows = groups.get(family, [])
        _print_rows(rows, max((len(name) for name, _ in rows), default=0))
        return
    width = max((len(name) for rows in groups.values() for name, _ in rows), default=0)
    for place, (title, rows) in enumerate(groups.items()):
        heading = FAMILIES.get(title, "plug-in methods whose card has no family")
        click.echo(f"{chr(10) * (place > 0)}# {title}: {heading}")
        _print_rows(rows, width)


def _print_rows(rows: NameRows, width: int) -> None:
    for name, summary in rows:
        click.echo(printable(f"{name:{width}}  {summary}"))


def _group_methods(plugins: tuple[str, ...], results: Path) -> dict[str, NameRows]:
    """Return name and summary of every method by family, in the order of the families."""
    from bench.config.plugins import load_plugin, read_plugin
    from bench.method_card import FAMILIES
    from bench.registry import METHODS, discover

    discover()
    wanted = {name for text in plugins for name in load_plugin(read_plugin(text, results))}
    groups: dict[str, NameRows] = {family: [] for family in (*FAMILIES, _NO_FAMILY)}
    aliases = METHODS.list_aliases()
    for name, method in METHODS:
        card = method.card
        if not plugins or name in wanted:
            rows = groups[card.family or _NO_FAMILY]
            rows += [(card.name, card.summary)]
            rows += [(other, f"see {card.name}: {form}") for other, form in aliases[name]]
    return {family: sorted(rows) for family, rows in groups.items() if rows}


def _list_shipped(what: str) -> NameRows:
    from bench.config import profiles
    from bench.config.sweeps import SWEEPS
    from bench.data.suites import SUITES
    from bench.method_card import FAMILIES
    from bench.probes import PROBES

    if what == "families":
        return list(FAMILIES.items())
    if what == "suites":
        return [
            *((name, suite.summary) for name, suite in SUITES),
            ("mteb:TASK,TASK", "any tasks of mteb, each NAME, NAME[SUBSET+SUBSET] or NAME[SUBSET]@SPLIT"),
            ("contrast:FILE.txt", "minimal pairs of your own sentences, by rule, accuracy"),
            (
                "local:FILE.toml",
                "sts, classification, retrieval, reranking and bitext tasks from files (mteb)",
            ),
        ]
    if what == "profiles":
        rows = [(name, _describe_profile(profiles.load_profile(name))) for name in profiles.profile_names()]
        return [*rows, ("FILE.toml", "your own profile; bench init writes a first one")]
    if what == "sweeps":
        return [(sweep.name, f"{sweep.question} ({sweep.source})") for sweep in SWEEPS.values()]
    return [
        *((probe.name, probe.summary) for probe in PROBES.values()),
        ("overlap", "training text against test sets: bench data overlap TEXT"),
        ("gradient", "figures of the gradient paradigm: bench gradient"),
    ]


def _describe_profile(profile: Profile) -> str:
    """Return a profile's summary, with what SimCSE takes there where its backbone's sizes are stated."""
    from bench.plan.profile_costs import estimate_method

    cost = estimate_method("simcse", profile)
    if cost is None:
        return profile.summary
    sizes = f"{cost.parameters / 1e6:,.0f} M weights; simcse {cost.memory / 2**30:.0f} GiB"
    return f"{profile.summary}; {sizes}, {cost.format_hours()}"


def _list_campaigns(results: Path) -> Iterator[tuple[str, str]]:
    from bench.records.campaign_lookup import check_campaign_options
    from bench.records.store import ResultStore
    from bench.records.timing import start_date

    check_campaign_options(results, None)
    if not results.is_dir():
        raise InputError("the folder does not exist", where=f"--results {results}")
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        try:
            records, damaged = ResultStore(results, folder.name).scan()
        except DataError as error:  # of a newer bench
            yield folder.name, f"can't be read: {error.what}"
            continue
        except InputError:  # no campaign's name, such as .stages
            continue
        if not records and not damaged:
            continue
        profiles = "+".join(sorted({record.profile for record in records})) or "-"
        methods = _format_count(len({record.method for record in records}), "method")
        failed = sum(record.status != "ok" for record in records)
        counts = f"{methods}, {_format_count(len(records), 'record')}, {failed} failed"
        if damaged:
            counts += f", {len(damaged)} damaged"
        last = max((start_date(record)[:10] for record in records), default="") or "-"
        yield folder.name, f"profiles {profiles}, {counts}, last {last}"


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


@bench_command()
@click.argument("method", shell_complete=completion.method)
@strict_option(
    "--profile",
    shell_complete=completion.profile,
    help="Show what `bench run` would train in this profile.",
)
@strict_option(
    "--bibtex",
    is_flag=True,
    help="Print BibTeX entries of the sources of the method and of its members instead.",
)
@set_option
@plugin_option
@strict_option("--corpus", type=PATH, help="Training text instead of the profile's.")
@text_column_option
@strict_option("--pairs", type=PATH, help="Labelled pairs instead of the profile's.")
@data_option()
def show_command(
    method: str, plugins: tuple[str, ...], profile: str | None, bibtex: bool, **options: Any
) -> None:
    """Show a method's card, or what a run in a profile would do.

    The card begins with what the method adds to SimCSE; sources, equations, options and deviations follow.
    For a model folder (hf:PATH, st:PATH): weights read, missing and unread, pooling, longest input, dropout
    layers, and the methods that can train on it.

    With --profile, what would run: backbone, training text, dev set, suites, the steps of every stage, and
    every option with its source: given, the profile's table, its budget, or the card.
    """
    from bench.config.method_ids import parse_method, parse_overrides
    from bench.config.run_spec import RunSpec
    from bench.registry import discover

    load_plugin_options(plugins)
    request = parse_method(method, "bench show")
    card = discover().get(request.name, where="bench show").card
    if bibtex:
        taken = {"--profile": profile, "--set": options["overrides"], "--corpus": options["corpus"]}
        _refuse_with_bibtex(taken | {"--pairs": options["pairs"]})
        _print_sources(request)
        return
    given = any(options[name] for name in ("overrides", "corpus", "pairs"))
    folder = request.argument and card.takes_path and not card.takes_file
    changed = request.options or (request.argument and not folder) or given
    if profile is None and changed:
        raise InputError("settings belong to a profile", where="bench show", expected="--profile NAME too")
    if profile is None and folder:
        _print_folder(request, card)
        return
    if profile is None:
        _print_lines(format_card(card, _find_width()))
        return
    from bench.plan.method_explanation import explain_method

    warn_unused_tables(profile)
    given_texts = {name: options[name] for name in ("corpus", "text_column", "pairs")}
    overrides, data = parse_overrides(options["overrides"]), options["data_dir"]
    spec = RunSpec((request,), (1,), profile, overrides=overrides, data=data, **given_texts)
    _print_lines(format_explanation(explain_method(request, spec), _find_width()))


def _refuse_with_bibtex(given: Mapping[str, object]) -> None:
    """Raise InputError for an option of a profile's run, on which sources don't depend."""
    for option, value in given.items():
        if value:
            raise InputError("sources belong to no profile", where="--bibtex", expected=f"no {option}")


def _print_sources(request: MethodRequest) -> None:
    """Print BibTeX entries of a row and its members; raises InputError if none has a source."""
    from bench.data.bibliography import find_entries

    entries: dict[str, None] = {}
    for card in _collect_cards(request):
        entries |= dict.fromkeys(find_entries(card.cites, f"the card of {card.name}"))
    if not entries:
        what = f"{request.text} has no source of its own"
        raise InputError(what, where="--bibtex", hint="cite the model's or file's own authors")
    for place, entry in enumerate(entries):
        lines = entry.expandtabs().splitlines()
        _print_lines([""] * (place > 0) + [printable(line) for line in lines])


def _collect_cards(request: MethodRequest, above: tuple[str, ...] = ()) -> list[MethodCard]:
    """Return the card of a row, then those of the methods that it builds on, at any depth."""
    from bench.config.method_ids import parse_method, split_argument
    from bench.plan.cell_expansion import parse_options
    from bench.registry import METHODS
    from bench.stages import ComposedMethod

    method = METHODS.get(request.name, where="bench show")
    card, cards = method.card, [method.card]
    short = split_argument(request, card)[1] if request.argument else None
    given = parse_options(request, card, short)
    named = request.name in above or (card.takes_methods and not (card.stands_alone or given))
    if named or not isinstance(method, ComposedMethod):
        return cards
    for role, text in method.members(card.defaults | given).items():
        member = parse_method(text, f"{card.name}: {role}")
        cards += _collect_cards(member, (*above, request.name))
    return cards


def _find_width() -> int | None:
    """Return the characters of a terminal's line, None for a file or a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def _print_folder(request: MethodRequest, card: MethodCard) -> None:
    from bench.config.method_ids import split_argument
    from bench.execution.model_folder_report import report_folder
    from bench.method_card import BuildContext
    from bench.nn.model_folder import resolve_folder
    from bench.registry import METHODS

    path, short = split_argument(request, card)
    model = resolve_folder(path or "", where=request.text)
    options = card.defaults
    if short:
        options[short[0]] = card.option(short[0], request.text).parse(short[1], request.text)
    encoder, rows = None, []
    try:
        encoder = METHODS.get(card.name).build(BuildContext(options, None, model.path, "cpu"))
    except InputError as error:
        rows.append(("as a row", f"refused: {error}"))
    section = Section("What it is", (*report_folder(model.path, encoder), *rows))
    _print_lines(format_sections(request.text, [section], _find_width()))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
