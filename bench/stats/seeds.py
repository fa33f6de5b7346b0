"""Statistics over seeds: they hold for a method, trained again. Scores are (runs,), one per seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from bench.stats.inputs import FloatArray, check_level, check_scores

MAX_SEEDS = 40  # of both sides together in an exact test: a million half sums
UNEVEN, FEW = 2, 5
"""Against ``UNEVEN`` times as many seeds or more, fewer than ``FEW`` lend a test their degrees of freedom."""
VariancePart = tuple[Any, int]
"""A variance, or an array of them, and its degrees of freedom."""
_LEAST_SPREAD = 1e-70
ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of the largest score: what sums of the same parts may be off
_TIE = 1e-10  # of the largest score: sums that differ by less are one sum, rounded differently


@dataclass(frozen=True)
class SeedDifference:
    """The difference of two methods' mean scores, from their seeds.

    Args:
        difference: mean(a) - mean(b), in the scores' unit.
        low: Lower end of its confidence interval.
        high: Upper end.
        t: The t statistic; None where no score varies.
        df: Its degrees of freedom; None where no score varies.
        p: Two-sided p; where no score varies, 1 for equal means, else ``least_p``.
        n_a: Seeds of a.
        n_b: Seeds of b; 1 for a fixed score.
        minimum_p: The smallest p that the test can give: 0, as t has no bound, but ``least_p`` where no score
            varies.
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

    def turned(self) -> SeedDifference:
        """The same for b - a."""
        t = None if self.t is None else -self.t
        ends = (-self.difference, -self.high, -self.low)
        return SeedDifference(*ends, t, self.df, self.p, self.n_b, self.n_a, self.minimum_p)


@dataclass(frozen=True)
class ExactTest:
    """An exact test of two methods' seeds.

    Args:
        difference: mean(a) - mean(b), in the scores' unit.
        p: Two-sided p, twice the smaller one-sided, at most 1.
        minimum_p: The smallest p that these numbers of seeds can give.
        n_a: Seeds of a.
        n_b: Seeds of b.
    """

    difference: float
    p: float
    minimum_p: float
    n_a: int
    n_b: int


def is_uneven(n_a: int, n_b: int) -> bool:
    """Whether one side has fewer than ``FEW`` seeds and the other ``UNEVEN`` times as many, or two and three.

    >>> is_uneven(4, 7), is_uneven(10, 4), is_uneven(5, 10), is_uneven(2, 3)
    (False, True, False, True)
    """
    few, many = sorted((n_a, n_b))
    return few < FEW and (many >= UNEVEN * few or few == 2 < many)


def side_parts(a: VariancePart, b: VariancePart) -> list[VariancePart]:
    """Return the parts of the variance of a difference between independent sides, with degrees of freedom.

    They are both sides', for Satterthwaite's degrees of freedom. Of sides as :func:`uneven` says they are one
    part with the smaller side's, as in textbooks: Satterthwaite's are too many wherever the smaller side's
    variance comes out small by chance, and Welch's p is too small where it is small already, which is where a
    correction for many comparisons reads it. Of equal methods with equal spread, 3 and 10 seeds had a p of
    0.0005 or less 4.6 times as often as they should, 2 and 10 seeds 18 times; of twenty such methods, half of
    them with the fewer seeds, some two were called different in 9% and 24%. With 5 and 10 seeds it was 4%
    (benchmarks/ranks.py).

    Args:
        a: Variance of one side's mean, or an array of them, and its degrees of freedom, seeds - 1.
        b: The other's.

    >>> side_parts((0.1, 4), (0.2, 5)), side_parts((0.1, 2), (0.2, 5))
    ([(0.1, 4), (0.2, 5)], [(0.30000000000000004, 2)])
    """
    return [(a[0] + b[0], min(a[1], b[1]))] if is_uneven(a[1] + 1, b[1] + 1) else [a, b]


def satterthwaite(parts: Sequence[VariancePart]) -> Any:
    """Return the degrees of freedom of a sum of independent parts of variance, one of them above 0.

    >>> satterthwaite([(0.1, 4), (0.1, 4)]), satterthwaite([(0.3, 2)])
    (8.0, 2.0)
    """
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / freedom for part, freedom in parts)


