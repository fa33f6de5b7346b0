"""Seeds far from a method's others, by the median and the median absolute deviation (MAD)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from bench.stats.argument_checks import check_scores

MAD_SCALE = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
LEAST_NAMED = 4  # for three seeds, the rule would need 22 MADs
_LIMITS = {4: 6.88, 5: 7.89, 6: 5.51, 7: 5.83, 8: 4.92, 9: 5.06, 10: 4.58}


def scaled_mad(scores: ArrayLike) -> float:
    """Return 1.4826 times the median absolute deviation from the median: a robust standard deviation.

    >>> scaled_mad([76.0, 77.0, 78.0, 79.0, 20.0])
    1.4826
    """
    values = np.asarray(scores, dtype=np.float64)
    return MAD_SCALE * float(np.median(np.abs(values - np.median(values))))


def find_outliers(scores: ArrayLike) -> tuple[int, ...]:
    """Return the places of seeds beyond ``outlier_limit`` scaled MADs from the median, if at least four.

    A scaled MAD is 1.4826 times the median absolute deviation from the median. The usual limit of 3.5
    (Iglewicz and Hoaglin 1993) names a seed in 21% of normal samples of 5, these limits in 5%
    (``bench.stats.coverage``, method "outlying").

    >>> find_outliers([76.1, 76.4, 61.0, 76.3, 76.0])
    (2,)
    """
    values = check_scores(scores, "scores", least=1)
    if len(values) < LEAST_NAMED:
        return ()
    deviations = np.abs(values - np.median(values))
    rounding = 1e-12 * np.abs(values).max()
    limit = max(outlier_limit(len(values)) * scaled_mad(values), rounding)
    return tuple(np.flatnonzero(deviations > limit).tolist())


def outlier_limit(n: int) -> float:
    """Return the limit, in scaled MADs, that 5% of normal samples of n seeds exceed at least once.

    Simulated for 4 to 10 seeds. For more, the limit of the largest of n normal scores,
    Phi^-1((1 + 0.95^(1 / n)) / 2), times 1 + 6.7 / n for the error of the MAD: 4.5 to 5.3% up to 40.

    >>> [round(outlier_limit(n), 2) for n in (4, 5, 10, 20)]
    [6.88, 7.89, 4.58, 4.03]
    """
    if n < LEAST_NAMED:
        raise ValueError(f"{n} seeds; expected at least {LEAST_NAMED}")
    return _LIMITS.get(n) or float(ndtri((1 + 0.95 ** (1 / n)) / 2)) * (1 + 6.7 / n)
