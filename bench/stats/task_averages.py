"""Averages of (m, T) scores over tasks, their weights, and the moments from which tests over tasks follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from bench.stats.argument_checks import FloatArray, check_table
from bench.stats.seeds import ROUNDING, least_p

AVERAGES = ("tasks", "types", "borda")
MIN_TASKS = 6
_TIE = 1e-9
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class TaskScores:
    """A table of m methods and T tasks.

    Args:
        methods: Names.
        values: (m, T) scores, all finite.
        types: Type of each task, for the average over types and as strata; empty if tasks have no types.

    Raises:
        ValueError: fewer than 2 methods or 6 tasks, or names of another number.
    """

    methods: tuple[str, ...]
    values: FloatArray
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check shapes and keep the values as an array."""
        values = check_table(self.values, "values")
        check_tasks(values.shape[1], self.types)
        if len(values) < 2 or len(set(self.methods)) != len(values) or len(self.methods) != len(values):
            raise ValueError(
                f"{len(self.methods)} method names, {len(set(self.methods))} of them distinct, "
                f"of {len(values)} rows; expected one each, and at least 2"
            )
        object.__setattr__(self, "values", values)

    def points(self, average: str) -> FloatArray:
        """Return the (m, T) values of tasks of which the average is the weighted mean."""
        return borda_points(self.values) if average == "borda" else self.values


def task_weights(tasks: int, types: Sequence[str], average: str) -> FloatArray:
    """Return the (T,) weights of tasks in an average; they sum to 1.

    >>> task_weights(4, ("sts", "sts", "sts", "retrieval"), "types").round(3).tolist()
    [0.167, 0.167, 0.167, 0.5]
    """
    if average not in AVERAGES:
        raise ValueError(f"average '{average}'; expected one of {', '.join(AVERAGES)}")
    if average != "types":
        return np.full(tasks, 1 / tasks)
    if not types:
        raise ValueError("tasks without types have no average over types")
    _, numbers, counts = np.unique(list(types), return_inverse=True, return_counts=True)
    return 1 / (len(counts) * counts[numbers])


def borda_points(values: ArrayLike) -> FloatArray:
    """Return (m, T) Borda points of (m, T) scores: a task gives its best of m methods m - 1 points.

    Equal scores share their points, as in mteb's leaderboard, which ranks by the sum over tasks.

    >>> borda_points([[0.9, 0.5], [0.7, 0.5], [0.8, 0.1]]).tolist()
    [[2.0, 1.5], [0.0, 1.5], [1.0, 0.0]]
    """
    from scipy.stats import rankdata  # slow to load

    scores = check_table(values, "values")
    return np.asarray(rankdata(scores, axis=0) - 1, dtype=np.float64)


def check_tasks(tasks: int, types: tuple[str, ...]) -> None:
    """Raise ValueError for fewer tasks than a test needs, or types of another number of tasks."""
    if tasks < MIN_TASKS:
        raise ValueError(
            f"{tasks} task(s); expected at least {MIN_TASKS}: {tasks} signs give no p below "
            f"{least_p(tasks, tasks, paired=True):g}"
        )
    if types and len(types) != tasks:
        raise ValueError(f"{len(types)} types of {tasks} tasks; expected one each, or none")


