"""What the data leave possible: are two methods equal within a margin, is a claimed lead supported?

A test that shows no difference shows no equality either. Here the hypotheses are turned round: that the true
difference is as large as the margin, or smaller than the claim, is what the data must refute.

All functions take an :class:`Estimate`: a difference, its standard error and its degrees of freedom. Any t
interval gives one (:func:`estimate`): Welch's, Student's, the paired one, those of variance components.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from numpy.typing import ArrayLike
from scipy import stats

from bench.stats.inputs import check_level, check_scores
from bench.stats.seeds import satterthwaite, side_parts


class DifferenceInterval(Protocol):
    """A difference with a t interval, such as ``SeedDifference`` or ``ComponentsDifference``."""

    @property
    def difference(self) -> float:
        """The difference, a - b."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def df(self) -> float | None:
        """Degrees of freedom; None where nothing varies."""


@dataclass(frozen=True)
class DifferenceEstimate:
    """A difference whose error follows Student's t.

    Args:
        difference: a - b.
        error: Its standard error; 0 where nothing varies.
        df: Degrees of freedom of the error; infinite for a normal one, and where nothing varies.
        also: (error, df) of further t intervals that have to hold; which is the widest depends on the level.
    """

    difference: float
    error: float
    df: float
    also: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that no estimate can have."""
        for error, df in self._errors:
            if not (math.isfinite(self.difference) and 0 <= error < math.inf and df > 0):
                raise ValueError(f"difference={self.difference}, error={error}, df={df}")

    @property
    def _errors(self) -> tuple[tuple[float, float], ...]:
        return ((self.error, self.df), *self.also)

    def half(self, share: float) -> float:
        """How far the quantile of a share, in (0, 1), lies above the difference."""
        quantiles = (error * float(stats.t.ppf(share, df)) if error else 0.0 for error, df in self._errors)
        return max(quantiles, key=abs)

    def below(self, value: float) -> float:
        """The p of the one-sided test whose rejection shows a true difference below a value."""
        away = self.difference - value
        return max(
            float(stats.t.cdf(away / error, df)) if error else float(away >= 0) for error, df in self._errors
        )

    def above(self, value: float) -> float:
        """The p of the one-sided test whose rejection shows a true difference above a value."""
        return replace(self, difference=-self.difference).below(-value)


@dataclass(frozen=True)
class Equivalence:
    """Whether a difference is smaller than a margin.

    Args:
        verdict: "equal within" where the data show a true difference between -margin and margin, "different"
            where they show one beyond, else "not shown".
        margin: The margin, in the scores' unit.
        level: 1 less the error rate alpha of every test here.
        p_lower: p of the test that the true difference is -margin or less.
        p_upper: p of the test that it is margin or more.
        p_different: p of the test that it is within the margin, two-sided.
        low: Lower end of the interval of level 1 - 2 alpha, and lower bound of level 1 - alpha.
        high: Upper end, and upper bound.
        largest: The largest absolute difference that the data leave possible, the larger of |low| and |high|:
            a bound of level 1 - alpha, and the smallest margin with the verdict "equal within".
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
    """Whether the data support a lead of at least some size.

    Args:
        verdict: "supported" where the data show a true difference of the size or more, "contradicted" where
            they show a smaller one, else "not supported".
        size: The claimed difference, a - b.
        level: 1 less the error rate alpha of both tests.
        p: p of the test that the true difference is smaller than claimed: small speaks for the claim.
        p_against: p of the test that it is as large as claimed: small speaks against it.
        low: Lower bound of the true difference, of level 1 - alpha.
        high: Upper bound, of level 1 - alpha.
    """

    verdict: Literal["supported", "not supported", "contradicted"]
    size: float
    level: float
    p: float
    p_against: float
    low: float
    high: float


def estimate_from_interval(
    found: DifferenceInterval, level: float = 0.95, also: tuple[tuple[float, float], ...] = ()
) -> DifferenceEstimate:
    """Return the difference, standard error and degrees of freedom behind a t interval.

    error = (high - low) / (2 t), with t the quantile of (1 + level) / 2 at the interval's degrees of freedom.

    Args:
        found: What ``welch``, ``one_sample``, ``seed_difference``, ``paired_t`` or ``variance_components``
            returned; not a bootstrap's percentile interval.
        level: The level it was computed at.
        also: (error, df) of other intervals that have to hold too, as ``variance_components`` gives them.

    Raises:
        ValueError: a bad level, or ends that are not finite.

    >>> from bench.stats.seeds import welch
    >>> found = estimate_from_interval(welch([1, 2, 3], [2, 4, 5, 6]))
    >>> found.difference, round(found.error**2, 4), round(found.df, 2)  # 1 / 3 + 35 / 48
    (-2.25, 1.0625, 4.85)
    """
    check_level(level)
    if found.df is None:
        return DifferenceEstimate(found.difference, 0.0, math.inf, also)
    t = float(stats.t.ppf((1 + level) / 2, found.df))
    return DifferenceEstimate(found.difference, (found.high - found.low) / (2 * t), found.df, also)


