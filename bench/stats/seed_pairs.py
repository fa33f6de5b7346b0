"""Pairs of seeds: the two runs of a pair share what the seed decides, so it cancels in their difference.

Run i of both methods starts from the same trained stage, or sees the same batches in the same order. The
records decide it before any score is read: a choice by the observed correlation is one by the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from bench.stats.argument_checks import check_level, check_sides
from bench.stats.seeds import ROUNDING, least_p, welch


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two methods' scores, from n pairs of seeds.

    Args:
        t: None for constant differences, as ``df``.
        p: Two-sided; for constant differences 1 if they are 0, otherwise ``least_p``, then ``minimum_p``.
        correlation: Pearson's correlation of the pairs; None for a constant side, and for two pairs.
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


def paired_t(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> PairedDifference:
    """Student's paired t test and interval of (runs,) scores (Student 1908, Biometrika 6).

    t = mean(d) / (s_d / sqrt n) with d_i = a_i - b_i and n - 1 degrees of freedom, exact for normal
    differences. Differences that agree but for rounding count as constant. Measured:
    ``bench.stats.coverage``, method "paired t".

    >>> test = paired_t([76.1, 76.4, 75.9, 76.3, 76.0], [75.8, 76.2, 75.7, 76.1, 75.7])
    >>> round(test.difference, 2), round(test.low, 2), round(test.high, 2), round(test.p, 4)
    (0.24, 0.17, 0.31, 0.0006)
    """
    x, y = check_sides(a, b, 2, paired=True)
    check_level(level)
    d, n, r = x - y, len(x), None
    difference = float(d.mean())
    rounding = ROUNDING * float(np.abs([x, y]).max())
    if n > 2 and min(np.ptp(x), np.ptp(y)) > rounding:  # otherwise undefined, or always 1 or -1
        r = float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))
    if np.ptp(d) <= rounding:
        least = least_p(n, n, paired=True)
        if abs(difference) <= rounding:
            return PairedDifference(0.0, 0.0, 0.0, None, None, 1.0, n, r, 0.0, least)
        return PairedDifference(difference, difference, difference, None, None, least, n, r, 0.0, least)
    sd = float(d.std(ddof=1))
    t = difference / (sd / math.sqrt(n))
    half = float(stdtrit(n - 1, (1 + level) / 2)) * sd / math.sqrt(n)
    p = 2 * float(stdtr(n - 1, -abs(t)))
    return PairedDifference(difference, difference - half, difference + half, t, n - 1.0, p, n, r, sd)


def pairing_gain(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> float | None:
    """Return the width of Welch's interval divided by that of the paired one; None for constant differences.

    >>> round(pairing_gain([76.1, 76.4, 75.9, 76.3, 76.0], [75.8, 76.2, 75.7, 76.1, 75.7]), 1)
    4.8
    """
    pairs, sides = paired_t(a, b, level), welch(a, b, level)
    return None if pairs.df is None else (sides.high - sides.low) / (pairs.high - pairs.low)