@dataclass(frozen=True)
class TaskMoments:
    """Weighted sums over tasks of the differences of m methods; matrices are (m, m), of row - column.

    Args:
        scores: (m,) averages.
        differences: Differences of the averages.
        crosses: Sums over tasks of weights^2 * deviations of the tasks' differences from the average's.
        spreads: Sums of weights^2 * squared deviations.
        squares: Sums of weights^2 * squared differences.
        effects: (m, T) weights * values.
        number: Effective number of tasks: T for equal weights.
        constant: True without any spread over tasks.
    """

    scores: FloatArray
    differences: FloatArray
    crosses: FloatArray
    spreads: FloatArray
    squares: FloatArray
    effects: FloatArray
    number: float
    constant: BoolArray

    @property
    def sizes(self) -> FloatArray:
        """Return |sum| over the root of the sum of squares, at most the root of the number of tasks."""
        roots = np.sqrt(np.where(self.squares > 0, self.squares, 1.0))
        return np.abs(self.differences) / roots

    def p_values(self) -> FloatArray:
        """Return two-sided p of t; without any spread 1, or the lowest that so many signs give."""
        tasks, freedom = self.effects.shape[1], self.number - 1
        squares = self.sizes**2
        rest = self.number - squares
        varies = (rest > 0) & ~self.constant
        t = np.sqrt(freedom * squares / np.where(varies, rest, 1.0))
        p = np.where(varies, 2 * stdtr(freedom, -t), least_p(tasks, tasks, paired=True))
        return np.where(self.differences == 0, 1.0, p)

    def single_size(self, level: float) -> float:
        """Return the critical size of one t test."""
        t = float(stdtrit(self.number - 1, (1 + level) / 2))
        return math.sqrt(self.number * t**2 / (self.number - 1 + t**2))

    def level(self, sizes: FloatArray) -> FloatArray:
        """Return the confidence level of one t interval with these critical sizes."""
        rest = np.maximum(self.number - sizes**2, 0.0)
        with np.errstate(divide="ignore"):
            t = np.sqrt((self.number - 1) * sizes**2 / rest)
        return np.asarray(1 - 2 * stdtr(self.number - 1, -t), dtype=np.float64)

    def ends(self, sizes: ArrayLike, first: IntArray, second: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the (pairs,) ends of the intervals of ``first`` - ``second`` with these critical sizes.

        An interval has all values d for which the size of differences - d is at most critical: for equal
        weights, those of t. Not a number without any spread, and where so few tasks give no interval.
        """
        limits = np.broadcast_to(np.square(sizes), first.shape if len(first) > 1 else second.shape)
        rest = 1 - limits / self.number
        has_ends = (rest > _TIE) & ~self.constant[first, second]
        limits, rest = np.where(has_ends, limits, 0.0), np.where(has_ends, rest, 1.0)
        shift = limits * self.crosses[first, second]
        half = np.sqrt(shift**2 + rest * limits * self.spreads[first, second])
        differences = self.differences[first, second]
        low, high = differences - (shift + half) / rest, differences - (shift - half) / rest
        return np.where(has_ends, low, np.nan), np.where(has_ends, high, np.nan)


def take_moments(values: FloatArray, weights: FloatArray) -> TaskMoments:
    """Return the moments of (m, T) values with (T,) weights that sum to 1.

    >>> moments = take_moments(np.array([[1.0, 2.0, 4.0], [0.0, 0.5, 3.5]]), np.full(3, 1 / 3))
    >>> round(float(moments.differences[0, 1]), 3), round(float(moments.sizes[0, 1]), 3)
    (1.0, 1.604)
    """
    effects = values * weights
    scores = effects.sum(axis=1)
    differences = scores[:, None] - scores
    crosses, spreads, squares, ranges = np.empty((4, *differences.shape))
    for i, row in enumerate(effects):  # one row at a time, so that no (m, m, T) array is needed
        gaps = row - effects
        centred = gaps - differences[i][:, None] * weights
        crosses[i], spreads[i] = centred @ weights, np.square(centred).sum(axis=1)
        squares[i], ranges[i] = np.square(gaps).sum(axis=1), np.ptp(values[i] - values, axis=1)
    magnitudes = np.abs(values).max(axis=1)
    rounding = ROUNDING * np.maximum(magnitudes[:, None], magnitudes)
    constant = np.less_equal(ranges, rounding)
    alike = constant & (np.abs(differences) <= rounding)
    differences[alike] = squares[alike] = 0.0
    number = 1 / float((weights**2).sum())
    return TaskMoments(scores, differences, crosses, spreads, squares, effects, number, constant)
