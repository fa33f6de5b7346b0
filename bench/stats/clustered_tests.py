"""A test of two Spearman correlations where items share texts, from the influence of each item.

It cross-checks the bootstrap where Williams' and Steiger's tests don't hold: they take items as independent.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bench.stats.argument_checks import FloatArray, check_items
from bench.stats.correlations import CorrelationTest
from bench.stats.resampling import spearman_rows


def spearman_influence(predictions: ArrayLike, gold: ArrayLike) -> FloatArray:
    """Return (runs, pairs), the derivative of each run's Spearman correlation by the weight of each pair.

    Ranks are average ranks under the weights, so the derivative counts that a pair moves the ranks of others,
    and their ties. A row sums to 0: the mean of squares over n estimates the variance of the correlation of
    independent pairs (Efron 1982, The Jackknife, ch. 6).

    >>> influence = spearman_influence([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    >>> influence.round(2).tolist(), bool(abs(influence.sum()) < 1e-12)
    ([[0.6, -0.15, -0.15, -0.15, -0.15]], True)
    """
    rows, scores = check_items(predictions, gold)
    gold_ranks, result = _centred_ranks(scores), np.empty(rows.shape)
    of_gold, gold_variance = _variance_influence(scores, gold_ranks)
    for i, (row, rho) in enumerate(zip(rows, spearman_rows(rows, scores), strict=True)):
        ranks = _centred_ranks(row)
        of_row, variance = _variance_influence(row, ranks)
        products = ranks * gold_ranks + _move_ranks(row, ranks, gold_ranks)
        products += _move_ranks(scores, gold_ranks, ranks) - 3 * float(np.mean(ranks * gold_ranks))
        scale = math.sqrt(variance * gold_variance)
        result[i] = products / scale - rho / 2 * (of_row / variance + of_gold / gold_variance)
    return result


def clustered_test(
    first: ArrayLike, second: ArrayLike, gold: ArrayLike, clusters: ArrayLike
) -> CorrelationTest:
    """Test the difference of two Spearman correlations on items in clusters, from its influence by cluster.

    t = difference / error, where error^2 = G / (G - 1) times the sum over clusters of squared sums of the
    items' influence (Liang and Zeger 1986, Biometrika 73), and G is the number of clusters. Degrees of
    freedom are Kish's number of clusters less one. Measured: ``bench.stats.coverage``, method
    "clustered test".

    Args:
        first: (items,) predictions of one system, ``second`` those of the other.
        clusters: (items,) numbers of the items' clusters.

    >>> gold, noise = np.arange(12.0), np.tile([0, 3, -3], 4)
    >>> test = clustered_test(gold + noise, gold + 2 * noise, gold, np.repeat(range(6), 2))
    >>> round(test.difference, 3), round(test.statistic, 2), test.df, round(test.p, 3)
    (0.343, 3.27, 5, 0.022)
    """
    pair = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)])
    rho = spearman_rows(pair, gold)
    difference, numbers = float(rho[0] - rho[1]), np.unique(np.asarray(clusters), return_inverse=True)[1]
    if numbers.shape != pair[0].shape:
        raise ValueError(f"{np.shape(clusters)} clusters of {pair[0].shape} items")
    sizes = np.bincount(numbers)
    if len(sizes) < 2:
        raise ValueError("all items are in one cluster; expected at least two")
    influence = spearman_influence(pair, gold)
    sums = np.bincount(numbers, (influence[0] - influence[1]) / len(numbers))
    error = math.sqrt(len(sizes) / (len(sizes) - 1) * float(sums @ sums))
    df = max(1, round(len(numbers) ** 2 / int(sizes @ sizes)) - 1)
    if error == 0:
        return CorrelationTest(difference, 0.0, df, float(difference == 0), len(numbers))
    t = difference / error
    return CorrelationTest(difference, t, df, float(2 * stats.t.sf(abs(t), df)), len(numbers))


def count_effective(predictions: ArrayLike, gold: ArrayLike, clusters: ArrayLike) -> float:
    """Return the number of independent pairs that give a Spearman correlation as precisely as these clusters.

    The number of pairs, times the variance of the correlation's influence by pairs over that by clusters with
    its factor G / (G - 1) (the inverse of Kish's design effect, 1965, linearised), at most 1. For few
    clusters, also times the squared ratio of the normal and Student's 97.5% quantiles, with the degrees of
    freedom of :func:`clustered_test`. Single pairs give exactly their number; one cluster raises ValueError.

    >>> gold, predictions = np.arange(12.0), [2, 0, 1, 5, 3, 4, 6, 8, 7, 10, 11, 9]
    >>> count_effective(predictions, gold, range(12))
    12.0
    >>> 2 < count_effective(predictions, gold, np.arange(12) // 2) < 12
    True
    """
    influence, numbers = spearman_influence(predictions, gold)[0], np.unique(clusters, return_inverse=True)[1]
    if numbers.shape != influence.shape:
        raise ValueError(f"{np.shape(clusters)} clusters of {influence.shape} items")
    groups = int(numbers.max()) + 1
    if groups < 2:
        raise ValueError("all items are in one cluster; expected at least two")
    if groups == len(influence):
        return float(groups)
    sums = np.bincount(numbers, influence)
    by_cluster = groups / (groups - 1) * float(sums @ sums)
    by_pair, sizes = float(influence @ influence), np.bincount(numbers)
    df = max(1, round(len(numbers) ** 2 / int(sizes @ sizes)) - 1)
    few = float(stats.norm.ppf(0.975) / stats.t.ppf(0.975, df)) ** 2
    return len(influence) * few * (min(1.0, by_pair / by_cluster) if by_cluster else 1.0)


def _centred_ranks(values: FloatArray) -> FloatArray:
    """Return average ranks as shares of the items, less their mean."""
    ranks: FloatArray = (stats.rankdata(values) - 0.5) / len(values) - 0.5
    return ranks


def _move_ranks(values: FloatArray, ranks: FloatArray, weights: FloatArray) -> FloatArray:
    """Return (items,) how each item moves the mean of ranks times weights, by its place among the values.

    An item raises the ranks of larger values by 1 and of equal ones by 1/2, less the ranks themselves.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    sums: NDArray[np.float64] = np.r_[0.0, np.cumsum(weights[order])]
    below = sums[np.searchsorted(ordered, values, "left")]
    upto = sums[np.searchsorted(ordered, values, "right")]
    raised: FloatArray = (sums[-1] - (below + upto) / 2) / len(values)
    return raised


def _variance_influence(values: FloatArray, ranks: FloatArray) -> tuple[FloatArray, float]:
    """Return (items,) the influence on the variance of the ranks, and the variance."""
    variance = float(np.mean(ranks**2))
    return ranks**2 + 2 * _move_ranks(values, ranks, ranks) - 3 * variance, variance
