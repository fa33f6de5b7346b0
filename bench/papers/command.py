"""``bench reproduce``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.commands import bench_command
from bench.cli.options import PATH, check_device, make_spec, print_stderr, run_options
from bench.cli.run import (
    estimate_option,
    execute_plan,
    exit_if_failed,
    print_estimate,
    print_plan,
    read_plan_records,
)
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError

if TYPE_CHECKING:
    from bench.config.run_spec import RunSpec
    from bench.papers.item_plan import ItemPlan
    from bench.papers.paper_items import Item
    from bench.plan.plan import Plan
    from bench.records.record import RunRecord
    from bench.render.figure import Figure
    from bench.render.grid import Grid

CAMPAIGN = "reproduce"
MOST = 2560
"""Held-out sentences on which a watched training is measured."""
_FORMATS = click.Choice(["text", "markdown", "csv", "json", "latex"])


@bench_command()
@click.argument("name", metavar="[PAPER[:ITEM],...]", required=False)
@strict_option("--seeds", panel=Panel.MAIN, help="Such as 1-5; default: those that the paper states, else 1.")
@run_options
@strict_option(
    "--check",
    is_flag=True,
    panel=Panel.PLANNING,
    help="Compare all items with the papers' figures; run nothing.",
)
@strict_option("--dry-run", is_flag=True, panel=Panel.PLANNING, help="Show what would run; run nothing.")
@estimate_option
@strict_option(
    "--show",
    is_flag=True,
    panel=Panel.OUTPUT,
    help="Print the tables from the records that are there; run nothing.",
)
@strict_option(
    "--figures", type=PATH, panel=Panel.OUTPUT, help="Draw the item's figures into DIR, as PDF, PNG and SVG."
)
@strict_option("--format", "form", type=_FORMATS, default="text", panel=Panel.OUTPUT, help="Of the tables.")
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
    """Run a table or figure of a paper.

    It is printed in the paper's layout, next to the printed figures. Without a name: all items, what is done
    of each, and what the rest costs.
    """
    from bench.papers.paper_items import load_items, select_items

    if check:
        _check_items(name, options)
        return
    if options["suites"] is not None:
        raise InputError("each item has its own suites", where="--suite", hint="bench run measures on others")
    spec = make_spec({**options, "methods": "untrained", "seeds": options["seeds"] or "1"})
    _check_campaign(spec, show=show, runs=name is not None)
    items = select_items(name) if name else tuple(load_items().values())
    works = {item: _plan_works(item, spec, options["profile"], options["seeds"]) for item in items}
    if name is None:
        from bench.papers.item_plan import format_listing, list_items

        listing = list_items({item: list(plans) for item, plans in works.items()})
        text = format_listing(listing) if form == "text" else _render_for_terminal([listing], form)
        click.echo(text, nl=False)
        return

    failed, errors = 0, list[BenchError]()
    grids: list[Grid] = []
    reproduce = partial(_reproduce_work, show=show, folder=figures, grids=grids)
    process = partial(_preview_work, estimate=estimate) if dry_run or estimate else reproduce
    for item, plans in works.items():
        try:
            for work in plans:
                failed += process(work)
        except BenchError as error:  # a missing checkpoint stops no other item, and loses no table
            errors.append(error)
            if len(items) > 1:  # a single item's error is the command's
                print_stderr(f"{item.id}: not run, {error}")
        grids += _describe_item(item)
    if grids:
        click.echo(_render_for_terminal(grids, form), nl=False)
    if len(items) == len(errors) == 1:
        raise errors[0]
    exit_if_failed(failed + len(errors))


for _option in reproduce_command.params:  # options of bench run with other defaults
    if isinstance(_option, click.Option) and _option.name == "profile":
        _option.help = "See `bench list profiles`; default: those of the paper's backbones."
    elif _option.name == "campaign":
        _option.default = CAMPAIGN


def _reproduce_work(work: ItemPlan, show: bool, folder: Path | None, grids: list[Grid]) -> int:
    """Run an item's missing cells, add its table, draw its figures; return the number of failures."""
    from bench.papers.item_layout import item_tables
    from bench.render.figure_files import draw_figures

    failed, figures = 0, list["Figure"]()
    if work.item.gradient:
        figures = _measure_gradient(work, show)
        grids += item_tables(work.item, figures)
    else:
        records, failed = _run_work(work, show)
        grids += _build_grids(work, records)
        if folder is not None:
            figures = _make_figures(work, records)
    if folder is not None and figures:
        for path in draw_figures(figures, folder):
            print_stderr(f"figure: {path}")
    return failed


