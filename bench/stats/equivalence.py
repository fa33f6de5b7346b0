"""Equality within a margin, claimed leads, and the differences that the data cannot rule out.

The null hypotheses are reversed: the true difference is as large as the margin, or smaller than the claim.
:func:`estimate_from_interval` makes the :class:`DifferenceEstimate` of any t interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import stdtrit

from bench.stats.argument_checks import check_level, check_sides
from bench.stats.seeds import satterthwaite, side_parts


class DifferenceInterval(Protocol):
    """A difference a - b with a t interval, such as ``SeedDifference``; ``df`` is None if nothing varies."""

    @property
    def difference(self) -> float:
        """The difference."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def df(self) -> float | None:
        """Degrees of freedom."""


@dataclass(frozen=True)
class DifferenceEstimate:
    """A difference a - b whose error follows Student's t.

    Args:
        error: Its standard error; 0 if nothing varies.
        df: Degrees of freedom of the error; infinite for a normal error, and if nothing varies.
        also: (error, df) of further t intervals that have to hold; the widest one depends on the level.
    """

    difference: float
    error: float
    df: float
    also: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for impossible numbers."""
        for error, df in self._errors:
            if not (math.isfinite(self.difference) and 0 <= error < math.inf and df > 0):
                raise ValueError(f"difference={self.difference}, error={error}, df={df}")

    @property
    def _errors(self) -> tuple[tuple[float, float], ...]:
        return ((self.error, self.df), *self.also)

    def half(self, share: float) -> float:
        """Return the distance from the difference to the quantile of a share, in (0, 1)."""
        distances = [error and error * float(stats.t.ppf(share, df)) for error, df in self._errors]
        return max(distances, key=abs)

    def below(self, value: float) -> float:
        """Return the p of the one-sided test that the true difference is below a value."""
        distance, p = self.difference - value, 0.0
        for error, df in self._errors:
            p = max(p, float(stats.t.cdf(distance / error, df)) if error else float(distance >= 0))
        return p

    def above(self, value: float) -> float:
        """Return the p of the one-sided test that the true difference is above a value."""
        return replace(self, difference=-self.difference).below(-value)


@dataclass(frozen=True)
class Equivalence:
    """The verdict on equality within a margin; ``level`` is 1 - alpha, the error rate of every test here.

    Args:
        verdict: "equal within": significantly inside (-margin, margin). "different": significantly outside.
            "not shown": neither.
        p_lower: p of the test that the true difference is -margin or less.
        p_upper: p of the test that it is margin or more.
        p_different: p of the two-sided test that it is within the margin.
        largest: The larger of |low| and |high|: a bound of the absolute difference, of level 1 - alpha.
    """

    verdict: Literal["equal within", "not shown", "different"]
    margin: float
    level: float
    p_lower: float
    p_upper: float
    p_different: float
    low: float
    high: float
    largest: float

    @property
    def p(self) -> float:
        """The p of "equal within": the larger of the two."""
        return max(self.p_lower, self.p_upper)


@dataclass(frozen=True)
class Claim:
    """The verdict on a claimed lead of a over b; ``low`` and ``high`` are bounds of the level 1 - alpha each.

    Args:
        verdict: "supported": significantly as large as claimed. "contradicted": significantly smaller.
            "not supported": neither.
        p: p of the test that the true difference is smaller than claimed: a small p supports the claim.
        p_against: p of the test that it is as large as claimed: a small p contradicts the claim.
    """

    verdict: Literal["supported", "not supported", "contradicted"]
    size: float
    level: float
    p: float
    p_against: float
    low: float
    high: float


def estimate_from_interval(
    interval: DifferenceInterval, level: float = 0.95, also: tuple[tuple[float, float], ...] = ()
) -> DifferenceEstimate:
    """Return the difference, standard error and degrees of freedom behind a t interval.

    error = (high - low) / (2 t), with t the quantile of (1 + level) / 2 at the interval's degrees of freedom.
    ``also`` has (error, df) of other intervals that have to hold too, from ``variance_components``.

    >>> from bench.stats.seeds import welch
    >>> estimate = estimate_from_interval(welch([1, 2, 3], [2, 4, 5, 6]))
    >>> estimate.difference, round(estimate.error**2, 4), round(estimate.df, 2)  # 1 / 3 + 35 / 48
    (-2.25, 1.0625, 4.85)
    """
    check_level(level)
    if interval.df is None:
        return DifferenceEstimate(interval.difference, 0.0, math.inf, also)
    t = float(stats.t.ppf((1 + level) / 2, interval.df))
    error = (interval.high - interval.low) / (2 * t)
    return DifferenceEstimate(interval.difference, error, interval.df, also)


def largest_possible_difference(estimate: DifferenceEstimate, level: float = 0.95) -> float:
    """Return the largest absolute difference that the data cannot rule out, in the scores' unit.

    |difference| + t error, with t the quantile of the level, in (0.5, 1).

    >>> round(largest_possible_difference(DifferenceEstimate(-0.05, 0.61, 8)), 2)
    1.18
    """
    _check_one_sided_level(level)
    return abs(estimate.difference) + estimate.half(level)


def equivalence_test(estimate: DifferenceEstimate, margin: float, level: float = 0.95) -> Equivalence:
    """Two one-sided tests of equality within a margin (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15).

    The margin is above 0 and chosen before the scores are seen; the level is in (0.5, 1). "Equal within":
    both t tests, of difference <= -margin and of difference >= margin, have p <= alpha. "Different": the
    two-sided interval of the level is outside the margin. Measured: ``bench.stats.coverage``, method
    "equivalence".

    >>> result = equivalence_test(DifferenceEstimate(-0.05, 0.08, 4), margin=0.3)
    >>> result.verdict, round(result.p, 3), round(result.largest, 2)
    ('equal within', 0.018, 0.22)
    >>> equivalence_test(DifferenceEstimate(-0.05, 0.61, 8), margin=0.3).verdict
    'not shown'
    """
    _check_one_sided_level(level)
    if not 0 < margin < math.inf:
        raise ValueError(f"margin={margin}; expected a number above 0")
    alpha, half = 1 - level, estimate.half(level)
    lower, upper = estimate.above(-margin), estimate.below(margin)
    beyond = min(1.0, 2 * min(estimate.above(margin), estimate.below(-margin)))
    verdict: Literal["equal within", "not shown", "different"] = "not shown"
    if max(lower, upper) <= alpha:
        verdict = "equal within"
    elif beyond <= alpha:
        verdict = "different"
    ends = (estimate.difference - half, estimate.difference + half)
    largest = largest_possible_difference(estimate, level)
    return Equivalence(verdict, margin, level, lower, upper, beyond, *ends, largest)


def claim_test(estimate: DifferenceEstimate, size: float, level: float = 0.95) -> Claim:
    """Test a claimed lead: "a is better than b by at least ``size``".

    Two one-sided t tests, each at alpha: the true difference is smaller than claimed, and it is as large. A
    size below 0 asks for non-inferiority: -0.3 for "a is at most 0.3 worse".

    >>> lead = DifferenceEstimate(2.36, 0.55, 5)
    >>> claim_test(lead, 0.9).verdict, claim_test(lead, 2.0).verdict, claim_test(lead, 4.0).verdict
    ('supported', 'not supported', 'contradicted')
    """
    _check_one_sided_level(level)
    if not math.isfinite(size):
        raise ValueError(f"size={size}; expected a finite number")
    p, against, half = estimate.above(size), estimate.below(size), estimate.half(level)
    verdict: Literal["supported", "not supported", "contradicted"] = "not supported"
    if p <= 1 - level:
        verdict = "supported"
    elif against <= 1 - level:
        verdict = "contradicted"
    return Claim(verdict, size, level, p, against, estimate.difference - half, estimate.difference + half)


def predict_run_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Return a prediction interval (low, high) for the difference of one further run of each method.

    The runs are unpaired: difference -+ t sqrt(V) with V = s_a^2 (1 + 1 / n_a) + s_b^2 (1 + 1 / n_b) and
    Satterthwaite's degrees of freedom of V. A published difference outside needs more than other seeds.

    >>> low, high = predict_run_difference([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(low, 2), round(high, 2)
    (-0.4, 1.68)
    """
    x, y = check_sides(a, b)
    check_level(level)
    if len(x) == len(y) == 1:
        raise ValueError("one run of each method; expected at least two seeds of one of them")
    sides = [side for side in (x, y) if len(side) > 1]
    parts = [(float(side.var(ddof=1)) * (1 + 1 / len(side)), len(side) - 1) for side in sides]
    difference, total = float(x.mean() - y.mean()), sum(part for part, _ in parts)
    if total == 0:
        return difference, difference
    df = satterthwaite(side_parts(*parts) if len(parts) == 2 else parts)
    half = float(stdtrit(df, (1 + level) / 2)) * math.sqrt(total)
    return difference - half, difference + half


def _check_one_sided_level(level: float) -> None:
    if not 0.5 < level < 1:
        raise ValueError(f"level={level}; expected a number in (0.5, 1)")
