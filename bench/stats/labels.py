"""Statistics of predicted classes and of rankings: McNemar's test, Wilson's interval, F1, average precision.

F1 and average precision take how often each draw of a bootstrap has each item, (draws, items); one row of
ones gives the score of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, norm

from bench.stats.inputs import FloatArray


@dataclass(frozen=True)
class McNemarTest:
    """An exact test of two classifiers on the same items.

    Args:
        only_first: Items that only the first has right.
        only_second: Items that only the second has right.
        p: Two-sided p.
        minimum_p: The smallest p that this many disagreements can give.
        n: Items.
    """

    only_first: int
    only_second: int
    p: float
    minimum_p: float
    n: int


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemarTest:
    """McNemar's exact test of two classifiers (McNemar 1947, Psychometrika 12).

    Of the items on which one is right and the other wrong, equal classifiers have each half: the number is
    binomial with p = 1/2. The two-sided p is twice the smaller tail, at most 1.

    Args:
        first: (items,) whether the first is right.
        second: (items,) the same of the second.

    Raises:
        ValueError: another shape.

    >>> found = mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1])
    >>> found.only_first, found.only_second, found.p, found.minimum_p
    (6, 1, 0.125, 0.015625)
    """
    one, other = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(f"right answers have shapes {one.shape} and {other.shape}; expected (items,) twice")
    b, c = int((one & ~other).sum()), int((other & ~one).sum())
    p = min(1.0, 2 * float(binom.cdf(min(b, c), b + c, 0.5)))
    return McNemarTest(b, c, p, min(1.0, 2 * 0.5 ** (b + c)), len(one))


def wilson_interval(share: float, items: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share of items (Wilson 1927, JASA 22).

    Unlike draws of the items it has a width where all of them are right, or none.

    Args:
        share: The share that is right, 0 to 1; a tie may count half.
        items: How many there are, at least 1.
        level: Confidence level, between 0 and 1.

    Raises:
        ValueError: a share outside [0, 1], or no items.

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


def weighted_f1(predicted: ArrayLike, gold: ArrayLike, counts: ArrayLike) -> FloatArray:
    """F1 of every class, averaged by how often the gold labels have it.

    Args:
        predicted: (items,) classes, as numbers.
        gold: (items,).
        counts: (draws, items), how often each draw has each item.

    Returns:
        (draws,), each in 0 to 1; a class that is never right counts 0.

    Raises:
        ValueError: shapes that don't fit.

    >>> weighted_f1([0, 1, 1, 2], [0, 1, 2, 2], [[1, 1, 1, 1], [1, 1, 0, 0]]).round(3).tolist()
    [0.75, 1.0]
    """
    said, truth, drawn = np.asarray(predicted), np.asarray(gold), np.asarray(counts)
    _check_shapes(said, truth, drawn)
    known, numbers = np.unique(np.concatenate([truth, said]), return_inverse=True)
    rows = len(known) * np.arange(len(drawn))[:, None]

    def by_class(classes: NDArray[np.intp], weights: NDArray[np.int64]) -> FloatArray:
        summed = np.bincount((rows + classes).ravel(), weights.ravel(), minlength=len(known) * len(drawn))
        return summed.astype(np.float64).reshape(len(drawn), len(known))

    support = by_class(numbers[: len(truth)], drawn)
    right = by_class(numbers[: len(truth)], drawn * (said == truth))
    together = support + by_class(numbers[len(truth) :], drawn)
    f1: FloatArray = np.divide(2 * right, together, out=np.zeros_like(right), where=together > 0)
    found: FloatArray = (support * f1).sum(1) / support.sum(1)
    return found


def average_precision(scores: ArrayLike, labels: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Average precision: the sum of precisions at every distinct score, weighted by the gain in recall.

    Args:
        scores: (items,), larger for a likelier positive.
        labels: (items,), 1 for a positive, else 0.
        counts: (draws, items), how often each draw has each item.

    Returns:
        (draws,), each in 0 to 1.

    Raises:
        ValueError: shapes that don't fit, or a draw without a positive.

    >>> average_precision([0.9, 0.8, 0.7, 0.1], [1, 0, 1, 0], [[1, 1, 1, 1]]).round(4).tolist()
    [0.8333]
    """
    values, truth, drawn = np.asarray(scores), np.asarray(labels), np.asarray(counts)
    _check_shapes(values, truth, drawn)
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(values[order]) != 0, True])
    drawn = drawn[:, order]
    everything = np.cumsum(drawn, axis=1)[:, last]
    positive = np.cumsum(drawn * (truth[order] == 1), axis=1)[:, last]
    if not positive[:, -1].all():
        raise ValueError("no positive, in the data or in a draw: no average precision there")
    precision = np.divide(positive, everything, out=np.zeros(positive.shape), where=everything > 0)
    gained = np.diff(positive, axis=1, prepend=0) / positive[:, -1:]
    found: FloatArray = (precision * gained).sum(1)
    return found


def _check_shapes(
    values: NDArray[np.generic], truth: NDArray[np.generic], counts: NDArray[np.generic]
) -> None:
    if values.ndim != 1 or not len(values) or values.shape != truth.shape or counts.shape[1:] != truth.shape:
        raise ValueError(f"shapes {values.shape}, {truth.shape} and {counts.shape}; expected items thrice")
