"""What a verdict rests on: a difference, its test, its interval, and its place among other comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.comparison.evidence import ItemLevel, SeedLevel
from bench.stats.correction import Family, adjust_levels, benjamini_hochberg, holm
from bench.stats.coverage import CoverageRow
from bench.stats.equivalence import DifferenceEstimate, estimate_from_interval
from bench.stats.item_statistics import AVERAGE, ItemDifference
from bench.stats.seed_design import SeedTest
from bench.stats.seed_pairs import PairedDifference
from bench.stats.seeds import ExactTest, SeedDifference, judge_p_value

Test = SeedTest | Literal["components", "items"]
Scope = Literal["seeds", "items", "both"]
CorrectionMethod = Literal["holm", "fdr_bh"]
EXACT = ("sign-flip", "permutation")
FAMILIES: dict[CorrectionMethod, Callable[..., Family]] = {"holm": holm, "fdr_bh": benjamini_hochberg}


@dataclass(frozen=True)
class Corrected:
    """A difference among the comparisons of its family.

    Args:
        family: What was corrected together, and how.
        p: Its p after it.
        minimum_p: The smallest that its test can give.
        level: The level at which an interval agrees with that p.
        interval: The interval of that level; None where the test gives none, or one that doesn't agree.
    """

    family: str
    p: float
    minimum_p: float
    level: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class ComparisonFinding:
    """The difference of the average, as far as it speaks for something; in the metric's unit.

    Args:
        speaks_for: Further "seeds", further "items", or "both".
        test: Its test.
        difference: First - second.
        low: Lower end of the interval: of the test's; of the t test of the same design for an exact test.
        high: Upper end.
        df: Degrees of freedom; None where nothing varies, and for items.
        p: The test's p.
        minimum_p: The smallest that it can give.
        level: Confidence level of the interval; one minus it is the verdict's error rate.
        exact_minimum: The smallest p that an exact test can give with so many seeds; None without one.
        coverage: The measured coverage that fits the interval; None where none was measured.
        also: (error, df) of another interval that has to hold at any level, see ``ComponentsDifference``.
        corrected: Its place among several comparisons, if there are.
    """

    speaks_for: Scope
    test: Test
    difference: float
    low: float
    high: float
    df: float | None
    p: float
    minimum_p: float
    level: float
    exact_minimum: float | None
    coverage: CoverageRow | None
    also: tuple[tuple[float, float], ...] = ()
    corrected: Corrected | None = None

    @property
    def final_p(self) -> float:
        """The p that the verdict is judged by."""
        return self.corrected.p if self.corrected else self.p

    @property
    def final_minimum(self) -> float:
        """The smallest that it could be."""
        return self.corrected.minimum_p if self.corrected else self.minimum_p

    @property
    def final_level(self) -> float:
        """The level of the interval that stands beside it."""
        return self.corrected.level if self.corrected else self.level

    @property
    def said(self) -> Literal["differs", "not shown", "cannot show"]:
        """What the p says at the error rate."""
        return judge_p_value(self.final_p, self.final_minimum, 1 - self.level)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval to show beside the p; None where nothing varies, or where it would contradict it."""
        if self.corrected:
            return self.corrected.interval
        if self.df is None and self.speaks_for != "items":
            return None
        return select_consistent_interval((self.low, self.high), self.p, 1 - self.level)

    @property
    def possible(self) -> tuple[float, float] | None:
        """Where the data leave the true difference, at the level of the interval; None if no seed varies."""
        if self.minimum_p > 0 and self.test not in EXACT and self.speaks_for != "items":
            return None  # items alone may vary, and say nothing of seeds
        if shown := self.interval:
            return shown
        found = self.as_estimate()
        if found.error == 0:
            return None
        half = found.half((1 + self.final_level) / 2)
        return self.difference - half, self.difference + half

    @property
    def unjudged(self) -> str | None:
        """Why neither equality nor a claim can be judged; None where they can."""
        if self.possible is None:
            return "nothing varies over seeds"
        return "the test can show no difference with so few seeds" if self.said == "cannot show" else None

    def as_estimate(self) -> DifferenceEstimate:
        """The difference with its standard error; for items that of a normal distribution of this width."""
        if self.speaks_for == "items":
            normal = DifferenceEstimate(0.0, 1.0, float("inf")).half((1 + self.level) / 2)
            return DifferenceEstimate(self.difference, (self.high - self.low) / (2 * normal), float("inf"))
        return estimate_from_interval(self, self.level, self.also)


