"""Statistics over the items of an evaluation: they hold for these checkpoints, not for a method."""

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

    Fisher's z with standard error sqrt((1 + rho^2 / 2) / (n - 3)); (rho, rho) if |rho| is 1. The number of
    variables held fixed is subtracted from n, as Fisher (1924, Metron 3) found for Pearson's r. The measured
    coverage is in ``bench.stats.coverage``, methods "bonett-wright", "rank correlation" and "partial rank
    correlation".

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
        difference: rho(a) - rho(b), each the mean over its runs, for "avg" over tasks too.
        p: Two-sided p: twice the share of draws on the rarer side of 0, at most 1.
        minimum_p: The smallest attainable p, 2 / (draws + 1).
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
    """Paired bootstrap of the difference in Spearman of each task, and of their mean as "avg".

    ``a`` and ``b`` are names in the sample, from ``draw_suite``. Both see the same pairs in a draw. The
    correlations of a side's runs are averaged in each draw: the result holds for those checkpoints together,
    not for further seeds. The measured coverage of both is in ``bench.stats.coverage``, methods "paired
    bootstrap" and "item bootstrap".

    Raises:
        ValueError: an unknown name, or a bad level.

    >>> from bench.stats.inputs import make_generator
    >>> from bench.stats.suite_draws import draw_suite
    >>> gold, noise = np.linspace(0, 5, 40), make_generator(1, "noise").normal(size=(2, 40))
    >>> systems = {"good": {"STSB": gold + noise[0]}, "poor": {"STSB": gold + 3 * noise[1]}}
    >>> sample = draw_suite(systems, {"STSB": gold}, make_generator(1, "items"), draws=200)
    >>> test = paired_bootstrap(sample, "good", "poor")["avg"]
    >>> test.low < test.difference < test.high, test.n, round(test.minimum_p, 4)
    (True, 40, 0.01)
    """
    (observed_a, draws_a), (observed_b, draws_b) = sample.select(a), sample.select(b)
    observed = observed_a.mean(0) - observed_b.mean(0)
    differences, result = draws_a.mean(1) - draws_b.mean(1), {}
    for i, task in enumerate(sample.tasks):
        result[task] = item_difference(differences[:, i], observed[i], sample.pairs[i], level)
    result[AVERAGE] = item_difference(differences.mean(1), observed.mean(), sum(sample.pairs), level)
    return result


def item_difference(differences: ArrayLike, observed: float, n: int, level: float = 0.95) -> ItemDifference:
    """Percentile interval and p of a difference, from its (draws,) bootstrap values.

    The interval is the percentile interval of Efron and Tibshirani (1993, ch. 13). p is twice the share of
    values on the rarer side of 0, with the data counted as one more value on each side: about the error rate
    at which the interval just reaches 0.

    Raises:
        ValueError: another shape, or a bad level.

    >>> test = item_difference([-1.0, 1.0, 2.0, 3.0, 4.0], observed=2.0, n=30)
    >>> round(test.p, 3), round(test.minimum_p, 3)  # one of five values is below 0: 2 (1 + 1) / (5 + 1)
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
