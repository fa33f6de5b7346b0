"""Evidence of seeds and of items on the difference of two groups of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import stdev
from typing import Any

import numpy as np

from bench.comparison.design import Design
from bench.comparison.item_bootstrap import SEED, CampaignRun, RunDraws
from bench.comparison.selection import Group
from bench.errors import BenchError
from bench.eval.suite_measures import measure_of
from bench.records.record import ALL
from bench.stats.argument_checks import make_generator
from bench.stats.classification_statistics import McNemarTest
from bench.stats.correction import adjust_levels
from bench.stats.correlations import CorrelationTest
from bench.stats.coverage import CoverageRow, find_coverage
from bench.stats.effect_sizes import (
    LEAST_SEEDS,
    IqmDifference,
    Superiority,
    almost_stochastic_order,
    hedges_g,
    iqm_difference,
    superiority_interval,
)
from bench.stats.equivalence import predict_run_difference
from bench.stats.item_statistics import AVERAGE, ItemDifference, SuiteDraws, paired_bootstrap
from bench.stats.item_units import UnitSummary
from bench.stats.outliers import find_outliers
from bench.stats.seed_pairs import PairedDifference, paired_t, pairing_gain
from bench.stats.seeds import (
    MAX_SEEDS,
    ExactTest,
    SeedDifference,
    exact_permutation,
    seed_difference,
    sign_flip,
    welch,
)
from bench.stats.spread import Spread, spread_of_pairs, spread_of_sides
from bench.stats.variance_components import ComponentsDifference, variance_components

UNEQUAL = 2.0  # ratio from which spreads over seeds count as unequal
METHODS = {"paired": "paired t", "sign-flip": "paired t", "student": "student"}
SHARED = "sentences 60%"
"""Design of the measured coverage of items that share sentences."""
LEAST_TRIMMED = 4  # scores of a side; the interquartile mean of fewer is the mean


def find_seed_coverage(
    design: Design, x: Sequence[float], y: Sequence[float], r: float | None, scores: str = "normal"
) -> CoverageRow:
    """Return the row of the interval over seeds; of two fitting rows, the one with the lower coverage.

    ``r`` is the correlation of the pairs; ``scores`` is "collapse" for sides with outlying seeds.
    """
    method = METHODS.get(design.test, "welch")
    if method == "student":
        return find_coverage(method, max(len(x), len(y)), 1, design=scores)
    if method == "paired t":
        return find_coverage(method, len(x), len(y), correlation=r or 0.0, design=scores)
    rows = [find_coverage(method, len(x), len(y), design=scores)]
    if scores == "normal" and (sides := _order_unequal_sides(x, y)):
        rows.append(find_coverage(method, *sides, design="spread 3:1"))
    return min(rows, key=lambda row: row.measured)


def _order_unequal_sides(x: Sequence[float], y: Sequence[float]) -> tuple[int, int] | None:
    """Return the seeds of a side that spreads much more, and the other's."""
    (wide, n_wide), (narrow, n) = sorted(((stdev(side), len(side)) for side in (x, y)), reverse=True)
    return (n_wide, n) if wide >= UNEQUAL * narrow else None


def find_component_coverage(
    components: ComponentsDifference, r: float | None, *, shared: bool = False
) -> CoverageRow:
    """Return the row of the interval for seeds and items.

    ``r`` is the correlation of the pairs of seeds; ``shared`` is True for items that share sentences.
    """
    method = "components, paired" if components.paired else "components"
    scores = "items dominate" if components.items > components.seeds else "seeds dominate"
    if shared and min(components.n_a, components.n_b) > 1:
        scores = SHARED
    n_b, n_a = sorted((components.n_a, components.n_b))  # 1 for a method without seeds, the last
    correlation = (r or 0.0) if components.paired else None
    return find_coverage(method, n_a, n_b, correlation, design=scores, target="further seeds, further items")


@dataclass(frozen=True)
class SeedPairs:
    """The effect of pairing n seeds: ``gain`` is the width of Welch's interval over the paired one's."""

    n: int
    correlation: float | None
    unpaired: SeedDifference
    gain: float | None


