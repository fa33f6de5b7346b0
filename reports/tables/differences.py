"""Differences of methods: every two of them, neighbours of the leaderboard, and gains of modified losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.data.published_tables import PublishedRow, published_rows
from bench.records.record import RunRecord
from bench.render.grid import (
    DASH,
    Grid,
    Printed,
    Quoted,
    Value,
    format_difference,
    format_number,
    format_score,
    interval_end,
    no_width,
)
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, summarise_scores, task_list
from bench.reports.tables.pairwise_tests import (
    INTERVAL,
    MethodAverages,
    PairwiseTests,
    describe_tests,
    format_level,
    format_pair_interval,
    method_averages,
)
from bench.reports.tables.published_figures import GREY
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.suite_tables import task_headings
from bench.reports.tables.task_pairwise import TaskPairwiseTests

_COMMON = "Where two methods have pairs of runs and other seeds besides, the difference is that of the pairs."
EXACT = "exact p (lowest possible)"
_ENDS = ("low", "high", "level")
_HEADER = (
    *("A", "B", "A - B", "test", "interval", *_ENDS),
    *("p", "p corrected", EXACT, "lowest exact p", "verdict"),
)
PAIR_HEADER = ("A", "B", "A - B", "interval", "p corrected", "test", "verdict")
"""Columns of ``Differences.pairs``."""


@dataclass(frozen=True)
class Differences:
    """All pairs of the methods of one profile and suite as the page shows them.

    Args:
        names: Printed names of methods, in the rows' order.
        signs: A sign for every two, the row's method against the column's: "+" better, "-" worse, "0" open,
            "?" untested; "" for itself.
        pairs: A line a pair, as the ranking orders them.
    """

    title: str
    names: tuple[str, ...]
    signs: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def method_differences(campaign: Campaign) -> list[Differences]:
    """Return the differences of every profile and suite with two methods."""
    differences = []
    for records in by_profile_and_suite(campaign.records):
        averages = _tested_averages(campaign, records)
        if len(averages) > 1:
            differences.append(_page_differences(campaign, records, averages))
    return differences


def _tested_averages(campaign: Campaign, records: Sequence[RunRecord]) -> list[MethodAverages]:
    """The averages of the family's rows; only these are tested."""
    tested = campaign.family(records).tested
    return [average for average in method_averages(campaign, records) if average.method in tested]


def _page_differences(
    campaign: Campaign, records: Sequence[RunRecord], averages: Sequence[MethodAverages]
) -> Differences:
    methods = [average.method for average in averages]
    tests, shown = run_pairwise_tests(campaign, records), campaign.shown
    ranking, signs, pairs = tests.of(), {}, []
    for pair in ranking.pairs:
        a, b = pair.first, pair.second
        ends, p, verdict = DASH, DASH, "not tested"
        signs[a, b] = signs[b, a] = "?"
        if pair.p is not None and pair.adjusted is not None:
            ends, p, verdict = (
                format_pair_interval(tests, a, b),
                f"{pair.adjusted:.4f}",
                "not shown to differ",
            )
            signs[a, b] = signs[b, a] = "0"
        if pair.differs:
            verdict = "differs"
            signs[a, b], signs[b, a] = ("+", "-") if pair.difference > 0 else ("-", "+")
        pairs.append((shown(a), shown(b), format_difference(pair.difference), ends, p, pair.test, verdict))
    matrix = []
    for row in methods:
        matrix.append(tuple(signs.get((row, column), "") for column in methods))
    notes = []
    if ranking.methods:
        notes = [f"Verdicts: by p corrected, from {describe_tests(ranking)}.", INTERVAL]
        notes += tests.unit_notes(records[0].suite)
    notes += [_COMMON] * tests.leaves_out
    title = f"{records[0].suite}, profile {records[0].profile}"
    return Differences(title, tuple(map(shown, methods)), tuple(matrix), tuple(pairs), tuple(notes))