def welch(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> SeedDifference:
    """Welch's t test and interval for independent seeds with unequal variances (Welch 1947, Biometrika 34).

    t = (mean a - mean b) / sqrt(s_a^2 / n_a + s_b^2 / n_b) with Satterthwaite's degrees of freedom, or with
    the smaller side's where it has few seeds and the other many (:func:`uneven`). Where neither
    side varies, the interval is the observed difference itself, and p that of ``least_p``. It holds less than
    promised where single runs collapse; where the sides are pairs it is far too wide. The measured coverage
    is in ``bench.stats.coverage``, method "welch".

    Args:
        a: (runs,) scores of one method, at least two seeds.
        b: (runs,) scores of the other, at least two seeds.
        level: Confidence level of the interval, in (0, 1).

    Returns:
        The difference, its interval and its p.

    Raises:
        ValueError: fewer than two seeds on a side, another shape, a score that is not finite, a bad level.

    >>> found = welch([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(found.difference, 2), round(found.low, 2), round(found.high, 2), round(found.p, 3)
    (0.64, 0.21, 1.07, 0.01)
    """
    x, y = check_scores(a, "a", least=2), check_scores(b, "b", least=2)
    check_level(level)
    if not (_has_spread(x) or _has_spread(y)):
        return _without_spread(float(x[0] - y[0]), len(x), len(y))
    var_x, var_y = (float(one.var(ddof=1)) / len(one) for one in (x, y))
    df = satterthwaite(side_parts((var_x, len(x) - 1), (var_y, len(y) - 1)))
    return _t_difference(float(x.mean() - y.mean()), math.sqrt(var_x + var_y), df, level, (len(x), len(y)))


def one_sample(a: ArrayLike, fixed: float, level: float = 0.95) -> SeedDifference:
    """Student's t test and interval of a method's seeds against a score without seeds.

    For a deterministic method, which has one score and no variance over seeds. Don't use it for a single seed
    of a method that has seeds: that score varies.

    Args:
        a: (runs,) scores, at least two seeds.
        fixed: The deterministic score.
        level: Confidence level of the interval, in (0, 1).

    Returns:
        The difference, its interval and its p.

    Raises:
        ValueError: fewer than two seeds, another shape, a score that is not finite, a bad level.

    >>> found = one_sample([76.1, 76.4, 75.9, 76.3, 76.0], fixed=75.0)
    >>> round(found.difference, 2), round(found.low, 2), round(found.high, 2)
    (1.14, 0.88, 1.4)
    """
    x = check_scores(a, "a", least=2)
    value = float(check_scores([fixed], "fixed", least=1)[0])
    check_level(level)
    if not _has_spread(x):
        return _without_spread(float(x[0]) - value, len(x), 1)
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return _t_difference(float(x.mean()) - value, error, len(x) - 1.0, level, (len(x), 1))


def seed_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> SeedDifference:
    """Welch's test of two methods' seeds; Student's where a side is the one score of a deterministic method.

    Arguments, result and errors are those of ``welch`` and ``one_sample``.

    >>> found = seed_difference([75.0], [76.1, 76.4, 75.9, 76.3, 76.0])
    >>> round(found.difference, 2), round(found.low, 2), round(found.high, 2)
    (-1.14, -1.4, -0.88)
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    if len(y) == 1:
        return one_sample(x, float(y[0]), level)
    return one_sample(y, float(x[0]), level).turned() if len(x) == 1 else welch(x, y, level)


def exact_permutation(a: ArrayLike, b: ArrayLike) -> ExactTest:
    """Exact unpaired permutation test of the difference in means, over all splits of the pooled seeds.

    Its smallest p is 2 / C(n_a + n_b, n_a): 0.10 for 3 seeds against 3, 0.0079 for 5 against 5. Measured
    size: ``bench.stats.coverage``, method "permutation". All splits are counted, by pairing the sums of
    subsets of one half of the pool with those of the other.

    Args:
        a: (runs,) scores of one method.
        b: (runs,) scores of the other; the seeds need not correspond.

    Returns:
        The difference, its p, and the smallest p that these numbers of seeds can give.

    Raises:
        ValueError: another shape, no seed on a side, more than 40 in all, or a score that is not finite.

    >>> found = exact_permutation([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7])
    >>> round(found.p, 4), round(found.minimum_p, 4)
    (0.0159, 0.0079)
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    pool, tie = _center_pool(np.concatenate([x, y]))
    splits = math.comb(len(pool), len(x))
    half = len(pool) // 2
    (first, first_sizes), (second, second_sizes) = _subset_sums(pool[:half]), _subset_sums(pool[half:])
    observed, above, below = pool[: len(x)].sum(), 0, 0
    for size in range(max(0, len(x) - half), min(len(x), len(pool) - half) + 1):
        one, other = first[first_sizes == len(x) - size], np.sort(second[second_sizes == size])
        above += _count_at_least(one, other, observed - tie)
        below += _count_at_least(-one, -other[::-1], -observed - tie)
    return _build_exact_test(float(x.mean() - y.mean()), above, below, splits, len(x), len(y))


def sign_flip(a: ArrayLike, b: ArrayLike, *, same_order: bool) -> ExactTest:
    """Exact sign-flip test of the mean paired difference, over all 2^n signs (Fisher's randomisation test).

    Pairs are only valid where seed i of both methods saw the same data in the same order. Its smallest p is
    2 / 2^n: 0.0625 for five seeds, 0.031 for six.

    Args:
        a: (runs,) scores of one method.
        b: (runs,) scores of the other, its seeds in the same order.
        same_order: True if the runs of each pair share their data order; only the caller can know.

    Returns:
        The difference, its p, and the smallest p that so many pairs can give.

    Raises:
        ValueError: the runs share no data order, their numbers differ, no pair or more than 40,
            another shape, or a score that is not finite.

    >>> found = sign_flip([3, 4, 5, 6, 7, 8], [2, 2, 4, 4, 6, 6], same_order=True)
    >>> found.difference, found.p
    (1.5, 0.03125)
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    if not same_order:
        raise ValueError(
            "the seeds do not share a data order, so they are not pairs; use exact_permutation or welch"
        )
    if len(x) != len(y):
        raise ValueError(f"{len(x)} against {len(y)} seeds; expected pairs")
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
    """Return what a p says at an error rate: "cannot show" where the test could not have reached it.

    Raises:
        ValueError: a p outside [0, 1] or below its minimum, or an error rate outside (0, 1).

    >>> judge_p_value(0.03, minimum_p=0.0079), judge_p_value(0.1, minimum_p=0.1)
    ('differs', 'cannot show')
    """
    check_level(alpha)
    if not 0 <= minimum_p <= p <= 1:
        raise ValueError(f"p={p}, minimum_p={minimum_p}; expected 0 <= minimum_p <= p <= 1")
    if minimum_p > alpha:
        return "cannot show"
    return "differs" if p <= alpha else "not shown"


def _has_spread(scores: FloatArray) -> bool:
    """True if the scores differ by more than the rounding of their averages."""
    return bool(np.ptp(scores) > max(_LEAST_SPREAD, ROUNDING * float(np.abs(scores).max())))


def _t_difference(
    difference: float, error: float, df: float, level: float, seeds: tuple[int, int]
) -> SeedDifference:
    """A t test of a difference with this standard error."""
    t, half = difference / error, float(stdtrit(df, (1 + level) / 2)) * error
    p = 2 * float(stdtr(df, -abs(t)))
    return SeedDifference(difference, difference - half, difference + half, t, df, p, *seeds)


def least_p(n_a: int, n_b: int, *, paired: bool = False) -> float:
    """The smallest p of an exact test, which is what differences show that don't vary at all.

    A t test has no answer to them. That no spread was seen does not make it 0: with accuracies of 80% on 100
    items two pairs of runs of equal methods have the same difference, not 0, in one of 22 comparisons.

    Args:
        n_a: Seeds of a, or pairs.
        n_b: Seeds of b, or pairs; a single one is a fixed score.
        paired: Whether they are pairs.

    Returns:
        2 / 2^n for n pairs, or n seeds against a fixed score; else 2 / C(n_a + n_b, n_a); at most 1.

    >>> least_p(5, 5), least_p(5, 5, paired=True), least_p(5, 1)
    (0.007936507936507936, 0.0625, 0.0625)
    """
    alone = paired or min(n_a, n_b) == 1
    return min(1.0, 2 / (2 ** max(n_a, n_b) if alone else math.comb(n_a + n_b, n_a)))


def _without_spread(difference: float, n_a: int, n_b: int) -> SeedDifference:
    least = least_p(n_a, n_b)
    p = 1.0 if difference == 0 else least
    return SeedDifference(difference, difference, difference, None, None, p, n_a, n_b, least)


def _check_exact(n: int) -> None:
    if n > MAX_SEEDS:
        raise ValueError(f"{n} seeds in an exact test; expected at most {MAX_SEEDS}; use welch")


def _center_pool(pool: FloatArray) -> tuple[FloatArray, float]:
    """Return the pool about its mean, and how far apart rounding alone may put two sums of it."""
    _check_exact(len(pool))
    return pool - pool.mean(), _TIE * float(np.abs(pool).max())


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
