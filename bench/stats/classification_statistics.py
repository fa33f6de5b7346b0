"""Statistics of predicted classes and of rankings: McNemar's test, Wilson's interval, F1, average precision.

F1 and average precision take the count of each item in each draw of a bootstrap, (draws, items); one row of
ones gives the score of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, norm

from bench.stats.argument_checks import FloatArray


@dataclass(frozen=True)
class McNemarTest:
    """An exact test of two classifiers on the same items; ``only_first`` counts those only it has right.

    ``clusters`` is the number of clusters whose signs are flipped, None where no two items share a text.
    """

    only_first: int
    only_second: int
    p: float
    minimum_p: float
    n: int
    clusters: int | None = None


def mcnemar(first: ArrayLike, second: ArrayLike, clusters: ArrayLike | None = None) -> McNemarTest:
    """McNemar's exact test of two classifiers (McNemar 1947, Psychometrika 12), of items or of clusters.

    ``first`` and ``second`` are (items,), true where that classifier is right. The number of items on which
    only one is right is binomial with p = 1/2; the two-sided p is twice the smaller tail, at most 1.

    With (items,) ``clusters``, the classifiers change places in whole clusters: the sum of the clusters'
    differences over all flips of their signs is the exact distribution. Of single items this is McNemar's.

    >>> test = mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1])
    >>> test.only_first, test.only_second, test.p, test.minimum_p
    (6, 1, 0.125, 0.015625)
    >>> test = mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    >>> test.p, test.minimum_p, test.clusters
    (0.25, 0.125, 4)
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"right answers have shapes {a.shape} and {b.shape}; expected (items,) twice")
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    if clusters is not None:
        numbers = np.unique(np.asarray(clusters), return_inverse=True)[1]
        if numbers.shape != a.shape:
            raise ValueError(f"{np.shape(clusters)} clusters of {a.shape} items")
        differences = np.bincount(numbers, a.astype(np.float64) - b).astype(np.int64)
        p, least = _flip_signs(np.abs(differences[differences != 0]), abs(only_a - only_b))
        return McNemarTest(only_a, only_b, p, least, len(a), int(np.count_nonzero(differences)))
    n = only_a + only_b
    p = min(1.0, 2 * float(binom.cdf(min(only_a, only_b), n, 0.5)))
    return McNemarTest(only_a, only_b, p, min(1.0, 2 * 0.5**n), len(a))


def _flip_signs(sizes: NDArray[np.int64], seen: int) -> tuple[float, float]:
    """Return the share of flips with a sum of at least ``seen`` in absolute value, and its smallest value."""
    total = int(sizes.sum())
    chances = np.zeros(2 * total + 1)  # of every sum, from -total to total
    chances[total] = 1.0
    for size in sizes.tolist():
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    sums = np.abs(np.arange(-total, total + 1))
    return min(1.0, float(chances[sums >= seen].sum())), min(1.0, 2 * 0.5 ** len(sizes))


def wilson_interval(share: float, items: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share of items (Wilson 1927, JASA 22).

    Unlike a bootstrap, it has a width for a share of 0 or 1. Of items in clusters, ``items`` is the effective
    number: see :func:`effective_items`.

    >>> [round(end, 4) for end in (*wilson_interval(0.9, 10), *wilson_interval(0.0, 100))]
    [0.5958, 0.9821, 0.0, 0.037]
    """
    if not 0 <= share <= 1 or items < 1:
        raise ValueError(f"a share of {share} of {items} items; expected 0 to 1 of at least one")
    squared = float(norm.ppf((1 + level) / 2)) ** 2
    middle = (share + squared / (2 * items)) / (1 + squared / items)
    spread = (squared * (share * (1 - share) / items + squared / (4 * items**2))) ** 0.5
    half = spread / (1 + squared / items)
    return max(0.0, middle - half), min(1.0, middle + half)


def effective_items(share: float, variance: float, items: int, clusters: float) -> float:
    """Return the number of independent items whose share has this variance (Kish 1965, Survey Sampling).

    share (1 - share) / variance, at most ``items``. Where the share is 0 or 1 or nothing varies, it is the
    effective number of ``clusters``.

    >>> effective_items(0.9, 0.0018, 100, 20.0), effective_items(1.0, 0.0, 100, 20.0)
    (50.0, 20.0)
    """
    if variance <= 0 or share in (0, 1):
        return clusters
    return min(float(items), round(share * (1 - share) / variance, 9))


def weighted_f1(predicted: ArrayLike, gold: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Return (draws,) F1 of every class, averaged with the gold labels' frequencies as weights.

    Classes are numbers (items,); ``counts`` are (draws, items). A class that is never right has F1 0.

    >>> weighted_f1([0, 1, 1, 2], [0, 1, 2, 2], [[1, 1, 1, 1], [1, 1, 0, 0]]).round(3).tolist()
    [0.75, 1.0]
    """
    answers, truth, drawn = np.asarray(predicted), np.asarray(gold), np.asarray(counts)
    _check_shapes(answers, truth, drawn)
    classes, numbers = np.unique(np.concatenate([truth, answers]), return_inverse=True)
    rows = len(classes) * np.arange(len(drawn))[:, None]

    def count_by_class(labels: NDArray[np.intp], weights: NDArray[np.int64]) -> FloatArray:
        sums = np.bincount((rows + labels).ravel(), weights.ravel(), minlength=len(classes) * len(drawn))
        return sums.astype(np.float64).reshape(len(drawn), len(classes))

    support = count_by_class(numbers[: len(truth)], drawn)
    right = count_by_class(numbers[: len(truth)], drawn * (answers == truth))
    total = support + count_by_class(numbers[len(truth) :], drawn)
    f1: FloatArray = np.divide(2 * right, total, out=np.zeros_like(right), where=total > 0)
    averages: FloatArray = (support * f1).sum(1) / support.sum(1)
    return averages


def average_precision(scores: ArrayLike, labels: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Return (draws,) average precisions: precisions at distinct scores, weighted by the gain in recall.

    ``scores`` are (items,), larger for a likelier positive; ``labels`` are 1 or 0; ``counts`` (draws, items).

    >>> average_precision([0.9, 0.8, 0.7, 0.1], [1, 0, 1, 0], [[1, 1, 1, 1]]).round(4).tolist()
    [0.8333]
    """
    values, truth, drawn = np.asarray(scores), np.asarray(labels), np.asarray(counts)
    _check_shapes(values, truth, drawn)
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(values[order]) != 0, True])
    drawn = drawn[:, order]
    total = np.cumsum(drawn, axis=1)[:, last]
    positive = np.cumsum(drawn * (truth[order] == 1), axis=1)[:, last]
    if not positive[:, -1].all():
        raise ValueError("no positive, in the data or in a draw; no average precision")
    precision = np.divide(positive, total, out=np.zeros(positive.shape), where=total > 0)
    recall_gain = np.diff(positive, axis=1, prepend=0) / positive[:, -1:]
    averages: FloatArray = (precision * recall_gain).sum(1)
    return averages


def _check_shapes(
    values: NDArray[np.generic], truth: NDArray[np.generic], counts: NDArray[np.generic]
) -> None:
    if values.ndim != 1 or not len(values) or values.shape != truth.shape or counts.shape[1:] != truth.shape:
        raise ValueError(f"shapes {values.shape}, {truth.shape} and {counts.shape}; expected items thrice")
