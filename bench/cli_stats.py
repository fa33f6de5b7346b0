"""``bench stats``."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli_compare import item_drawer, item_options
from bench.cli_options import results_options
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.campaign_stats import MethodInterval, RecordInterval
    from bench.reports.table import Grid


@click.command()
@click.option("--profile", help="Only this profile.")
@click.option("--suite", help="Only this suite.")
@item_options
@results_options
def stats(
    profile: str | None,
    suite: str | None,
    level: float,
    draws: int,
    data_dir: Path | None,
    form: str,
    results: Path,
    campaign: str,
) -> None:
    """Draw the items of a campaign's records once, and print intervals of every record and method.

    The draws are kept in results/CAMPAIGN/stats, where bench compare finds them.
    """
    from bench.campaign_stats import method_intervals, record_intervals
    from bench.reports.render import text
    from bench.stats.draws import Run
    from bench.store import ResultStore

    store = ResultStore(results, campaign)
    runs = [
        Run(store, record)
        for record in store.records()
        if record.status == "ok" and profile in (None, record.profile) and suite in (None, record.suite)
    ]
    if not runs:
        raise InputError(
            "no finished record matches", where=f"campaign {campaign}", hint="bench run makes them"
        )
    methods = method_intervals(runs, level)
    records = list(record_intervals(runs, level, item_drawer(draws, data_dir), partial(click.echo, err=True)))
    if form == "json":
        rows = {
            "campaign": campaign,
            "level": level,
            "draws": draws,
            "methods": [asdict(one) for one in methods],
            "records": [asdict(one) for one in records],
        }
        click.echo(json.dumps(rows, indent=2, allow_nan=False, ensure_ascii=False))
        return
    notes = tuple(dict.fromkeys(note for run in runs for note in run.record.notes))
    grids = [_methods(methods, campaign, level), _records(records, level, draws, notes)]
    click.echo("\n\n".join(text([grid]).rstrip() for grid in grids))


def _methods(methods: list[MethodInterval], campaign: str, level: float) -> Grid:
    from bench.errors import printable
    from bench.reports.table import Grid
    from bench.verdict import SCALE, percent, seed_list, span

    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            seed_list(one.seeds),
            f"{SCALE * one.mean:.2f}",
            "-" if one.sd is None else f"{SCALE * one.sd:.2f}",
            "-" if one.interval is None else span(*one.interval),
            f"{SCALE * one.iqm:.2f}",
        )
        for one in methods
    )
    header = ("method", "profile", "suite", "seeds", "avg", "sd", f"seeds {percent(level)}", "IQM")
    note = "Student's interval of the mean, for further seeds; IQM over seeds and tasks is descriptive."
    return Grid(f"Methods of campaign {campaign}", header, rows, (note,))


def _records(records: list[RecordInterval], level: float, draws: int, notes: tuple[str, ...]) -> Grid:
    from bench.errors import printable
    from bench.reports.table import Grid
    from bench.verdict import SCALE, percent, span

    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            "-" if one.seed is None else str(one.seed),
            f"{SCALE * one.scores['avg']:.2f}",
            "-" if one.intervals is None else span(*one.intervals["avg"]),
        )
        for one in records
    )
    header = ("method", "profile", "suite", "seed", "avg", f"items {percent(level)}")
    note = f"Percentile interval of {draws:,} draws of the items, for that checkpoint; json has every task's."
    return Grid("Records", header, rows, (note, *notes))
