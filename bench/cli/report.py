"""``bench report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import PATH, filter_options, format_option, results_options
from bench.errors import BenchError, DataError, InputError
from bench.reports.sections import TABLES

if TYPE_CHECKING:
    from bench.reports.campaign import Campaign


@click.command()
@format_option("text", "markdown", "csv", "json", "latex", "html")
@click.option("--table", metavar="NAME", help=f"Only this table: {', '.join(TABLES)}.")
@filter_options
@click.option("--baseline", metavar="METHOD", help="Mark what differs from this method with daggers.")
@click.option(
    "--senteval-rounding", "rounded", is_flag=True, help="Average rounded scores, as SimCSE prints them."
)
@click.option("--standalone", is_flag=True, help="A LaTeX document, not tables for one.")
@click.option("--figures", type=PATH, help="Draw every figure into DIR, as PDF, PNG and SVG.")
@results_options
def report(form: str, table: str | None, standalone: bool, figures: Path | None, **chosen: Any) -> None:
    """Print the tables of a campaign from its records alone: leaderboards and sweeps, or one by name.

    html is one file for a browser, without a network: everything that the records hold.
    """
    from bench.reports.report import all_figures
    from bench.reports.report import report as make

    if standalone and form != "latex":
        raise InputError("--standalone is for LaTeX", where="bench report", hint="add --format latex")
    source, damaged = _campaign(**chosen)
    try:
        made = make(source, form, table, standalone=standalone)
    except BenchError:
        for error in damaged:  # it may be why
            click.echo(str(error), err=True)
        raise
    click.echo(made, nl=False)
    if figures is not None:
        from bench.reports.figures.draw import draw

        for path in draw(all_figures(source), figures):
            click.echo(f"figure: {path}", err=True)
    _leave_if_damaged(damaged)


def _leave_if_damaged(errors: Sequence[DataError]) -> None:
    """Say which records couldn't be read, the last line an error that exits with 1."""
    if len(errors) == 1:
        raise BenchError(errors[0].what, where=errors[0].where, hint=errors[0].hint)
    for error in errors:
        click.echo(str(error), err=True)
    if errors:
        raise BenchError(f"{len(errors)} records can't be read", hint="the lines above say why")


def _campaign(
    results: Path, campaign: str, profile: str | None, suite: str | None, baseline: str | None, rounded: bool
) -> tuple[Campaign, list[DataError]]:
    """Return the chosen part of a campaign, and why records of it can't be read."""
    from bench.records.store import ResultStore
    from bench.reports.campaign import make_campaign
    from bench.reports.doubts import scanned
    from bench.sweeps.manifest import load_all

    store = ResultStore(results, campaign)
    found = [
        (record, error)
        for record, error in scanned(store)
        if (profile is None or record.profile == profile) and (suite is None or record.suite == suite)
    ]
    records = [record for record, _ in found]
    if not records:
        raise InputError("no record matches", where=f"campaign {campaign}", hint="bench run makes records")
    if baseline is not None and all(record.method != baseline for record in records):
        raise InputError(
            f"no record of '{baseline}'", where="--baseline", expected="a method id of the report"
        )
    sweeps = [m for m in load_all(results / campaign) if profile is None or m.profile == profile]
    source = make_campaign(store, records, sweeps, baseline, rounded=rounded)
    return source, [error for _, error in found if error is not None]
