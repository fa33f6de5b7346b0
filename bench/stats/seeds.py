"""Statistics over seeds: they hold for a method that is trained again. Scores are (runs,), one per seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from bench.stats.argument_checks import FloatArray, check_level, check_scores, check_sides

MAX_SEEDS = 40  # of both sides together in an exact test: a million half sums
UNEVEN, FEW = 2, 5
"""A side of fewer than ``FEW`` seeds, against ``UNEVEN`` times as many, sets the degrees of freedom."""
VariancePart = tuple[Any, float]
"""A variance, or an array of them, and its degrees of freedom."""
_LEAST_SPREAD = 1e-70
ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Of the largest score: the rounding error of sums of the same parts, and of two subtractions."""
_TIE = 1e-10  # of the largest score: sums that differ by less are one sum, rounded differently


@dataclass(frozen=True)
class SeedDifference:
    """The difference of two methods' mean scores, from their seeds; ``n_b`` is 1 for a fixed score.

    Args:
        difference: mean(a) - mean(b), in the scores' unit.
        t: None for constant scores, as ``df``.
        p: Two-sided; for constant scores 1 if the means are equal, otherwise ``least_p``.
        minimum_p: The smallest attainable p: 0, and ``least_p`` for constant scores.
    """

    difference: float
    low: float
    high: float
    t: float | None
    df: float | None
    p: float
    n_a: int
    n_b: int
    minimum_p: float = 0.0

    def reverse(self) -> SeedDifference:
        """Return the difference b - a."""
        t = None if self.t is None else -self.t
        ends = (-self.difference, -self.high, -self.low)
        return SeedDifference(*ends, t, self.df, self.p, self.n_b, self.n_a, self.minimum_p)


@dataclass(frozen=True)
class ExactTest:
    """An exact test of two methods' seeds; ``p`` is twice the smaller one-sided p, at most 1."""

    difference: float
    p: float
    minimum_p: float
    n_a: int
    n_b: int


def is_uneven(n_a: int, n_b: int) -> bool:
    """Return True if a side has fewer than ``FEW`` seeds and the other ``UNEVEN`` times as many, or 2 and 3.

    >>> is_uneven(4, 7), is_uneven(10, 4), is_uneven(5, 10), is_uneven(2, 3)
    (False, True, False, True)
    """
    few, many = sorted((n_a, n_b))
    return few < FEW and (many >= UNEVEN * few or few == 2 < many)


def side_parts(a: VariancePart, b: VariancePart) -> list[VariancePart]:
    """Return the parts of the variance of a difference between independent sides, with degrees of freedom.

    Uneven sides (:func:`is_uneven`) are one part with the smaller side's degrees of freedom. Satterthwaite's
    would be too many: with 3 and 10 seeds p <= 0.0005 4.6 times too often (benchmarks/ranks.py).

    >>> side_parts((0.1, 4), (0.2, 5)), side_parts((0.1, 2), (0.2, 5))
    ([(0.1, 4), (0.2, 5)], [(0.30000000000000004, 2)])
    """
    return [(a[0] + b[0], min(a[1], b[1]))] if is_uneven(round(a[1]) + 1, round(b[1]) + 1) else [a, b]


def satterthwaite(parts: Sequence[VariancePart]) -> Any:
    """Return the degrees of freedom of a sum of independent parts of variance, one of them above 0.

    >>> satterthwaite([(0.1, 4), (0.1, 4)]), satterthwaite([(0.3, 2)])
    (8.0, 2.0)
    """
    total = sum(part for part, _ in parts)
    return total**2 / sum(part**2 / freedom for part, freedom in parts)