def significance_grids(campaign: Campaign) -> list[Grid]:
    """Return a matrix of differences for every profile and suite, and every pair in full if asked for."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        averages = _tested_averages(campaign, records)
        if len(averages) > 1:
            grids.append(_difference_matrix(campaign, records, [average.method for average in averages]))
            if campaign.pairs:
                grids.append(_pair_grid(campaign, records, averages))
    return grids


def _difference_matrix(campaign: Campaign, records: Sequence[RunRecord], methods: Sequence[str]) -> Grid:
    tests = run_pairwise_tests(campaign, records)
    ranking, cells = tests.of(), {}
    for pair in ranking.pairs:
        mark = "?" if pair.p is None else "*" * pair.differs
        cells[pair.first, pair.second] = _difference_cell(pair.difference, mark)
        cells[pair.second, pair.first] = _difference_cell(-pair.difference, mark)
    rows: list[tuple[Value, ...]] = []
    for number, row in enumerate(methods, start=1):
        differences = (cells.get((row, column), "") for column in methods)
        rows.append((f"{number} {campaign.shown(row)}", *differences))
    notes = [
        "Average of the row's method less that of the column's, in points; columns have the rows' numbers."
    ]
    if ranking.methods:
        notes.append(f"*: the two differ, p <= 0.05 by {describe_tests(ranking)}.")
        notes += tests.unit_notes(records[0].suite)
    notes += [_COMMON] * tests.leaves_out
    if untested := dict.fromkeys(pair.test for pair in ranking.pairs if pair.p is None):
        notes.append(f"?: not tested ({'; '.join(untested)}).")
    header = ("method", *map(str, range(1, len(methods) + 1)))
    return Grid(campaign.title("Differences", records), header, tuple(rows), tuple(notes))


def _difference_cell(difference: float, mark: str = "") -> Printed:
    return Printed(f"{format_difference(difference)}{mark}", difference)


def _pair_grid(campaign: Campaign, records: Sequence[RunRecord], averages: Sequence[MethodAverages]) -> Grid:
    tests, scores = run_pairwise_tests(campaign, records), {one.method: one.values for one in averages}
    ranking = tests.of()
    rows: list[tuple[Value, ...]] = []
    for pair in ranking.pairs:
        a, b = pair.first, pair.second
        cells: tuple[Value, ...] = (*[DASH] * (len(_HEADER) - 4), pair.test)
        if pair.p is not None and pair.adjusted is not None:
            exact, verdict = _exact_cells(scores[a], scores[b], pair.test), "not shown"
            if pair.differs:
                verdict = "differs"
            ends = _interval_cells(tests, a, b)
            cells = (pair.test, *ends, _p_cell(pair.p), _p_cell(pair.adjusted), *exact, verdict)
        rows.append((campaign.shown(a), campaign.shown(b), _difference_cell(pair.difference), *cells))
    notes = ["Nothing could be tested."]
    if ranking.methods:
        notes = [
            f"Verdict: by p corrected, from {describe_tests(ranking)}.",
            INTERVAL,
            "The other p are those of one pair by itself: no verdict rests on them.",
            *tests.unit_notes(records[0].suite),
        ]
    return Grid(campaign.title("Pairs", records), _HEADER, tuple(rows), tuple(notes))


def _interval_cells(tests: PairwiseTests, a: str, b: str) -> tuple[Value, ...]:
    """The interval of a - b on average as text, its ends and its level, or dashes."""
    ends, level = tests.interval(a, b), tests.of().pair(a, b).level
    if ends is None or level is None or no_width(*ends):
        return (DASH,) * (1 + len(_ENDS))
    low, high = (Printed(interval_end(end), end) for end in ends)
    return (format_pair_interval(tests, a, b), low, high, Printed(format_level(level), level))


def _p_cell(p: float) -> Printed:
    return Printed(f"{p:.4f}", p)


def _exact_cells(a: Sequence[float], b: Sequence[float], test: str) -> tuple[Value, Value]:
    """The exact permutation test of unpaired seeds: its p, and the lowest possible."""
    from bench.stats.difference_test import AND_ITEMS, WELCH
    from bench.stats.seeds import MAX_SEEDS, exact_permutation  # scipy.stats is slow

    if test.removesuffix(AND_ITEMS) != WELCH or len(a) + len(b) > MAX_SEEDS:
        return DASH, DASH
    exact = exact_permutation(a, b)
    return Printed(f"{exact.p:.4f} ({exact.minimum_p:.4f})", exact.p), _p_cell(exact.minimum_p)


if TYPE_CHECKING:
    from bench.stats.method_ranking import RankedPair

_APART = "told apart"
_PAIR_HEADER = ("A", "B", "A - B", "now")
_EACH_AND_NEXT = "Each method of the leaderboard and the next."
_NOTES = (
    f"{_EACH_AND_NEXT} Seeds (pairs where runs of a seed are pairs) that show a "
    "difference with a chance of 80%, at the pair's level of Holm's correction of all pairs: a pair that was "
    "chosen before takes fewer (bench compare A B --detect). In parentheses for both ends of the spread's "
    "90% interval.",
    "The last column takes A - B as the true difference. It is an estimate from these seeds, and where two "
    "were picked for standing next to each other, none to plan by.",
)


def neighbour_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of neighbours, if some were tested."""
    from bench.comparison.questions import DETECT  # loads scipy.stats, which is slow

    tests = run_pairwise_tests(campaign, records)
    ranking = tests.of()
    rows: list[tuple[Value, ...]] = []
    for pair in (ranking.pair(a, b) for a, b in pairwise(ranking.methods)):
        if pair.p is not None:
            names = campaign.shown(pair.first), campaign.shown(pair.second)
            verdict = _APART if pair.differs else f"not {_APART}"
            cells = (*names, format_difference(pair.difference), verdict)
            if isinstance(tests, TaskPairwiseTests):
                rows.append((*cells, str(len(tests.tasks))))
                continue
            seeds = " and ".join(dict.fromkeys(map(str, tests.sizes(pair.first, pair.second))))
            rows.append((*cells, seeds, *_required_seeds(tests, pair)))
    if not rows:
        return None
    title = campaign.title("Neighbours", records)
    if isinstance(tests, TaskPairwiseTests):
        notes = (_EACH_AND_NEXT, f"now: {describe_tests(ranking)}.", *tests.unit_notes(records[0].suite))
        return Grid(title, (*_PAIR_HEADER, "tasks"), tuple(rows), notes)
    plans = f"to show {format_score(DETECT)} points", "if A - B is true"
    return Grid(title, (*_PAIR_HEADER, "seeds now", *plans), tuple(rows), _NOTES)


