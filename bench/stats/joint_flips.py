"""Family-wise tests of all pairs of m methods by sign flips that all pairs share.

One flip gives every task a sign, the same for all methods. So the flipped differences of all pairs depend on
one another as the differences do, which Bonferroni's and Holm's corrections ignore. The size of a flipped
difference is its sum over the root of its sum of squares, which no flip changes: a flip of all pairs costs
one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.stats.argument_checks import FloatArray, check_draws, check_level

IntArray = NDArray[np.intp]

_TIE = 1e-9  # relative: flips that are as large as the observed value but for rounding
_MOST_EXACT = 62  # tasks, so that the number of flips fits in an int64


@dataclass(frozen=True)
class FlipFamily:
    """Corrected tests of all pairs of m methods; matrices are symmetric unless a row is the baseline.

    Args:
        adjusted: (m, m) p of the step-down test of all pairs.
        steps: (m, m) critical size of each pair: that of its own step if it is significant, otherwise that
            of the first step without a significant pair.
        against: (m, m) p of the single-step test of a row's pairs alone: the row is the baseline.
        critical: (m,) critical size of the pairs of each row.
        draws: Number of flips; ``exact`` if they are all there are.
    """

    adjusted: FloatArray
    steps: FloatArray
    against: FloatArray
    critical: FloatArray
    draws: int
    exact: bool


def draw_signs(tasks: int, rng: np.random.Generator, draws: int = 10_000) -> tuple[FloatArray, bool]:
    """Return (draws, tasks) signs, and True if they are all flips rather than random ones.

    A flip and its opposite give the same absolute sums, so all flips are 2^(tasks - 1). They are enumerated
    if they are at most ``draws``, without flips first.

    >>> from bench.stats.argument_checks import make_generator
    >>> signs, exact = draw_signs(3, make_generator(1, "flips"))
    >>> signs.tolist(), exact
    ([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [1.0, -1.0, -1.0]], True)
    """
    check_draws(draws)
    if tasks < 1:
        raise ValueError(f"{tasks} tasks; expected at least 1")
    if tasks <= _MOST_EXACT and 2 ** (tasks - 1) <= draws:
        flips = np.arange(2 ** (tasks - 1))
        bits = flips[:, None] >> np.arange(tasks - 1, -1, -1)
        return np.asarray(1 - 2 * (bits & 1), dtype=np.float64), True
    return rng.choice(np.array([-1.0, 1.0]), (draws, tasks)), False


def correct_by_flips(
    sizes: FloatArray, effects: FloatArray, signs: FloatArray, *, exact: bool = False, alpha: float = 0.05
) -> FlipFamily:
    """Correct all pairs of m methods by the largest flipped size of a family (step-down max-t).

    Step-down as in Westfall and Young (1993, Resampling-Based Multiple Testing, algorithm 4.1): a pair's p is
    the share of flips whose largest size, among all pairs that are not larger, reaches its own. If tasks are
    independent and the differences of equal methods symmetric, the chance of any false difference is at most
    ``alpha`` with uncentred effects; with centred ones it is measured (``benchmarks/coverage_tasks.py``).

    Args:
        sizes: (m, m) observed sizes of the differences, at least 0, symmetric; infinite for differences
            without any spread.
        effects: (m, tasks): the flipped difference of i and j is the sum of signs * (effects[i] -
            effects[j]), its size the absolute sum over the root of the sum of squares.
        signs: (draws, tasks) from :func:`draw_signs`.
        exact: True if ``signs`` are all flips and ``effects`` are uncentred, so that the data themselves are
            one of the flips. Otherwise the data are counted as one flip more.
        alpha: Error rate of the critical sizes.

    Raises:
        ValueError: shapes that do not belong together.

    >>> scores = np.array([[3.0, 3.2, 2.9, 3.1, 3.3, 3.4], [1.0, 1.3, 1.1, 0.9, 1.2, 1.0], [1.1] * 6])
    >>> gaps = scores[:, None] - scores
    >>> squares = (gaps**2).sum(axis=2)
    >>> sizes = np.abs(gaps.sum(axis=2)) / np.sqrt(np.where(squares > 0, squares, 1.0))
    >>> signs, _ = draw_signs(6, np.random.default_rng(1))
    >>> family = correct_by_flips(sizes, scores, signs, exact=True)
    >>> family.adjusted.round(3).tolist()
    [[1.0, 0.031, 0.031], [0.031, 1.0, 1.0], [0.031, 1.0, 1.0]]
    """
    check_level(alpha)
    count, tasks = effects.shape
    if sizes.shape != (count, count) or signs.ndim != 2 or signs.shape[1] != tasks:
        raise ValueError(
            f"sizes {sizes.shape}, effects {effects.shape}, signs {signs.shape}; "
            "expected (m, m), (m, tasks), (draws, tasks)"
        )
    sums, (first, second) = effects @ signs.T, np.triu_indices(count, 1)
    norms = [np.linalg.norm(effects[i + 1 :] - effects[i], axis=1) for i in range(count)]
    lengths = np.concatenate(norms)
    scales = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    draws, more = len(signs), 0 if exact else 1
    allowed = int(alpha * (draws + more) + _TIE) - more  # flips that may reach a significant size
    observed = sizes[first, second] * (1 - _TIE)
    order = np.argsort(observed, kind="stable")
    reached, steps, largest = _walk_up(
        sums, first[order], second[order], scales[order], observed[order], allowed
    )
    shares = (reached + more) / (draws + more)
    adjusted, critical_steps = np.ones((count, count)), np.full((count, count), np.inf)
    places = first[order], second[order]
    adjusted[places] = np.maximum.accumulate(shares[::-1])[::-1]  # at least that of any larger pair
    critical_steps[places] = steps
    against = np.ones((count, count))
    for i, row in enumerate(np.sort(largest, axis=1)):
        below = np.searchsorted(row, sizes[i] * (1 - _TIE), side="left")
        against[i] = (draws - below + more) / (draws + more)
        against[i, i] = 1.0
    return FlipFamily(
        np.minimum(adjusted, adjusted.T),
        np.minimum(critical_steps, critical_steps.T),
        against,
        np.array([_find_critical(row, allowed) for row in largest]),
        draws,
        exact,
    )


def _walk_up(
    sums: FloatArray,
    first: IntArray,
    second: IntArray,
    scales: FloatArray,
    observed: FloatArray,
    allowed: int,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Flip the pairs one by one, from the smallest: the largest size so far is that of a pair's own step.

    Returns:
        (pairs,) numbers of flips that reach a pair at its step, (pairs,) critical sizes, and (m, draws)
        largest sizes of the pairs of each method.
    """
    draws = sums.shape[1]
    running, largest, size = np.zeros(draws), np.zeros(sums.shape), np.empty(draws)
    reached, steps, is_open = np.zeros(len(first), dtype=np.intp), np.zeros(len(first)), 0
    at_open = running.copy()
    pairs = zip(first.tolist(), second.tolist(), scales.tolist(), observed.tolist(), strict=True)
    for place, (i, j, scale, value) in enumerate(pairs):
        np.subtract(sums[i], sums[j], out=size)
        np.abs(size, out=size)
        size *= scale
        for family in (running, largest[i], largest[j]):
            np.maximum(family, size, out=family)
        reached[place] = np.count_nonzero(running >= value)
        if reached[place] <= allowed:
            steps[place] = _find_critical(running, allowed)
        else:
            is_open = place + 1
            at_open[:] = running
    steps[:is_open] = _find_critical(at_open, allowed)  # the walk down ends at the first open pair
    return reached, steps, largest


def _find_critical(largest: FloatArray, allowed: int) -> float:
    """Return the size that at most ``allowed`` of the (draws,) largest sizes exceed; infinite below 0."""
    if allowed < 0:
        return np.inf
    place = len(largest) - 1 - allowed
    return float(np.partition(largest, place)[place]) / (1 - _TIE)  # a tie is not significant
