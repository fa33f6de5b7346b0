"""The test of one pair of methods among many, by what the two share; it is fast, as there are many pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from bench.stats.inputs import FloatArray, check_level, check_scores
from bench.stats.ranks import PairTest
from bench.stats.seeds import ROUNDING, least_p, satterthwaite, side_parts

PAIRED, WELCH, STUDENT, ITEMS = "paired t", "Welch", "Student", "items' bootstrap"
AND_ITEMS = " + items"  # behind the first three, where the items' variance is added
ONE_SEED, NO_DRAWS = "one seed", "no seeds, and no draws of the items"


def pair_test(
    a: ArrayLike,
    b: ArrayLike,
    *,
    deterministic: tuple[bool, bool] = (False, False),
    paired: bool = False,
    items: ArrayLike | None = None,
    parts: Sequence[tuple[float, int]] = (),
    level: float | None = 0.95,
) -> PairTest:
    """Test two methods by what they share; only the caller knows it, and decides before any score is read.

    Paired t where the runs are pairs, Welch's test where they aren't, Student's against a deterministic
    method, and the bootstrap of the items between two deterministic ones: p and interval are those of
    ``paired_t``, ``seed_difference`` and ``item_difference`` in ``bench.stats``. One thing differs. The
    smallest p that draws of items can give, 2 / (draws + 1), would survive no correction over many pairs; so
    where no draw lies beyond 0, p is the tail of a normal distribution with the draws' standard deviation,
    where that is smaller; an interval beyond their reach is that of all draws and of this distribution. With
    ``parts`` tests speak for items too, as ``variance_components``; constant seeds have the p of ``least_p``.

    Args:
        a: (runs,) scores of one method.
        b: (runs,) scores of the other; if they are pairs, its seeds in the same order.
        deterministic: Whether each has no seeds; it then has one run.
        paired: True if run i of both has the same seed and shares trained stages or batches.
        items: (draws,) differences a - b in draws of items, for two deterministic methods.
        parts: (variance, degrees of freedom) that the items of each task add to the difference; empty to
            speak for these items alone. Two deterministic methods don't need them.
        level: Confidence level of the interval, in (0, 1); None for none, which is faster.

    Returns:
        The test, without a p where a method with seeds has a single run, or two deterministic ones no draws.

    Raises:
        ValueError: a deterministic method with several runs, pairs of different numbers, another shape, a
            score that is not finite, or a bad level.

    >>> pair_test([70.1, 72.3, 71.0], [70.0, 72.1, 70.7], paired=True).p < 0.08 < 0.8
    True
    >>> pair_test([70.5], [70.0, 72.0, 71.0]).test
    'one seed'
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    if level is not None:
        check_level(level)
    for name, runs, alone in zip("ab", (x, y), deterministic, strict=True):
        if alone and len(runs) != 1:
            raise ValueError(f"{name} has {len(runs)} runs; expected 1 of a deterministic method")
    difference = float(x.mean() - y.mean())
    if all(deterministic):
        return (
            PairTest(difference, None, NO_DRAWS)
            if items is None
            else _item_bootstrap_test(items, difference, level)
        )
    if any(len(runs) < 2 and not alone for runs, alone in zip((x, y), deterministic, strict=True)):
        return PairTest(difference, None, ONE_SEED)
    least = least_p(len(x), len(y), paired=paired)
    if paired:
        return _t_test(*_pair_variance(x, y, difference), parts, PAIRED, level, least)
    sides = [_mean_variance(runs) for runs in (x, y) if len(runs) > 1]
    seeds = sides if any(deterministic) else side_parts(*sides)
    shown = difference if any(variance for variance, _ in seeds) else float(x[0] - y[0])
    return _t_test(shown, seeds, parts, STUDENT if any(deterministic) else WELCH, level, least)


def _pair_variance(x: FloatArray, y: FloatArray, difference: float) -> tuple[float, list[tuple[float, int]]]:
    """The difference, and its variance over pairs: none for differences that agree but for rounding."""
    if len(x) != len(y):
        raise ValueError(f"{len(x)} against {len(y)} seeds; expected pairs")
    rounding = ROUNDING * float(np.abs([x, y]).max())
    if np.ptp(x - y) <= rounding:
        return 0.0 if abs(difference) <= rounding else difference, []
    return difference, [_mean_variance(x - y)]


def _mean_variance(runs: FloatArray) -> tuple[float, int]:
    """Variance of the mean, and its degrees of freedom; 0 for scores that are equal but for rounding."""
    n = len(runs)
    if np.ptp(runs) <= ROUNDING * float(np.abs(runs).max()):
        return 0.0, n - 1
    apart = runs - runs.sum() / n
    return float(apart @ apart) / (n - 1) / n, n - 1


def _t_test(
    difference: float,
    seeds: Sequence[tuple[float, int]],
    items: Sequence[tuple[float, int]],
    test: str,
    level: float | None,
    least: float,
) -> PairTest:
    """A t test of a difference with independent parts of variance; degrees of freedom after Satterthwaite."""
    own = _t_test(difference, seeds, (), test, level, least) if items else None
    parts, test = (*seeds, *items), test + AND_ITEMS * bool(items)
    variance = sum(part for part, _ in parts)
    if variance == 0:
        ends = None if level is None else (difference, difference)
        return PairTest(difference, least if difference else 1.0, test, ends)
    df = satterthwaite([(part / variance, freedom) for part, freedom in parts])
    error = math.sqrt(variance)
    p = 2 * float(stdtr(df, -abs(difference) / error))
    if own is not None and own.p is not None:
        p = max(p, own.p)  # what holds for seeds and items holds for seeds
    if level is None:
        return PairTest(difference, p, test)
    half = float(stdtrit(df, (1 + level) / 2)) * error
    low, high = difference - half, difference + half
    if own is not None and own.interval is not None:
        low, high = min(low, own.interval[0]), max(high, own.interval[1])
    return PairTest(difference, p, test, (low, high))


def _item_bootstrap_test(items: ArrayLike, difference: float, level: float | None) -> PairTest:
    """The items' bootstrap, beyond the reach of its draws from a normal distribution."""
    from bench.stats.item_statistics import item_difference  # scipy.stats is slow to load

    values = np.asarray(items, dtype=np.float64)
    found = item_difference(values, difference, 0, 0.5 if level is None else level)
    spread, p, ends = float(np.std(values, ddof=1)), found.p, (found.low, found.high)
    if p == found.minimum_p:
        p = min(p, 2 * float(ndtr(-abs(difference) / spread))) if spread else 0.0
    if level is not None and 1 - level < found.minimum_p:
        half = float(ndtri((1 + level) / 2)) * spread
        ends = min(difference - half, float(values.min())), max(difference + half, float(values.max()))
    return PairTest(difference, p, ITEMS, None if level is None else ends)
