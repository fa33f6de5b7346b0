"""`bench list` and `bench show`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
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
from bench.cli.strict_option import strict_option
from bench.errors import DataError, InputError, printable

if TYPE_CHECKING:
    from bench.card import MethodCard
    from bench.config.spec import MethodRequest

NameRows = list[tuple[str, str]]
_CARD = 14


@click.command("list")
@click.argument("what", type=click.Choice(["methods", "suites", "profiles", "sweeps", "probes", "campaigns"]))
@plugin_option
@results_option
def list_command(what: str, plugins: tuple[str, ...], results: Path) -> None:
    """List methods, suites, profiles, sweeps, probes or campaigns.

    With --plugin, only the methods of that file or package. A campaign's line has its profiles, methods,
    records (with failed and damaged ones) and the day of the last record.
    """
    if plugins and what != "methods":
        raise InputError(f"{what} come from no plug-in", where="--plugin", expected="bench list methods")
    listed: dict[str, Callable[[], NameRows]] = {
        "methods": lambda: _list_methods(plugins, results),
        "suites": _list_suites,
        "profiles": _list_profiles,
        "sweeps": _list_sweeps,
        "probes": _list_probes,
        "campaigns": lambda: list(_list_campaigns(results)),
    }
    rows = listed[what]()
    width = max((len(name) for name, _ in rows), default=0)
    for name, summary in rows:
        click.echo(printable(f"{name:{width}}  {summary}"))


def _list_methods(plugins: tuple[str, ...], results: Path) -> NameRows:
    from bench.config.plugins import load_plugin, read_plugin
    from bench.registry import METHODS, discover

    discover()
    wanted = {name for text in plugins for name in load_plugin(read_plugin(text, results))}
    cards = [method.card for name, method in METHODS if not plugins or name in wanted]
    rows = [(card.name, card.summary) for card in cards]
    rows += [(name, f"see {card.name}: {form}") for card in cards for name, form in card.known_as]
    return sorted(rows)


def _list_suites() -> NameRows:
    from bench.data.suites import SUITES

    return [
        *((name, suite.summary) for name, suite in SUITES),
        ("mteb:TASK,TASK", "any tasks of mteb, each NAME, NAME[SUBSET+SUBSET] or NAME[SUBSET]@SPLIT"),
        ("contrast:FILE.txt", "minimal pairs of your own sentences, by rule, accuracy"),
        ("local:FILE.toml", "sts, classification, retrieval, reranking and bitext tasks from files (mteb)"),
    ]


def _list_profiles() -> NameRows:
    from bench.config import profiles

    return [
        *((name, profiles.load_profile(name).summary) for name in profiles.profile_names()),
        ("FILE.toml", "a profile of yours; bench init writes one to begin with"),
    ]


def _list_sweeps() -> NameRows:
    from bench.config.sweeps import SWEEPS

    return [(sweep.name, f"{sweep.question} ({sweep.source})") for sweep in SWEEPS.values()]


def _list_probes() -> NameRows:
    from bench.probes import PROBES

    return [
        *((probe.name, probe.summary) for probe in PROBES.values()),
        ("overlap", "training text against test sets: bench data overlap TEXT"),
        ("gradient", "what the gradient paradigm's figures draw: bench gradient"),
    ]


def _list_campaigns(results: Path) -> Iterator[tuple[str, str]]:
    from bench.records.store import ResultStore

    if not results.is_dir():
        raise InputError("there is no such folder", where=f"--results {results}")
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
        failed = sum(record.status != "ok" for record in records)
        days = [str(record.timing.get("started", ""))[:10] for record in records]
        profiles = "+".join(sorted({record.profile for record in records})) or "-"
        methods = _format_count(len({record.method for record in records}), "method")
        counts = f"{methods}, {_format_count(len(records), 'record')}, {failed} failed"
        counts += f", {len(damaged)} damaged" if damaged else ""
        yield folder.name, f"profiles {profiles}, {counts}, last {max(days, default='-')}"


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@click.command()
@click.argument("method", shell_complete=completion.method)
@strict_option(
    "--profile",
    shell_complete=completion.profile,
    help="Show what `bench run` would train in this profile.",
)
@set_option
@plugin_option
@strict_option("--corpus", type=PATH, help="Training text instead of the profile's.")
@text_column_option
@strict_option("--pairs", type=PATH, help="Labelled pairs instead of the profile's.")
@data_option()
def show_command(method: str, plugins: tuple[str, ...], profile: str | None, **options: Any) -> None:
    """Show a method's card, or what a run in a profile would do.

    The card has sources, equations, options and deviations. For a model folder (hf:PATH, st:PATH): weights
    read, missing and unread, pooling, longest input, dropout layers, and the methods that can train on it.

    With --profile, what would run: backbone, training text, dev set, suites, the steps of every stage, and
    every option with its source: given, the profile's table, its budget, or the card.
    """
    from bench.config.method_ids import parse_method, parse_overrides
    from bench.config.spec import RunSpec
    from bench.registry import discover

    load_plugin_options(plugins)
    request = parse_method(method, "bench show")
    card = discover().get(request.name, where="bench show").card
    given = any(options[name] for name in ("overrides", "corpus", "pairs"))
    folder = request.argument and card.takes_path and not card.takes_file
    changed = request.options or (request.argument and not folder) or given
    if profile is None and changed:
        raise InputError("settings belong to a profile", where="bench show", expected="--profile NAME too")
    if profile is None and folder:
        _print_folder(request, card)
        return
    if profile is None:
        for line in format_card(card):
            click.echo(line)
        return
    from bench.plan.explain import explain_method

    warn_unused_tables(profile)
    spec = RunSpec(
        (request,),
        (1,),
        profile,
        overrides=parse_overrides(options["overrides"]),
        corpus=options["corpus"],
        text_column=options["text_column"],
        pairs=options["pairs"],
        data=options["data_dir"],
    )
    for what, text in explain_method(request, spec):
        click.echo(printable(f"{what:{_CARD}}{text}"))


def _print_folder(request: MethodRequest, card: MethodCard) -> None:
    from bench.card import BuildContext
    from bench.config.method_ids import split_argument
    from bench.execution.folder_report import report_folder
    from bench.nn.model_folder import resolve_folder
    from bench.registry import METHODS

    path, short = split_argument(request, card)
    model = resolve_folder(path or "", where=request.text)
    options = {option.name: option.default for option in card.options}
    options |= {short[0]: card.option(short[0], request.text).parse(short[1], request.text)} if short else {}
    fault = None
    try:
        encoder = METHODS.get(card.name).build(BuildContext(options, None, model.path, "cpu"))
    except InputError as error:
        encoder, fault = None, error
    for what, text in report_folder(model.path, encoder):
        click.echo(printable(f"{what:{_CARD}}{text}"))
    if fault is not None:
        click.echo(printable(f"{'as a row':{_CARD}}refused: {fault}"))


def format_card(card: MethodCard) -> Iterator[str]:
    """Yield the lines of a method's card."""
    yield f"{card.name} ({card.kind}, version {card.version}): {card.summary}"
    yield "one run, no seed" if card.deterministic else "seeded"
    for title, lines in (
        ("printed as", (card.printed,)),
        ("family", (card.family and ": ".join(filter(None, (card.family, ", ".join(card.tags)))),)),
        ("paper", (card.paper,)),
        ("code", (card.code,)),
        ("computes", card.equations),
        ("deviations", card.deviations),
        ("published as", tuple(f"{name} ({options})" for name, options in card.published_names)),
        ("also known as", tuple(f"{name} ({form})" for name, form in card.known_as)),
    ):
        yield from (f"{title + ':':{_CARD}}{line}" for line in filter(None, lines))
    for option in card.options:
        choices = f" [{', '.join(option.choices)}]" if option.choices else ""
        yield f"option        {option.name}={option.default}{choices}  {option.help}"
