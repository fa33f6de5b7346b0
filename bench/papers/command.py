"""``bench reproduce``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import PATH, check_device, make_spec, print_stderr, run_options
from bench.cli.run import (
    estimate_option,
    execute_plan,
    exit_if_failed,
    print_estimate,
    print_plan,
    read_plan_records,
)
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError

if TYPE_CHECKING:
    from bench.config.spec import RunSpec
    from bench.papers.item_plan import ItemPlan
    from bench.papers.paper_items import Item
    from bench.plan.plan import Plan
    from bench.records.record import RunRecord
    from bench.render.figure import Figure
    from bench.render.grid import Grid

CAMPAIGN = "reproduce"
MOST = 2560
"""Held-out sentences on which a watched training is measured."""


@click.command()
@click.argument("name", metavar="[PAPER[:ITEM],...]", required=False)
@strict_option("--seeds", help="Such as 1-5; default: those that the paper states, else 1.")
@run_options
@strict_option("--check", is_flag=True, help="Compare all items with the papers' figures; run nothing.")
@strict_option("--dry-run", is_flag=True, help="Show what would run; run nothing.")
@estimate_option
@strict_option("--show", is_flag=True, help="Print the tables from the records that are there; run nothing.")
@strict_option("--figures", type=PATH, help="Draw the item's figures into DIR, as PDF, PNG and SVG.")
@strict_option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv", "json", "latex"]),
    default="text",
    help="Of the tables.",
)
def reproduce_command(
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
    from bench.papers.paper_items import load_items, select_items

    if check:
        _check_items(name, options)
        return
    spec = _make_reproduce_spec(options)
    _check_campaign(spec, show=show, runs=name is not None)
    wanted = select_items(name) if name else tuple(load_items().values())
    if name is None:
        from bench.papers.item_listing import format_listing, list_items

        each = {
            item.id: list(_list_works(item, spec, options["profile"], options["seeds"])) for item in wanted
        }
        listed = list_items(wanted, each)
        click.echo(
            format_listing(listed) if form == "text" else _render_for_terminal([listed], form), nl=False
        )
        return
    failed, stopped = 0, list[BenchError]()
    grids: list[Grid] = []
    for item in wanted:
        works = _list_works(item, spec, options["profile"], options["seeds"])
        try:
            for made in works:
                if dry_run or estimate:
                    failed += _preview_work(made, estimate)
                else:
                    failed += _reproduce_work(made, show, figures, grids)
        except BenchError as error:  # a checkpoint that isn't here stops no other item, and loses no table
            stopped.append(error)
            _tell_stopped(item, error, alone=len(wanted) == 1)
        grids += _describe_item(item)
    if grids:
        click.echo(_render_for_terminal(grids, form), nl=False)
    if len(wanted) == len(stopped) == 1:
        raise stopped[0]
    exit_if_failed(failed + len(stopped))


for _option in reproduce_command.params:  # what it shares with bench run, in its own words
    if isinstance(_option, click.Option) and _option.name == "profile":
        _option.help = "See `bench list profiles`; default: those of the paper's backbones."
    elif _option.name == "campaign":
        _option.default = CAMPAIGN


def _tell_stopped(item: Item, error: BenchError, *, alone: bool) -> None:
    """Say why an item isn't whole; of one alone the command's last line says it."""
    if not alone:
        print_stderr(f"{item.id}: not run, {error}")


def _reproduce_work(made: ItemPlan, show: bool, figures: Path | None, grids: list[Grid]) -> int:
    """Run what is missing of an item, add its table, draw its figures; return what failed."""
    from bench.papers.gradient_items import item_tables

    if made.item.gradient:
        drawn = _measure_gradient(made, show)
        grids += item_tables(made.item, drawn)
        _draw_figures(drawn, figures)
        return 0
    records, failed = _run_work(made, show)
    grids += _build_grids(made, records)
    _draw_figures(_make_figures(made, records) if figures is not None else [], figures)
    return failed


def _make_reproduce_spec(options: dict[str, Any]) -> RunSpec:
    """How and where to run; raises InputError for what an item says itself."""
    if options["suites"] is not None:
        raise InputError("an item says its suites", where="--suite", hint="bench run measures on others")
    return make_spec({**options, "methods": "untrained", "seeds": options["seeds"] or "1"})


def _check_campaign(spec: RunSpec, *, show: bool, runs: bool) -> None:
    """Raise InputError for a campaign to show that isn't there, and a new one with a name that can't be.

    The default campaign may hold nothing yet.
    """
    from bench.records.filesystem import check_new_campaign
    from bench.records.store import ResultStore

    if not show:
        if runs:
            check_new_campaign(spec.results, spec.campaign)
        return
    source = click.get_current_context().get_parameter_source("campaign")
    store = ResultStore(spec.results, spec.campaign)
    if source is not click.core.ParameterSource.DEFAULT and not store.root.is_dir():
        store.records()  # which says what there is


def _list_works(item: Item, spec: RunSpec, profile: str | None, seeds: str | None) -> Iterator[ItemPlan]:
    """An item in every profile in which it is run."""
    from bench.config.method_ids import parse_seeds
    from bench.papers.item_plan import plan_item

    if item.settings or item.nothing:
        return
    own = replace(spec, seeds=parse_seeds(seeds or item.seeds or "1"))
    for known in (profile,) if profile is not None else item.backbones:
        yield plan_item(item, own, known)


def _check_items(name: str | None, options: dict[str, Any]) -> None:
    from bench.data.published_tables import load_figures
    from bench.papers.item_checks import check_papers
    from bench.papers.paper_items import load_items

    if name is not None or options["profile"] is not None:
        raise InputError("it is for all items", where="--check", expected="no other argument")
    found = check_papers()
    for line in found:
        click.echo(line)
    if found:
        raise BenchError(f"{len(found)} finding(s)", where="bench reproduce --check", hint="the lines above")
    click.echo(f"{len(load_items())} items hold {len(load_figures()):,} printed figures: nothing found")


def _preview_work(made: ItemPlan, estimate: bool) -> int:
    """Say what would run; return the number of conflicts."""
    from bench.plan.plan import check_folder_names, make_plan

    click.echo(f"{made.item.id}: {made.item.title}; profile {made.spec.profile}")
    for method, why in made.impossible.items():
        click.echo(f"{method}: not run, {why}")
    for plan in _plan_trainings(made):
        click.echo(f"bench gradient: {plan.jobs[0].cell.describe()}")
    if not made.spec.methods:
        return 0
    plan = make_plan(made.spec)
    check_folder_names(plan)
    conflicts = print_plan(plan)
    if estimate:
        print_estimate(plan)
    return conflicts


def _run_work(made: ItemPlan, show: bool) -> tuple[list[tuple[str, RunRecord]], int]:
    """Run what is missing, or only read; return the records with their methods' texts, and what failed."""
    from bench.papers.item_plan import item_method_ids
    from bench.plan.plan import check_folder_names, make_plan
    from bench.records.store import ResultStore

    if not made.spec.methods:
        return [], 0
    if show:
        store, known = ResultStore(made.spec.results, made.spec.campaign), item_method_ids(made)
        records = store.records() if store.root.is_dir() else []
        own = [record for record in records if record.profile == made.label]
        return [
            (text, record)
            for text, (method, seeds) in known.items()
            for record in own
            if record.method == method and record.seed in seeds
        ], 0
    plan = make_plan(made.spec)
    check_folder_names(plan)
    if plan.spec.executor == "local":
        check_device(plan.spec.device, plan.spec.ranks)
    print_stderr(f"{made.item.id}: {made.item.title}; profile {made.spec.profile}")
    failed = execute_plan(plan)
    texts: dict[str, list[str]] = {}
    for text, method in plan.ids.items():
        texts.setdefault(method, []).append(text)
    return [(text, record) for record in read_plan_records(plan) for text in texts[record.method]], failed


