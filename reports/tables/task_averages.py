"""Three averages of rows that have one score a task, with the ranks that tests over tasks leave open."""

from __future__ import annotations

from collections.abc import Sequence

from bench.records.record import RunRecord
from bench.render.grid import BEST, Grid, ScoreCell, Value
from bench.reports.campaign import Campaign
from bench.reports.record_groups import finished_records
from bench.reports.tables.leaderboard import selection_note
from bench.reports.tables.pairwise_tests import describe_tests
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.task_pairwise import TaskPairwiseTests

_HEADINGS = {
    "tasks": ("mean over tasks", "rank"),
    "types": ("mean over types", "rank by types"),
    "borda": ("Borda, % of points", "rank by Borda"),
}
_NOTES = (
    "mean over types: the mean of each type's mean. Borda: a task gives its best of m rows m - 1 points, its "
    "last none, and equal scores share theirs; here in % of the most points that a row can have. They depend "
    "on the other rows.",
    "rank: first and last place that tests of all pairs leave open, for each average by itself; with 95% "
    "confidence all true ranks are among them. Bold: may be the best.",
)


def average_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of averages of one profile and suite whose tests are over tasks."""
    tests = run_pairwise_tests(campaign, records)
    if not isinstance(tests, TaskPairwiseTests) or not finished_records(records):
        return None
    header, columns = ["method"], []
    for average in tests.average_names:
        header += _HEADINGS[average]
        columns.append(_average_cells(tests, average))
    rows: list[tuple[Value, ...]] = []
    for method in tests.of().methods:
        cells = [cell for column in columns for cell in column[method]]
        rows.append((campaign.shown(method), *cells))
    notes = [*_NOTES, f"They are {describe_tests(tests.of())}.", *tests.unit_notes(records[0].suite)]
    notes += selection_note(campaign, records, "tests, ranks and Borda")
    return Grid(campaign.title("Averages and ranks", records), tuple(header), tuple(rows), tuple(notes))


def _average_cells(tests: TaskPairwiseTests, average: str) -> dict[str, tuple[Value, Value]]:
    """Return each row's average and its ranks."""
    of_average, best = tests.tests_of(average), tests.list_best(average)
    cells: dict[str, tuple[Value, Value]] = {}
    scores, ranks = of_average.scores.tolist(), of_average.rank_intervals.tolist()
    most = len(of_average.methods) - 1 if average == "borda" else 1  # Borda points of a task
    for method, score, ends in zip(of_average.methods, scores, ranks, strict=True):
        if average == "tasks":  # the record's own, whose last bits the leaderboard prints
            score = tests.average_of(method)
        mark = BEST if method in best else ""
        cells[method] = ScoreCell(score / most, None, 1, mark), "-".join(map(str, dict.fromkeys(ends)))
    return cells
