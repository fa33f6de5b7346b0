"""What seeds and items say of two groups of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

import numpy as np

from bench.comparison.design import Design
from bench.comparison.item_bootstrap import SEED, CampaignRun, RunDraws
from bench.comparison.selection import Group
from bench.eval.suite_measures import measure_of
from bench.records.record import ALL
from bench.stats.correction import adjust_levels
from bench.stats.correlations import CorrelationTest
from bench.stats.coverage import CoverageRow, find_coverage
from bench.stats.effects import hedges_g
from bench.stats.equivalence import predict_run_difference
from bench.stats.inputs import make_generator
from bench.stats.item_statistics import AVERAGE, ItemDifference, paired_bootstrap
from bench.stats.labels import McNemarTest
from bench.stats.robustness import (
    IqmDifference,
    Superiority,
    find_outliers,
    iqm_difference,
    superiority_interval,
)
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
from bench.stats.suite_draws import SuiteDraws
from bench.stats.summaries import LEAST_SEEDS, almost_stochastic_order
from bench.stats.variance_components import ComponentsDifference, variance_components

UNEQUAL = 2.0  # spreads over seeds that differ by so much count as unequal
METHODS = {"paired": "paired t", "sign-flip": "paired t", "student": "student"}


def find_seed_coverage(
    design: Design, x: Sequence[float], y: Sequence[float], r: float | None, scores: str = "normal"
) -> CoverageRow:
    """Return the row of the interval over seeds; of two that fit, the one that held less often.

    Args:
        design: The test.
        x: Scores of one side.
        y: Scores of the other.
        r: Correlation of the pairs.
        scores: "normal", or "collapse" for sides with outlying seeds.
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


def find_permutation_coverage(x: Sequence[float], y: Sequence[float]) -> CoverageRow | None:
    """Return the row of the permutation of runs where spreads are unequal, else None."""
    sides = _order_unequal_sides(x, y)
    return find_coverage("permutation", *sides, design="spread 3:1") if sides else None


def _order_unequal_sides(x: Sequence[float], y: Sequence[float]) -> tuple[int, int] | None:
    """The seeds of the side that spreads more, and the other's; None where they spread about as much."""
    (wide, n_wide), (narrow, n) = sorted(((stdev(side), len(side)) for side in (x, y)), reverse=True)
    return (n_wide, n) if wide >= UNEQUAL * narrow else None


def find_component_coverage(found: ComponentsDifference, r: float | None) -> CoverageRow:
    """Return the row of the interval for seeds and items.

    Args:
        found: The components: the larger decides between "items dominate" and "seeds dominate".
        r: Correlation of the pairs.
    """
    method = "components, paired" if found.paired else "components"
    scores = "items dominate" if found.items > found.seeds else "seeds dominate"
    n_b, n_a = sorted((found.n_a, found.n_b))  # of a method without seeds 1, the last
    correlation = (r or 0.0) if found.paired else None
    return find_coverage(method, n_a, n_b, correlation, design=scores, target="further seeds, further items")


LEAST_TRIMMED = 4  # scores of a side; the interquartile mean of fewer is the mean


@dataclass(frozen=True)
class SeedPairs:
    """What pairing the seeds does to the difference of the average.

    Args:
        n: Pairs.
        correlation: Of the pairs' scores; None for two pairs, and where a side doesn't vary.
        unpaired: Welch's test of the same runs, which ignores the pairs.
        gain: The width of its interval divided by that of the paired one; None where differences don't vary.
    """

    n: int
    correlation: float | None
    unpaired: SeedDifference
    gain: float | None


