"""Statistics over the items of an evaluation: they hold for the checkpoints at hand, not for a method."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from bench.stats.inputs import MIN_PAIRS, check_level
from bench.stats.suite_draws import SuiteDraws

AVERAGE = "avg"


def spearman_interval(rho: float, n: int, level: float = 0.95, *, held: int = 0) -> tuple[float, float]:
    """Confidence interval of a Spearman correlation (Bonett and Wright 2000, Psychometrika 65, eq. 3).

    Fisher's z with standard error sqrt((1 + rho^2 / 2) / (n - 3)). Where variables are held fixed, n less
    their number stands in the place of n, as Fisher (1924, Metron 3) found for Pearson's r. The measured
    coverage is in ``bench.stats.coverage``, methods "bonett-wright", "rank correlation" and "partial rank
    correlation".

    Args:
        rho: The correlation, in [-1, 1]; with variables held fixed the partial one.
        n: Pairs, at least 4 more than variables held fixed.
        level: Confidence level, in (0, 1).
        held: Variables held fixed, see :func:`bench.stats.correlations.partial_spearman`.

    Returns:
        (low, high), within [-1, 1]; (rho, rho) where |rho| is 1.

    Raises:
        ValueError: an argument out of its range.

    >>> low, high = spearman_interval(0.82, n=1379)
    >>> round(low, 3), round(high, 3)
    (0.799, 0.839)
    """
    if held < 0 or n - held < MIN_PAIRS or not -1 <= rho <= 1 or not 0 < level < 1:
        raise ValueError(f"rho={rho}, n={n}, level={level}, held={held}")
    if abs(rho) == 1:
        return rho, rho
    half = float(norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - held - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


@dataclass(frozen=True)
class ItemDifference:
    """The difference of two systems' Spearman correlations on the same pairs, from a paired bootstrap.

    Args:
        difference: rho(a) - rho(b), each the mean over its runs; for "avg" the mean over tasks too.
        low: Lower end of the percentile interval.
        high: Upper end.
        p: Two-sided p: twice the share of draws on the rarer side of 0, at most 1.
        minimum_p: The smallest p that so many draws can give, 2 / (draws + 1).
        draws: Number of draws.
        n: Pairs; for "avg" of all tasks together.
    """

    difference: float
    low: float
    high: float
    p: float
    minimum_p: float
    draws: int
    n: int


def paired_bootstrap(sample: SuiteDraws, a: str, b: str, level: float = 0.95) -> dict[str, ItemDifference]:
    """Paired bootstrap of the difference in Spearman, recomputed in every draw, per task and on average.

    Both systems see the same pairs in a draw. Where a side has several runs its correlations are averaged in
    each draw: the result holds for those checkpoints together, not for further seeds. The measured coverage
    of both is in ``bench.stats.coverage``, methods "paired bootstrap" and "item bootstrap".

    Args:
        sample: Draws of both systems, from ``suite_draws``.
        a: Name of one system in it.
        b: Name of the other.
        level: Confidence level, in (0, 1).

    Returns:
        A difference for each task, and for "avg", the mean over tasks.

    Raises:
        ValueError: a name that is not in the sample, or a level outside (0, 1).

    >>> from bench.stats.inputs import make_generator
    >>> from bench.stats.suite_draws import draw_suite
    >>> gold, noise = np.linspace(0, 5, 40), make_generator(1, "noise").normal(size=(2, 40))
    >>> systems = {"good": {"STSB": gold + noise[0]}, "poor": {"STSB": gold + 3 * noise[1]}}
    >>> sample = draw_suite(systems, {"STSB": gold}, make_generator(1, "items"), draws=200)
    >>> found = paired_bootstrap(sample, "good", "poor")["avg"]
    >>> found.low < found.difference < found.high, found.n, round(found.minimum_p, 4)
    (True, 40, 0.01)
    """
    (seen_a, draws_a), (seen_b, draws_b) = sample.select(a), sample.select(b)
    observed = seen_a.mean(0) - seen_b.mean(0)
    differences = draws_a.mean(1) - draws_b.mean(1)
    result = {
        task: item_difference(differences[:, i], observed[i], sample.pairs[i], level)
        for i, task in enumerate(sample.tasks)
    }
    result[AVERAGE] = item_difference(differences.mean(1), observed.mean(), sum(sample.pairs), level)
    return result


def item_difference(differences: ArrayLike, observed: float, n: int, level: float = 0.95) -> ItemDifference:
    """Percentile interval and p of a difference, from its (draws,) bootstrap values.

    The interval is the percentile interval of Efron and Tibshirani (1993, ch. 13). p is twice the
    share of values on the rarer side of 0, with the data counted as one more value on each side: about the
    error rate at which the interval just reaches 0.

    Args:
        differences: (draws,).
        observed: The difference in the data.
        n: Items behind it.
        level: Confidence level, in (0, 1).

    Returns:
        The difference, its interval and its p.

    Raises:
        ValueError: another shape, or a level outside (0, 1).

    >>> found = item_difference([-1.0, 1.0, 2.0, 3.0, 4.0], observed=2.0, n=30)
    >>> round(found.p, 3), round(found.minimum_p, 3)  # one of five values is below 0: 2 (1 + 1) / (5 + 1)
    (0.667, 0.333)
    """
    values = np.asarray(differences, dtype=np.float64)
    check_level(level)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"differences have shape {values.shape}; expected (draws,)")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    minimum = 2 / (len(values) + 1)
    beyond = min(np.count_nonzero(values <= 0), np.count_nonzero(values >= 0)) + 1
    p = min(1.0, float(beyond * minimum))
    return ItemDifference(float(observed), float(low), float(high), p, minimum, len(values), n)
