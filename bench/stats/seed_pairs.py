"""Pairs of seeds: the two runs of a pair share what the seed decides, so it cancels in their difference.

When pairs are valid: run i of both methods starts from the same trained stage, or sees the same batches in
the same order. The same number behind "seed" is not enough. What the records say of stages and batches
decides it, before any score is read: to choose by the correlation that was found is to choose by the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from bench.stats.inputs import FloatArray, check_level, check_scores
from bench.stats.seeds import least_p, welch

ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of the largest score: what two subtractions may be off


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two methods' scores, from pairs of seeds.

    Args:
        difference: mean(a - b), in the scores' unit.
        low: Lower end of its confidence interval.
        high: Upper end.
        t: The t statistic; None where the differences don't vary.
        df: Its degrees of freedom, n - 1; None where the differences don't vary.
        p: Two-sided p; where the differences don't vary, 1 for a difference of 0, else ``least_p``.
        n: Pairs.
        correlation: Pearson's correlation of the pairs; None where a side doesn't vary, and for two pairs, of
            which it is always 1 or -1.
        sd: Standard deviation of the differences.
        minimum_p: The smallest p that the test can give: 0, as t has no bound, but ``least_p`` where the
            differences don't vary.
    """

    difference: float
    low: float
    high: float
    t: float | None
    df: float | None
    p: float
    n: int
    correlation: float | None
    sd: float
    minimum_p: float = 0.0

    @property
    def n_a(self) -> int:
        """Seeds of a."""
        return self.n

    @property
    def n_b(self) -> int:
        """Seeds of b."""
        return self.n

    def turned(self) -> PairedDifference:
        """The same for b - a."""
        t = None if self.t is None else -self.t
        ends = (-self.difference, -self.high, -self.low)
        return PairedDifference(*ends, t, self.df, self.p, self.n, self.correlation, self.sd, self.minimum_p)


def paired_t(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> PairedDifference:
    """Student's paired t test and interval (Student 1908, Biometrika 6).

    t = mean(d) / (s_d / sqrt n) with d_i = a_i - b_i and n - 1 degrees of freedom. Exact for normal
    differences, whatever the correlation r of the pairs and however unequal the two spreads. Equal spreads
    give s_d^2 = 2 s^2 (1 - r): with five pairs and r = 0.99 the interval is an eighth as wide as Welch's,
    with r = 0 a little wider, as it has half the degrees of freedom. Differences that agree but for rounding
    don't vary. The measured coverage is in ``bench.stats.coverage``, method "paired t".

    Args:
        a: (runs,) scores of one method, at least two.
        b: (runs,) scores of the other; run i of both is a pair. The head of this module says when.
        level: Confidence level of the interval, in (0, 1).

    Returns:
        The difference, its interval and its p.

    Raises:
        ValueError: fewer than two pairs, numbers that differ, another shape, a score that is not finite, or a
            bad level.

    >>> found = paired_t([76.1, 76.4, 75.9, 76.3, 76.0], [75.8, 76.2, 75.7, 76.1, 75.7])
    >>> round(found.difference, 2), round(found.low, 2), round(found.high, 2), round(found.p, 4)
    (0.24, 0.17, 0.31, 0.0006)
    """
    x, y = _check_pairs(a, b)
    check_level(level)
    d, n, r = x - y, len(x), _pair_correlation(x, y)
    difference = float(d.mean())
    rounding = ROUNDING * float(np.abs([x, y]).max())
    if np.ptp(d) <= rounding:
        equal = abs(difference) <= rounding
        shown = 0.0 if equal else difference
        least = least_p(n, n, paired=True)
        p = 1.0 if equal else least
        return PairedDifference(shown, shown, shown, None, None, p, n, r, 0.0, least)
    sd = float(d.std(ddof=1))
    t = difference / (sd / math.sqrt(n))
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * sd / math.sqrt(n)
    p = float(2 * stats.t.sf(abs(t), n - 1))
    return PairedDifference(difference, difference - half, difference + half, t, n - 1.0, p, n, r, sd)


def pairing_gain(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> float | None:
    """What pairing gains: the width of Welch's interval divided by that of the paired one.

    4 means that the paired interval is a quarter as wide; below 1 it is the wider one. For equal spreads it
    is about t(2n - 2) / (t(n - 1) sqrt(1 - r)), with t the quantile for these degrees of freedom.

    Args:
        a: (runs,) scores of one method.
        b: (runs,) scores of the other, in pairs.
        level: Confidence level of both intervals.

    Returns:
        The ratio; None where the differences don't vary.

    Raises:
        ValueError: as ``paired_t``.

    >>> round(pairing_gain([76.1, 76.4, 75.9, 76.3, 76.0], [75.8, 76.2, 75.7, 76.1, 75.7]), 1)
    4.8
    """
    pairs, sides = paired_t(a, b, level), welch(a, b, level)
    return None if pairs.df is None else (sides.high - sides.low) / (pairs.high - pairs.low)


def _check_pairs(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = check_scores(a, "a", least=2), check_scores(b, "b", least=2)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} against {len(y)} seeds; expected pairs")
    return x, y


def _pair_correlation(x: FloatArray, y: FloatArray) -> float | None:
    """Pearson's correlation; None where it is undefined or can only be 1 or -1."""
    if len(x) < 3 or min(np.ptp(x), np.ptp(y)) <= ROUNDING * float(np.abs([x, y]).max()):
        return None
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))