def _required_seeds(tests: PairwiseTests, pair: RankedPair) -> tuple[str, str]:
    """Seeds for half a point, and for the measured difference."""
    from bench.comparison.questions import DETECT
    from bench.stats.seed_planning import describe_seed_plan, plan_seeds

    spread = tests.spread(pair.first, pair.second)
    if spread is None or pair.level is None:
        return DASH, DASH
    half = describe_seed_plan(plan_seeds(DETECT, spread, level=pair.level))
    if pair.differs or not pair.difference:
        return half, DASH
    return half, describe_seed_plan(plan_seeds(pair.difference, spread, level=pair.level))


LOSSES = ("mhe", "mhs", "barlow", "vicreg")
_BACKBONES = ("bert-base", "roberta-base")


def gain_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of losses with their modifications, if both ran."""
    runs, tasks, ranking = by_method(records), task_list(records), run_pairwise_tests(campaign, records).of()
    printed = {(line.first.method, line.first.backbone): line for line in published_rows(records[0].suite)}
    rows: list[tuple[Value, ...]] = []
    for loss in LOSSES:
        gains = _mean_gains(runs.get(loss, []), runs.get(f"m_{loss}", []), tasks)
        if gains is None:
            continue
        names = f"m_{loss}", loss
        pair = ranking.find_pair(*names)
        p = format_number(pair.adjusted if pair else None, ".4f")
        average = f"{gains[-1]}{'*' * bool(pair and pair.differs)}"
        rows.append((" - ".join(map(campaign.shown, names)), *gains[:-1], average, p))
        for backbone in _BACKBONES:
            if line := printed.get((f"m_{loss}", backbone)):
                rows.append((f"published, {backbone}", *(_printed_gain(line, task) for task in tasks), DASH))
    if not rows:
        return None
    header = ("gain", *task_headings(tasks), "p corrected")
    notes = ["Points, means over seeds.", GREY]
    if ranking.methods:
        notes[1:1] = [
            f"*: the average differs, p <= 0.05 by {describe_tests(ranking)}.",
            "p corrected: of the average, among all these pairs. A pair that was chosen before any score was "
            "seen can be tested by itself, with its interval: bench compare A B.",
        ]
    if printed:
        notes.append(
            "Gradient paradigm, Tables 3 to 5: the Barlow Twins and VICReg rows may have been exchanged."
        )
    return Grid(campaign.title("Gains of the modified losses", records), header, tuple(rows), tuple(notes))


def _mean_gains(
    before: Sequence[RunRecord], after: Sequence[RunRecord], tasks: Sequence[str]
) -> list[str] | None:
    """Differences of the means by task, if all means exist."""
    gains = []
    for task in tasks:
        first, second = (summarise_scores(runs, task).mean for runs in (before, after))
        if first is None or second is None:
            return None
        gains.append(format_difference(second - first))
    return gains


def _printed_gain(line: PublishedRow, task: str) -> Quoted | str:
    note = line.figures[task].note if task in line.figures else ""
    gain = note.partition("printed gain ")[2].partition(";")[0].split(" ")[0]
    return Quoted(gain) if gain else DASH
