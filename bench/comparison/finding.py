"""Findings, the basis of verdicts: a difference, its test, its interval, and its correction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.comparison.evidence import ItemLevel, SeedLevel
from bench.comparison.task_evidence import TaskLevel
from bench.stats.correction import Family, adjust_levels, benjamini_hochberg, holm
from bench.stats.coverage import CoverageRow
from bench.stats.equivalence import DifferenceEstimate, estimate_from_interval
from bench.stats.item_statistics import AVERAGE, ItemDifference
from bench.stats.seed_design import SeedTest
from bench.stats.seed_pairs import PairedDifference
from bench.stats.seeds import ExactTest, SeedDifference, judge_p_value

Test = SeedTest | Literal["components", "items", "tasks"]
Scope = Literal["seeds", "items", "both", "tasks"]
CorrectionMethod = Literal["holm", "fdr_bh"]
EXACT = ("sign-flip", "permutation")
FAMILIES: dict[CorrectionMethod, Callable[..., Family]] = {"holm": holm, "fdr_bh": benjamini_hochberg}


@dataclass(frozen=True)
class Corrected:
    """A difference after correction in its family, and the interval of the level that agrees with its p."""

    family: str
    p: float
    minimum_p: float
    level: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class ComparisonFinding:
    """The difference of the average, first - second, for a population; in the metric's unit.

    Args:
        speaks_for: Further "seeds", further "items", "both", or further "tasks".
        low: Lower end of the interval, for an exact test of the t test of the same design.
        level: Confidence level of the interval; one minus it is the verdict's error rate.
        exact_minimum: The smallest attainable p of an exact test with as many seeds, if any.
        also: (error, df) of another interval that has to hold at any level, see ``ComponentsDifference``.
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
        """The p of the verdict, after any correction."""
        return self.corrected.p if self.corrected else self.p

    @property
    def final_minimum(self) -> float:
        """Its smallest attainable value."""
        return self.corrected.minimum_p if self.corrected else self.minimum_p

    @property
    def final_level(self) -> float:
        """The level of the interval that agrees with it."""
        return self.corrected.level if self.corrected else self.level

    @property
    def verdict(self) -> Literal["differs", "not shown", "cannot show"]:
        """The verdict of the p at the error rate."""
        return judge_p_value(self.final_p, self.final_minimum, 1 - self.level)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, if it agrees with the p."""
        if self.corrected:
            return self.corrected.interval
        if self.df is None and self.speaks_for != "items":
            return None
        return select_consistent_interval((self.low, self.high), self.p, 1 - self.level)

    @property
    def possible(self) -> tuple[float, float] | None:
        """Differences that the data cannot rule out at the level of the interval, if seeds vary."""
        if self.minimum_p > 0 and self.test not in EXACT and self.speaks_for != "items":
            return None  # only items may vary
        return self.interval or compute_interval(self.as_estimate(), self.final_level)

    @property
    def unjudged(self) -> str | None:
        """The obstacle to judging equality and claims, if any."""
        if self.possible is None:
            return "nothing varies over seeds"
        return "the test can show no difference with so few seeds" if self.verdict == "cannot show" else None

    def as_estimate(self) -> DifferenceEstimate:
        """Return the difference with its standard error; for items that of a normal interval."""
        if self.speaks_for == "items":
            normal = DifferenceEstimate(0.0, 1.0, float("inf")).half((1 + self.level) / 2)
            return DifferenceEstimate(self.difference, (self.high - self.low) / (2 * normal), float("inf"))
        return estimate_from_interval(self, self.level, self.also)


def collect_findings(
    seeds: SeedLevel | None,
    items: ItemLevel | None,
    level: float,
    scope: Scope | None,
    tasks: TaskLevel | None = None,
) -> tuple[ComparisonFinding, ...]:
    """Return the findings of the average, that of the scope first; default an exact test, or both."""
    findings: dict[Scope, ComparisonFinding] = {}
    exact = seeds.exact.get(AVERAGE) if seeds else None
    least = exact.minimum_p if exact else None
    ends: tuple[float, float, float, float | None]
    if seeds and items and items.components:
        d = items.components
        ends = (d.difference, d.low, d.high, d.df)
        findings["both"] = ComparisonFinding(
            "both", "components", *ends, d.p, d.minimum_p, level, least, items.coverage, d.also
        )
    if seeds:
        t = seeds.tasks[AVERAGE]
        tested = exact if exact and seeds.design.test in EXACT else t
        ends = (t.difference, t.low, t.high, t.df)
        findings["seeds"] = ComparisonFinding(
            "seeds", seeds.design.test, *ends, tested.p, tested.minimum_p, level, least, seeds.coverage
        )
    if items and (scope == "items" or not findings):
        i = items.tasks[AVERAGE]
        ends = (i.difference, i.low, i.high, None)
        findings["items"] = ComparisonFinding("items", "items", *ends, i.p, i.minimum_p, level, None, None)
    if tasks:
        test = tasks.averages["tasks"]
        low, high = test.interval or (test.difference, test.difference)
        df = test.df if test.interval else None  # without any spread over tasks
        p = 1.0 if test.p is None else test.p
        least = 0.0 if test.interval else 0.5 ** (tasks.tasks - 1)  # of as many signs
        ends = (test.difference, low, high, df)
        findings["tasks"] = ComparisonFinding("tasks", "tasks", *ends, p, least, level, None, None)
    default: Scope = "seeds" if seeds and seeds.design.test in EXACT else "both"
    first = scope or next((name for name in (default, *findings) if name in findings), None)
    if first is None or first not in findings:
        return ()
    return (findings.pop(first), *findings.values())


def correct_findings(
    findings: Sequence[ComparisonFinding], family: str, method: CorrectionMethod
) -> list[ComparisonFinding]:
    """Correct the findings of several comparisons, one each; a single one stays as it is."""
    if len(findings) < 2:
        return list(findings)
    p = {str(i): finding.p for i, finding in enumerate(findings)}
    minimum_p = {str(i): finding.minimum_p for i, finding in enumerate(findings)}
    adjusted = FAMILIES[method](p, family, minimum_p)
    levels = adjust_levels(p, method, findings[0].level)
    result = []
    for finding, (name, level) in zip(findings, levels.items(), strict=True):
        is_of_items = finding.speaks_for == "items"
        ends = None if is_of_items else compute_interval(finding.as_estimate(), level)
        corrected = _build_corrected(adjusted, name, level, ends, 1 - finding.level)
        result.append(replace(finding, corrected=corrected))
    return result


def correct_tasks(seeds: SeedLevel | None, items: ItemLevel | None, level: float) -> dict[str, Corrected]:
    """Correct the tasks by Benjamini and Hochberg; {} for one task."""
    tests: Mapping[str, SeedDifference | PairedDifference | ExactTest | ItemDifference] = {}
    if seeds:
        tests = seeds.exact if seeds.design.test in EXACT else seeds.tasks
    elif items:
        tests = items.tasks
    p = {task: test.p for task, test in tests.items() if task != AVERAGE}
    if len(p) < 2:
        return {}
    family, result = benjamini_hochberg(p, "tasks", {task: tests[task].minimum_p for task in p}), {}
    for task, task_level in adjust_levels(p, "fdr_bh", level).items():
        ends = None
        if seeds:
            ends = compute_interval(estimate_from_interval(seeds.tasks[task], level), task_level)
        elif items:
            ends = (items.corrected[task].low, items.corrected[task].high)
        result[task] = _build_corrected(family, task, task_level, ends, 1 - level)
    return result


def _build_corrected(
    family: Family, name: str, level: float, ends: tuple[float, float] | None, alpha: float
) -> Corrected:
    adjusted = family.comparisons[name]
    interval = select_consistent_interval(ends, adjusted.adjusted, alpha) if ends else None
    return Corrected(family.caption, adjusted.adjusted, adjusted.minimum, level, interval)


def compute_interval(estimate: DifferenceEstimate, level: float) -> tuple[float, float] | None:
    """Return the ends of a t interval at a level, if its error is above 0."""
    if estimate.error == 0:
        return None
    half = estimate.half((1 + level) / 2)
    return estimate.difference - half, estimate.difference + half


def select_consistent_interval(
    ends: tuple[float, float], p: float, alpha: float
) -> tuple[float, float] | None:
    """Return the ends if they exclude 0 exactly if p is at most alpha."""
    return ends if (ends[0] > 0 or ends[1] < 0) == (p <= alpha) else None
