"""Statistics over the items of one evaluation: they speak for one checkpoint, not for its method."""

from __future__ import annotations

import math

from scipy.stats import norm


def spearman_interval(rho: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Confidence interval of a Spearman correlation (Bonett and Wright 2000, Psychometrika 65, eq. 3).

    Fisher's z with standard error sqrt((1 + rho^2 / 2) / (n - 3)).

    Args:
        rho: The correlation, in [-1, 1].
        n: Pairs, at least 4.
        level: Confidence level, in (0, 1).

    Returns:
        (low, high), within [-1, 1]; (rho, rho) where |rho| is 1.

    Raises:
        ValueError: an argument out of its range.
    """
    if n < 4 or not -1 <= rho <= 1 or not 0 < level < 1:
        raise ValueError(f"rho={rho}, n={n}, level={level}")
    if abs(rho) == 1:
        return rho, rho
    half = float(norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