def _build_grids(made: ItemPlan, records: Sequence[tuple[str, RunRecord]]) -> list[Grid]:
    from bench.papers.item_cells import single_tasks
    from bench.papers.item_layout import ItemRecords, item_grid, matches_paper, surface_grids
    from bench.reports.records import by_profile_and_suite, check_comparable

    if made.item.formula:
        return surface_grids(made.item)
    by_text: dict[str, list[RunRecord]] = {}
    for text, record in records:
        by_text.setdefault(text, []).append(record)
    for group in by_profile_and_suite({id(r): r for _, r in records}.values()):
        check_comparable(group, made.spec.campaign)
    own = made.label in made.item.backbones and not made.spec.overrides
    found = ItemRecords(
        made.label,
        by_text,
        made.spec.seeds,
        made.stand_ins,
        made.impossible,
        own and matches_paper(made.item, (record for _, record in records)),
        tuple(dict.fromkeys(note for _, record in records for note in record.notes)),
        single_tasks(made.places, made.item.id),
        made.spec.campaign,
    )
    return [item_grid(made.item, made.places, found)] if made.places else []


def _describe_item(item: Item) -> list[Grid]:
    from bench.papers.item_layout import hyperparameter_grid

    if item.nothing:
        print_stderr(f"{item.id}: {item.title}: nothing to compute. {item.nothing}")
    return [hyperparameter_grid(item)] if item.settings else []


