"""Leaderboards as the page shows them: with their answers and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.records.record import RunRecord
from bench.render.grid import no_width
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records
from bench.reports.tables.answers import Answers, collect_answers
from bench.reports.tables.leaderboard import Leaderboard, LeaderboardRow, make_leaderboard
from bench.reports.tables.pairwise_tests import LEVEL, method_averages
from bench.reports.tables.row_tests import run_pairwise_tests


@dataclass(frozen=True)
class BoardLine:
    """A leaderboard's row on the page.

    Args:
        method: Method id.
        name: Registered name, the family.
        seed_interval: Of the average over seeds, if two of them differ.
        item_interval: Of the average over items, if draws are kept and differ.
    """

    row: LeaderboardRow
    method: str
    name: str
    seed_interval: tuple[float, float] | None
    item_interval: tuple[float, float] | None


@dataclass(frozen=True)
class Board:
    """A leaderboard on the page, with its answers, its lines and the notes below it."""

    table: Leaderboard
    answers: Answers
    lines: tuple[BoardLine, ...]
    notes: tuple[str, ...]


def page_boards(campaign: Campaign) -> list[Board]:
    """Return the leaderboard of every profile and suite."""
    groups = by_profile_and_suite(campaign.records)
    return [_page_board(campaign, records, number) for number, records in enumerate(groups, start=1)]


def _page_board(campaign: Campaign, records: Sequence[RunRecord], number: int) -> Board:
    table = make_leaderboard(replace(campaign, all_rows=True), records)
    runs = by_method(records)
    values = {average.method: average.values for average in method_averages(campaign, records)}
    tests = run_pairwise_tests(campaign, records)
    lines = []
    for row in table.rows:
        method = row.method
        first = next(iter(finished_records(runs[method])), runs[method][0])
        over_items = tests.item_interval(method, LEVEL)
        named = replace(row, method=campaign.shown(method))
        over_seeds = _seed_interval(values.get(method, ()))
        lines.append(BoardLine(named, method, first.name, over_seeds, over_items))
    shown = replace(table, baseline=campaign.shown(table.baseline))
    notes = dict.fromkeys((*table.notes, *tests.unit_notes(records[0].suite, intervals=True)))
    answers = collect_answers(campaign, records, table, tests, number)
    return Board(shown, answers, tuple(lines), (*notes, *answers.footnotes))


def _seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    from bench.stats.seeds import one_sample

    mean = fmean(values)
    test = one_sample(values, mean, LEVEL)
    return None if no_width(test.low, test.high) else (mean + test.low, mean + test.high)