def welch(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> SeedDifference:
    """Welch's t test and interval of (runs,) scores with unequal variances (Welch 1947, Biometrika 34).

    t = (mean a - mean b) / sqrt(s_a^2 / n_a + s_b^2 / n_b) with Satterthwaite's degrees of freedom, or with
    the smaller side's for uneven sides (:func:`is_uneven`). If both sides are constant, the interval is the
    observed difference and p that of ``least_p``. Measured: ``bench.stats.coverage``, method "welch".

    >>> test = welch([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(test.difference, 2), round(test.low, 2), round(test.high, 2), round(test.p, 3)
    (0.64, 0.21, 1.07, 0.01)
    """
    x, y = check_sides(a, b, 2)
    check_level(level)
    seeds = len(x), len(y)
    if not (_has_spread(x) or _has_spread(y)):
        return _constant_difference(float(x[0] - y[0]), *seeds)
    var_x, var_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    df = satterthwaite(side_parts((var_x, len(x) - 1), (var_y, len(y) - 1)))
    return _t_difference(float(x.mean() - y.mean()), math.sqrt(var_x + var_y), df, level, seeds)


def one_sample(a: ArrayLike, fixed: float, level: float = 0.95) -> SeedDifference:
    """Student's t test and interval of (runs,) scores against the score of a deterministic method.

    >>> test = one_sample([76.1, 76.4, 75.9, 76.3, 76.0], fixed=75.0)
    >>> round(test.difference, 2), round(test.low, 2), round(test.high, 2)
    (1.14, 0.88, 1.4)
    """
    x = check_scores(a, "a", least=2)
    value = float(check_scores([fixed], "fixed", least=1)[0])
    check_level(level)
    if not _has_spread(x):
        return _constant_difference(float(x[0]) - value, len(x), 1)
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return _t_difference(float(x.mean()) - value, error, len(x) - 1.0, level, (len(x), 1))


def seed_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> SeedDifference:
    """Welch's test of two methods' seeds; Student's if a side is the one score of a deterministic method.

    >>> test = seed_difference([75.0], [76.1, 76.4, 75.9, 76.3, 76.0])
    >>> round(test.difference, 2), round(test.low, 2), round(test.high, 2)
    (-1.14, -1.4, -0.88)
    """
    x, y = check_sides(a, b)
    if len(y) == 1:
        return one_sample(x, float(y[0]), level)
    if len(x) == 1:
        return one_sample(y, float(x[0]), level).reverse()
    return welch(x, y, level)


def exact_permutation(a: ArrayLike, b: ArrayLike) -> ExactTest:
    """Exact unpaired permutation test of the difference in means of (runs,) scores, over all splits.

    Its smallest p is 2 / C(n_a + n_b, n_a): 0.10 for 3 seeds against 3, 0.0079 for 5 against 5. Measured
    size: ``bench.stats.coverage``, method "permutation".

    >>> test = exact_permutation([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(test.p, 4), round(test.minimum_p, 4)
    (0.0159, 0.0079)
    """
    x, y = check_sides(a, b)
    pool = np.concatenate([x, y])
    _check_exact(len(pool))
    tie = _TIE * float(np.abs(pool).max())
    pool = pool - pool.mean()
    splits = math.comb(len(pool), len(x))
    half = len(pool) // 2
    (first, first_sizes), (second, second_sizes) = _subset_sums(pool[:half]), _subset_sums(pool[half:])
    observed, above, below = pool[: len(x)].sum(), 0, 0
    for size in range(max(0, len(x) - half), min(len(x), len(pool) - half) + 1):
        sums, sorted_sums = first[first_sizes == len(x) - size], np.sort(second[second_sizes == size])
        above += _count_at_least(sums, sorted_sums, observed - tie)
        below += _count_at_least(-sums, -sorted_sums[::-1], -observed - tie)
    return _build_exact_test(float(x.mean() - y.mean()), above, below, splits, len(x), len(y))


def sign_flip(a: ArrayLike, b: ArrayLike, *, same_order: bool) -> ExactTest:
    """Exact sign-flip test of the mean paired difference, over all 2^n signs (Fisher's randomisation test).

    ``same_order`` confirms that seed i of both methods saw the same data in the same order. The smallest p is
    2 / 2^n: 0.0625 for five seeds, 0.031 for six.

    >>> test = sign_flip([3, 4, 5, 6, 7, 8], [2, 2, 4, 4, 6, 6], same_order=True)
    >>> test.difference, test.p
    (1.5, 0.03125)
    """
    x, y = check_sides(a, b)
    if not same_order:
        raise ValueError("the seeds do not share a data order; use exact_permutation or welch")
    check_sides(x, y, paired=True)
    _check_exact(len(x))
    differences = x - y
    tie = _TIE * float(np.abs(np.concatenate([x, y])).max())
    half = len(x) // 2
    first, second = _signed_sums(differences[:half]), np.sort(_signed_sums(differences[half:]))
    observed = differences.sum()
    above = _count_at_least(first, second, observed - tie)
    below = _count_at_least(-first, -second[::-1], -observed - tie)
    return _build_exact_test(float(differences.mean()), above, below, 2 ** len(x), len(x), len(y))


def judge_p_value(
    p: float, minimum_p: float, alpha: float = 0.05
) -> Literal["differs", "not shown", "cannot show"]:
    """Return the verdict of a p at an error rate: "cannot show" if the test could not have reached it.

    >>> judge_p_value(0.03, minimum_p=0.0079), judge_p_value(0.1, minimum_p=0.1)
    ('differs', 'cannot show')
    """
    check_level(alpha)
    if not 0 <= minimum_p <= p <= 1:
        raise ValueError(f"p={p}, minimum_p={minimum_p}; expected 0 <= minimum_p <= p <= 1")
    if minimum_p > alpha:
        return "cannot show"
    return "differs" if p <= alpha else "not shown"


def least_p(n_a: int, n_b: int, *, paired: bool = False) -> float:
    """Return the smallest p of an exact test, which constant differences get, as a t test is undefined.

    It is 2 / 2^n for n pairs or n seeds against a fixed score, otherwise 2 / C(n_a + n_b, n_a); at most 1.

    >>> least_p(5, 5), least_p(5, 5, paired=True), least_p(5, 1)
    (0.007936507936507936, 0.0625, 0.0625)
    """
    if paired or min(n_a, n_b) == 1:
        return min(1.0, 2.0 ** (1 - max(n_a, n_b)))
    return min(1.0, 2 / math.comb(n_a + n_b, n_a))


def _has_spread(scores: FloatArray) -> bool:
    """True if the scores differ by more than the rounding of their averages."""
    return bool(np.ptp(scores) > max(_LEAST_SPREAD, ROUNDING * float(np.abs(scores).max())))


def _t_difference(
    difference: float, error: float, df: float, level: float, seeds: tuple[int, int]
) -> SeedDifference:
    t, half = difference / error, float(stdtrit(df, (1 + level) / 2)) * error
    p = 2 * float(stdtr(df, -abs(t)))
    return SeedDifference(difference, difference - half, difference + half, t, df, p, *seeds)


def _constant_difference(difference: float, n_a: int, n_b: int) -> SeedDifference:
    least = least_p(n_a, n_b)
    p = 1.0 if difference == 0 else least
    return SeedDifference(difference, difference, difference, None, None, p, n_a, n_b, least)


def _check_exact(n: int) -> None:
    if n > MAX_SEEDS:
        raise ValueError(f"{n} seeds in an exact test; expected at most {MAX_SEEDS}; use welch")


def _subset_sums(values: FloatArray) -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Sums and sizes of all 2^n subsets."""
    sums, sizes = np.zeros(1), np.zeros(1, dtype=np.int64)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    return sums, sizes


def _signed_sums(values: FloatArray) -> FloatArray:
    """Sums under all 2^n choices of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def _count_at_least(first: FloatArray, second: FloatArray, threshold: float) -> int:
    """Number of pairs of a sum and a sorted sum that together reach the threshold."""
    return int((len(second) - np.searchsorted(second, threshold - first)).sum())


def _build_exact_test(difference: float, above: int, below: int, total: int, n_a: int, n_b: int) -> ExactTest:
    return ExactTest(difference, min(1.0, 2 * min(above, below) / total), min(1.0, 2 / total), n_a, n_b)
