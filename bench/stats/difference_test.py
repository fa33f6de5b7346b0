"""A fast test of one pair of methods among many, paired or unpaired as the design says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from bench.stats.argument_checks import FloatArray, check_level, check_sides
from bench.stats.method_ranking import PairTest
from bench.stats.seeds import ROUNDING, least_p, satterthwaite, side_parts

PAIRED, WELCH, STUDENT, ITEMS = "paired t", "Welch", "Student", "items' bootstrap"
OVER_TASKS = "t over tasks"  # of :mod:`bench.stats.task_tests`
AND_ITEMS = " + items"  # behind the first three, where the items' variance is added
ONE_SEED, NO_DRAWS = "one seed", "no seeds, and no draws of the items"


def pair_test(
    a: ArrayLike,
    b: ArrayLike,
    *,
    deterministic: tuple[bool, bool] = (False, False),
    paired: bool = False,
    items: ArrayLike | None = None,
    effective: float | None = None,
    parts: Sequence[tuple[float, float]] = (),
    level: float | None = 0.95,
    fewest: bool = False,
) -> PairTest:
    """Test two methods by their design, which the caller decides before any score is read.

    The test is the paired t test for pairs of runs, otherwise Welch's, Student's against a deterministic
    method, and the bootstrap of the items between two deterministic ones. p and interval are those of
    ``paired_t``, ``seed_difference`` and ``item_difference``, with one exception. The smallest p of a
    bootstrap, 2 / (draws + 1), is too large for a correction over many pairs. If all draws are on one side of
    0, p is the smaller of it and the tail of a normal distribution with the draws' standard deviation; an
    interval beyond the draws' reach spans all draws and that distribution's interval. With ``parts`` tests
    hold for items too, as ``variance_components``. p is None for a single run of a method with seeds, and for
    two deterministic methods without draws.

    Args:
        deterministic: Whether each is without seeds; it then has one run.
        items: (draws,) differences a - b in draws of items, for two deterministic methods.
        effective: Effective number of the drawn clusters of items; None if each item is one.
        parts: (variance, degrees of freedom) that the items of each task add to the difference; empty for a
            statement about these items.
        level: Confidence level of the interval, in (0, 1); None omits it, for speed.
        fewest: Welch's test with the degrees of freedom of the fewer seeds, which holds at any level.
            Satterthwaite's are too many far out in the tail, where a correction reads it.

    >>> pair_test([70.1, 72.3, 71.0], [70.0, 72.1, 70.7], paired=True).p < 0.08 < 0.8
    True
    >>> pair_test([70.5], [70.0, 72.0, 71.0]).test
    'one seed'
    """
    x, y = check_sides(a, b)
    if level is not None:
        check_level(level)
    _check_deterministic((x, y), deterministic)
    difference = float(x.mean() - y.mean())
    if all(deterministic):
        if items is None:
            return PairTest(difference, None, NO_DRAWS)
        return _item_bootstrap_test(items, difference, level, effective)
    if (len(x) == 1 and not deterministic[0]) or (len(y) == 1 and not deterministic[1]):
        return PairTest(difference, None, ONE_SEED)
    least = least_p(len(x), len(y), paired=paired)
    if paired:
        check_sides(x, y, paired=True)
        rounding = ROUNDING * float(np.abs([x, y]).max())
        if np.ptp(x - y) > rounding:
            return _t_test(difference, [mean_variance(x - y)], parts, PAIRED, level, least)
        difference = 0.0 if abs(difference) <= rounding else difference
        return _t_test(difference, [], parts, PAIRED, level, least)
    seeds = [mean_variance(runs) for runs in (x, y) if len(runs) > 1]
    if not any(variance for variance, _ in seeds):
        difference = float(x[0] - y[0])
    if any(deterministic):
        return _t_test(difference, seeds, parts, STUDENT, level, least)
    sides = side_parts(*seeds)
    if fewest:
        sides = [(sum(variance for variance, _ in seeds), min(len(x), len(y)) - 1)]
    return _t_test(difference, sides, parts, WELCH, level, least)


def _check_deterministic(sides: tuple[FloatArray, FloatArray], deterministic: tuple[bool, bool]) -> None:
    for name, runs, is_deterministic in zip("ab", sides, deterministic, strict=True):
        if is_deterministic and len(runs) != 1:
            raise ValueError(f"{name} has {len(runs)} runs; expected 1 of a deterministic method")


def mean_variance(runs: FloatArray) -> tuple[float, int]:
    """Return the variance of the mean, and its degrees of freedom; 0 for scores equal but for rounding.

    >>> mean_variance(np.array([1.0, 2.0, 3.0]))
    (0.3333333333333333, 2)
    """
    n = len(runs)
    if np.ptp(runs) <= ROUNDING * float(np.abs(runs).max()):
        return 0.0, n - 1
    deviations = runs - runs.sum() / n
    return float(deviations @ deviations) / (n - 1) / n, n - 1


def _t_test(
    difference: float,
    seeds: Sequence[tuple[float, float]],
    items: Sequence[tuple[float, float]],
    test: str,
    level: float | None,
    least: float,
) -> PairTest:
    """A t test of a difference with independent parts of variance; degrees of freedom after Satterthwaite."""
    by_seeds = _t_test(difference, seeds, (), test, level, least) if items else None
    parts, test = (*seeds, *items), test + AND_ITEMS * bool(items)
    variance = sum(part for part, _ in parts)
    if variance == 0:
        ends = None if level is None else (difference, difference)
        return PairTest(difference, least if difference else 1.0, test, ends)
    df = satterthwaite([(part / variance, freedom) for part, freedom in parts])
    error = math.sqrt(variance)
    p = 2 * float(stdtr(df, -abs(difference) / error))
    if by_seeds is not None and by_seeds.p is not None:
        p = max(p, by_seeds.p)  # a statement on seeds and items includes the one on seeds
    if level is None:
        return PairTest(difference, p, test)
    half = float(stdtrit(df, (1 + level) / 2)) * error
    low, high = difference - half, difference + half
    if by_seeds is not None and by_seeds.interval is not None:
        low, high = min(low, by_seeds.interval[0]), max(high, by_seeds.interval[1])
    return PairTest(difference, p, test, (low, high))


def _item_bootstrap_test(
    items: ArrayLike, difference: float, level: float | None, effective: float | None
) -> PairTest:
    """The items' bootstrap, beyond the reach of its draws from a normal distribution."""
    from bench.stats.item_statistics import (  # scipy.stats is slow to load
        contract_share,
        expand_share,
        item_difference,
    )

    values = np.asarray(items, dtype=np.float64)
    bootstrap = item_difference(values, difference, 0, 0.5 if level is None else level, effective)
    spread, p, ends = float(np.std(values, ddof=1)), bootstrap.p, (bootstrap.low, bootstrap.high)
    if p == bootstrap.minimum_p:
        tail = float(ndtr(-abs(difference) / spread)) if spread else 0.0
        p = min(p, 2 * (tail if effective is None else contract_share(tail, effective)))
    if level is None:
        return PairTest(difference, p, ITEMS)
    if 1 - level < bootstrap.minimum_p:
        tail = (1 - level) / 2
        half = -float(ndtri(tail if effective is None else expand_share(tail, effective))) * spread
        ends = min(difference - half, float(values.min())), max(difference + half, float(values.max()))
    return PairTest(difference, p, ITEMS, ends)
