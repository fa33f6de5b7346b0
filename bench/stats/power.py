"""Power of Welch's test over seeds: what a number of seeds can show; ``bench.stats.planning`` uses it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from bench.stats.inputs import FloatArray, check_level
from bench.stats.seeds import satterthwaite, side_parts

MOST_SEEDS = 10_000
_NODES, _WEIGHTS = (
    (one + shift) / 2 for one, shift in zip(np.polynomial.legendre.leggauss(16), (1, 0), strict=True)
)


def welch_power(
    difference: float, sd_a: float, sd_b: float, n_a: int, n_b: int, alpha: float = 0.05
) -> float:
    """Chance that Welch's two-sided test shows a true difference in means, for normal scores.

    Given both sample variances, it is the chance of a normal difference in means beyond t(alpha / 2, df)
    standard errors, with the degrees of freedom that the test takes from these variances. That is averaged
    over both variances by Gauss and Legendre's rule over the shares of each distribution. Within 0.003 of
    simulation (benchmarks/stats.py).

    Args:
        difference: True difference, in the scores' unit.
        sd_a: True standard deviation over seeds of a.
        sd_b: That of b.
        n_a: Seeds of a, at least 2.
        n_b: Seeds of b, at least 2.
        alpha: Error rate of the test.

    Returns:
        The power, in [0, 1].

    Raises:
        ValueError: an argument out of its range.

    >>> round(welch_power(1.0, 0.8, 0.8, 5, 5), 2)  # one point, sd 0.8, five seeds per side
    0.39
    """
    check_level(alpha)
    if not (math.isfinite(difference) and 0 < sd_a < math.inf and 0 < sd_b < math.inf):
        raise ValueError(f"difference={difference}, sd_a={sd_a}, sd_b={sd_b}; expected positive deviations")
    if min(n_a, n_b) < 2:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 2 per side")
    true_a, true_b = sd_a**2 / n_a, sd_b**2 / n_b
    var_a = true_a * _variance_quantiles(n_a - 1)[:, None]
    var_b = true_b * _variance_quantiles(n_b - 1)
    df = satterthwaite(side_parts((var_a, n_a - 1), (var_b, n_b - 1)))
    critical = -stdtrit(df, alpha / 2) * np.sqrt((var_a + var_b) / (true_a + true_b))
    shift = abs(difference) / math.sqrt(true_a + true_b)
    return float(_WEIGHTS @ (ndtr(shift - critical) + ndtr(-shift - critical)) @ _WEIGHTS)


@cache
def _variance_quantiles(df: int) -> FloatArray:
    """Of a sample variance in units of the true one, at the nodes."""
    found: FloatArray = chdtri(df, 1 - _NODES) / df
    return found
