"""Leaderboards as the page shows them: with intervals, and the published figures of every method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bench.records.record import RunRecord
from bench.render.grid import Quoted, no_width
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, finished_records
from bench.reports.tables.leaderboard import Leaderboard, LeaderboardRow, make_leaderboard
from bench.reports.tables.pairwise_tests import LEVEL, method_averages, run_pairwise_tests
from bench.reports.tables.published_figures import (
    Footnotes,
    matches_setup,
    merge_lines,
    published_lines,
    quote_row,
)


@dataclass(frozen=True)
class BoardLine:
    """A leaderboard's row on the page.

    Args:
        row: The row.
        name: Registered name, the family.
        seed_interval: Of the average over seeds; None for fewer than two, or equal ones.
        item_interval: Of the average over items; None without kept draws, or where they agree.
        published: Source, backbone and figures of the tables that print it.
    """

    row: LeaderboardRow
    name: str
    seed_interval: tuple[float, float] | None
    item_interval: tuple[float, float] | None
    published: tuple[tuple[str, str, dict[str, Quoted | str]], ...]


@dataclass(frozen=True)
class Board:
    """A leaderboard on the page.

    Args:
        table: The leaderboard.
        lines: Its rows.
        notes: Lines below it.
    """

    table: Leaderboard
    lines: tuple[BoardLine, ...]
    notes: tuple[str, ...]


def page_boards(campaign: Campaign) -> list[Board]:
    """Return the leaderboard of every profile and suite."""
    return [_page_board(campaign, records) for records in by_profile_and_suite(campaign.records)]


def _page_board(campaign: Campaign, records: Sequence[RunRecord]) -> Board:
    table, runs, footnotes = make_leaderboard(campaign, records), by_method(records), Footnotes()
    intervals = {one.method: _seed_interval(one.values) for one in method_averages(campaign, records)}
    drawn = run_pairwise_tests(campaign, records).drawn
    lines = []
    for row in table.rows:
        first = next(iter(finished_records(runs[row.method])), runs[row.method][0])
        lines.append(
            BoardLine(
                replace(row, method=campaign.shown(row.method)),
                first.name,
                intervals.get(row.method),
                item_interval(drawn[row.method].mean(1)) if row.method in drawn else None,
                tuple(_published_rows(first, table.tasks, footnotes)),
            )
        )
    return Board(table, tuple(lines), (*table.notes, *footnotes.notes))


def _published_rows(
    record: RunRecord, tasks: Sequence[str], footnotes: Footnotes
) -> list[tuple[str, str, dict[str, Quoted | str]]]:
    found = []
    for source, line in merge_lines(published_lines(record)):
        row = quote_row(line, tasks, not matches_setup(record, line), footnotes)
        found.append((source, line.first.backbone, dict(zip(tasks, row, strict=True))))
    return found


def _seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    from bench.stats.seeds import one_sample

    mean = fmean(values)
    d = one_sample(values, mean, LEVEL)
    return None if no_width(d.low, d.high) else (mean + d.low, mean + d.high)


def item_interval(drawn: NDArray[np.float64]) -> tuple[float, float] | None:
    """Interval of a method's average, for these checkpoints, on other items; None where draws agree."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return None if no_width(low, high) else (float(low), float(high))
