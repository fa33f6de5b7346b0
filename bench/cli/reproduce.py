"""``bench reproduce``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.config import option_once
from bench.cli.options import PATH, check_device, make_spec, run_options, tell
from bench.cli.run import estimate_option, execute, leave_if_failed, own_records, show_estimate, show_plan
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError

if TYPE_CHECKING:
    from bench.config.spec import RunSpec
    from bench.papers.items import Item
    from bench.papers.work import Work
    from bench.plan.plan import Plan
    from bench.records.record import RunRecord
    from bench.render.figure import Figure
    from bench.render.grid import Grid

CAMPAIGN = "reproduce"
MOST = 2560
"""Held-out sentences on which a watched training is measured."""


@click.command()
@click.argument("name", metavar="[PAPER[:ITEM],...]", required=False)
@option_once("--seeds", help="Such as 1-5; default: those that the paper states, else 1.")
@run_options
@option_once("--check", is_flag=True, help="Compare all items with the papers' figures; run nothing.")
@option_once("--dry-run", is_flag=True, help="Show what would run; run nothing.")
@estimate_option
@option_once("--show", is_flag=True, help="Print the tables from the records that are there; run nothing.")
@option_once("--figures", type=PATH, help="Draw the item's figures into DIR, as PDF, PNG and SVG.")
@option_once(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv", "json", "latex"]),
    default="text",
    help="Of the tables.",
)
def reproduce(
    name: str | None,
    check: bool,
    dry_run: bool,
    estimate: bool,
    show: bool,
    figures: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Run a table or figure of a paper, and print it in the paper's layout with the printed figures beside.

    Without a name: all items, what is done of each, and what the rest costs.
    """
    from bench.papers.items import chosen, items

    if check:
        _check(name, options)
        return
    spec = _spec(options)
    _check_campaign(spec, show=show, runs=name is not None)
    wanted = chosen(name) if name else tuple(items().values())
    if name is None:
        from bench.papers.listing import lines, listing

        each = {item.id: list(_works(item, spec, options["profile"], options["seeds"])) for item in wanted}
        listed = listing(wanted, each)
        click.echo(lines(listed) if form == "text" else _render([listed], form), nl=False)
        return
    failed, stopped = 0, list[BenchError]()
    grids: list[Grid] = []
    for item in wanted:
        works = _works(item, spec, options["profile"], options["seeds"])
        try:
            for made in works:
                if dry_run or estimate:
                    failed += _preview(made, estimate)
                else:
                    failed += _reproduced(made, show, figures, grids)
        except BenchError as error:  # a checkpoint that isn't here stops no other item, and loses no table
            stopped.append(error)
            _tell_stopped(item, error, alone=len(wanted) == 1)
        grids += _said(item)
    if grids:
        click.echo(_render(grids, form), nl=False)
    if len(wanted) == len(stopped) == 1:
        raise stopped[0]
    leave_if_failed(failed + len(stopped))


for _option in reproduce.params:  # what it shares with bench run, in its own words
    if isinstance(_option, click.Option) and _option.name == "profile":
        _option.help = "See `bench list profiles`; default: those of the paper's backbones."
    elif _option.name == "campaign":
        _option.default = CAMPAIGN


def _tell_stopped(item: Item, error: BenchError, *, alone: bool) -> None:
    """Say why an item isn't whole; of one alone the command's last line says it."""
    if not alone:
        tell(f"{item.id}: not run, {error}")


def _reproduced(made: Work, show: bool, figures: Path | None, grids: list[Grid]) -> int:
    """Run what is missing of an item, add its table, draw its figures; return what failed."""
    from bench.papers.curves import item_tables

    if made.item.gradient:
        drawn = _measured(made, show)
        grids += item_tables(made.item, drawn)
        _draw(drawn, figures)
        return 0
    records, failed = _run(made, show)
    grids += _grids(made, records)
    _draw(_figures(made, records) if figures is not None else [], figures)
    return failed


