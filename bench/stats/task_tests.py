"""Tests of methods over tasks, for tables of one score a method and task, without seeds or items.

The sampling unit is the task: a statement is for further tasks of this kind, drawn whatever their type.
A benchmark is no random draw of tasks, and tasks that share texts count as independent ones.

Averages are weighted means of per-task values: "tasks" weights all tasks alike, "types" all types of task
(mteb's "Mean (TaskType)"), and "borda" averages Borda points, which depend on the other methods of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from bench.stats.argument_checks import FloatArray, check_level, check_table
from bench.stats.correction import adjust_p_values
from bench.stats.difference_test import OVER_TASKS
from bench.stats.method_ranking import PairTest, Ranking, rank_methods
from bench.stats.seeds import ROUNDING, least_p
from bench.stats.task_averages import TaskScores, check_tasks, task_weights

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class BaselineTests:
    """All other methods against one, with (m - 1,) simultaneous intervals of method - baseline.

    Args:
        methods: All but the baseline.
        low: Lower ends, ``high`` the upper ones; not a number without any spread over tasks.
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
        scores: (m,) averages, of "borda" the mean points a task.
        differences: Differences of the averages.
        errors: Standard errors; 0 without any spread over tasks.
        freedom: Degrees of freedom of t.
        p: Before correction; 1 for methods alike, never not a number.
        alpha: Bound of the chance of any false difference.
    """

    methods: tuple[str, ...]
    average: str
    scores: FloatArray
    differences: FloatArray
    errors: FloatArray
    freedom: float
    p: FloatArray
    alpha: float

    @cached_property
    def adjusted(self) -> FloatArray:
        """Return the (m, m) p by Holm's correction over all pairs."""
        pairs = np.triu_indices(len(self.methods), 1)
        adjusted = np.ones(self.p.shape)
        adjusted[pairs] = adjust_p_values(self.p[pairs].tolist(), "holm")
        return np.minimum(adjusted, adjusted.T)

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
        """Return the (m,) methods than which no other is significantly better, corrected for m - 1 pairs.

        The best method is among them with a chance of at least 1 - alpha (Hsu 1984, Ann. Statist. 12, 1136).
        """
        is_behind = (self._adjust_against(self.p) <= self.alpha) & (self.differences < 0)
        return np.logical_not(is_behind.any(axis=1))

    def _adjust_against(self, p: FloatArray) -> FloatArray:
        """Return p by Bonferroni's correction over the m - 1 pairs of a method."""
        return np.minimum(1.0, p * (len(self.methods) - 1))

    def against(self, baseline: str) -> BaselineTests:
        """Compare all other methods with one, by Bonferroni's correction over these m - 1 pairs."""
        place = self._place(baseline)
        others = np.delete(np.arange(len(self.methods)), place)
        errors, differences = self.errors[others, place], self.differences[others, place]
        level = 1 - self.alpha / len(others)
        half = stdtrit(self.freedom, (1 + level) / 2) * np.where(errors > 0, errors, np.nan)
        names, p = tuple(self.methods[i] for i in others), self._adjust_against(self.p[others, place])
        return BaselineTests(baseline, names, differences, differences - half, differences + half, p)

    def pair(self, a: str, b: str, level: float | None = None) -> PairTest:
        """Return the test of a - b before correction; with its interval at ``level``, if given."""
        i, j = self._place(a), self._place(b)
        difference, p = float(self.differences[i, j]), float(self.p[i, j])
        interval = None
        if level is not None:
            check_level(level)
            half = float(stdtrit(self.freedom, (1 + level) / 2)) * float(self.errors[i, j])
            interval = (difference - half, difference + half) if half > 0 else None
        return PairTest(difference, p, OVER_TASKS, interval, self.freedom)

    def interval(self, a: str, b: str) -> tuple[float, float] | None:
        """Return the interval of a - b at the level of its step of Holm's correction.

        It excludes 0 exactly if the pair differs among all pairs. None without any spread over tasks.
        """
        return self.pair(a, b, self.ranking.pair(a, b).level).interval

    @cached_property
    def ranking(self) -> Ranking:
        """Return the methods in the order of their averages, and all pairs."""
        scores = dict(zip(self.methods, self.scores.tolist(), strict=True))
        return rank_methods(scores, self.pair, alpha=self.alpha)

    def _place(self, method: str) -> int:
        if method not in self._places:
            raise ValueError(f"'{method}' is none of the {len(self.methods)} methods")
        return self._places[method]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {method: place for place, method in enumerate(self.methods)}


def compare_tasks(table: TaskScores, average: str = "tasks", *, alpha: float = 0.05) -> TaskTests:
    """Test all pairs of methods over tasks, each alone and corrected.

    A pair: t over tasks. With weights w that sum to 1 and differences d, of average D, the variance
    is n / (n - 1) sum w^2 (d - D)^2 and df is n - 1, where n = 1 / sum w^2 is the effective number of tasks.
    Type means that differ widen the intervals. All pairs: Holm. All others against one: Bonferroni, whose
    intervals hold together.

    Measured (``benchmarks/coverage_tasks.py``): 95% intervals hold in 94 to 100%, in 87 to 93% where
    differences are strongly skewed. Among 20 to 105 models of mteb's board whose tasks are drawn again within
    their types, Holm shows a false difference in 1 to 5% of tables, joint sign flips of tasks in 6 to 15%.
    Where types are drawn too, Holm errs in 9 to 15%.

    Args:
        average: One of ``AVERAGES``.

    Raises:
        ValueError: an unknown average, or one over types for tasks without types.

    >>> rng = np.random.default_rng(1)
    >>> scores = np.array([[60.0], [62.0], [62.1]]) + rng.normal(size=(1, 12)) + rng.normal(size=(3, 12)) / 2
    >>> tests = compare_tasks(TaskScores(("a", "b", "c"), scores))
    >>> tests.rank_intervals.tolist(), tests.may_be_best.tolist()
    ([[3, 3], [1, 2], [1, 2]], [False, True, True])
    """
    check_level(alpha)
    weights = task_weights(table.values.shape[1], table.types, average)
    return _test_pairs(table.methods, average, table.points(average), weights, alpha)


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
    weights = task_weights(values.shape[1], types, average)
    return _test_pairs(("a", "b"), average, values, weights, 0.05).pair("a", "b", level)


def _test_pairs(
    methods: tuple[str, ...], average: str, values: FloatArray, weights: FloatArray, alpha: float
) -> TaskTests:
    tasks, number = len(weights), 1 / float((weights**2).sum())
    effects = values * weights
    scores = effects.sum(axis=1)
    differences = scores[:, None] - scores
    variances, ranges = np.empty((2, *differences.shape))
    for i, row in enumerate(effects):  # one row at a time, so that no (m, m, T) array is needed
        deviations = row - effects - differences[i][:, None] * weights
        variances[i] = np.square(deviations).sum(axis=1) * number / (number - 1)
        ranges[i] = np.ptp(values[i] - values, axis=1)
    magnitudes = np.abs(values).max(axis=1)
    rounding = ROUNDING * np.maximum(magnitudes[:, None], magnitudes)
    is_constant = ranges <= rounding
    errors = np.where(is_constant, 0.0, np.sqrt(variances))
    differences[is_constant & (np.abs(differences) <= rounding)] = 0.0
    t = np.abs(differences) / np.where(is_constant, 1.0, errors)
    p = np.where(is_constant, least_p(tasks, tasks, paired=True), 2 * stdtr(number - 1, -t))
    p[differences == 0] = 1.0
    return TaskTests(methods, average, scores, differences, errors, number - 1, p, alpha)
