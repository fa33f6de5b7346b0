"""What the items say of the difference of two groups of runs, and seeds and items together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.compare.draws import Drawn, Run
from bench.compare.fitting import row_of_components
from bench.compare.select import Group
from bench.eval.suite import measure_of
from bench.records.record import ALL
from bench.stats.correction import corrected_levels
from bench.stats.correlations import CorrelationTest
from bench.stats.coverage import Row
from bench.stats.hierarchical import ComponentsDifference, variance_components
from bench.stats.items import AVERAGE, ItemDifference, paired_bootstrap
from bench.stats.labels import McNemarTest
from bench.stats.paired import paired_t
from bench.stats.suite import SuiteDraws

DrawItems = Callable[[Sequence[Run]], Iterable[Drawn]]


@dataclass(frozen=True)
class CheckpointPair:
    """One checkpoint of each side on the same items.

    Args:
        seeds: Of both; None for a deterministic method.
        tasks: By task, "avg" the last: paired bootstrap.
        williams: Of correlations, by task; None where the statistic is undefined.
        steiger: The same.
        mcnemar: Of predicted classes, by task.
    """

    seeds: tuple[int | None, int | None]
    tasks: dict[str, ItemDifference]
    williams: dict[str, CorrelationTest | None]
    steiger: dict[str, CorrelationTest | None]
    mcnemar: dict[str, McNemarTest | None]


@dataclass(frozen=True)
class ItemLevel:
    """What the items say of the checkpoints at hand, and items and seeds together.

    Args:
        tasks: By task, "avg" the last: paired bootstrap, a side's scores averaged in every draw.
        corrected: By task, where there are several: the same at the level that agrees with its p after
            Benjamini and Hochberg's correction over the tasks.
        checkpoints: Pairs of one seed, or each run with the one run of the other side.
        components: Seeds and items together; None where a side is a checkpoint of a method with seeds, or
            neither has seeds.
        coverage: The measured coverage that fits its interval; None against a method without seeds.
        rescored: All scores were computed again from predictions and data.
    """

    tasks: dict[str, ItemDifference]
    corrected: dict[str, ItemDifference]
    checkpoints: tuple[CheckpointPair, ...]
    components: ComponentsDifference | None
    coverage: Row | None
    rescored: bool


def item_level(
    a: Group, b: Group, tasks: Sequence[str], level: float, draw: DrawItems, *, paired: bool = False
) -> ItemLevel:
    """Compare two groups of checkpoints on their items.

    Args:
        a: One side.
        b: The other.
        tasks: Names, without the average.
        level: Confidence level.
        draw: Gives each run's scores in common draws.
        paired: Whether the seeds are pairs.

    Raises:
        RefusedError: a record whose scores its predictions contradict.
        BenchError: the draws or predictions are missing.
    """
    runs = (*a.runs, *b.runs)
    found = list(draw(runs))
    drawn = np.stack([each.values for each in found], axis=1).astype(np.float64)
    observed = np.array([[run.record.score(task) for task in tasks] for run in runs], dtype=np.float64)
    metric = runs[0].record.metric
    sizes = {s.task: s.n for s in runs[0].record.scores if (s.subset, s.metric) == (ALL, metric)}
    rows = {"a": slice(0, len(a.runs)), "b": slice(len(a.runs), len(runs))}
    sample = SuiteDraws(rows, tuple(tasks), tuple(sizes[task] for task in tasks), observed, drawn)
    components = row = None
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        known = {"deterministic_a": a.deterministic, "deterministic_b": b.deterministic, "paired": paired}
        components = variance_components(sample, "a", "b", **known, level=level)
        r = paired_t(a.scores(AVERAGE), b.scores(AVERAGE), level).correlation if paired else None
        row = row_of_components(components, r)
    found_tasks = paired_bootstrap(sample, "a", "b", level)
    return ItemLevel(
        tasks=found_tasks,
        corrected=_corrected(sample, {task: found_tasks[task].p for task in tasks}, level),
        checkpoints=tuple(
            _checkpoints(runs, found, sample, (i, len(a.runs) + j), level) for i, j in _pairs(a, b)
        ),
        components=components,
        coverage=row,
        rescored=all(each.tasks is not None for each in found),
    )


def _corrected(sample: SuiteDraws, p: dict[str, float], level: float) -> dict[str, ItemDifference]:
    if len(p) < 2:
        return {}
    levels = corrected_levels(p, "fdr_bh", level)
    at = {each: paired_bootstrap(sample, "a", "b", each) for each in set(levels.values())}
    return {task: at[each][task] for task, each in levels.items()}


def _pairs(a: Group, b: Group) -> list[tuple[int, int]]:
    """Positions of runs to compare: those of one seed, or all with the only run of the other side."""
    if 1 in (len(a.runs), len(b.runs)):
        return [(i, j) for i in range(len(a.runs)) for j in range(len(b.runs))]
    return [(i, b.seeds.index(seed)) for i, seed in enumerate(a.seeds) if seed in b.seeds]


def _checkpoints(
    runs: Sequence[Run], drawn: Sequence[Drawn], sample: SuiteDraws, rows: tuple[int, int], level: float
) -> CheckpointPair:
    pair = replace(sample, rows={name: slice(row, row + 1) for name, row in zip("ab", rows, strict=True)})
    one, other = (runs[row] for row in rows)
    first, second = one.store.predictions(one.record), other.store.predictions(other.record)
    known, measure = drawn[rows[0]].tasks or {}, measure_of(one.record.suite)
    tests = {}
    for column, task in enumerate(sample.tasks):
        x, y = sample.observed[list(rows), column].tolist()
        tests[task] = measure.pair_tests(known.get(task), first[task], second[task], (x, y))

    def by_task(name: str) -> dict[str, Any]:
        return {task: found[name] for task, found in tests.items() if name in found}

    return CheckpointPair(
        (one.record.seed, other.record.seed),
        paired_bootstrap(pair, "a", "b", level),
        williams=by_task("williams"),
        steiger=by_task("steiger"),
        mcnemar=by_task("mcnemar"),
    )
