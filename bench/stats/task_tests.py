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
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit
from scipy.stats import rankdata

from bench.stats.argument_checks import FloatArray, check_level, check_table, make_generator
from bench.stats.correction import describe_family
from bench.stats.joint_flips import FlipFamily, correct_by_flips, draw_signs
from bench.stats.method_ranking import PairTest, RankedPair, Ranking
from bench.stats.seeds import ROUNDING, least_p

AVERAGES = ("tasks", "types", "borda")
MIN_TASKS = 6
OVER_TASKS, WITHIN_TYPES = "paired t over tasks", "t over tasks within types"
CORRECTION = "Step-down max-t by sign flips of tasks"
_TASKS_PER_TYPE = 3  # from which the types are strata: with fewer, a variance within types is too uncertain
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
        _check_tasks(values.shape[1], self.types)
        if len(values) < 2 or len(set(self.methods)) != len(values) or len(self.methods) != len(values):
            raise ValueError(
                f"{len(self.methods)} method names, {len(set(self.methods))} of them distinct, "
                f"of {len(values)} rows; expected one each, and at least 2"
            )
        object.__setattr__(self, "values", values)

    def points(self, average: str) -> FloatArray:
        """Return the (m, T) values of tasks of which the average is the weighted mean."""
        return borda_points(self.values) if average == "borda" else self.values


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
        scores: (m,) averages, of "borda" the mean points a task.
        p: Before correction.
        errors: Standard errors; 0 without any spread over tasks.
        freedom: Degrees of freedom.
        family: The corrected tests.
        test: Name of the test before correction.
        alpha: Bound of the chance of any false difference among all pairs.
    """

    methods: tuple[str, ...]
    average: str
    scores: FloatArray
    differences: FloatArray
    p: FloatArray
    errors: FloatArray
    freedom: FloatArray
    family: FlipFamily
    test: str
    alpha: float

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
        differences = self.differences[others, place]
        half = self._half_widths(self.family.critical[place])[others, place]
        names = tuple(self.methods[i] for i in others)
        p = self._against[place, others]
        return BaselineTests(baseline, names, differences, differences - half, differences + half, p)

    def pair(self, a: str, b: str, level: float | None = None) -> PairTest:
        """Return the test of a - b before correction; with its interval at ``level``, if given."""
        i, j = self._place(a), self._place(b)
        numbers = (self.differences, self.errors, self.freedom, self.p)
        return _pair_test(*(float(matrix[i, j]) for matrix in numbers), self.test, level)

    def interval(self, a: str, b: str) -> tuple[float, float] | None:
        """Return the interval of a - b that excludes 0 exactly if the pair differs among all pairs.

        Its level is that of the pair's step. None without any spread over tasks.
        """
        i, j = self._place(a), self._place(b)
        half, difference = float(self._pair_half_widths[i, j]), float(self.differences[i, j])
        return None if np.isnan(half) else (difference - half, difference + half)

    @cached_property
    def _pair_half_widths(self) -> FloatArray:
        return self._half_widths(self.family.steps)

    def ranking(self) -> Ranking:
        """Return the methods in the order of their averages, and all pairs, as other tables have them."""
        order = sorted(range(len(self.methods)), key=lambda i: (-self.scores[i], self.methods[i]))
        levels = 1 - 2 * stdtr(self.freedom, -self._quantiles(self.family.steps))
        first, second = np.triu_indices(len(order), 1)
        places = np.array(order)[first], np.array(order)[second]
        matrices = (self.differences, self.p, self.adjusted, self.differs, levels)
        rows = zip(*(matrix[places].tolist() for matrix in matrices), strict=True)
        pairs = []
        for i, j, (difference, p, adjusted, differs, level) in zip(*places, rows, strict=True):
            names = self.methods[i], self.methods[j]
            pairs.append(RankedPair(*names, difference, p, adjusted, differs, self.test, level))
        caption = describe_family(CORRECTION, len(pairs), "all pairs of methods")
        names, scores = tuple(self.methods[i] for i in order), tuple(float(self.scores[i]) for i in order)
        return Ranking(names, scores, tuple(pairs), (), self.alpha, caption)

    def _place(self, method: str) -> int:
        if method not in self.methods:
            raise ValueError(f"'{method}' is none of the {len(self.methods)} methods")
        return self.methods.index(method)

    def _half_widths(self, sizes: ArrayLike) -> FloatArray:
        """(m, m) half widths of intervals with these critical sizes; not a number without any spread."""
        widths = self._quantiles(sizes) * np.where(self.errors > 0, self.errors, np.nan)
        return np.asarray(widths, dtype=np.float64)

    def _quantiles(self, sizes: ArrayLike) -> FloatArray:
        """(m, m) t of critical sizes, at least that of one test; infinite beyond the largest size."""
        squares = np.square(sizes)
        rest = np.maximum(self.freedom + 1 - squares, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(rest > 0, np.sqrt(self.freedom * squares / rest), np.inf)
        return np.maximum(t, stdtrit(self.freedom, 1 - self.alpha / 2))


def compare_tasks(
    table: TaskScores,
    average: str = "tasks",
    *,
    seed: int = 0,
    draws: int = 10_000,
    alpha: float = 0.05,
    stratified: bool | None = None,
) -> TaskTests:
    """Test all pairs of methods over tasks, each alone and corrected for all pairs.

    A pair: t of the difference of averages, with the variance within types of task and Satterthwaite's
    degrees of freedom. A type with one task gets the pooled variance of the others. With fewer than three
    tasks a type: paired t over tasks. All pairs: :func:`bench.stats.joint_flips.correct_by_flips`, of the
    deviations from the means of types, or of the differences themselves without strata. Measured coverage
    and errors: ``benchmarks/coverage_tasks.py``.

    Args:
        average: One of ``AVERAGES``.
        seed: Of the random flips.
        stratified: False takes tasks as drawn regardless of their types, True types as strata even if they
            have few tasks; None decides by the number of tasks a type.

    Raises:
        ValueError: an unknown average, or one over types for tasks without types.

    >>> rng = np.random.default_rng(1)
    >>> scores = np.array([[60.0], [62.0], [62.1]]) + rng.normal(size=(1, 12)) + rng.normal(size=(3, 12)) / 2
    >>> table = TaskScores(("a", "b", "c"), scores, ("sts", "retrieval", "clustering") * 4)
    >>> tests = compare_tasks(table)
    >>> tests.rank_intervals.tolist(), tests.may_be_best.tolist(), tests.test
    ([[3, 3], [1, 2], [1, 2]], [False, True, True], 't over tasks within types')
    """
    check_level(alpha)
    weights = task_weights(table.values.shape[1], table.types, average)
    strata = _choose_strata(table.types, stratified)
    estimate = _estimate(table.points(average), weights, strata)
    signs, all_flips = draw_signs(estimate.effects.shape[1], make_generator(seed, "task flips"), draws)
    # deviations from means of types, and sizes of unequal weights, are none of their own flips
    exact = all_flips and not strata and average != "types"
    family = correct_by_flips(estimate.sizes(), estimate.effects, signs, exact=exact, alpha=alpha)
    return TaskTests(
        table.methods,
        average,
        estimate.scores,
        estimate.differences,
        estimate.p_values(table.values.shape[1]),
        estimate.errors,
        estimate.freedom,
        family,
        WITHIN_TYPES if strata else OVER_TASKS,
        alpha,
    )


def task_pair_test(
    a: ArrayLike,
    b: ArrayLike,
    types: Sequence[str] = (),
    *,
    average: str = "tasks",
    level: float | None = None,
    stratified: bool | None = None,
) -> PairTest:
    """Test two methods by their (T,) per-task values, as :func:`compare_tasks` does before correction.

    Args:
        a: Scores, or Borda points among all methods for "borda"; ``b`` those of the other.
        level: Confidence level of the interval, if it is wanted.

    >>> a, b = [61.2, 70.3, 55.0, 48.1, 80.2, 66.6, 71.9], [60.1, 70.1, 53.8, 47.9, 79.0, 66.9, 70.8]
    >>> test = task_pair_test(a, b, level=0.95)
    >>> round(test.difference, 2), round(test.p, 3), test.test
    (0.67, 0.029, 'paired t over tasks')
    >>> tuple(round(end, 2) for end in test.interval)
    (0.1, 1.25)
    """
    values = check_table([a, b], "scores")
    _check_tasks(values.shape[1], tuple(types))
    weights = task_weights(values.shape[1], types, average)
    strata = _choose_strata(tuple(types), stratified)
    estimate = _estimate(values, weights, strata)
    p = float(estimate.p_values(values.shape[1])[0, 1])
    numbers = (estimate.differences, estimate.errors, estimate.freedom)
    name = WITHIN_TYPES if strata else OVER_TASKS
    return _pair_test(*(float(matrix[0, 1]) for matrix in numbers), p, name, level)


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
    scores = check_table(values, "values")
    return np.asarray(rankdata(scores, axis=0) - 1, dtype=np.float64)


def _check_tasks(tasks: int, types: tuple[str, ...]) -> None:
    if tasks < MIN_TASKS:
        raise ValueError(
            f"{tasks} task(s); expected at least {MIN_TASKS}: {tasks} signs give no p below "
            f"{least_p(tasks, tasks, paired=True):g}"
        )
    if types and len(types) != tasks:
        raise ValueError(f"{len(types)} types of {tasks} tasks; expected one each, or none")


def _choose_strata(types: tuple[str, ...], stratified: bool | None) -> tuple[IntArray, ...]:
    """Return the places of the tasks of each type, or nothing for tasks without strata."""
    names, numbers, counts = np.unique(list(types), return_inverse=True, return_counts=True)
    if stratified is None:
        stratified = len(types) >= _TASKS_PER_TYPE * len(names)
    if len(names) < 2 or not stratified or counts.max() < 2:
        return ()
    return tuple(np.flatnonzero(numbers == number) for number in range(len(names)))


@dataclass(frozen=True)
class _Estimate:
    """Differences of m methods' averages; matrices are (m, m).

    Args:
        effects: (m, tasks) for flips, see :mod:`bench.stats.joint_flips`.
    """

    scores: FloatArray
    differences: FloatArray
    errors: FloatArray
    freedom: FloatArray
    effects: FloatArray

    def p_values(self, tasks: int) -> FloatArray:
        """Return two-sided p of t; without any spread 1 or the lowest that so many tasks give."""
        varies = self.errors > 0
        t = np.abs(self.differences) / np.where(varies, self.errors, 1.0)
        constant = np.where(self.differences != 0, least_p(tasks, tasks, paired=True), 1.0)
        return np.where(varies, 2 * stdtr(self.freedom, -t), constant)

    def sizes(self) -> FloatArray:
        """Return |t| on the bounded scale of flips: sqrt((df + 1) t^2 / (df + t^2)).

        That is the sum over the root of the sum of squares for a paired t.
        """
        squares = (self.freedom + 1) * self.differences**2
        whole = self.freedom * self.errors**2 + self.differences**2
        return np.sqrt(np.divide(squares, whole, out=np.zeros_like(whole), where=whole > 0))


def _estimate(values: FloatArray, weights: FloatArray, strata: tuple[IntArray, ...]) -> _Estimate:
    scores = (values * weights).sum(axis=1)
    differences = scores[:, None] - scores
    if strata:
        variances, freedom, effects = _vary_within(values, weights, strata)
    else:
        variances, freedom, effects = _vary_over_tasks(values, weights, scores)
    errors = np.sqrt(variances)
    magnitudes = np.abs(values).max(axis=1)
    rounding = ROUNDING * np.maximum(magnitudes[:, None], magnitudes)
    errors[errors <= rounding] = 0.0
    differences[(errors == 0) & (np.abs(differences) <= rounding)] = 0.0
    return _Estimate(scores, differences, errors, freedom, effects)


def _vary_over_tasks(
    values: FloatArray, weights: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return variances, degrees of freedom and effects of tasks drawn regardless of their types.

    The number of tasks is the effective one of the weights, which is T for equal weights.
    """
    number = 1 / float((weights**2).sum())
    effects, centred = weights * values, weights * (values - scores[:, None])
    variances = _sum_squares(centred) * number / (number - 1)
    return variances, np.full(variances.shape, number - 1), effects


