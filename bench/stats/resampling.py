"""Statistics of items in draws: means, Pearson's and exact Spearman correlations without sorting a draw.

A draw is a count per pair. Counts summed in the order of a side's values give
that side's average ranks in the draw: with L drawn pairs of a smaller value and H of a value not greater, the
average rank is (L + H + 1) / 2. Ranks are doubled, so all sums are exact integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.stats.argument_checks import FloatArray, check_draws, check_items

MAX_PAIRS = 1_000_000  # eight times its cube fits in an int64
_LEAST_VARIANCE = 1e-12  # of a draw, as a share of the data's: less is rounding
_CHUNK = 2**17  # counts in memory: 1 MiB an array, so that a few stay in cache

IntArray = NDArray[np.int64]
Statistic = Callable[[IntArray], FloatArray]
"""From (draws, items), the count of each item in each draw, to (draws, runs)."""


def spearman_rows(predictions: ArrayLike, gold: ArrayLike) -> FloatArray:
    """Return (runs,) Spearman correlations of every row with the gold scores, with average ranks for ties.

    >>> gold = [0, 1, 2, 3, 4, 5]
    >>> spearman_rows([[0.1, 0.2, 0.3, 0.5, 0.4, 0.9], [5, 4, 3, 2, 1, 0]], gold).round(3).tolist()
    [0.943, -1.0]
    """
    rows, scores = check_items(predictions, gold)
    counts = np.ones((1, len(scores)), dtype=np.int64)
    return _Correlator(rows, scores).correlate(counts).ravel()


def spearman_draws(
    predictions: ArrayLike, gold: ArrayLike, rng: np.random.Generator, draws: int = 10_000
) -> FloatArray:
    """Return (draws, runs) Spearman correlations with the gold scores, in draws of pairs with replacement.

    Predictions are (runs, pairs), or (pairs,) for one row; gold scores are (pairs,). All rows see the same
    pairs in a draw, ``rng.integers(0, pairs, (draws, pairs))[d]``, as in scipy.stats.bootstrap with
    ``paired``. Values that are all equal in a draw raise ``ValueError``.

    >>> from bench.stats.argument_checks import make_generator
    >>> rows, gold = [[0.1, 0.3, 0.2, 0.9] * 5, [0.4, 0.3, 0.2, 0.1] * 5], [1, 2, 3, 4] * 5
    >>> drawn = spearman_draws(rows, gold, make_generator(1, "items"), draws=100)
    >>> drawn.shape, bool((drawn[:, 0] > drawn[:, 1]).all())
    ((100, 2), True)
    """
    rows, scores = check_items(predictions, gold)
    correlator = _Correlator(rows, scores)
    return np.concatenate([correlator.correlate(counts) for counts in draw_counts(len(scores), rng, draws)])


def draw_counts(count: int, rng: np.random.Generator, draws: int, most_items: int = 0) -> Iterator[IntArray]:
    """Yield (some draws, items), the count of each item in each draw; each array overwrites the last.

    Draw d takes the items ``rng.integers(0, count, (draws, count))[d]``. ``most_items`` is the
    size of the largest array that the caller makes of a draw.

    >>> from bench.stats.argument_checks import make_generator
    >>> [counts.sum(1).tolist() for counts in draw_counts(3, make_generator(1, "items"), 100)] == [[3] * 100]
    True
    """
    check_draws(draws)
    if not 0 < count <= MAX_PAIRS:
        raise ValueError(f"{count} pairs; expected at most {MAX_PAIRS}")
    size = _batch_size(max(count, most_items), draws)
    buffer = np.empty((size, count), dtype=np.int64)
    for start in range(0, draws, size):
        counts = buffer[: draws - start]
        for row, chosen in zip(counts, rng.integers(0, count, counts.shape), strict=True):
            row[:] = np.bincount(chosen, minlength=count)
        yield counts


def spearman_statistic(predictions: ArrayLike, gold: ArrayLike) -> Statistic:
    """Return the Spearman correlations of (runs, pairs) with (pairs,) gold scores as a function of counts.

    >>> correlate = spearman_statistic([[0.1, 0.3, 0.2, 0.9]], [1, 2, 3, 4])
    >>> correlate(np.array([[1, 1, 1, 1], [0, 2, 2, 0]])).round(3).tolist()
    [[0.8], [-1.0]]
    """
    return _Correlator(*check_items(predictions, gold)).correlate


def pearson_statistic(predictions: ArrayLike, gold: ArrayLike) -> Statistic:
    """Return the Pearson correlations of (runs, pairs) with (pairs,) gold scores as a function of counts.

    Values that are all equal, in the data or in a draw, raise ``ValueError``.

    >>> correlate = pearson_statistic([[0.1, 0.3, 0.2, 0.9]], [1, 2, 3, 4])
    >>> correlate(np.array([[1, 1, 1, 1], [0, 2, 2, 0]])).round(3).tolist()
    [[0.826], [-1.0]]
    """
    rows, scores = check_items(predictions, gold)
    return partial(_pearson_draws, _standardise(rows), _standardise(scores))


def _standardise(values: FloatArray) -> FloatArray:
    """Return values with mean 0 and variance 1 along the last axis; raises ValueError for equal ones."""
    centred = values - values.mean(axis=-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True))
    if (np.ptp(values, axis=-1) == 0).any():
        raise ValueError("all values of a side are equal; no correlation")
    standard: FloatArray = centred / scale
    return standard


def _pearson_draws(rows: FloatArray, gold: FloatArray, counts: IntArray) -> FloatArray:
    """Return (draws, runs) correlations of standardised values."""
    weights = counts / counts.sum(axis=1, keepdims=True)
    mean, square = weights @ gold, weights @ gold**2
    gold_variance = square - mean**2
    result = np.empty((len(counts), len(rows)))
    for column, row in enumerate(rows):
        of_row = weights @ row
        variance = weights @ row**2 - of_row**2
        if min(variance.min(), gold_variance.min()) <= _LEAST_VARIANCE:
            raise ValueError("all values of a side are equal in a draw; no correlation")
        result[:, column] = (weights @ (row * gold) - of_row * mean) / np.sqrt(variance * gold_variance)
    return np.clip(result, -1, 1)


def mean_statistic(values: ArrayLike) -> Statistic:
    """Return the means of (runs, items), such as accuracies of 1 and 0, as a function of counts.

    >>> mean_statistic([[1, 0, 1, 1], [0, 0, 0, 0]])(np.array([[1, 1, 1, 1], [0, 2, 0, 0]])).tolist()
    [[0.75, 0.0], [0.0, 0.0]]
    """
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"values have shape {np.shape(values)}; expected (runs, items), all finite")
    return partial(_means, rows)


def _means(rows: FloatArray, counts: IntArray) -> FloatArray:
    """Return (draws, runs) means of (runs, items); the bits of a run do not depend on the others."""
    totals = counts.sum(axis=1)
    if not totals.all():
        raise ValueError("a draw has no item")
    return np.stack([counts @ row / totals for row in rows], axis=1)


def _batch_size(count: int, draws: int) -> int:
    return max(1, min(draws, _CHUNK // max(1, count)))


class _Side:
    """The order of one side's (pairs,) values and its ties: in groups if there are many, otherwise by place.

    ``edges`` are the places where each distinct value begins, and the end; None with few ties. ``tied`` are
    the places whose value occurs more than once, ``first`` and ``end`` those of its group.
    """

    def __init__(self, values: FloatArray) -> None:
        self.by_value = np.argsort(values, kind="stable")
        ordered = values[self.by_value]
        begins = np.r_[True, ordered[1:] != ordered[:-1]]
        edges, self.group = np.r_[np.flatnonzero(begins), len(values)], np.cumsum(begins) - 1
        self.tied = np.flatnonzero(np.diff(edges)[self.group] > 1)
        self.first, self.end = edges[self.group[self.tied]], edges[self.group[self.tied] + 1]
        has_many = 8 * len(self.tied) > len(values)
        self.edges: NDArray[np.intp] | None = edges if has_many else None


class _Correlator:
    """Correlations of (runs, pairs) predictions with (pairs,) gold scores in draws, given as counts."""

    def __init__(self, rows: FloatArray, scores: FloatArray) -> None:
        self._gold, self._sides = _Side(scores), [_Side(row) for row in rows]
        self._gold_place = np.argsort(self._gold.by_value)
        self._reserve(0)

    def _reserve(self, size: int) -> None:
        """Make room for draws of some size."""
        pairs = len(self._gold_place)
        self._weighted, self._drawn, self._twice = np.empty((3, size, pairs), dtype=np.int64)
        self._below = np.zeros((size, pairs + 1), dtype=np.int64)

    def correlate(self, counts: IntArray) -> FloatArray:
        """Return (draws, runs) correlations of (draws, pairs) counts."""
        draws = len(counts)
        if draws > len(self._weighted):
            self._reserve(draws)
        weighted, total = self._weighted[:draws], counts.sum(axis=1)
        if total.max() > MAX_PAIRS:
            raise ValueError(f"{total.max()} drawn pairs; expected at most {MAX_PAIRS}")
        distinct = np.einsum("dp,dp->d", counts, counts * counts)  # sum of cubes without ties
        twice, gold_scale = self._rank_draws(counts, self._gold, distinct, total)
        twice.take(self._gold_place, axis=1, out=weighted, mode="clip")
        weighted -= total[:, None]
        weighted *= counts  # gold ranks less their mean: a product needs no mean on the other side
        result = np.empty((draws, len(self._sides)))
        for column, side in enumerate(self._sides):
            twice, scale = self._rank_draws(counts, side, distinct, total)
            if not (gold_scale.all() and scale.all()):
                what = "predictions of a run" if gold_scale.all() else "gold scores"
                raise ValueError(f"all {what} are equal, in the data or in a draw; no correlation")
            products = np.einsum("dp,dp->d", self._order_pairs(weighted, side), twice)
            result[:, column] = products / np.sqrt(gold_scale) / np.sqrt(scale)
        return np.clip(result, -1, 1)

    def _order_pairs(self, values: IntArray, side: _Side) -> IntArray:
        """(draws, pairs) in the side's order; valid until the next call."""
        return values.take(side.by_value, axis=1, out=self._drawn[: len(values)], mode="clip")

    def _rank_draws(
        self, counts: IntArray, side: _Side, distinct: IntArray, total: IntArray
    ) -> tuple[IntArray, FloatArray]:
        """Return twice the average ranks less one, in the side's order, and 4 times their sum of squares."""
        draws = len(counts)
        drawn, below, twice = self._order_pairs(counts, side), self._below[:draws], self._twice[:draws]
        np.cumsum(drawn, axis=1, out=below[:, 1:])
        if side.edges is not None:
            below = below.take(side.edges, axis=1)
            groups = below[:, 1:] - below[:, :-1]
            cubes = np.einsum("dg,dg->d", groups, groups * groups)
            (below[:, 1:] + below[:, :-1]).take(side.group, axis=1, out=twice, mode="clip")
        else:
            np.add(below[:, 1:], below[:, :-1], out=twice)
            # take is several times faster than an index
            low, high, single = (
                values.take(places, axis=1, mode="clip")
                for values, places in ((below, side.first), (below, side.end), (drawn, side.tied))
            )
            twice[:, side.tied] = low + high
            groups = high - low
            cubes = distinct + np.einsum("dt,dt->d", single, groups * groups - single * single)
        return twice, (total**3 - cubes) / 3
