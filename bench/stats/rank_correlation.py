"""How far two lists order the same things alike: Spearman's rho with its interval, Kendall's tau-b."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import kendalltau

from bench.stats.inputs import MIN_PAIRS
from bench.stats.item_statistics import spearman_interval
from bench.stats.resampling import spearman_rows


@dataclass(frozen=True)
class RankCorrelation:
    """The rank correlation of two lists of numbers; ties have average ranks.

    Args:
        n: Things that both order.
        rho: Spearman's; None for fewer than four things, or where all of one list are equal.
        low: Lower end of its interval (Bonett and Wright 2000); None where rho is None, 1 or -1: it has no
            width there.
        high: Upper end.
        level: Confidence level.
        tau: Kendall's tau-b; None where rho is None.
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
    """Correlate two lists of the same things by their ranks.

    Args:
        x: A number a thing.
        y: Another one, in the same order.
        level: Confidence level of rho's interval, in (0, 1).
        independent: How many of the things are independent, for the interval; None for all. Fewer than four
            give none.

    Raises:
        ValueError: a number that is not finite, lists of other lengths, or a level out of its range.

    >>> found = rank_correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    >>> round(found.rho, 3), round(found.tau, 3), round(found.low, 2), round(found.high, 2)
    (0.8, 0.6, -0.46, 0.99)
    """
    n = len(x)
    if n != len(y):
        raise ValueError(f"{n} and {len(y)} numbers")
    if n < MIN_PAIRS or min(len(set(x)), len(set(y))) < 2:
        return RankCorrelation(n, None, None, None, level, None)
    rho, tau = float(spearman_rows(x, y)[0]), float(kendalltau(x, y).statistic)
    if 1 - abs(rho) < 1e-12:  # the same order, but for rounding
        return RankCorrelation(n, math.copysign(1.0, rho), None, None, level, tau)
    alone = n if independent is None else min(n, independent)
    low, high = spearman_interval(rho, alone, level) if alone >= MIN_PAIRS else (None, None)
    return RankCorrelation(n, rho, low, high, level, tau)
