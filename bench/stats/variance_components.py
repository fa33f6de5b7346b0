"""Seeds and items together, for a fixed set of tasks. The runs of a method are its seeds.

A checkpoint is scored on all tasks, so whole seed rows are resampled. Items add degrees of freedom, so the
interval of the variance components may be narrower than that of the seeds, and cover too little. So the
interval is the wider of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from bench.stats.argument_checks import FloatArray, check_level, check_sides
from bench.stats.effect_sizes import probability_of_superiority
from bench.stats.item_statistics import SuiteDraws
from bench.stats.seeds import ROUNDING, VariancePart, least_p, satterthwaite, side_parts


@dataclass(frozen=True)
class HierarchicalDifference:
    """The difference of two methods' suite averages under resampling of seeds and items: descriptive.

    ``superiority`` is P(A > B) of the observed seeds' suite averages, with its percentile interval.
    """

    difference: float
    low: float
    high: float
    superiority: float
    superiority_low: float
    superiority_high: float
    draws: int
    n_a: int
    n_b: int


@dataclass(frozen=True)
class ComponentsDifference:
    """The difference of two methods' suite averages with an interval from the components of its variance.

    Args:
        t: The difference over its standard error; None if nothing varies, as ``df``.
        p: Two-sided p; for constant seeds at least ``least_p``; if nothing varies, 1 for a difference of 0.
        seeds: Variance that the seeds add: s_a^2 / n_a + s_b^2 / n_b, or s_d^2 / n of pairs.
        items: Variance that the items add, from the bootstrap.
        also: (error, df) of the narrower of the two intervals; at another level it may be the wider one.
    """

    difference: float
    low: float
    high: float
    t: float | None
    df: float | None
    p: float
    seeds: float
    items: float
    n_a: int
    n_b: int
    paired: bool
    minimum_p: float = 0.0
    also: tuple[tuple[float, float], ...] = ()


def hierarchical_bootstrap(
    sample: SuiteDraws, a: str, b: str, rng: np.random.Generator, level: float = 0.95
) -> HierarchicalDifference:
    """Bootstrap of whole seed rows, and of items within each task; both methods see the same items in a draw.

    ``a`` and ``b`` are names of methods of at least two seeds in the sample. Descriptive: a percentile
    interval over few seeds is too narrow. Measured: ``bench.stats.coverage``, method "hierarchical".

    >>> from bench.stats.argument_checks import make_generator
    >>> seeds = np.array([[0.80], [0.82], [0.70], [0.72]])  # two of each method, on one task
    >>> runs = {"a": slice(0, 2), "b": slice(2, 4)}
    >>> sample = SuiteDraws(runs, ("STSB",), (50,), seeds, np.stack([seeds] * 500))
    >>> result = hierarchical_bootstrap(sample, "a", "b", make_generator(1, "seeds"))
    >>> round(result.difference, 3), round(result.low, 3), round(result.high, 3), result.superiority
    (0.1, 0.08, 0.12, 1.0)
    """
    check_level(level)
    (observed_a, draws_a), (observed_b, draws_b) = sample.select(a), sample.select(b)
    n_a, n_b, draws = len(observed_a), len(observed_b), len(draws_a)
    if min(n_a, n_b) < 2:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 2 per side")
    first = np.take_along_axis(draws_a.mean(2), rng.integers(0, n_a, (draws, n_a)), axis=1)
    second = np.take_along_axis(draws_b.mean(2), rng.integers(0, n_b, (draws, n_b)), axis=1)
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(first.mean(1) - second.mean(1), ends).tolist()
    above = (np.sign(first[:, :, None] - second[:, None, :]).mean((1, 2)) + 1) / 2
    difference = float(observed_a.mean() - observed_b.mean())
    superiority = probability_of_superiority(observed_a.mean(1), observed_b.mean(1))
    above_low, above_high = np.quantile(above, ends).tolist()
    return HierarchicalDifference(difference, low, high, superiority, above_low, above_high, draws, n_a, n_b)


def variance_components(
    sample: SuiteDraws,
    a: str,
    b: str,
    *,
    deterministic_a: bool = False,
    deterministic_b: bool = False,
    paired: bool = False,
    level: float = 0.95,
) -> ComponentsDifference:
    """Interval of the difference for further seeds and further items: seed variance plus item variance.

    V = s_a^2 / n_a + s_b^2 / n_b + sum over tasks of v_t / T^2, with s^2 the variance of the suite average
    over seeds and v_t that of the difference in task t over a bootstrap of its items. Tasks whose pairs share
    sentences with one another have one v, of their sum. For pairs of seeds, the seeds'
    part is that of the differences, s_d^2 / n. The interval is difference -+ t sqrt(V), with Satterthwaite's
    (1946) degrees of freedom V^2 / sum of (component^2 / its own): n - 1 for seeds
    (``bench.stats.seeds.side_parts`` for uneven sides), pairs - 1 for a task, or the effective number of
    clusters of pairs less one. If the seeds have a wider
    interval, it and the larger p are taken. Measured: ``bench.stats.coverage``, methods "components" and
    "components, paired".

    >>> seeds = np.array([[0.80], [0.84], [0.70], [0.72]])  # two of each method; here items add nothing
    >>> runs = {"a": slice(0, 2), "b": slice(2, 4)}
    >>> sample = SuiteDraws(runs, ("STSB",), (50,), seeds, np.stack([seeds] * 9))
    >>> result = variance_components(sample, "a", "b", paired=True)
    >>> round(result.difference, 3), round(result.low, 3), round(result.high, 3), round(result.df, 1)
    (0.11, -0.017, 0.237, 1.0)
    """
    check_level(level)
    (observed_a, draws_a), (observed_b, draws_b) = sample.select(a), sample.select(b)
    x, y = observed_a.mean(1), observed_b.mean(1)
    if paired:
        seeds = [_seed_variance(_pair_differences(x, y), False, f"{a} - {b}")]
    else:
        seeds = [_seed_variance(x, deterministic_a, a), _seed_variance(y, deterministic_b, b)]
        if not (deterministic_a or deterministic_b):
            seeds = side_parts(*seeds)
    items = item_parts(sample, draws_a.mean(1) - draws_b.mean(1))
    parts = np.array([variance for variance, _ in (*seeds, *items)])
    freedom = np.array([degrees for _, degrees in (*seeds, *items)], dtype=np.float64)
    difference = float(observed_a.mean() - observed_b.mean())
    by_seeds, n_a, n_b = len(seeds), len(x), len(y)
    seeds_vary = bool(parts[:by_seeds].any())
    least = 0.0 if seeds_vary or (n_a, n_b) == (1, 1) else least_p(n_a, n_b, paired=paired)
    # the interval of the seeds and that of all parts, the wider one first
    tests = [
        _t_test(difference, parts[:n], freedom[:n], level) for n in (by_seeds, len(parts)) if parts[:n].any()
    ]
    tests.sort(reverse=True)
    half, error, df, _ = tests[0] if tests else (0.0, 0.0, None, 0.0)
    p = max([least, *(p for *_, p in tests)]) if tests or difference else 1.0
    also = tuple((error, df) for _, error, df, _ in tests[1:])
    return ComponentsDifference(
        difference=difference,
        low=difference - half,
        high=difference + half,
        t=difference / error if error else None,
        df=df,
        p=p,
        seeds=float(parts[:by_seeds].sum()),
        items=float(parts[by_seeds:].sum()),
        n_a=n_a,
        n_b=n_b,
        paired=paired,
        minimum_p=least,
        also=also,
    )


def item_parts(sample: SuiteDraws, differences: FloatArray) -> list[tuple[float, float]]:
    """Return what items add to the variance of the average's difference, with degrees of freedom.

    One part for tasks whose items are drawn together; ``differences`` are (draws, tasks).

    >>> sample = SuiteDraws({}, ("one", "two"), (50, 30), np.zeros((0, 2)), np.zeros((0, 0, 2)))
    >>> item_parts(sample, np.array([[0.0, 1.0], [2.0, 1.0]]))
    [(0.5, 49.0), (0.0, 29.0)]
    """
    parts = []
    for columns, effective in sample.item_groups():
        variance = float(differences[:, columns].sum(axis=1).var(ddof=1)) / len(sample.tasks) ** 2
        parts.append((variance, effective - 1))
    return parts


def _t_test(
    difference: float, parts: FloatArray, freedom: FloatArray, level: float
) -> tuple[float, float, float, float]:
    """Half the interval, its standard error, Satterthwaite's degrees of freedom and p of some parts."""
    variance = float(parts.sum())
    df = float(satterthwaite([*zip(parts, freedom, strict=True)]))
    error = math.sqrt(variance)
    half = float(stdtrit(df, (1 + level) / 2)) * error
    return half, error, df, 2 * float(stdtr(df, -abs(difference) / error))


def _pair_differences(x: FloatArray, y: FloatArray) -> FloatArray:
    """Differences of pairs; those that agree but for rounding are made equal."""
    check_sides(x, y, paired=True)
    d = x - y
    is_constant = np.ptp(d) <= ROUNDING * float(np.abs([x, y]).max())
    return np.full_like(d, d.mean()) if is_constant else d


def _seed_variance(averages: FloatArray, deterministic: bool, name: str) -> VariancePart:
    """Return the variance of the mean over seeds and its degrees of freedom."""
    if deterministic != (len(averages) == 1):
        expected = "1 of a deterministic method" if deterministic else "at least 2 seeds"
        raise ValueError(f"{name} has {len(averages)} run(s); expected {expected}")
    if deterministic:
        return 0.0, 1
    if not np.ptp(averages):  # the variance of equal numbers may be 1e-33
        return 0.0, len(averages) - 1
    return float(averages.var(ddof=1) / len(averages)), len(averages) - 1
