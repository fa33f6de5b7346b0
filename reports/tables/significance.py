"""Tests of the methods of one table against each other, over their seeds and over the items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Literal

from bench.records.record import RunRecord
from bench.reports.records import by_method, values

LEVEL = 0.95
ABOVE, BELOW = "\N{DAGGER}", "\N{DOUBLE DAGGER}"
DEFAULT_BASELINE = "simcse"


@dataclass(frozen=True)
class Averages:
    """A method's suite averages, in the metric's unit.

    Args:
        method: Method id.
        values: One a finished seed.
        deterministic: True if it has no seeds.
    """

    method: str
    values: tuple[float, ...]
    deterministic: bool


@dataclass(frozen=True)
class Pair:
    """Two methods' averages compared over their seeds.

    Args:
        first: One method.
        second: The other.
        difference: first - second.
        low: Lower end of the interval, Welch's, or Student's against a method without seeds; None untested.
        high: Upper end.
        p: Before correction; None where the pair can't be tested.
        adjusted: After the correction of the family.
        exact: p of the exact permutation test and the least that it can give; None where a side has no seeds.
        reason: Why it can't be tested, or "".
    """

    first: str
    second: str
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted: float | None = None
    exact: tuple[float, float] | None = None
    reason: str = ""

    @property
    def differs(self) -> bool:
        """True if the corrected p supports a difference."""
        return self.adjusted is not None and self.adjusted <= 1 - LEVEL


@dataclass(frozen=True)
class Family:
    """Pairs that were corrected together, and the correction in words."""

    pairs: tuple[Pair, ...]
    caption: str


def averages(records: Sequence[RunRecord]) -> list[Averages]:
    """Return the averages of every method with a finished run, the best first."""
    found = [
        Averages(method, scores, runs[0].seed is None)
        for method, runs in by_method(records).items()
        if (scores := tuple(values(runs)))
    ]
    return sorted(found, key=lambda one: (-fmean(one.values), one.method))


def compare_pair(a: Averages, b: Averages) -> Pair:
    """Compare two methods over their seeds: Welch's test, Student's against a method without seeds."""
    difference = fmean(a.values) - fmean(b.values)
    short = next((one for one in (a, b) if len(one.values) < 2 and not one.deterministic), None)
    if short is not None:
        return Pair(a.method, b.method, difference, reason=f"{short.method} has one seed")
    if a.deterministic and b.deterministic:
        return Pair(a.method, b.method, difference, reason="neither has seeds")
    from bench.stats.seeds import MAX_SEEDS, exact_permutation, seed_difference  # scipy.stats is slow

    d, exact = seed_difference(a.values, b.values, LEVEL), None
    if not (a.deterministic or b.deterministic) and len(a.values) + len(b.values) <= MAX_SEEDS:
        test = exact_permutation(a.values, b.values)
        exact = test.p, test.minimum_p
    return Pair(a.method, b.method, difference, d.low, d.high, d.p, exact=exact)


def correct(pairs: Sequence[Pair], name: str, method: Literal["holm", "fdr_bh"]) -> Family:
    """Correct the p of all pairs that were tested, as one family."""
    tested = [pair for pair in pairs if pair.p is not None]
    if not tested:
        return Family(tuple(pairs), "no pair has two seeds a side")
    from bench.stats.correction import METHODS, adjust, caption

    adjusted = iter(adjust([pair.p for pair in tested if pair.p is not None], method))
    corrected = (pair if pair.p is None else replace(pair, adjusted=next(adjusted)) for pair in pairs)
    return Family(tuple(corrected), caption(METHODS[method], len(tested), name))


def all_pairs(records: Sequence[RunRecord]) -> Family:
    """Compare every pair of methods, an exploratory grid: Benjamini and Hochberg's correction."""
    found = [compare_pair(a, b) for a, b in combinations(averages(records), 2)]
    return correct(found, "all pairs of methods", "fdr_bh")


def against(records: Sequence[RunRecord], baseline: str) -> Family:
    """Compare every method with one, corrected after Holm."""
    found = {one.method: one for one in averages(records)}
    base = found.pop(baseline)
    return correct([compare_pair(one, base) for one in found.values()], f"methods against {baseline}", "holm")


def daggers(
    records: Sequence[RunRecord], baseline: str | None = None
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the dagger of every method that differs from the baseline, and what the table says of them.

    None where the baseline isn't there or is one seed.
    """
    wanted = baseline or DEFAULT_BASELINE
    there = {one.method: one for one in averages(records)}
    if wanted not in there:
        return {}, () if baseline is None else (f"No daggers: no finished run of {wanted} here.",)
    family = against(records, wanted)
    signs = {pair.first: ABOVE if pair.difference > 0 else BELOW for pair in family.pairs if pair.differs}
    tested = [pair for pair in family.pairs if pair.p is not None]
    if not tested:
        return {}, ()
    said = [
        f"{ABOVE} above, {BELOW} below {wanted} on average, p <= 0.05: Welch's test over seeds (Student's "
        f"against a method without seeds), {family.caption}."
    ]
    untested = [f"{pair.first} ({pair.reason})" for pair in family.pairs if pair.reason]
    if untested:
        said.append(f"Not tested against {wanted}: {', '.join(untested)}.")
    return signs, tuple(said)