def _check_campaign(spec: RunSpec, *, show: bool, runs: bool) -> None:
    """Raise InputError for a missing campaign to show (except the default), or a bad name of a new one."""
    from bench.records.filesystem import check_new_campaign
    from bench.records.store import ResultStore

    if not show:
        if runs:
            check_new_campaign(spec.results, spec.campaign)
        return
    source = click.get_current_context().get_parameter_source("campaign")
    store = ResultStore(spec.results, spec.campaign)
    if source is not click.core.ParameterSource.DEFAULT and not store.root.is_dir():
        store.records()  # raises the error


def _plan_works(item: Item, spec: RunSpec, profile: str | None, seeds: str | None) -> Iterator[ItemPlan]:
    """Plan an item in every profile in which it runs."""
    from bench.config.method_ids import parse_seeds
    from bench.papers.item_plan import plan_item

    if item.settings or item.nothing:
        return
    seeded = replace(spec, seeds=parse_seeds(seeds or item.seeds or "1"))
    for backbone in (profile,) if profile is not None else item.backbones:
        yield plan_item(item, seeded, backbone)


def _check_items(name: str | None, options: dict[str, Any]) -> None:
    from bench.data.published_tables import load_figures
    from bench.papers.item_checks import check_papers
    from bench.papers.paper_items import load_items

    if name is not None or options["profile"] is not None:
        raise InputError("it checks all items", where="--check", expected="no other argument")
    lines = check_papers()
    for line in lines:
        click.echo(line)
    if lines:
        raise BenchError(f"{len(lines)} finding(s)", where="bench reproduce --check", hint="the lines above")
    click.echo(f"{len(load_items())} items hold {len(load_figures()):,} printed figures: nothing found")


def _preview_work(work: ItemPlan, estimate: bool) -> int:
    """Print the runs of an item; return the number of conflicts."""
    from bench.plan.plan import check_folder_names, make_plan

    click.echo(f"{work.item.id}: {work.item.title}; profile {work.spec.profile}")
    for method, why in work.impossible.items():
        click.echo(f"{method}: not run, {why}")
    for plan in _plan_trainings(work):
        click.echo(f"bench gradient: {plan.jobs[0].cell.describe()}")
    if not work.spec.methods:
        return 0
    plan = make_plan(work.spec)
    check_folder_names(plan)
    conflicts = print_plan(plan)
    if estimate:
        print_estimate(plan)
    return conflicts


def _run_work(work: ItemPlan, show: bool) -> tuple[list[tuple[str, RunRecord]], int]:
    """Run missing cells, or only read; return records with their methods' texts, and failures."""
    from bench.eval.recomputation import require_sound_scores
    from bench.papers.item_plan import item_method_ids
    from bench.plan.plan import check_folder_names, make_plan

    if not work.spec.methods:
        return [], 0
    found: list[tuple[str, RunRecord]] = []
    if show:
        records = work.store.records() if work.store.root.is_dir() else []
        for text, (method, seeds) in item_method_ids(work).items():
            for record in records:
                if (record.profile, record.method) == (work.label, method) and record.seed in seeds:
                    found.append((text, record))
        shown = require_sound_scores(work.store, [record for _, record in found], work.spec.data)
        return [(text, record) for (text, _), record in zip(found, shown, strict=True)], 0
    plan = make_plan(work.spec)
    check_folder_names(plan)
    if plan.spec.executor == "local":
        check_device(plan.spec.device, plan.spec.ranks)
    print_stderr(f"{work.item.id}: {work.item.title}; profile {work.spec.profile}")
    failed = execute_plan(plan)
    for record in read_plan_records(plan):
        found += [(text, record) for text, method in plan.ids.items() if method == record.method]
    return found, failed


