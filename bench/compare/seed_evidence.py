"""What the seeds say of two methods: the test that their design asks for, and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.compare.design import Design
from bench.compare.draws import SEED
from bench.compare.fitting import row_of_permutation, row_of_seeds
from bench.compare.select import Group
from bench.stats.checks import generator
from bench.stats.coverage import Row
from bench.stats.descriptive import LEAST_SEEDS, aso
from bench.stats.effects import hedges_g
from bench.stats.equivalence import one_run_each
from bench.stats.items import AVERAGE
from bench.stats.paired import PairedDifference, paired_t, pairing_gain
from bench.stats.robust import (
    IqmDifference,
    Superiority,
    iqm_difference,
    outlying,
    superiority_interval,
)
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

LEAST_TRIMMED = 4  # scores of a side; the interquartile mean of fewer is the mean


@dataclass(frozen=True)
class Pairs:
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
class Outlying:
    """Seeds far from the others of their side, by the average; see ``bench.stats.robust.outlying``.

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
    coverage: Row | None


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
    pairs: Pairs | None
    coverage: Row
    unequal: Row | None
    superiority: Superiority
    hedges_g: float | None
    iqm: IqmDifference | None
    aso: float | None
    outlying: Outlying
    further_run: tuple[float, float]
    spread: Spread | None


def seed_level(a: Group, b: Group, design: Design, tasks: Sequence[str], level: float) -> SeedLevel:
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
    rng = generator(SEED, "iqm")
    return SeedLevel(
        design=design,
        tasks={task: test(a.scores(task), b.scores(task), level) for task in tasks},
        exact={task: found for task in tasks if (found := _exact(design, a.scores(task), b.scores(task)))},
        pairs=Pairs(len(x), r, welch(x, y, level), pairing_gain(x, y, level)) if design.paired else None,
        coverage=row_of_seeds(design, x, y, r),
        unequal=None if design.paired or design.test == "student" else row_of_permutation(x, y),
        superiority=superiority_interval(x, y, paired=design.paired, level=level),
        hedges_g=hedges_g(x, y) if varies else None,
        iqm=iqm_difference(rows_a, rows_b, rng, paired=design.paired, level=level)
        if max(rows_a.size, rows_b.size) >= LEAST_TRIMMED
        else None,
        aso=aso(x, y, generator(SEED, "aso")) if min(len(x), len(y)) >= LEAST_SEEDS else None,
        outlying=_outlying(a, b, design, r),
        further_run=one_run_each(x, y, level),
        spread=_spread(x, y, design.paired),
    )


def _exact(design: Design, x: Sequence[float], y: Sequence[float]) -> ExactTest | None:
    """Sign flips of pairs and against a fixed score, else the permutation; None for too many seeds."""
    if design.test == "student":
        n = max(len(x), len(y))
        x, y = (list(side) * (n // len(side)) for side in (x, y))
    if design.paired or design.test == "student":
        return sign_flip(x, y, same_order=True) if len(x) <= MAX_SEEDS else None
    return exact_permutation(x, y) if len(x) + len(y) <= MAX_SEEDS else None


def _outlying(a: Group, b: Group, design: Design, r: float | None) -> Outlying:
    x, y = a.scores(AVERAGE), b.scores(AVERAGE)
    first, second = (
        tuple(group.seeds[place] for place in outlying(scores)) if group.seeds else ()
        for group, scores in ((a, x), (b, y))
    )
    pairs = tuple(a.seeds[place] for place in outlying(np.subtract(x, y))) if design.paired else ()
    named = pairs or first or second
    return Outlying(first, second, pairs, row_of_seeds(design, x, y, r, "collapse") if named else None)


def _spread(x: Sequence[float], y: Sequence[float], paired: bool) -> Spread | None:
    try:
        return spread_of_pairs(x, y) if paired else spread_of_sides(x, y)
    except ValueError:  # nothing varies
        return None
