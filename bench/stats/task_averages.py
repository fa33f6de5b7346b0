"""Averages of (m, T) scores over tasks, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bench.stats.argument_checks import FloatArray, check_table
from bench.stats.seeds import least_p

AVERAGES = ("tasks", "types", "borda")
MIN_TASKS = 6


@dataclass(frozen=True)
class TaskScores:
    """A table of m methods and T tasks.

    Args:
        methods: Names.
        values: (m, T) scores, all finite.
        types: Type of each task, for the average over types; empty if tasks have no types.

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
