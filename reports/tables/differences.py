"""Every method against every other: a matrix of differences, and each pair in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, Printed, Value, format_difference, interval_end, no_width
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_profile_and_suite
from bench.reports.tables.pairwise_tests import (
    INTERVAL,
    MethodAverages,
    PairwiseTests,
    describe_tests,
    format_level,
    format_pair_interval,
    method_averages,
    run_pairwise_tests,
)

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
        title: Suite and profile.
        names: Printed names of methods, in the rows' order.
        signs: A sign for every two: of the row's method against the column's. "+" better, "-" worse, "0" not
            shown to differ, "?" not tested; "" for itself.
        pairs: A line a pair, as the ranking orders them.
        notes: Lines below them.
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
    """The averages of unsupervised methods; only these are tested."""
    return [one for one in method_averages(campaign, records) if one.method not in campaign.apart]


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
        rows.append(
            (f"{number} {campaign.shown(row)}", *(cells.get((row, column), "") for column in methods))
        )
    notes = [
        "Average of the row's method less that of the column's, in points; columns have the rows' numbers."
    ]
    if ranking.methods:
        notes.append(f"*: the two differ, p <= 0.05 by {describe_tests(ranking)}.")
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
    from bench.stats.pair_test import AND_ITEMS, WELCH
    from bench.stats.seeds import MAX_SEEDS, exact_permutation  # scipy.stats is slow

    if test.removesuffix(AND_ITEMS) != WELCH or len(a) + len(b) > MAX_SEEDS:
        return DASH, DASH
    exact = exact_permutation(a, b)
    return Printed(f"{exact.p:.4f} ({exact.minimum_p:.4f})", exact.p), _p_cell(exact.minimum_p)
