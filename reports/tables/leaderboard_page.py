"""Leaderboards as the page shows them: with intervals, and the published figures of every method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.records.record import RunRecord
from bench.render.grid import Quoted, no_width
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records
from bench.reports.tables.answers import Answers, collect_answers
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
        method: Method id.
        name: Registered name, the family.
        seed_interval: Of the average over seeds, if two of them differ.
        item_interval: Of the average over items, if draws are kept and differ.
        published: Source, backbone and figures of the tables that print it.
    """

    row: LeaderboardRow
    method: str
    name: str
    seed_interval: tuple[float, float] | None
    item_interval: tuple[float, float] | None
    published: tuple[tuple[str, str, dict[str, Quoted | str]], ...]


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
    runs, footnotes = by_method(records), Footnotes()
    values = {average.method: average.values for average in method_averages(campaign, records)}
    tests = run_pairwise_tests(campaign, records)
    lines = []
    for row in table.rows:
        method = row.method
        first = next(iter(finished_records(runs[method])), runs[method][0])
        over_items = tests.item_interval(method, LEVEL)
        published = tuple(_published_rows(first, table.tasks, footnotes))
        named = replace(row, method=campaign.shown(method))
        over_seeds = _seed_interval(values.get(method, ()))
        lines.append(BoardLine(named, method, first.name, over_seeds, over_items, published))
    shown = replace(table, baseline=campaign.shown(table.baseline))
    notes = dict.fromkeys((*table.notes, *tests.unit_notes(records[0].suite, intervals=True)))
    answers = collect_answers(campaign, records, table, tests, number)
    return Board(shown, answers, tuple(lines), (*notes, *footnotes.notes))


def _published_rows(
    record: RunRecord, tasks: Sequence[str], footnotes: Footnotes
) -> Iterator[tuple[str, str, dict[str, Quoted | str]]]:
    for source, line in merge_lines(published_lines(record)):
        row = quote_row(line, tasks, not matches_setup(record, line), footnotes)
        yield source, line.first.backbone, dict(zip(tasks, row, strict=True))


def _seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    from bench.stats.seeds import one_sample

    mean = fmean(values)
    test = one_sample(values, mean, LEVEL)
    return None if no_width(test.low, test.high) else (mean + test.low, mean + test.high)
