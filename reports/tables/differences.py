"""Every method against every other: a matrix of differences, and each pair in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, Printed, Value, format_difference, interval_end, no_width
from bench.reports.campaign import Campaign
from bench.reports.records import by_profile_and_suite
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


@dataclass(frozen=True)
class Differences:
    """All pairs of the methods of one profile and suite as the page shows them.

    Args:
        title: Which these are.
        names: What methods are called, in the rows' order.
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


PAIR_HEADER = ("A", "B", "A - B", "interval", "p corrected", "test", "verdict")
"""Columns of ``Differences.pairs``."""


def method_differences(campaign: Campaign) -> list[Differences]:
    """Return the differences of every profile and suite with two methods."""
    found = []
    for records in by_profile_and_suite(campaign.records):
        names = [one.method for one in _tested_averages(campaign, records)]
        if len(names) > 1:
            where = f"{records[0].suite}, profile {records[0].profile}"
            found.append(
                _page_differences(names, run_pairwise_tests(campaign, records), where, campaign.shown)
            )
    return found


def _tested_averages(campaign: Campaign, records: Sequence[RunRecord]) -> list[MethodAverages]:
    """The averages of all methods but supervised ones, which aren't tested against the others."""
    return [one for one in method_averages(campaign, records) if one.method not in campaign.apart]


def _page_differences(
    names: Sequence[str], standing: PairwiseTests, where: str, shown: Callable[[str], str]
) -> Differences:
    ranking, at, pairs = standing.of(), {}, []
    for pair in ranking.pairs:
        a, b = pair.first, pair.second
        tested = pair.p is not None and pair.adjusted is not None
        at[a, b] = at[b, a] = "0" if tested else "?"
        if pair.differs:
            at[a, b], at[b, a] = ("+", "-") if pair.difference > 0 else ("-", "+")
        said = "differs" if pair.differs else "not shown to differ" if tested else "not tested"
        ends = format_pair_interval(standing, a, b) if tested else DASH
        p = f"{pair.adjusted:.4f}" if tested else DASH
        pairs.append((shown(a), shown(b), format_difference(pair.difference), ends, p, pair.test, said))
    signs = tuple(tuple(at.get((row, column), "") for column in names) for row in names)
    notes = (
        *([f"Verdicts: by p corrected, from {describe_tests(ranking)}."] if ranking.methods else []),
        *([INTERVAL] if ranking.methods else []),
        *([_COMMON] if standing.leaves_out else []),
    )
    return Differences(where, tuple(map(shown, names)), signs, tuple(pairs), notes)


def significance_grids(campaign: Campaign) -> list[Grid]:
    """Return a matrix of differences for every profile and suite, and every pair in full if asked for."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        found = _tested_averages(campaign, records)
        if len(found) < 2:
            continue
        standing = run_pairwise_tests(campaign, records)
        where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
        grids.append(_difference_matrix([one.method for one in found], standing, where, campaign.shown))
        if campaign.pairs:
            grids.append(_pair_grid(found, standing, where, campaign.shown))
    return grids


def _difference_matrix(
    names: Sequence[str], standing: PairwiseTests, where: str, shown: Callable[[str], str]
) -> Grid:
    ranking, at = standing.of(), {}
    for pair in ranking.pairs:
        mark = "*" if pair.differs else "?" if pair.p is None else ""
        at[pair.first, pair.second] = _difference_cell(pair.difference, mark)
        at[pair.second, pair.first] = _difference_cell(-pair.difference, mark)
    rows: list[tuple[Value, ...]] = [
        (f"{number} {shown(row)}", *(at.get((row, column), "") for column in names))
        for number, row in enumerate(names, start=1)
    ]
    untested = dict.fromkeys(pair.test for pair in ranking.pairs if pair.p is None)
    notes = (
        "Average of the row's method less that of the column's, in points; columns have the rows' numbers.",
        *([f"*: the two differ, p <= 0.05 by {describe_tests(ranking)}."] if ranking.methods else []),
        *([_COMMON] if standing.leaves_out else []),
        *([f"?: not tested ({'; '.join(untested)})."] if untested else []),
    )
    return Grid(f"Differences: {where}", ("method", *map(str, range(1, len(names) + 1))), tuple(rows), notes)


def _difference_cell(difference: float, mark: str = "") -> Printed:
    return Printed(f"{format_difference(difference)}{mark}", difference)


def _pair_grid(
    found: Sequence[MethodAverages], standing: PairwiseTests, where: str, shown: Callable[[str], str]
) -> Grid:
    ranking, scores = standing.of(), {one.method: one.values for one in found}
    rows: list[tuple[Value, ...]] = []
    for pair in ranking.pairs:
        tested: tuple[Value, ...] = (*[DASH] * (len(_HEADER) - 4), pair.test)
        if pair.p is not None and pair.adjusted is not None:
            said = "differs" if pair.differs else "not shown"
            exact = _exact_cells(scores[pair.first], scores[pair.second], pair.test)
            ends = _interval_cells(standing, pair.first, pair.second)
            tested = (pair.test, *ends, _p_cell(pair.p), _p_cell(pair.adjusted), *exact, said)
        rows.append((shown(pair.first), shown(pair.second), _difference_cell(pair.difference), *tested))
    notes = ["Nothing could be tested."]
    if ranking.methods:
        notes = [
            f"Verdict: by p corrected, from {describe_tests(ranking)}.",
            INTERVAL,
            "The other p are those of one pair by itself: no verdict rests on them.",
        ]
    return Grid(f"Pairs: {where}", _HEADER, tuple(rows), tuple(notes))


def _interval_cells(standing: PairwiseTests, a: str, b: str) -> tuple[Value, ...]:
    """The interval of a - b on average in words, its ends and its level, or dashes."""
    ends, level = standing.interval(a, b), standing.of().pair(a, b).level
    if ends is None or level is None or no_width(*ends):
        return (DASH,) * (1 + len(_ENDS))
    low, high = (Printed(interval_end(end), end) for end in ends)
    return (format_pair_interval(standing, a, b), low, high, Printed(format_level(level), level))


def _p_cell(p: float) -> Printed:
    return Printed(f"{p:.4f}", p)


def _exact_cells(a: Sequence[float], b: Sequence[float], test: str) -> tuple[Value, Value]:
    """The exact permutation test of seeds that are no pairs: its p, and the lowest that it can give."""
    from bench.stats.pair_test import AND_ITEMS, WELCH
    from bench.stats.seeds import MAX_SEEDS, exact_permutation  # scipy.stats is slow

    if test.removesuffix(AND_ITEMS) != WELCH or len(a) + len(b) > MAX_SEEDS:
        return DASH, DASH
    found = exact_permutation(a, b)
    return Printed(f"{found.p:.4f} ({found.minimum_p:.4f})", found.p), _p_cell(found.minimum_p)
