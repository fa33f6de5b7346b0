"""``bench stats``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import click

from bench.cli.compare import item_drawer
from bench.cli.options import filter_options, item_options, print_json, results_options
from bench.errors import InputError


@click.command()
@filter_options
@item_options
@results_options
def stats(
    profile: str | None, suite: str | None, level: float, draws: int, campaign: str, **options: Any
) -> None:
    """Draw the items of a campaign's records once, and print intervals of every record and method.

    The draws are kept in results/CAMPAIGN/stats, where bench compare finds them.
    """
    from bench.compare.draws import Run
    from bench.compare.intervals import method_intervals, record_intervals
    from bench.records.store import ResultStore
    from bench.reports.formats.render import text
    from bench.reports.tables.intervals import method_grid, record_grid

    store = ResultStore(options["results"], campaign)
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
    drawer = item_drawer(draws, options["data_dir"])
    records = list(record_intervals(runs, level, drawer, partial(click.echo, err=True)))
    if options["form"] == "json":
        tables = {"methods": list(map(asdict, methods)), "records": list(map(asdict, records))}
        print_json({"campaign": campaign, "level": level, "draws": draws, **tables})
        return
    notes = tuple(dict.fromkeys(note for run in runs for note in run.record.notes))
    grids = [method_grid(methods, campaign, level), record_grid(records, level, draws, notes)]
    click.echo("\n\n".join(text([grid]).rstrip() for grid in grids))
