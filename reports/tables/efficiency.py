"""Score against cost, by profile and suite (JTCSE, Table VII)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.grid import DASH, SCALE, Grid, Value
from bench.reports.records import by_method, by_profile_and_suite
from bench.reports.tables.leaderboard import OF_COLUMNS, OVER_SEEDS, Row, leaderboard
from bench.reports.tables.suites import grouped_rows

_HEADER = (
    *("method", "avg", "GMAC", "eta", "M params", "sentences/s"),
    *("training sentences", "training CPU s"),
)


def efficiency_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite."""
    return [_grid(campaign, records) for records in by_profile_and_suite(campaign.records)]


def _grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid:
    table, runs = leaderboard(campaign, records), by_method(records)
    rows: list[tuple[Value, ...]] = []
    groups = []
    for heading, members in grouped_rows(table.rows):
        groups.append((len(rows), heading))
        rows += [(campaign.shown(row.method), *_row(row, runs[row.method])) for row in members]
    lacking = [
        campaign.shown(method) for method, own in runs.items() if not any("gmac" in _cost(run) for run in own)
    ]
    notes = [
        table.notes[0],
        "GMAC of one sentence of 64 tokens (thop); eta: average x 100 per GMAC; training: CPU seconds of "
        "all stages of a run, mean over seeds.",
        *filter(None, [table.caption]),
        *(note for note in table.notes[1:] if not note.startswith((OVER_SEEDS, *OF_COLUMNS))),
    ]
    if lacking:
        notes.append(f"No GMAC for {', '.join(lacking)}: bench run --probes cost measures it.")
    title = f"Efficiency: {table.suite}, profile {table.profile}, campaign {campaign.name}"
    return Grid(title, _HEADER, tuple(rows), tuple(notes), tuple(groups))


def _row(row: Row, records: Sequence[RunRecord]) -> tuple[Value, ...]:
    costs = [_cost(record) for record in records]
    gmac = [float(cost["gmac"]) for cost in costs if "gmac" in cost]
    million = [cost["parameters"] / 1e6 for cost in costs if "parameters" in cost]
    speed = [s for r in records if (s := r.timing.get("probes", {}).get("sentences_per_second")) is not None]
    average = row.cells["avg"]
    eta = f"{SCALE * average.mean / fmean(gmac):.2f}" if gmac and average.mean is not None else DASH
    return (
        average,
        f"{fmean(gmac):.3f}" if gmac else DASH,
        eta,
        f"{fmean(million):.1f}" if million else DASH,
        f"{fmean(speed):.0f}" if speed else DASH,
        row.sentences_text,
        row.seconds_text,
    )


def _cost(record: RunRecord) -> dict[str, float]:
    found: dict[str, float] = record.probes.get("cost", {})
    return found
