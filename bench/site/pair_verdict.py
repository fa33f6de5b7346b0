"""One verdict on two methods, from the pair's own test and the correction over the leaderboard's pairs.

The rule: a reader of a web page picks two methods after the scores were seen. So the corrected test decides
where the leaderboard tests the pair, and the pair's own test is the additional fact. Its own test decides
where the leaderboard sets a row aside; the sentence then says that no correction covers the pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.comparison.wording import format_difference_interval
from bench.render.grid import SCALE
from bench.stats.difference_test import OVER_TASKS

ALPHA = 0.05

WORDS: Mapping[str, str] = {
    "lead": "{a} is {gap} {side} {b}{interval} ({seeds}): {answer}",
    "interval": " {ends}",
    "both": "shown to be {way}, also after the correction for all {pairs} pairs of the leaderboard.",
    "alone": "shown to be {way} for this pair alone (chosen before the scores were seen), not after the "
    "correction for all {pairs} pairs of the leaderboard: treat as open.",
    "neither": "no difference shown for this pair alone; among all {pairs} pairs of the leaderboard neither.",
    "only ahead": "shown to be {way}; it is the only pair of the leaderboard.",
    "only open": "no difference shown; it is the only pair of the leaderboard.",
    "aside ahead": "shown to be {way} for this pair alone (chosen before the scores were seen); no "
    "correction covers it, as the leaderboard sets aside {aside}.",
    "aside open": "no difference shown for this pair alone; the leaderboard sets aside {aside}.",
    "untested": "not tested, as {reason}.",
    "paired": "{n} paired seeds",
    "each": "{n} seeds each",
    "apart": "{n} and {m} seeds",
    "fixed": "{n} seeds against a row without seeds",
    "none": "rows without seeds",
    "tasks": "{n} tasks",
    "above": "above",
    "below": "below",
    "ahead": "ahead",
    "behind": "behind",
    "and": " and ",
    "open label": "open",
    "uncorrected label": "{way}, uncorrected",
    "untested label": "not tested",
}
"""Templates of the sentence, for the site's script too."""


@dataclass(frozen=True)
class PairVerdict:
    """The tests of two methods, first - second in points.

    Args:
        interval: Of the pair alone, at 95%; None without a test, and where nothing varies.
        seeds: Of the first and of the second in the test, 0 for a row without seeds; of a test over tasks
            their number.
        test: Name of the test, or the obstacle to one.
        p: Of the pair alone, if tested.
        corrected: p after Holm's correction over the leaderboard's pairs, if it tests this one.
        pairs: Number of tested pairs of the leaderboard.
    """

    difference: float
    interval: tuple[float, float] | None
    seeds: tuple[int, int]
    test: str
    p: float | None
    corrected: float | None
    pairs: int

    @property
    def answer(self) -> str:
        """The name of the template that states the verdict: the rule of this module."""
        if self.p is None:
            return "untested"
        alone = self.p <= ALPHA
        if self.corrected is None:
            return "aside ahead" if alone else "aside open"
        if self.pairs == 1:
            return "only ahead" if self.corrected <= ALPHA else "only open"
        if self.corrected <= ALPHA:
            return "both"
        return "alone" if alone else "neither"

    @property
    def is_paired(self) -> bool:
        """True if the runs of a seed are pairs."""
        return self.test.startswith("paired")

    def reverse(self) -> PairVerdict:
        """Return the same tests as second - first."""
        ends = self.interval and (0.0 - self.interval[1], 0.0 - self.interval[0])
        return replace(self, difference=0.0 - self.difference, interval=ends, seeds=self.seeds[::-1])

    def describe(self, first: str, second: str, aside: Mapping[str, str] | None = None) -> str:
        """Return the verdict as one sentence; ``aside`` has the reasons of rows that are set aside.

        >>> verdict = PairVerdict(0.26, (-0.1, 0.62), (10, 10), "paired t", 0.14, 1.0, 1081)
        >>> print(verdict.describe("TNCSE", "JTCSE").partition(":")[0])
        TNCSE is 0.26 above JTCSE [-0.10, +0.62] (10 paired seeds)
        """
        is_above = self.difference >= 0
        reasons = [f"{name} ({reason})" for name, reason in (aside or {}).items()]
        answer = WORDS[self.answer].format(
            way=WORDS["ahead" if is_above else "behind"],
            pairs=f"{self.pairs:,}",
            aside=WORDS["and"].join(reasons),
            reason=self.test,
        )
        interval = ""
        if self.interval:
            low, high = (end / SCALE for end in self.interval)
            interval = WORDS["interval"].format(ends=format_difference_interval(low, high))
        return WORDS["lead"].format(
            a=first,
            b=second,
            gap=f"{abs(self.difference):.2f}",
            side=WORDS["above" if is_above else "below"],
            interval=interval,
            seeds=self.describe_seeds(),
            answer=answer,
        )

    def describe_seeds(self) -> str:
        """Count the seeds of the test."""
        n, m = self.seeds
        if self.test == OVER_TASKS:
            return WORDS["tasks"].format(n=n)
        if self.is_paired:
            return WORDS["paired"].format(n=n)
        if not n and not m:
            return WORDS["none"]
        if not (n and m):
            return WORDS["fixed"].format(n=n or m)
        return WORDS["each" if n == m else "apart"].format(n=n, m=m)


def round_points(points: float) -> float:
    """Return a difference in points with two decimals; near 0 with the digit that shows its sign.

    >>> round_points(0.257), round_points(-0.003)
    (0.26, -0.003)
    """
    return float(f"{points:.1g}") if abs(points) < 0.005 else round(points, 2)


def round_p_value(p: float) -> float:
    """Return a p with the digits that are printed; a tiny one keeps its first digit.

    >>> round_p_value(0.123456), round_p_value(0.00001234)
    (0.1235, 1e-05)
    """
    return round(p, 4) if p >= 0.0001 else float(f"{p:.1g}")