def _build_grids(work: ItemPlan, records: Sequence[tuple[str, RunRecord]]) -> list[Grid]:
    from bench.papers.item_cells import single_tasks
    from bench.papers.item_layout import ItemRecords, item_grid, matches_paper, surface_grids
    from bench.reports.record_groups import by_profile_and_suite, check_comparable

    if work.item.formula:
        return surface_grids(work.item)
    if not work.places:
        return []
    by_text: dict[str, list[RunRecord]] = {}
    distinct, notes = {}, dict[str, None]()
    for text, record in records:
        by_text.setdefault(text, []).append(record)
        distinct[id(record)] = record
        notes |= dict.fromkeys(record.notes)
    for group in by_profile_and_suite(distinct.values()):
        check_comparable(group, work.spec.campaign)
    of_paper = work.label in work.item.backbones and not work.spec.overrides
    item_records = ItemRecords(
        work.label,
        by_text,
        work.spec.seeds,
        work.stand_ins,
        work.impossible,
        of_paper and matches_paper(work.item, distinct.values()),
        tuple(notes),
        single_tasks(work.places, work.item.id),
        work.spec.campaign,
    )
    return [item_grid(work.item, work.places, item_records)]


def _describe_item(item: Item) -> list[Grid]:
    from bench.papers.item_layout import hyperparameter_grid

    if item.nothing:
        print_stderr(f"{item.id}: {item.title}: nothing to compute. {item.nothing}")
    return [hyperparameter_grid(item)] if item.settings else []


def _measure_gradient(work: ItemPlan, show: bool) -> list[Figure]:
    """Measure an item's missing files of ``bench gradient``; return its figures."""
    from bench.gradient.run import (
        MEASURED,
        check_same_stage,
        check_watched_plan,
        measure_training,
        sampled_files,
        write_sampled,
    )
    from bench.papers.item_layout import item_figures
    from bench.papers.item_plan import gradient_folder, watched_folder

    folder = gradient_folder(work)
    files = sampled_files(folder) if "" in work.item.gradient else []
    if not show and not all(map(Path.exists, files)):
        work.store.prepare()
        folder.mkdir(parents=True, exist_ok=True)
        write_sampled(folder, work.spec.seeds[0])
    for plan in _plan_trainings(work):
        cell = plan.jobs[0].cell
        path = watched_folder(work, cell.method, cell.seed) / MEASURED
        if path.exists():
            check_same_stage(plan, path)
        elif not show:
            check_watched_plan(plan)
            check_device(plan.spec.device)
            plan.store.prepare()
            print_stderr(f"{work.item.id}: {cell.describe()}")
            measure_training(plan, path.parent, MOST, progress_bar)
        files.append(path)
    return item_figures(work.item, folder, list(filter(Path.exists, files)))


def _plan_trainings(work: ItemPlan) -> Iterator[Plan]:
    """Yield the plan of each training that an item watches."""
    from bench.config.method_ids import parse_methods
    from bench.plan.plan import make_plan

    for method, seed in product(filter(None, work.item.gradient), work.spec.seeds):
        yield make_plan(replace(work.spec, methods=parse_methods(method), seeds=(seed,)))


def _make_figures(work: ItemPlan, records: Iterable[tuple[str, RunRecord]]) -> list[Figure]:
    """Return the report's figures that draw an item, of its own records."""
    from bench.papers.item_plan import item_manifest
    from bench.reports.campaign import make_campaign
    from bench.reports.report import all_figures

    distinct, ids = {}, {}
    for text, record in records:
        distinct[id(record)] = record
        ids[text] = record.method
    manifest = item_manifest(work, ids)
    campaign = make_campaign(work.store, list(distinct.values()), [manifest] if manifest else [])
    return [figure for figure in all_figures(campaign) if work.item.draws_it(figure.section, figure.name)]


def _render_for_terminal(grids: Sequence[Grid], form: str) -> str:
    from bench.cli.terminal import get_screen
    from bench.render.formats import render_grids

    return render_grids(list(grids), form, screen=get_screen())
