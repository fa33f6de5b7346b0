"""Spearman's correlations of several methods on a suite, observed and in draws of items within each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bench.stats.inputs import FloatArray, check_items
from bench.stats.resampling import spearman_draws, spearman_rows


@dataclass(frozen=True)
class SuiteDraws:
    """The draws that the item bootstraps of all pairs of methods share.

    Args:
        rows: Each method's runs, as a slice of all methods' runs.
        tasks: Names.
        pairs: Number of pairs of each task.
        observed: (runs of all methods, tasks).
        draws: (draws, runs of all methods, tasks); in a draw all runs see the same pairs of a task.
    """

    rows: dict[str, slice]
    tasks: tuple[str, ...]
    pairs: tuple[int, ...]
    observed: FloatArray
    draws: FloatArray

    def select(self, method: str) -> tuple[FloatArray, FloatArray]:
        """Return a method's observed (runs, tasks) and (draws, runs, tasks); raise ValueError without one."""
        if method not in self.rows:
            raise ValueError(f"no method '{method}' in the sample; expected one of {', '.join(self.rows)}")
        return self.observed[self.rows[method]], self.draws[:, self.rows[method]]


def draw_suite(
    predictions: Mapping[str, Mapping[str, ArrayLike]],
    gold: Mapping[str, ArrayLike],
    rng: np.random.Generator,
    draws: int = 10_000,
) -> SuiteDraws:
    """Draw the items of every task with replacement, once for all methods and runs.

    Args:
        predictions: For every method and task (runs, pairs), or (pairs,) for one run. A method has the same
            runs on all tasks, in the same order; methods may have different numbers of runs.
        gold: For every task (pairs,).
        rng: The generator of the draws, used task by task in the order of ``gold``.
        draws: Number of draws, at least 100.

    Raises:
        ValueError: no method or task, different tasks or runs, or as ``spearman_draws``.

    >>> from bench.stats.inputs import make_generator
    >>> gold = {"STSB": [1, 2, 3, 4] * 5}
    >>> predictions = {"ours": {"STSB": [[0.1, 0.3, 0.2, 0.9] * 5] * 2}, "theirs": {"STSB": [4, 1, 3, 2] * 5}}
    >>> sample = draw_suite(predictions, gold, make_generator(1, "items"), draws=100)
    >>> sample.rows, sample.draws.shape
    ({'ours': slice(0, 2, None), 'theirs': slice(2, 3, None)}, (100, 3, 1))
    """
    if not predictions or not gold:
        raise ValueError(f"{len(predictions)} methods on {len(gold)} tasks; expected at least one of each")
    rows, start = {}, 0
    checked: dict[str, list[FloatArray]] = {task: [] for task in gold}
    for method, of_tasks in predictions.items():
        if of_tasks.keys() != gold.keys():
            raise ValueError(f"{method} has tasks {sorted(of_tasks)}; expected those of gold, {sorted(gold)}")
        for task, values in of_tasks.items():
            checked[task].append(check_items(values, gold[task], f"{method}, {task}")[0])
        counts = {len(checked[task][-1]) for task in gold}
        if len(counts) > 1:
            raise ValueError(f"{method} has {sorted(counts)} runs; expected the same runs on all tasks")
        rows[method] = slice(start, start + counts.pop())
        start = rows[method].stop
    stacked = {task: np.concatenate(parts) for task, parts in checked.items()}
    observed = np.stack([spearman_rows(stacked[task], gold[task]) for task in gold], axis=1)
    drawn = np.stack([spearman_draws(stacked[task], gold[task], rng, draws) for task in gold], axis=2)
    return SuiteDraws(rows, tuple(gold), tuple(map(np.size, gold.values())), observed, drawn)