@dataclass(frozen=True)
class OutlyingSeeds:
    """Seeds of both sides, and pairs, far from the others; ``coverage`` is that of collapsing runs."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    pairs: tuple[int, ...]
    coverage: CoverageRow | None


@dataclass(frozen=True)
class SeedLevel:
    """The evidence of the seeds, in the metric's unit; a deterministic side is a fixed score.

    Args:
        tasks: By task, "avg" the last: the t test of the design; its interval also complements an exact test.
        exact: Of up to 40 seeds: sign flips of pairs and against a deterministic side, otherwise the
            permutation.
        unequal: The measured size of the permutation for sides with such unequal spreads, if any.
        iqm: Difference of the interquartile means; None if they trim nothing.
        aso: Almost stochastic order of the average, descriptive; None under five seeds.
        further_run: Interval for the difference of one further run of each, unpaired.
    """

    design: Design
    tasks: dict[str, SeedDifference | PairedDifference]
    exact: dict[str, ExactTest]
    pairs: SeedPairs | None
    coverage: CoverageRow
    unequal: CoverageRow | None
    superiority: Superiority
    hedges_g: float | None
    iqm: IqmDifference | None
    aso: float | None
    outlying: OutlyingSeeds
    further_run: tuple[float, float]
    spread: Spread | None


def compare_over_seeds(a: Group, b: Group, design: Design, tasks: Sequence[str], level: float) -> SeedLevel:
    """Compare two methods over their seeds, in the tasks and "avg"; at least one side has two or more."""
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    test = paired_t if design.paired else seed_difference
    r = pairs = unequal = hedges = iqm = aso = None
    if design.paired:
        r = paired_t(x, y, level).correlation
        pairs = SeedPairs(len(x), r, welch(x, y, level), pairing_gain(x, y, level))
    elif design.test != "student" and (sides := _order_unequal_sides(x, y)):
        unequal = find_coverage("permutation", *sides, design="spread 3:1")
    if not (a.deterministic or b.deterministic) and (len(set(x)) > 1 or len(set(y)) > 1):
        hedges = hedges_g(x, y)
    names = [task for task in tasks if task != AVERAGE]
    rows_a, rows_b = (np.array([group.scores(task) for task in names]).T for group in (a, b))
    if max(rows_a.size, rows_b.size) >= LEAST_TRIMMED:
        iqm = iqm_difference(rows_a, rows_b, make_generator(SEED, "iqm"), paired=design.paired, level=level)
    if min(len(x), len(y)) >= LEAST_SEEDS:
        aso = almost_stochastic_order(x, y, make_generator(SEED, "aso"))
    t_tests = {task: test(a.scores(task), b.scores(task), level) for task in tasks}
    exact = {task: _run_exact_test(design, a.scores(task), b.scores(task)) for task in tasks}
    return SeedLevel(
        design=design,
        tasks=t_tests,
        exact={task: result for task, result in exact.items() if result},
        pairs=pairs,
        coverage=find_seed_coverage(design, x, y, r),
        unequal=unequal,
        superiority=superiority_interval(x, y, paired=design.paired, level=level),
        hedges_g=hedges,
        iqm=iqm,
        aso=aso,
        outlying=_find_outlying_seeds(a, b, design, r),
        further_run=predict_run_difference(x, y, level),
        spread=_estimate_spread(x, y, design.paired),
    )


def _run_exact_test(design: Design, x: Sequence[float], y: Sequence[float]) -> ExactTest | None:
    """Flip signs of pairs and against a fixed score, otherwise permute runs, of up to 40 seeds."""
    if design.test == "student":
        n = max(len(x), len(y))
        x, y = (list(side) * (n // len(side)) for side in (x, y))
    if design.paired or design.test == "student":
        return sign_flip(x, y, same_order=True) if len(x) <= MAX_SEEDS else None
    return exact_permutation(x, y) if len(x) + len(y) <= MAX_SEEDS else None


def _find_outlying_seeds(a: Group, b: Group, design: Design, r: float | None) -> OutlyingSeeds:
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    sides = [(a.seeds, x), (b.seeds, y)]
    if design.paired:
        sides.append((a.seeds, np.subtract(x, y).tolist()))
    first, second, *pairs = (
        tuple(seeds[place] for place in find_outliers(scores)) if seeds else () for seeds, scores in sides
    )
    outlying = OutlyingSeeds(first, second, pairs[0] if pairs else (), None)
    if not (outlying.first or outlying.second or outlying.pairs):
        return outlying
    return replace(outlying, coverage=find_seed_coverage(design, x, y, r, "collapse"))


def _estimate_spread(x: Sequence[float], y: Sequence[float], paired: bool) -> Spread | None:
    try:
        return spread_of_pairs(x, y) if paired else spread_of_sides(x, y)
    except ValueError:  # nothing varies
        return None


DrawItems = Callable[[Sequence[CampaignRun]], Iterable[RunDraws]]
"""From runs to each run's scores in common draws of items."""


@dataclass(frozen=True)
class CheckpointPair:
    """One checkpoint of each side on the same items: by task, the paired bootstrap and its cross-checks.

    ``williams`` and ``steiger`` test correlations. Tasks with pairs that share a sentence have ``clustered``
    in their place. ``mcnemar`` tests predicted classes.
    """

    seeds: tuple[int | None, int | None]
    tasks: dict[str, ItemDifference]
    williams: dict[str, CorrelationTest | None]
    steiger: dict[str, CorrelationTest | None]
    clustered: dict[str, CorrelationTest | None]
    mcnemar: dict[str, McNemarTest | None]


