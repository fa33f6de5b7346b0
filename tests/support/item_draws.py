"""Draws of items for tests: of statistics, and as ``bench stats`` keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.comparison import item_bootstrap
from bench.comparison.item_bootstrap import CampaignRun, RunDraws, list_task_names
from bench.records.record import ALL
from bench.stats.argument_checks import FloatArray
from bench.stats.item_units import SuiteUnits
from bench.stats.resampling import Statistic, draw_counts, mean_statistic


def draw_parts(
    statistics: Sequence[Statistic], sizes: Sequence[int], rng: np.random.Generator, draws: int
) -> FloatArray:
    """(draws, runs) scores of a task in draws of the items of each part, the parts one after the other."""
    parts = []
    for statistic, size in zip(statistics, sizes, strict=True):
        parts.append(np.concatenate([statistic(counts) for counts in draw_counts(size, rng, draws)]))
    average: FloatArray = np.mean(parts, axis=0)
    return average


def mean_draws(values: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    """(draws, runs) means of (runs, items) in draws of the items."""
    return draw_parts([mean_statistic(values)], [values.shape[-1]], rng, draws)


def keep_run_draws(run: CampaignRun, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """Keep (draws, tasks) of a run as ``bench stats`` does, of items that share no sentence."""
    metric = run.record.metric
    sizes = {s.task: [s.n] for s in run.record.scores if (s.subset, s.metric) == (ALL, metric)}
    units = SuiteUnits.independent({name: sizes[name] for name in list_task_names(run.record)}, known=True)
    item_bootstrap._write_draws(run, RunDraws(values, units.summary), item_bootstrap.SEED, print)
