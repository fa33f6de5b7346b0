"""Tests of methods over tasks, for tables of one score a method and task, without seeds or items.

The sampling unit is the task. A statement is for further tasks of these types, as many of each type as here.
A benchmark is no random draw of tasks, and tasks that share texts count as independent ones.

Averages are weighted means of per-task values: "tasks" weights all tasks alike, "types" all types of task
(mteb's "Mean (TaskType)"), and "borda" averages Borda points, which depend on the other methods of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from bench.stats.argument_checks import FloatArray, check_level, check_table, make_generator
from bench.stats.correction import describe_family
from bench.stats.difference_test import OVER_TASKS
from bench.stats.joint_flips import FlipFamily, correct_by_flips, draw_signs
from bench.stats.method_ranking import PairTest, RankedPair, Ranking
from bench.stats.task_averages import (
    BoolArray,
    IntArray,
    TaskMoments,
    TaskScores,
    check_tasks,
    take_moments,
    task_weights,
)

CORRECTION = "Step-down max-t by sign flips of tasks"


@dataclass(frozen=True)
class BaselineTests:
    """All other methods against one, with (m,) simultaneous intervals of method - baseline.

    Args:
        methods: All but the baseline.
        low: Lower ends, ``high`` the upper ones; not a number without any spread over tasks, infinite where
            so few tasks give no interval.
        p: Adjusted for these m - 1 comparisons: at most alpha exactly if the interval excludes 0.
    """

    baseline: str
    methods: tuple[str, ...]
    differences: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray


@dataclass(frozen=True)
class TaskTests:
    """Tests of all pairs of m methods on one average; matrices are (m, m), of row - column.

    Args:
        moments: What the tests are computed from.
        p: Before correction.
        family: The corrected tests.
        alpha: Bound of the chance of any false difference among all pairs.
    """

    methods: tuple[str, ...]
    average: str
    moments: TaskMoments
    p: FloatArray
    family: FlipFamily
    alpha: float

    @property
    def scores(self) -> FloatArray:
        """Return the (m,) averages, of "borda" the mean points a task."""
        return self.moments.scores

    @property
    def differences(self) -> FloatArray:
        """Return the (m, m) differences of averages."""
        return self.moments.differences

    @cached_property
    def adjusted(self) -> FloatArray:
        """Return the (m, m) p, corrected for all pairs."""
        return np.maximum(self.family.adjusted, self.p)

    @cached_property
    def differs(self) -> BoolArray:
        """Return the (m, m) pairs with a significant difference among all pairs."""
        return np.less_equal(self.adjusted, self.alpha)

    @cached_property
    def rank_intervals(self) -> IntArray:
        """Return the (m, 2) lowest and highest rank of each method; all hold together with 1 - alpha.

        1 + significantly better methods, m - significantly worse ones (Mogstad, Romano, Shaikh and Wilhelm
        2024, Rev. Econ. Stud. 91).
        """
        better = (self.differs & (self.differences < 0)).sum(axis=1)
        worse = (self.differs & (self.differences > 0)).sum(axis=1)
        return np.stack([1 + better, len(self.methods) - worse], axis=1)

    @cached_property
    def may_be_best(self) -> BoolArray:
        """Return the (m,) methods than which no other is significantly better, each in a family of its own.

        The best method is among them with a chance of at least 1 - alpha (Hsu 1984, Ann. Statist. 12, 1136).
        """
        is_behind = (self._against <= self.alpha) & (self.differences < 0)
        return np.logical_not(is_behind.any(axis=1))

    @cached_property
    def _against(self) -> FloatArray:
        return np.maximum(self.family.against, self.p)

    def against(self, baseline: str) -> BaselineTests:
        """Compare all other methods with one, by single-step max-t over these m - 1 pairs."""
        place = self._place(baseline)
        others = np.delete(np.arange(len(self.methods)), place)
        low, high = self._ends(self.family.critical[place], others, np.array([place]))
        names, p = tuple(self.methods[i] for i in others), self._against[place, others]
        return BaselineTests(baseline, names, self.differences[others, place], low, high, p)

    def pair(self, a: str, b: str, level: float | None = None) -> PairTest:
        """Return the test of a - b before correction; with its interval at ``level``, if given."""
        i, j = self._place(a), self._place(b)
        return _pair_test(self.moments, float(self.p[i, j]), (i, j), level)

    def interval(self, a: str, b: str) -> tuple[float, float] | None:
        """Return the interval of a - b that excludes 0 exactly if the pair differs among all pairs.

        Its level is that of the pair's step. None without any spread over tasks.
        """
        i, j = np.array([self._place(a)]), np.array([self._place(b)])
        low, high = self._ends(self.family.steps[i, j], i, j)
        return None if np.isnan(low[0]) else (float(low[0]), float(high[0]))

    def ranking(self) -> Ranking:
        """Return the methods in the order of their averages, and all pairs, as other tables have them."""
        order = np.array(sorted(range(len(self.methods)), key=lambda i: (-self.scores[i], self.methods[i])))
        first, second = np.triu_indices(len(order), 1)
        places = order[first], order[second]
        levels = self.moments.level(self._critical(self.family.steps))
        matrices = (self.differences, self.p, self.adjusted, self.differs, levels)
        columns = [*places, *(matrix[places] for matrix in matrices)]
        pairs = []
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for i, j, difference, p, adjusted, differs, level in rows:
            names = self.methods[i], self.methods[j]
            pairs.append(RankedPair(*names, difference, p, adjusted, differs, OVER_TASKS, level))
        caption = describe_family(CORRECTION, len(pairs), "all pairs of methods")
        names, scores = tuple(self.methods[i] for i in order), tuple(self.scores[order].tolist())
        return Ranking(names, scores, tuple(pairs), (), self.alpha, caption)

    def _place(self, method: str) -> int:
        if method not in self.methods:
            raise ValueError(f"'{method}' is none of the {len(self.methods)} methods")
        return self.methods.index(method)

    def _critical(self, sizes: ArrayLike) -> FloatArray:
        """Return critical sizes of a family, at least that of one test."""
        return np.maximum(sizes, self.moments.single_size(1 - self.alpha))

    def _ends(self, sizes: ArrayLike, first: IntArray, second: IntArray) -> tuple[FloatArray, FloatArray]:
        return self.moments.ends(self._critical(sizes), first, second)


def compare_tasks(
    table: TaskScores,
    average: str = "tasks",
    *,
    seed: int = 0,
    draws: int = 10_000,
    alpha: float = 0.05,
) -> TaskTests:
    """Test all pairs of methods over tasks, each alone and corrected for all pairs.

    A pair: paired t over tasks, with the effective number of tasks, 1 / sum of squared weights, less one as
    degrees of freedom. All pairs: :func:`bench.stats.joint_flips.correct_by_flips`. The differences of a task
    may be of any size, with a mean of its own for each type of task, which widens the intervals. Measured
    coverage and errors: ``benchmarks/coverage_tasks.py``.

    Args:
        average: One of ``AVERAGES``.
        seed: Of the random flips; all flips are taken if they are at most ``draws``.

    Raises:
        ValueError: an unknown average, or one over types for tasks without types.

    >>> rng = np.random.default_rng(1)
    >>> scores = np.array([[60.0], [62.0], [62.1]]) + rng.normal(size=(1, 12)) + rng.normal(size=(3, 12)) / 2
    >>> tests = compare_tasks(TaskScores(("a", "b", "c"), scores))
    >>> tests.rank_intervals.tolist(), tests.may_be_best.tolist()
    ([[3, 3], [1, 2], [1, 2]], [False, True, True])
    """
    check_level(alpha)
    tasks = table.values.shape[1]
    moments = take_moments(table.points(average), task_weights(tasks, table.types, average))
    signs, exact = draw_signs(tasks, make_generator(seed, "task flips"), draws)
    family = correct_by_flips(moments.sizes, moments.effects, signs, exact=exact, alpha=alpha)
    return TaskTests(table.methods, average, moments, moments.p_values(), family, alpha)


def task_pair_test(
    a: ArrayLike,
    b: ArrayLike,
    types: Sequence[str] = (),
    *,
    average: str = "tasks",
    level: float | None = None,
) -> PairTest:
    """Test two methods by their (T,) per-task values, as :func:`compare_tasks` does before correction.

    Args:
        a: Scores, or Borda points among all methods for "borda"; ``b`` those of the other.
        level: Confidence level of the interval, if it is wanted.

    >>> a, b = [61.2, 70.3, 55.0, 48.1, 80.2, 66.6, 71.9], [60.1, 70.1, 53.8, 47.9, 79.0, 66.9, 70.8]
    >>> test = task_pair_test(a, b, level=0.95)
    >>> round(test.difference, 2), round(test.p, 3), test.test
    (0.67, 0.029, 't over tasks')
    >>> tuple(round(end, 2) for end in test.interval)
    (0.1, 1.25)
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"a {x.shape} against b {y.shape}; expected (T,), the same tasks")
    values = check_table([x, y], "scores")
    check_tasks(values.shape[1], tuple(types))
    moments = take_moments(values, task_weights(values.shape[1], types, average))
    return _pair_test(moments, float(moments.p_values()[0, 1]), (0, 1), level)


def _pair_test(moments: TaskMoments, p: float, places: tuple[int, int], level: float | None) -> PairTest:
    interval = None
    if level is not None:
        check_level(level)
        i, j = (np.array([place]) for place in places)
        low, high = moments.ends(moments.single_size(level), i, j)
        interval = None if np.isnan(low[0]) else (float(low[0]), float(high[0]))
    return PairTest(float(moments.differences[places]), p, OVER_TASKS, interval, moments.number - 1)