@dataclass(frozen=True)
class ItemLevel:
    """The evidence of the items on these checkpoints, and of items and seeds together.

    Args:
        tasks: By task, "avg" the last: paired bootstrap, a side's scores averaged in every draw.
        corrected: By task: the same at the level that agrees with its p after Benjamini and Hochberg's
            correction over the tasks.
        checkpoints: Pairs of one seed, or each run with the one run of the other side.
        rescored: True if all scores were computed again from predictions and data.
        units: The clusters of items that share a sentence, which the draws take.
    """

    tasks: dict[str, ItemDifference]
    corrected: dict[str, ItemDifference]
    checkpoints: tuple[CheckpointPair, ...]
    components: ComponentsDifference | None
    coverage: CoverageRow | None
    rescored: bool
    units: UnitSummary


def compare_over_items(
    a: Group,
    b: Group,
    tasks: Sequence[str],
    level: float,
    draw: DrawItems,
    *,
    paired: bool = False,
) -> ItemLevel:
    """Compare two groups of checkpoints on the items of tasks.

    ``paired`` is of their seeds.
    """
    runs = (*a.runs, *b.runs)
    draws = list(draw(runs))
    drawn = np.stack([of_run.values for of_run in draws], axis=1).astype(np.float64)
    observed = np.array([[run.record.score(task) for task in tasks] for run in runs], dtype=np.float64)
    metric = runs[0].record.metric
    sizes = {s.task: s.n for s in runs[0].record.scores if (s.subset, s.metric) == (ALL, metric)}
    rows = {"a": slice(0, len(a.runs)), "b": slice(len(a.runs), len(runs))}
    pairs, units = tuple(sizes[task] for task in tasks), draws[0].summary
    if any(of_run.summary != units for of_run in draws):
        what = "the kept draws of these runs take different clusters of items"
        raise BenchError(what, where=f"suite {runs[0].record.suite}", hint="with --data they are drawn again")
    sample = SuiteDraws(rows, tuple(tasks), pairs, observed, drawn, units)
    components = coverage = None
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        kinds = {"deterministic_a": a.deterministic, "deterministic_b": b.deterministic, "paired": paired}
        components = variance_components(sample, "a", "b", **kinds, level=level)
        r = paired_t(a.scores(AVERAGE), b.scores(AVERAGE), level).correlation if paired else None
        coverage = find_component_coverage(components, r, shared=units.shared)
    differences, corrected = paired_bootstrap(sample, "a", "b", level), {}
    if len(tasks) > 1:
        levels = adjust_levels({task: differences[task].p for task in tasks}, "fdr_bh", level)
        corrected = paired_bootstrap(sample, "a", "b", levels)
    checkpoints = []
    for i, j in _pair_runs(a, b):
        checkpoints.append(_compare_checkpoints(runs, draws, sample, (i, len(a.runs) + j), level))
    rescored = all(of_run.tasks is not None for of_run in draws)
    return ItemLevel(differences, corrected, tuple(checkpoints), components, coverage, rescored, units)


def _pair_runs(a: Group, b: Group) -> list[tuple[int, int]]:
    """Return the places of runs to compare: of one seed, or of all with the only run of the other side."""
    if 1 in (len(a.runs), len(b.runs)):
        return list(product(range(len(a.runs)), range(len(b.runs))))
    return [(i, b.seeds.index(seed)) for i, seed in enumerate(a.seeds) if seed in b.seeds]


def _compare_checkpoints(
    runs: Sequence[CampaignRun],
    drawn: Sequence[RunDraws],
    sample: SuiteDraws,
    rows: tuple[int, int],
    level: float,
) -> CheckpointPair:
    pair = replace(sample, rows={name: slice(row, row + 1) for name, row in zip("ab", rows, strict=True)})
    a, b = (runs[row] for row in rows)
    first, second = a.store.predictions(a.record), b.store.predictions(b.record)
    data, measure = drawn[rows[0]].tasks or {}, measure_of(a.record.suite)
    tests: dict[str, dict[str, Any]] = {"williams": {}, "steiger": {}, "clustered": {}, "mcnemar": {}}
    for column, task in enumerate(sample.tasks):
        x, y = sample.observed[list(rows), column].tolist()
        units, clusters = drawn[rows[0]].units, None
        if sample.count_clusters(task) is not None:
            if units is None:  # which items share sentences is unknown without the data
                continue
            clusters = units.task_labels(task)
        for name, test in measure.pair_tests(
            data.get(task), first[task], second[task], (x, y), clusters
        ).items():
            tests[name][task] = test
    seeds = (a.record.seed, b.record.seed)
    return CheckpointPair(seeds, paired_bootstrap(pair, "a", "b", level), **tests)