def _spec(options: dict[str, Any]) -> RunSpec:
    """How and where to run; raises InputError for what an item says itself."""
    if options["suites"] is not None:
        raise InputError("an item says its suites", where="--suite", hint="bench run measures on others")
    return make_spec({**options, "methods": "untrained", "seeds": options["seeds"] or "1"})


def _check_campaign(spec: RunSpec, *, show: bool, runs: bool) -> None:
    """Raise InputError for a campaign to show that isn't there, and a new one with a name that can't be.

    The default campaign may hold nothing yet.
    """
    from bench.records.files import check_new_campaign
    from bench.records.store import ResultStore

    if not show:
        if runs:
            check_new_campaign(spec.results, spec.campaign)
        return
    source = click.get_current_context().get_parameter_source("campaign")
    store = ResultStore(spec.results, spec.campaign)
    if source is not click.core.ParameterSource.DEFAULT and not store.root.is_dir():
        store.records()  # which says what there is


def _works(item: Item, spec: RunSpec, profile: str | None, seeds: str | None) -> Iterator[Work]:
    """An item in every profile in which it is run."""
    from bench.config.method_ids import parse_seeds
    from bench.papers.work import work

    if item.settings or item.nothing:
        return
    own = replace(spec, seeds=parse_seeds(seeds or item.seeds or "1"))
    for known in (profile,) if profile is not None else item.backbones:
        yield work(item, own, known)


def _check(name: str | None, options: dict[str, Any]) -> None:
    from bench.data.published import figures
    from bench.papers.check import findings
    from bench.papers.items import items

    if name is not None or options["profile"] is not None:
        raise InputError("it is for all items", where="--check", expected="no other argument")
    found = findings()
    for line in found:
        click.echo(line)
    if found:
        raise BenchError(f"{len(found)} finding(s)", where="bench reproduce --check", hint="the lines above")
    click.echo(f"{len(items())} items hold {len(figures()):,} printed figures: nothing found")


def _preview(made: Work, estimate: bool) -> int:
    """Say what would run; return the number of conflicts."""
    from bench.plan.plan import check_names, make_plan

    click.echo(f"{made.item.id}: {made.item.title}; profile {made.spec.profile}")
    for method, why in made.impossible.items():
        click.echo(f"{method}: not run, {why}")
    for plan in _watched(made):
        click.echo(f"bench gradient: {plan.jobs[0].cell.describe()}")
    if not made.spec.methods:
        return 0
    plan = make_plan(made.spec)
    check_names(plan)
    conflicts = show_plan(plan)
    if estimate:
        show_estimate(plan)
    return conflicts


def _run(made: Work, show: bool) -> tuple[list[tuple[str, RunRecord]], int]:
    """Run what is missing, or only read; return the records with their methods' texts, and what failed."""
    from bench.papers.work import ids
    from bench.plan.plan import check_names, make_plan
    from bench.records.store import ResultStore

    if not made.spec.methods:
        return [], 0
    if show:
        store, known = ResultStore(made.spec.results, made.spec.campaign), ids(made)
        records = store.records() if store.root.is_dir() else []
        own = [record for record in records if record.profile == made.label]
        return [
            (text, record)
            for text, (method, seeds) in known.items()
            for record in own
            if record.method == method and record.seed in seeds
        ], 0
    plan = make_plan(made.spec)
    check_names(plan)
    if plan.spec.executor == "local":
        check_device(plan.spec.device, plan.spec.ranks)
    tell(f"{made.item.id}: {made.item.title}; profile {made.spec.profile}")
    failed = execute(plan)
    texts: dict[str, list[str]] = {}
    for text, method in plan.ids.items():
        texts.setdefault(method, []).append(text)
    return [(text, record) for record in own_records(plan) for text in texts[record.method]], failed


