"""``bench stats``."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from bench.cli.compare import filter_options, item_drawer, item_options
from bench.cli.options import results_options
from bench.errors import InputError
from bench.reports.tables.intervals import method_grid, record_grid


@click.command()
@filter_options
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
    from bench.compare.draws import Run
    from bench.compare.intervals import method_intervals, record_intervals
    from bench.records.store import ResultStore
    from bench.reports.formats.render import text

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
    grids = [method_grid(methods, campaign, level), record_grid(records, level, draws, notes)]
    click.echo("\n\n".join(text([grid]).rstrip() for grid in grids))
