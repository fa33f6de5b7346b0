"""Rank correlations of two lists, partial ones, and tests of two correlations that share a variable.

The tests are derived for Pearson's r of normal variables. With Spearman's rho and graded gold scores they
reject equal systems a little too often (``bench.stats.coverage``, methods "williams" and "steiger").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from bench.stats.argument_checks import MIN_PAIRS
from bench.stats.item_statistics import spearman_interval
from bench.stats.resampling import spearman_rows

EQUAL = 1e-12
"""Rank correlations nearer to 1 or -1 are 1 or -1 but for rounding."""


@dataclass(frozen=True)
class CorrelationTest:
    """A test of r12 = r13; ``statistic`` is t (Williams) or z (Steiger), ``df`` is None for z."""

    difference: float
    statistic: float
    df: int | None
    p: float
    n: int


def williams(r12: float, r13: float, r23: float, n: int) -> CorrelationTest:
    """Williams' t of two correlations with a shared variable (Williams 1959; Steiger 1980, eq. 7).

    Variable 1 is the gold score, 2 and 3 are the systems; n >= 4 is the number of pairs.
    t = (r12 - r13) sqrt((n - 1)(1 + r23) / (2 (n - 1) / (n - 3) |R| + m^2 (1 - r23)^3)), n - 3 degrees of
    freedom, |R| = 1 - r12^2 - r13^2 - r23^2 + 2 r12 r13 r23 and m = (r12 + r13) / 2.

    >>> test = williams(0.5, 0.4, 0.1, n=103)
    >>> round(test.statistic, 3), test.df, round(test.p, 3)
    (0.891, 100, 0.375)
    """
    determinant = _check_determinant(r12, r13, r23, n)
    if r12 == r13:
        return CorrelationTest(0.0, 0.0, n - 3, 1.0, n)
    mean = (r12 + r13) / 2
    scale = 2 * (n - 1) / (n - 3) * determinant + mean**2 * (1 - r23) ** 3
    if scale == 0:
        raise ValueError(f"r12={r12}, r13={r13}, r23={r23}: the statistic is undefined")
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / scale)
    return CorrelationTest(r12 - r13, t, n - 3, float(2 * stats.t.sf(abs(t), n - 3)), n)


def steiger(r12: float, r13: float, r23: float, n: int) -> CorrelationTest:
    """Steiger's z of two correlations with a shared variable, from pooled estimates (Steiger 1980, eq. 14).

    z = (atanh r12 - atanh r13) sqrt((n - 3) / (2 - 2 s)), s = psi / (1 - m^2)^2 with m = (r12 + r13) / 2 and
    psi = r23 (1 - 2 m^2) - m^2 (1 - 2 m^2 - r23^2) / 2.

    >>> test = steiger(0.5, 0.4, 0.1, n=103)
    >>> round(test.statistic, 3), round(test.p, 3)
    (0.889, 0.374)
    """
    _check_determinant(r12, r13, r23, n)
    if max(abs(r12), abs(r13)) == 1:
        raise ValueError(f"r12={r12}, r13={r13}; expected correlations inside (-1, 1)")
    if r12 == r13:
        return CorrelationTest(0.0, 0.0, None, 1.0, n)
    square = ((r12 + r13) / 2) ** 2
    psi = r23 * (1 - 2 * square) - square * (1 - 2 * square - r23**2) / 2
    s = psi / (1 - square) ** 2
    z = (math.atanh(r12) - math.atanh(r13)) * math.sqrt((n - 3) / (2 - 2 * s))
    return CorrelationTest(r12 - r13, z, None, float(2 * stats.norm.sf(abs(z))), n)


@dataclass(frozen=True)
class RankCorrelation:
    """The rank correlation of two lists of n numbers; ties have average ranks.

    ``rho`` and Kendall's ``tau``-b are None for fewer than four numbers, or a constant list; the interval
    (Bonett and Wright 2000) is also None if rho is 1 or -1.
    """

    n: int
    rho: float | None
    low: float | None
    high: float | None
    level: float
    tau: float | None


def rank_correlation(
    x: Sequence[float], y: Sequence[float], level: float = 0.95, independent: int | None = None
) -> RankCorrelation:
    """Correlate two lists (n,) by their ranks; ``independent`` entries count for rho's interval, default all.

    >>> order = rank_correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    >>> round(order.rho, 3), round(order.tau, 3), round(order.low, 2), round(order.high, 2)
    (0.8, 0.6, -0.46, 0.99)
    """
    n = len(x)
    if n != len(y):
        raise ValueError(f"{n} and {len(y)} numbers")
    if n < MIN_PAIRS or min(len(set(x)), len(set(y))) < 2:
        return RankCorrelation(n, None, None, None, level, None)
    rho, tau = float(spearman_rows(x, y)[0]), float(stats.kendalltau(x, y).statistic)
    if 1 - abs(rho) < EQUAL:
        return RankCorrelation(n, math.copysign(1.0, rho), None, None, level, tau)
    count = n if independent is None else min(n, independent)
    low, high = spearman_interval(rho, count, level) if count >= MIN_PAIRS else (None, None)
    return RankCorrelation(n, rho, low, high, level, tau)


def partial_spearman(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> float:
    """Spearman's correlation of x and y with z held fixed (Kendall and Stuart 1979, vol. 2, ch. 27).

    (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2) (1 - r_yz^2)) of the three Spearman correlations: Pearson's
    correlation of the residuals of linear regressions of the ranks of x and of y on those of z. Its interval
    is :func:`bench.stats.item_statistics.spearman_interval` with one variable held fixed. All are (n,).

    x and y rise together only because of z:

    >>> z = [1, 2, 3, 4, 5, 6]
    >>> round(partial_spearman([2, 1, 4, 3, 6, 5], [1, 3, 2, 5, 4, 6], z), 3)
    -0.955
    """
    r_xy, r_xz, r_yz = (_spearman_correlation(*pair) for pair in ((x, y), (x, z), (y, z)))
    for name, r in (("x", r_xz), ("y", r_yz)):
        if 1 - abs(r) < EQUAL:
            raise ValueError(f"{name} has the order of z or its reverse; expected another order")
    partial = (r_xy - r_xz * r_yz) / math.sqrt((1 - r_xz**2) * (1 - r_yz**2))
    return min(1.0, max(-1.0, partial))


def _spearman_correlation(x: ArrayLike, y: ArrayLike) -> float:
    if np.ndim(x) != 1:
        raise ValueError(f"values of shape {np.shape(x)}; expected (n,)")
    r = float(spearman_rows(x, y)[0])
    return math.copysign(1.0, r) if 1 - abs(r) < EQUAL else r


def _check_determinant(r12: float, r13: float, r23: float, n: int) -> float:
    """Return |R|, at least 0, of three possible correlations of n pairs."""
    if n < 4:
        raise ValueError(f"{n} pairs; expected at least 4")
    if not all(abs(r) <= 1 for r in (r12, r13, r23)):
        raise ValueError(f"r12={r12}, r13={r13}, r23={r23}; expected correlations in [-1, 1]")
    determinant = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    if determinant < -1e-9:
        raise ValueError(f"r12={r12}, r13={r13}, r23={r23}; impossible correlations of three variables")
    return max(determinant, 0.0)