@dataclass(frozen=True)
class OutlyingSeeds:
    """Seeds far from the others of their side, by the average; see ``bench.stats.robustness.find_outliers``.

    Args:
        first: Of the first.
        second: Of the second.
        pairs: Pairs whose difference lies far from the others.
        coverage: How often the interval holds where each run of a side collapses with a chance of 10%; None
            where no seed is named.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    pairs: tuple[int, ...]
    coverage: CoverageRow | None


@dataclass(frozen=True)
class SeedLevel:
    """What the seeds say of the methods, in the metric's unit; a deterministic side is a fixed score.

    Args:
        design: The test, and why.
        tasks: By task, "avg" the last: the t test of the design, whose interval stands beside an exact
            test too.
        exact: The same by an exact test: sign flips of pairs, and against a deterministic side; else the
            permutation of the runs. Empty with more than 40 seeds.
        pairs: None where the seeds are no pairs.
        coverage: The measured coverage that fits the interval.
        unequal: The measured size of the permutation of runs whose sides spread as unequally as these; None
            for others, and for pairs.
        superiority: P(A > B) of the average, with its interval.
        hedges_g: Effect size of the average; None where it is undefined.
        iqm: Difference of the interquartile means; None where they trim nothing.
        aso: Almost stochastic order of the average, descriptive; None under five seeds.
        outlying: Seeds that lie far from the others.
        further_run: Interval for the difference of one further run of each, unpaired.
        spread: What plans rest on; None where nothing varies.
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
    """Compare two methods over their seeds; at least one side has two or more.

    Args:
        a: One side.
        b: The other; in pairs, with the same seeds.
        design: The test.
        tasks: Names, "avg" the last.
        level: Confidence level.
    """
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    test = paired_t if design.paired else seed_difference
    names = [task for task in tasks if task != AVERAGE]
    rows_a, rows_b = (np.array([group.scores(task) for task in names]).T for group in (a, b))
    r = paired_t(x, y, level).correlation if design.paired else None
    varies = not (a.deterministic or b.deterministic) and (len(set(x)) > 1 or len(set(y)) > 1)
    rng = make_generator(SEED, "iqm")
    return SeedLevel(
        design=design,
        tasks={task: test(a.scores(task), b.scores(task), level) for task in tasks},
        exact={
            task: found
            for task in tasks
            if (found := _run_exact_test(design, a.scores(task), b.scores(task)))
        },
        pairs=SeedPairs(len(x), r, welch(x, y, level), pairing_gain(x, y, level)) if design.paired else None,
        coverage=find_seed_coverage(design, x, y, r),
        unequal=None if design.paired or design.test == "student" else find_permutation_coverage(x, y),
        superiority=superiority_interval(x, y, paired=design.paired, level=level),
        hedges_g=hedges_g(x, y) if varies else None,
        iqm=iqm_difference(rows_a, rows_b, rng, paired=design.paired, level=level)
        if max(rows_a.size, rows_b.size) >= LEAST_TRIMMED
        else None,
        aso=almost_stochastic_order(x, y, make_generator(SEED, "aso"))
        if min(len(x), len(y)) >= LEAST_SEEDS
        else None,
        outlying=_find_outlying_seeds(a, b, design, r),
        further_run=predict_run_difference(x, y, level),
        spread=_estimate_spread(x, y, design.paired),
    )


def _run_exact_test(design: Design, x: Sequence[float], y: Sequence[float]) -> ExactTest | None:
    """Sign flips of pairs and against a fixed score, else the permutation; None for too many seeds."""
    if design.test == "student":
        n = max(len(x), len(y))
        x, y = (list(side) * (n // len(side)) for side in (x, y))
    if design.paired or design.test == "student":
        return sign_flip(x, y, same_order=True) if len(x) <= MAX_SEEDS else None
    return exact_permutation(x, y) if len(x) + len(y) <= MAX_SEEDS else None


def _find_outlying_seeds(a: Group, b: Group, design: Design, r: float | None) -> OutlyingSeeds:
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    first, second = (
        tuple(group.seeds[place] for place in find_outliers(scores)) if group.seeds else ()
        for group, scores in ((a, x), (b, y))
    )
    pairs = tuple(a.seeds[place] for place in find_outliers(np.subtract(x, y))) if design.paired else ()
    named = pairs or first or second
    return OutlyingSeeds(
        first, second, pairs, find_seed_coverage(design, x, y, r, "collapse") if named else None
    )


def _estimate_spread(x: Sequence[float], y: Sequence[float], paired: bool) -> Spread | None:
    try:
        return spread_of_pairs(x, y) if paired else spread_of_sides(x, y)
    except ValueError:  # nothing varies
        return None


DrawItems = Callable[[Sequence[CampaignRun]], Iterable[RunDraws]]


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
    coverage: CoverageRow | None
    rescored: bool


def compare_over_items(
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
        row = find_component_coverage(components, r)
    found_tasks = paired_bootstrap(sample, "a", "b", level)
    return ItemLevel(
        tasks=found_tasks,
        corrected=_correct_intervals(sample, {task: found_tasks[task].p for task in tasks}, level),
        checkpoints=tuple(
            _compare_checkpoints(runs, found, sample, (i, len(a.runs) + j), level)
            for i, j in _pair_runs(a, b)
        ),
        components=components,
        coverage=row,
        rescored=all(each.tasks is not None for each in found),
    )


def _correct_intervals(sample: SuiteDraws, p: dict[str, float], level: float) -> dict[str, ItemDifference]:
    if len(p) < 2:
        return {}
    levels = adjust_levels(p, "fdr_bh", level)
    at = {each: paired_bootstrap(sample, "a", "b", each) for each in set(levels.values())}
    return {task: at[each][task] for task, each in levels.items()}


def _pair_runs(a: Group, b: Group) -> list[tuple[int, int]]:
    """Positions of runs to compare: those of one seed, or all with the only run of the other side."""
    if 1 in (len(a.runs), len(b.runs)):
        return [(i, j) for i in range(len(a.runs)) for j in range(len(b.runs))]
    return [(i, b.seeds.index(seed)) for i, seed in enumerate(a.seeds) if seed in b.seeds]


def _compare_checkpoints(
    runs: Sequence[CampaignRun],
    drawn: Sequence[RunDraws],
    sample: SuiteDraws,
    rows: tuple[int, int],
    level: float,
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
