"""Every method against every other: a matrix of differences, and each pair in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.grid import DASH, Grid, signed
from bench.reports.records import by_profile_and_suite
from bench.reports.tables.significance import INTERVAL, Averages, averages, interval_text, tests_in_words
from bench.reports.tables.standings import Standings, standings

_COMMON = "Where two methods have pairs of runs and other seeds besides, the difference is that of the pairs."
EXACT = "exact p (lowest possible)"
_HEADER = ("A", "B", "A - B", "test", "interval", "p", "p corrected", EXACT, "verdict")


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


def differences(campaign: Campaign) -> list[Differences]:
    """Return the differences of every profile and suite with two methods."""
    found = []
    for records in by_profile_and_suite(campaign.records):
        names = [one.method for one in _tested(campaign, records)]
        if len(names) > 1:
            where = f"{records[0].suite}, profile {records[0].profile}"
            found.append(_differences(names, standings(campaign, records), where, campaign.shown))
    return found


def _tested(campaign: Campaign, records: Sequence[RunRecord]) -> list[Averages]:
    """The averages of all methods but supervised ones, which aren't tested against the others."""
    return [one for one in averages(campaign, records) if one.method not in campaign.apart]


def _differences(
    names: Sequence[str], standing: Standings, where: str, shown: Callable[[str], str]
) -> Differences:
    ranking, at, pairs = standing.of(), {}, []
    for pair in ranking.pairs:
        a, b = pair.first, pair.second
        tested = pair.p is not None and pair.adjusted is not None
        at[a, b] = at[b, a] = "0" if tested else "?"
        if pair.differs:
            at[a, b], at[b, a] = ("+", "-") if pair.difference > 0 else ("-", "+")
        said = "differs" if pair.differs else "not shown to differ" if tested else "not tested"
        ends = interval_text(standing, a, b) if tested else DASH
        p = f"{pair.adjusted:.4f}" if tested else DASH
        pairs.append((shown(a), shown(b), signed(pair.difference), ends, p, pair.test, said))
    signs = tuple(tuple(at.get((row, column), "") for column in names) for row in names)
    notes = (
        *([f"Verdicts: by p corrected, from {tests_in_words(ranking)}."] if ranking.methods else []),
        *([INTERVAL] if ranking.methods else []),
        *([_COMMON] if standing.leaves_out else []),
    )
    return Differences(where, tuple(map(shown, names)), signs, tuple(pairs), notes)


def significance_grids(campaign: Campaign) -> list[Grid]:
    """Return a matrix of differences for every profile and suite, and every pair in full if asked for."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        found = _tested(campaign, records)
        if len(found) < 2:
            continue
        standing = standings(campaign, records)
        where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
        grids.append(_matrix([one.method for one in found], standing, where, campaign.shown))
        if campaign.pairs:
            grids.append(_pairs(found, standing, where, campaign.shown))
    return grids


def _matrix(names: Sequence[str], standing: Standings, where: str, shown: Callable[[str], str]) -> Grid:
    ranking, at = standing.of(), {}
    for pair in ranking.pairs:
        mark = "*" if pair.differs else "?" if pair.p is None else ""
        at[pair.first, pair.second] = f"{signed(pair.difference)}{mark}"
        at[pair.second, pair.first] = f"{signed(-pair.difference)}{mark}"
    rows = [
        (f"{number} {shown(row)}", *(at.get((row, column), "") for column in names))
        for number, row in enumerate(names, start=1)
    ]
    untested = dict.fromkeys(pair.test for pair in ranking.pairs if pair.p is None)
    notes = (
        "Average of the row's method less that of the column's, in points; columns have the rows' numbers.",
        *([f"*: the two differ, p <= 0.05 by {tests_in_words(ranking)}."] if ranking.methods else []),
        *([_COMMON] if standing.leaves_out else []),
        *([f"?: not tested ({'; '.join(untested)})."] if untested else []),
    )
    return Grid(f"Differences: {where}", ("method", *map(str, range(1, len(names) + 1))), tuple(rows), notes)


def _pairs(found: Sequence[Averages], standing: Standings, where: str, shown: Callable[[str], str]) -> Grid:
    ranking, scores = standing.of(), {one.method: one.values for one in found}
    rows = []
    for pair in ranking.pairs:
        if pair.p is None or pair.adjusted is None:
            tested = (DASH, DASH, DASH, DASH, DASH, pair.test)
        else:
            said = "differs" if pair.differs else "not shown"
            exact = _exact(scores[pair.first], scores[pair.second], pair.test)
            ends = interval_text(standing, pair.first, pair.second)
            tested = (pair.test, ends, f"{pair.p:.4f}", f"{pair.adjusted:.4f}", exact, said)
        rows.append((shown(pair.first), shown(pair.second), signed(pair.difference), *tested))
    notes = ["Nothing could be tested."]
    if ranking.methods:
        notes = [
            f"Verdict: by p corrected, from {tests_in_words(ranking)}.",
            INTERVAL,
            "The other p are those of one pair by itself: no verdict rests on them.",
        ]
    return Grid(f"Pairs: {where}", _HEADER, tuple(rows), tuple(notes))


def _exact(a: Sequence[float], b: Sequence[float], test: str) -> str:
    """The exact permutation test of seeds that are no pairs."""
    from bench.stats.pair_test import AND_ITEMS, WELCH
    from bench.stats.seeds import MAX_SEEDS, exact_permutation  # scipy.stats is slow

    if test.removesuffix(AND_ITEMS) != WELCH or len(a) + len(b) > MAX_SEEDS:
        return DASH
    found = exact_permutation(a, b)
    return f"{found.p:.4f} ({found.minimum_p:.4f})"