def _grids(made: Work, records: Sequence[tuple[str, RunRecord]]) -> list[Grid]:
    from bench.papers.layout import Found, grid, like_printed, surface
    from bench.papers.places import single_tasks
    from bench.reports.records import by_profile_and_suite, check_comparable

    if made.item.formula:
        return surface(made.item)
    by_text: dict[str, list[RunRecord]] = {}
    for text, record in records:
        by_text.setdefault(text, []).append(record)
    for group in by_profile_and_suite({id(r): r for _, r in records}.values()):
        check_comparable(group, made.spec.campaign)
    own = made.label in made.item.backbones and not made.spec.overrides
    found = Found(
        made.label,
        by_text,
        made.spec.seeds,
        made.stand_ins,
        made.impossible,
        own and like_printed(made.item, (record for _, record in records)),
        tuple(dict.fromkeys(note for _, record in records for note in record.notes)),
        single_tasks(made.places, made.item.id),
        made.spec.campaign,
    )
    return [grid(made.item, made.places, found)] if made.places else []


def _said(item: Item) -> list[Grid]:
    from bench.papers.layout import settings_grid

    if item.nothing:
        tell(f"{item.id}: {item.title}: nothing to compute. {item.nothing}")
    return [settings_grid(item)] if item.settings else []


def _measured(made: Work, show: bool) -> list[Figure]:
    """Measure what ``bench gradient`` does for an item and isn't there yet; return its figures."""
    from bench.gradient.run import check_same, check_watched, measure, sampled_files, write_sampled
    from bench.papers.curves import item_figures
    from bench.papers.work import MEASURED, gradient_folder, watched_folder
    from bench.records.store import ResultStore

    store = ResultStore(made.spec.results, made.spec.campaign)
    folder = gradient_folder(made)
    files = sampled_files(folder) if "" in made.item.gradient else []
    if not show and not all(path.exists() for path in files):
        store.prepare()
        folder.mkdir(parents=True, exist_ok=True)
        write_sampled(folder, made.spec.seeds[0])
    for plan in _watched(made):
        cell = plan.jobs[0].cell
        path = watched_folder(made, cell.method, cell.seed) / MEASURED
        if path.exists():
            check_same(plan, path)
        elif not show:
            check_watched(plan)
            check_device(plan.spec.device)
            plan.store.prepare()
            tell(f"{made.item.id}: {cell.describe()}")
            measure(plan, path.parent, MOST, progress_bar)
        files.append(path)
    return item_figures(made.item, folder, [path for path in files if path.exists()])


def _watched(made: Work) -> Iterator[Plan]:
    """The plan of each training that an item watches."""
    from bench.config.method_ids import parse_methods
    from bench.plan.plan import make_plan

    for method, seed in product(filter(None, made.item.gradient), made.spec.seeds):
        yield make_plan(replace(made.spec, methods=parse_methods(method), seeds=(seed,)))


def _figures(made: Work, records: Iterable[tuple[str, RunRecord]]) -> list[Figure]:
    """The report's figures that draw an item, of its own records."""
    from bench.papers.work import manifest
    from bench.records.store import ResultStore
    from bench.reports.campaign import make_campaign
    from bench.reports.report import all_figures

    own = {id(record): record for _, record in records}.values()
    grid = manifest(made, {text: record.method for text, record in records})
    store = ResultStore(made.spec.results, made.spec.campaign)
    campaign = make_campaign(store, list(own), [grid] if grid else [])
    return [figure for figure in all_figures(campaign) if made.item.draws_it(figure.section, figure.name)]


def _draw(figures: Sequence[Figure], folder: Path | None) -> None:
    if folder is None or not figures:
        return
    from bench.render.draw import draw

    for path in draw(list(figures), folder):
        tell(f"figure: {path}")


def _render(grids: Sequence[Grid], form: str) -> str:
    from bench.cli.terminal import screen
    from bench.render.formats import render_grids

    return render_grids(list(grids), form, screen=screen())
