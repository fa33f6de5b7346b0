"""What the seeds, the items, and both together say of the difference of two groups of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

import numpy as np

from bench.compare.caveats import pairing
from bench.compare.draws import SEED, Drawn, Run
from bench.compare.select import Group
from bench.eval.suite import measure_of
from bench.records.record import ALL
from bench.stats.checks import generator
from bench.stats.correlations import CorrelationTest
from bench.stats.descriptive import LEAST_SEEDS, aso
from bench.stats.effects import hedges_g, superiority
from bench.stats.hierarchical import (
    ComponentsDifference,
    HierarchicalDifference,
    hierarchical_bootstrap,
    variance_components,
)
from bench.stats.items import AVERAGE, ItemDifference, paired_bootstrap
from bench.stats.labels import McNemarTest
from bench.stats.power import seeds_needed, welch_power
from bench.stats.seeds import (
    LEAST_PAIRS,
    MAX_SEEDS,
    ExactTest,
    SeedDifference,
    exact_permutation,
    seed_difference,
    sign_flip,
)
from bench.stats.suite import SuiteDraws

POINT = 0.01
POWER = 0.8
MOST_SEED_PAIRS = 1_000  # of a hierarchical bootstrap, which holds draws x seeds x seeds numbers

DrawItems = Callable[[Sequence[Run]], Iterable[Drawn]]


@dataclass(frozen=True)
class SeedLevel:
    """What the seeds say of the methods, in the metric's unit; a deterministic side is a fixed score.

    Args:
        tasks: By task, "avg" the last: Welch's, or Student's against a deterministic side.
        permutations: The same by the exact permutation test; empty against a deterministic side, and with
            more than 40 seeds.
        sign_flip: Of the average; None where the seeds are not pairs, and with fewer than six.
        superiority: P(A > B) of the average.
        hedges_g: Effect size of the average; None where it is undefined.
        aso: Almost stochastic order of the average, descriptive; None under five seeds.
        needed: Seeds per side that show a difference of the observed size with a power of 0.8; None against
            a deterministic side, without spread, and beyond 10,000.
        shows_a_point: Chance that these numbers of seeds show a true difference of one point; None as above.
    """

    tasks: dict[str, SeedDifference]
    permutations: dict[str, ExactTest]
    sign_flip: ExactTest | None
    superiority: float
    hedges_g: float | None
    aso: float | None
    needed: int | None
    shows_a_point: float | None


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
        checkpoints: Pairs of one seed, or each run with the one run of the other side.
        hierarchical: Descriptive; None without two seeds per side, or with more than 1,000 pairs of seeds.
        components: None where a side is a checkpoint of a method with seeds, or neither has seeds.
        rescored: All scores were computed again from predictions and data.
    """

    tasks: dict[str, ItemDifference]
    checkpoints: tuple[CheckpointPair, ...]
    hierarchical: HierarchicalDifference | None
    components: ComponentsDifference | None
    rescored: bool


def seed_level(a: Group, b: Group, tasks: Sequence[str], level: float) -> SeedLevel:
    """Compare two methods over their seeds; at least one side has two or more.

    Args:
        a: One side.
        b: The other.
        tasks: Names, "avg" the last.
        level: Confidence level.
    """
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    exact = not (a.deterministic or b.deterministic) and len(x) + len(y) <= MAX_SEEDS
    paired = exact and len(x) >= LEAST_PAIRS and pairing(a, b) is not None
    varies = not (a.deterministic or b.deterministic) and (len(set(x)) > 1 or len(set(y)) > 1)
    needed, shows = _power(x, y, 1 - level) if varies else (None, None)
    return SeedLevel(
        tasks={task: seed_difference(a.scores(task), b.scores(task), level) for task in tasks},
        permutations={task: exact_permutation(a.scores(task), b.scores(task)) for task in tasks}
        if exact
        else {},
        sign_flip=sign_flip(x, y, same_order=True) if paired else None,
        superiority=superiority(x, y),
        hedges_g=hedges_g(x, y) if varies else None,
        aso=aso(x, y, generator(SEED, "aso")) if min(len(x), len(y)) >= LEAST_SEEDS else None,
        needed=needed,
        shows_a_point=shows,
    )


def _power(x: list[float], y: list[float], alpha: float) -> tuple[int | None, float | None]:
    """Seeds per side that would show the observed difference, and these seeds' power for one point."""
    spreads = stdev(x), stdev(y)
    if min(spreads) == 0:
        return None, None
    shows = welch_power(POINT, *spreads, len(x), len(y), alpha)
    difference = sum(x) / len(x) - sum(y) / len(y)
    try:
        return seeds_needed(difference, *spreads, power=POWER, alpha=alpha), shows
    except ValueError:  # a difference this small takes more seeds than it looks for
        return None, shows


def item_level(a: Group, b: Group, tasks: Sequence[str], level: float, draw: DrawItems) -> ItemLevel:
    """Compare two groups of checkpoints on their items.

    Args:
        a: One side.
        b: The other.
        tasks: Names, without the average.
        level: Confidence level.
        draw: Gives each run's scores in common draws.

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
    hierarchical = components = None
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        components = variance_components(
            sample, "a", "b", deterministic_a=a.deterministic, deterministic_b=b.deterministic, level=level
        )
        if min(len(a.seeds), len(b.seeds)) > 1 and len(a.seeds) * len(b.seeds) <= MOST_SEED_PAIRS:
            hierarchical = hierarchical_bootstrap(sample, "a", "b", generator(SEED, "hierarchy"), level)
    return ItemLevel(
        tasks=paired_bootstrap(sample, "a", "b", level),
        checkpoints=tuple(
            _checkpoints(runs, found, sample, (i, len(a.runs) + j), level) for i, j in _pairs(a, b)
        ),
        hierarchical=hierarchical,
        components=components,
        rescored=all(each.tasks is not None for each in found),
    )


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