def _measure_gradient(made: ItemPlan, show: bool) -> list[Figure]:
    """Measure what ``bench gradient`` does for an item and isn't there yet; return its figures."""
    from bench.gradient.run import (
        MEASURED,
        check_same_stage,
        check_watched_plan,
        measure_training,
        sampled_files,
        write_sampled,
    )
    from bench.papers.gradient_items import item_figures
    from bench.papers.item_plan import gradient_folder, watched_folder
    from bench.records.store import ResultStore

    store = ResultStore(made.spec.results, made.spec.campaign)
    folder = gradient_folder(made)
    files = sampled_files(folder) if "" in made.item.gradient else []
    if not show and not all(path.exists() for path in files):
        store.prepare()
        folder.mkdir(parents=True, exist_ok=True)
        write_sampled(folder, made.spec.seeds[0])
    for plan in _plan_trainings(made):
        cell = plan.jobs[0].cell
        path = watched_folder(made, cell.method, cell.seed) / MEASURED
        if path.exists():
            check_same_stage(plan, path)
        elif not show:
            check_watched_plan(plan)
            check_device(plan.spec.device)
            plan.store.prepare()
            print_stderr(f"{made.item.id}: {cell.describe()}")
            measure_training(plan, path.parent, MOST, progress_bar)
        files.append(path)
    return item_figures(made.item, folder, [path for path in files if path.exists()])


def _plan_trainings(made: ItemPlan) -> Iterator[Plan]:
    """The plan of each training that an item watches."""
    from bench.config.method_ids import parse_methods
    from bench.plan.plan import make_plan

    for method, seed in product(filter(None, made.item.gradient), made.spec.seeds):
        yield make_plan(replace(made.spec, methods=parse_methods(method), seeds=(seed,)))


def _make_figures(made: ItemPlan, records: Iterable[tuple[str, RunRecord]]) -> list[Figure]:
    """The report's figures that draw an item, of its own records."""
    from bench.papers.item_plan import item_manifest
    from bench.records.store import ResultStore
    from bench.reports.campaign import make_campaign
    from bench.reports.report import all_figures

    own = {id(record): record for _, record in records}.values()
    grid = item_manifest(made, {text: record.method for text, record in records})
    store = ResultStore(made.spec.results, made.spec.campaign)
    campaign = make_campaign(store, list(own), [grid] if grid else [])
    return [figure for figure in all_figures(campaign) if made.item.draws_it(figure.section, figure.name)]


def _draw_figures(figures: Sequence[Figure], folder: Path | None) -> None:
    if folder is None or not figures:
        return
    from bench.render.figure_files import draw_figures

    for path in draw_figures(list(figures), folder):
        print_stderr(f"figure: {path}")


def _render_for_terminal(grids: Sequence[Grid], form: str) -> str:
    from bench.cli.terminal import get_screen
    from bench.render.formats import render_grids

    return render_grids(list(grids), form, screen=get_screen())