def largest_possible_difference(found: DifferenceEstimate, level: float = 0.95) -> float:
    """The largest absolute difference that the data leave possible, at a level.

    The larger of |difference - t error| and |difference + t error|, with t the quantile of the level: the
    true absolute difference lies above it in at most 1 - level of all repetitions.

    Args:
        found: The difference.
        level: Level of the bound, in (0.5, 1).

    Returns:
        A number of at least 0, in the scores' unit.

    Raises:
        ValueError: a bad level.

    >>> round(largest_possible_difference(DifferenceEstimate(-0.05, 0.61, 8)), 2)
    1.18
    """
    _check_one_sided_level(level)
    return abs(found.difference) + found.half(level)


def equivalence_test(found: DifferenceEstimate, margin: float, level: float = 0.95) -> Equivalence:
    """Two one-sided tests of equality within a margin (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15).

    "Equal within" where both t tests, of difference <= -margin and of difference >= margin, have p <= alpha:
    the interval of level 1 - 2 alpha lies inside the margin. "Different" where the two-sided interval of the
    level lies outside; a difference from 0 alone is not enough for that. Either is wrong in at most alpha of
    all repetitions (measured: ``bench.stats.coverage``, method "equivalence").

    Args:
        found: The difference.
        margin: The largest difference that counts as equal, above 0; chosen before the scores are seen.
        level: 1 - alpha, in (0.5, 1).

    Returns:
        The verdict, its p values, and what the data leave possible.

    Raises:
        ValueError: a margin that is not above 0, or a bad level.

    >>> said = equivalence_test(DifferenceEstimate(-0.05, 0.08, 4), margin=0.3)
    >>> said.verdict, round(said.p, 3), round(said.largest, 2)
    ('equal within', 0.018, 0.22)
    >>> equivalence_test(DifferenceEstimate(-0.05, 0.61, 8), margin=0.3).verdict
    'not shown'
    """
    _check_one_sided_level(level)
    if not 0 < margin < math.inf:
        raise ValueError(f"margin={margin}; expected a number above 0")
    alpha, half = 1 - level, found.half(level)
    lower, upper = found.above(-margin), found.below(margin)
    beyond = min(1.0, 2 * min(found.above(margin), found.below(-margin)))
    verdict: Literal["equal within", "not shown", "different"] = "not shown"
    if max(lower, upper) <= alpha:
        verdict = "equal within"
    elif beyond <= alpha:
        verdict = "different"
    ends = (found.difference - half, found.difference + half)
    return Equivalence(
        verdict, margin, level, lower, upper, beyond, *ends, largest_possible_difference(found, level)
    )


def claim_test(found: DifferenceEstimate, size: float, level: float = 0.95) -> Claim:
    """Test a claimed lead: "a is better than b by at least ``size``".

    Two one-sided t tests, each at alpha: that the true difference is smaller than claimed, and that it is
    not. A size below 0 asks for non-inferiority: -0.3 for "a is at most 0.3 worse".

    Args:
        found: The difference a - b.
        size: The claimed difference.
        level: 1 - alpha, in (0.5, 1).

    Returns:
        The verdict, its p values and the two bounds.

    Raises:
        ValueError: a size that is not finite, or a bad level.

    >>> lead = DifferenceEstimate(2.36, 0.55, 5)
    >>> claim_test(lead, 0.9).verdict, claim_test(lead, 2.0).verdict, claim_test(lead, 4.0).verdict
    ('supported', 'not supported', 'contradicted')
    """
    _check_one_sided_level(level)
    if not math.isfinite(size):
        raise ValueError(f"size={size}; expected a finite number")
    p, against, half = found.above(size), found.below(size), found.half(level)
    verdict: Literal["supported", "not supported", "contradicted"] = "not supported"
    if p <= 1 - level:
        verdict = "supported"
    elif against <= 1 - level:
        verdict = "contradicted"
    return Claim(verdict, size, level, p, against, found.difference - half, found.difference + half)


def predict_run_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Where the difference of one further run of each method would lie: a prediction interval.

    To check a published difference of two single checkpoints: outside of it, other seeds alone do not explain
    the difference to ours. The runs are unpaired: difference -+ t sqrt(V) with V = s_a^2 (1 + 1 / n_a) +
    s_b^2 (1 + 1 / n_b) and Satterthwaite's degrees of freedom of V.

    Args:
        a: (runs,) scores of one method, at least two seeds, or the one score of a deterministic method.
        b: The same of the other; one of both has seeds.
        level: Level of the interval, in (0, 1).

    Returns:
        (low, high); both the difference itself where nothing varies.

    Raises:
        ValueError: too few seeds, another shape, a score that is not finite, or a bad level.

    >>> low, high = predict_run_difference([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(low, 2), round(high, 2)
    (-0.4, 1.68)
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    check_level(level)
    if len(x) == len(y) == 1:
        raise ValueError("one run of each method; expected at least two seeds of one of them")
    parts = [(float(s.var(ddof=1)) * (1 + 1 / len(s)), len(s) - 1) for s in (x, y) if len(s) > 1]
    difference, total = float(x.mean() - y.mean()), sum(part for part, _ in parts)
    if total == 0:
        return difference, difference
    df = satterthwaite(side_parts(*parts) if len(parts) == 2 else parts)
    half = float(stats.t.ppf((1 + level) / 2, df)) * math.sqrt(total)
    return difference - half, difference + half


def _check_one_sided_level(level: float) -> None:
    if not 0.5 < level < 1:
        raise ValueError(f"level={level}; expected a number in (0.5, 1)")