def collect_findings(
    seeds: SeedLevel | None, items: ItemLevel | None, level: float, scope: Scope | None
) -> tuple[ComparisonFinding, ...]:
    """What the data say of the average: what was asked for first, by default of both, else what there is.

    An exact test speaks for seeds, so it comes first where it was asked for. Empty where what was asked for
    is missing.
    """
    found: dict[Scope, ComparisonFinding] = {}
    exact = seeds.exact.get(AVERAGE) if seeds else None
    least = exact.minimum_p if exact else None
    ends: tuple[float, float, float, float | None]
    if seeds and items and items.components:
        d = items.components
        ends = (d.difference, d.low, d.high, d.df)
        found["both"] = ComparisonFinding(
            "both", "components", *ends, d.p, d.minimum_p, level, least, items.coverage, d.also
        )
    if seeds:
        t = seeds.tasks[AVERAGE]
        rests = exact if exact and seeds.design.test in EXACT else t
        ends = (t.difference, t.low, t.high, t.df)
        found["seeds"] = ComparisonFinding(
            "seeds", seeds.design.test, *ends, rests.p, rests.minimum_p, level, least, seeds.coverage
        )
    if items and (scope == "items" or not found):
        i = items.tasks[AVERAGE]
        ends = (i.difference, i.low, i.high, None)
        found["items"] = ComparisonFinding("items", "items", *ends, i.p, i.minimum_p, level, None, None)
    default: Scope = "seeds" if seeds and seeds.design.test in EXACT else "both"
    first = scope or next((each for each in (default, *found) if each in found), None)
    if first not in found:
        return ()
    return (found[first], *(one for each, one in found.items() if each != first))


def correct_findings(
    found: Sequence[ComparisonFinding], family: str, method: CorrectionMethod
) -> list[ComparisonFinding]:
    """Correct findings of several comparisons together; a single one is left as it is.

    Args:
        found: One of each comparison.
        family: Its name.
        method: "holm" for one method against others, "fdr_bh" (Benjamini-Hochberg) for an exploratory grid.
    """
    if len(found) < 2:
        return list(found)
    p = {str(i): one.p for i, one in enumerate(found)}
    adjusted = FAMILIES[method](p, family, {str(i): one.minimum_p for i, one in enumerate(found)})
    levels = adjust_levels(p, method, found[0].level)
    result = []
    for i, one in enumerate(found):
        each, level = adjusted.comparisons[str(i)], levels[str(i)]
        ends = None if one.speaks_for == "items" else compute_interval(one.as_estimate(), level)
        shown = select_consistent_interval(ends, each.adjusted, 1 - one.level) if ends else None
        corrected = Corrected(adjusted.caption, each.adjusted, each.minimum, level, shown)
        result.append(replace(one, corrected=corrected))
    return result


def correct_tasks(seeds: SeedLevel | None, items: ItemLevel | None, level: float) -> dict[str, Corrected]:
    """Each task among the tasks, after Benjamini and Hochberg; empty for one task."""
    rests: Mapping[str, SeedDifference | PairedDifference | ExactTest | ItemDifference] = {}
    if seeds:
        rests = seeds.exact if seeds.design.test in EXACT else seeds.tasks
    elif items:
        rests = items.tasks
    names = [task for task in rests if task != AVERAGE]
    if len(names) < 2:
        return {}
    p = {task: rests[task].p for task in names}
    family = benjamini_hochberg(p, "tasks", {task: rests[task].minimum_p for task in names})
    result = {}
    for task, at in adjust_levels(p, "fdr_bh", level).items():
        each = family.comparisons[task]
        if seeds:
            ends = compute_interval(estimate_from_interval(seeds.tasks[task], level), at)
        else:
            ends = (items.corrected[task].low, items.corrected[task].high) if items else None
        shown = select_consistent_interval(ends, each.adjusted, 1 - level) if ends else None
        result[task] = Corrected(family.caption, each.adjusted, each.minimum, at, shown)
    return result


def compute_interval(found: DifferenceEstimate, level: float) -> tuple[float, float] | None:
    """The ends of a t interval at a level; None where nothing varies."""
    if found.error == 0:
        return None
    half = found.half((1 + level) / 2)
    return found.difference - half, found.difference + half


def select_consistent_interval(
    ends: tuple[float, float], p: float, alpha: float
) -> tuple[float, float] | None:
    """The ends if they leave out 0 just where p is at most alpha, else None."""
    return ends if (ends[0] > 0 or ends[1] < 0) == (p <= alpha) else None
