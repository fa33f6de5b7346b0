"""Descriptive summaries; no verdict uses them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from bench.stats.inputs import FloatArray, check_draws, check_level, check_scores, check_sides, check_table

LEAST_SEEDS = 5


def interquartile_mean(scores: ArrayLike) -> float:
    """Interquartile mean of (runs, tasks) scores together (Agarwal et al. 2021, sec. 4.3).

    The mean without the lowest and highest quarter, floor(runs x tasks / 4) scores at either end.

    Raises:
        ValueError: another shape, an empty table, or an infinite score.

    >>> interquartile_mean([[1, 2, 3, 100], [5, 6, 7, -9]])
    4.0
    """
    return float(stats.trim_mean(check_table(scores, "scores"), 0.25, axis=None))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> FloatArray:
    """Return the share of (runs, tasks) scores above each of (k,) thresholds (Agarwal et al. 2021, eq. 2).

    Raises:
        ValueError: another shape, an empty table, or an infinite value.

    >>> performance_profile([[0.7, 0.8], [0.7, 0.9]], thresholds=[0.6, 0.7, 0.85]).tolist()
    [1.0, 0.5, 0.25]
    """
    values = np.sort(check_table(scores, "scores"), axis=None)
    limits = check_scores(thresholds, "thresholds", least=1)
    shares: FloatArray = 1 - np.searchsorted(values, limits, side="right") / len(values)
    return shares


def almost_stochastic_order(
    a: ArrayLike, b: ArrayLike, rng: np.random.Generator, *, draws: int = 1000, level: float = 0.95
) -> float:
    """Almost stochastic order: how far a is from scoring above b at every quantile (Dror et al. 2019).

    eps = violation + z_level sd(violation over draws), clipped to [0, 1]: 0 for a above b, 1 for b above a.
    The violation is the share of the squared distance of the two quantile functions where b is above (del
    Barrio et al. 2018), 1/2 for equal ones; the draws resample the seeds of each side. ``level`` is that of
    the upper bound.

    Descriptive: eps < 0.5 is usually read as "a is better", but two samples of one normal distribution give
    it far more often than a test at 5% would (``bench.stats.coverage``, method "aso").

    Raises:
        ValueError: fewer than five seeds on a side, another shape, an infinite score, fewer than 100 draws,
        or
            a bad level.

    >>> from bench.stats.inputs import make_generator
    >>> better, worse = [7.0, 7.5, 8.0, 8.0, 9.0], [1.0, 1.5, 2.0, 2.0, 3.0]
    >>> almost_stochastic_order(better, worse, make_generator(1, "aso"))
    0.0
    >>> almost_stochastic_order(worse, better, make_generator(1, "aso"))
    1.0
    """
    x, y = check_sides(a, b, LEAST_SEEDS)
    check_draws(draws)
    check_level(level)
    drawn = _violation_ratios(rng.choice(x, (draws, len(x))), rng.choice(y, (draws, len(y))))
    bound = _violation_ratios(x[None], y[None])[0] + float(stats.norm.ppf(level)) * drawn.std()
    return float(np.clip(bound, 0, 1))


def _violation_ratios(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return (draws,) violation ratios of (draws, runs) samples, whose quantile functions are steps."""
    n, m = a.shape[1], b.shape[1]
    common = math.lcm(n, m)
    steps = np.unique(np.r_[np.arange(n + 1) * (common // n), np.arange(m + 1) * (common // m)])
    starts, lengths = steps[:-1], np.diff(steps)
    gaps = np.sort(a)[:, starts // (common // n)] - np.sort(b)[:, starts // (common // m)]
    squares = lengths * gaps**2
    total = squares.sum(1)
    violations = np.where(gaps < 0, squares, 0).sum(1)
    ratios = np.full(len(total), 0.5)
    np.divide(violations, total, out=ratios, where=total > 0)
    return ratios
