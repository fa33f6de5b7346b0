"""``bench stats``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import click

from bench.cli.commands import bench_command
from bench.cli.compare import make_item_drawer
from bench.cli.options import (
    details_option,
    filter_options,
    item_options,
    print_json,
    print_stderr,
    results_options,
)
from bench.cli.strict_options import strict_option
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from bench.comparison.item_bootstrap import CampaignRun
    from bench.records.record import RunRecord
    from bench.render.grid import Grid

_UNKEPT = ": items left out, no predictions are kept"
MOST_NAMED = 6
"""Pairs of methods named in the text; for more, only their number."""


@bench_command()
@filter_options
@item_options
@strict_option("--tasks", is_flag=True, help="Also print the interval of every task.")
@details_option
@results_options
def stats_command(
    profile: str | None,
    suite: str | None,
    level: float,
    draws: int,
    campaign: str,
    tasks: bool,
    details: bool,
    **options: Any,
) -> None:
    """Print bootstrap intervals over items for all records.

    The draws are saved in results/CAMPAIGN/stats and reused by bench compare.
    """
    from bench.cli.terminal import progress_bar
    from bench.comparison.campaign_intervals import compute_method_intervals, compute_record_intervals
    from bench.comparison.item_bootstrap import CampaignRun
    from bench.eval.recomputation import require_sound_scores
    from bench.records.store import ResultStore
    from bench.reports.tables import comparison_tables

    store = ResultStore(options["results"], campaign)
    chosen: list[RunRecord] = []
    failed: list[RunRecord] = []
    for record in store.records():
        if profile in (None, record.profile) and suite in (None, record.suite):
            (chosen if record.status == "ok" else failed).append(record)
    with progress_bar("scores", len(chosen)) as advance:
        chosen = require_sound_scores(store, chosen, options["data_dir"], advance)
    runs = [CampaignRun(store, record) for record in chosen]
    if not runs:
        where = f"campaign {campaign}"
        raise InputError("no finished record matches", where=where, hint="bench run makes them")
    methods, pairs = compute_method_intervals(runs, level), _find_pairs(runs)
    drawer = make_item_drawer(draws, options["data_dir"])
    notes = tuple(dict.fromkeys(note for run in runs for note in run.record.notes))
    left_out: list[str] = []
    records = list(compute_record_intervals(runs, level, drawer, left_out.append))
    for line in _merge_left_out(left_out):
        print_stderr(line)
    if options["form"] == "json":
        tables = {"methods": list(map(asdict, methods)), "records": list(map(asdict, records))}
        names = ("profile", "suite", "first", "second", "shared")
        paired = [dict(zip(names, pair, strict=True)) for pair in pairs]
        settings = {"campaign": campaign, "level": level, "draws": draws}
        print_json({**settings, **tables, "pairs": paired, "notes": notes})
        return
    table = comparison_tables.method_interval_grid(methods, campaign, level)
    if len({interval.method for interval in methods}) > 1:
        table = replace(table, notes=(*table.notes, _explain_intervals(pairs)))
    grids = [table, comparison_tables.record_interval_grid(records, level, draws, notes)]
    if tasks:
        grids.insert(1, comparison_tables.task_interval_grid(records, level))
    answers = comparison_tables.describe_record_intervals(methods, records)
    failures = comparison_tables.failure_notes(failed)
    click.echo(_format_tables(answers, grids, failures, notes, details=details), nl=False)


def _merge_left_out(lines: Sequence[str]) -> list[str]:
    """Return the lines on records without items, with one line for all that have no predictions."""
    unkept = [line for line in lines if line.endswith(_UNKEPT)]
    if len(unkept) < 2:
        return list(lines)
    others = [line for line in lines if line not in unkept]
    return [f"{len(unkept)} records, the first {unkept[0]}", *others]


def _format_tables(
    answers: Sequence[str],
    grids: Sequence[Grid],
    failures: Sequence[str],
    caveats: Sequence[str],
    *,
    details: bool,
) -> str:
    """Return the answers and tables with at most three notes, or with all of them."""
    from bench.cli.terminal import get_screen
    from bench.render.formats import fit_columns, render_text
    from bench.render.short_text import format_answers, format_short_text, merge_synthetic_notes
    from bench.reports.tables.comparison_tables import IQM

    screen = get_screen()
    if details:
        whole = [replace(grid, notes=tuple(merge_synthetic_notes(grid.notes))) for grid in grids]
        whole[-1] = replace(whole[-1], notes=(*whole[-1].notes, *failures))
        return f"{format_answers(answers, screen)}\n{render_text(whole, screen)}"
    shown = []
    for grid in grids:
        names = [(name,) for name in grid.header if name != IQM]
        shown.append(replace(fit_columns(grid, screen, names), notes=()))
    columns = sum(len(grid.header) - len(fit.header) for grid, fit in zip(grids, shown, strict=True))
    listed = [*failures, *(note for grid in grids for note in grid.notes)]
    tables = render_text(shown, screen)
    return format_short_text(answers, tables, listed, screen, caveats=caveats, columns=columns)


def _find_pairs(runs: Sequence[CampaignRun]) -> list[tuple[str, str, str, str, str]]:
    """Return (profile, suite, method, method, what they share) where the runs of a seed are pairs."""
    from bench.comparison.confounders import describe_pairing
    from bench.comparison.selection import Group, group_by, sort_runs_by_seed

    pairs = []
    places = group_by(runs, lambda run: (run.record.profile, run.record.suite))
    for (profile, suite), place_runs in places.items():
        methods = group_by(sort_runs_by_seed(place_runs), lambda run: run.record.method)
        groups = [Group(name, tuple(method_runs)) for name, method_runs in sorted(methods.items())]
        for a, b in combinations(groups, 2):
            if shared := describe_pairing(a, b):
                pairs.append((profile, suite, a.label, b.label, shared))
    return pairs


def _explain_intervals(pairs: Sequence[tuple[str, str, str, str, str]]) -> str:
    """Return the note on comparing two intervals, with the pairs that share seeds."""
    note = (
        "Two of these intervals don't show whether two methods differ: use bench compare A B, or bench "
        "report --table significance for all."
    )
    if not pairs:
        return note
    named = {f"{printable(a)} and {printable(b)}, which {shared}": None for _, _, a, b, shared in pairs}
    whose = "; ".join(named) if len(named) <= MOST_NAMED else f"{len(named)} pairs of methods"
    return (
        f"{note} Runs of one seed are pairs for {whose}: what the seed decides cancels in their difference."
    )
