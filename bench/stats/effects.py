"""Effect sizes of two methods' seeds. Scores are (runs,), one per seed; the sign is that of a - b."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from bench.stats.inputs import check_sides


def probability_of_superiority(a: ArrayLike, b: ArrayLike) -> float:
    """P(A > B): the share of pairs of seeds in which a scores higher; a tie counts half.

    Vargha and Delaney's A (2000): the Mann-Whitney U divided by n_a n_b. The sides may have different numbers
    of seeds.

    Raises:
        ValueError: no seed on a side, another shape, or an infinite score.

    >>> round(probability_of_superiority([3, 5], [1, 3, 2]), 3)  # one tie among six pairs
    0.917
    """
    x, y = check_sides(a, b)
    return float((np.sign(x[:, None] - y).mean() + 1) / 2)


def cohen_d(a: ArrayLike, b: ArrayLike) -> float:
    """Cohen's d: (mean a - mean b) / s, with s^2 the variance pooled over both sides' degrees of freedom.

    Raises:
        ValueError: fewer than two seeds on a side, another shape, an infinite score, or no spread.

    >>> round(cohen_d([3, 5], [1, 3, 2]), 3)
    1.732
    """
    x, y = check_sides(a, b, 2)
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        raise ValueError("no score varies over seeds, so an effect in standard deviations is undefined")
    squares = (len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)
    return float((x.mean() - y.mean()) / math.sqrt(squares / (len(x) + len(y) - 2)))


def hedges_g(a: ArrayLike, b: ArrayLike) -> float:
    """Hedges' g: Cohen's d without its bias in small samples (Hedges 1981, eq. 6e).

    g = d Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2)) with m = n_a + n_b - 2. Arguments and errors are
    those of ``cohen_d``.

    >>> round(hedges_g([3, 5], [1, 3, 2]), 3)
    1.253
    """
    d = cohen_d(a, b)
    m = np.size(a) + np.size(b) - 2
    return d * math.exp(float(gammaln(m / 2) - gammaln((m - 1) / 2))) / math.sqrt(m / 2)