def _vary_within(
    values: FloatArray, weights: FloatArray, strata: tuple[IntArray, ...]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return variances, Satterthwaite's degrees of freedom and effects of tasks drawn within types.

    The squared weights of tasks alone in their type go to the other types, by their degrees of freedom:
    this is their pooled variance.
    """
    groups = [places for places in strata if len(places) > 1]
    alone = sum(float(weights[places[0]] ** 2) for places in strata if len(places) == 1)
    pooled = sum(len(places) - 1 for places in groups)
    parts, columns = [], []
    for places in groups:
        freedom = len(places) - 1
        scale = float((weights[places] ** 2).sum()) / freedom + alone / pooled
        centred = values[:, places] - values[:, places].mean(axis=1, keepdims=True)
        columns.append(centred * np.sqrt(scale))
        parts.append((_sum_squares(columns[-1]), freedom))
    variances = np.sum([part for part, _ in parts], axis=0)
    squares = np.sum([part**2 / freedom for part, freedom in parts], axis=0)
    varies = squares > 0
    freedom = np.divide(variances**2, squares, out=np.full(squares.shape, float(pooled)), where=varies)
    return variances, freedom, np.concatenate(columns, axis=1)


def _sum_squares(effects: FloatArray) -> FloatArray:
    """Return (m, m) sums over tasks of squared differences of (m, tasks) effects, row by row."""
    sums = [np.square(effects - row).sum(axis=1) for row in effects]
    return np.asarray(sums, dtype=np.float64)


def _pair_test(
    difference: float, error: float, freedom: float, p: float, test: str, level: float | None
) -> PairTest:
    interval = None
    if level is not None:
        check_level(level)
        half = float(stdtrit(freedom, (1 + level) / 2)) * error
        interval = (difference - half, difference + half) if error > 0 else None
    return PairTest(difference, p, test, interval, freedom)
