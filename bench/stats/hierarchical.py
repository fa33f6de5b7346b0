"""Seeds and items together, the set of tasks fixed. The runs of a method are its seeds.

A checkpoint is scored on all tasks, so its errors on them are related: whole seed rows are resampled, never
the seeds of one task by themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bench.stats.checks import FloatArray, check_level
from bench.stats.effects import superiority
from bench.stats.suite import SuiteDraws


@dataclass(frozen=True)
class HierarchicalDifference:
    """The difference of two methods' suite averages under resampling of seeds and items: descriptive.

    Args:
        difference: mean(a) - mean(b) over seeds and tasks.
        low: Lower end of the percentile interval.
        high: Upper end.
        superiority: P(A > B) of the observed seeds' suite averages; a tie counts half.
        superiority_low: Lower end of its percentile interval.
        superiority_high: Upper end.
        draws: Number of draws.
        n_a: Seeds of a.
        n_b: Seeds of b.
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
        difference: mean(a) - mean(b) over seeds and tasks.
        low: Lower end of the t interval.
        high: Upper end.
        df: Satterthwaite's degrees of freedom; None where nothing varies.
        seeds_a: Variance that a's seeds add to the difference, s_a^2 / n_a; 0 for a deterministic method.
        seeds_b: The same of b.
        items: Variance that the items add, from the bootstrap.
        n_a: Seeds of a.
        n_b: Seeds of b.
    """

    difference: float
    low: float
    high: float
    df: float | None
    seeds_a: float
    seeds_b: float
    items: float
    n_a: int
    n_b: int


def hierarchical_bootstrap(
    sample: SuiteDraws, a: str, b: str, rng: np.random.Generator, level: float = 0.95
) -> HierarchicalDifference:
    """Bootstrap of whole seed rows, and of items within each task; both methods see the same items in a draw.

    Descriptive: a percentile interval over few seeds is too narrow. Measured coverage of its 95% interval
    with 5 seeds per side: 91.1% on the seven STS tasks (1,000 simulations, 99% interval 88.5 to 93.3%), 88%
    where items add nothing (20,000). ``variance_components`` covered 94.8% in the same simulations of the
    tasks, Welch's interval of the seeds 92.6%, the item bootstrap alone 64.4% (benchmarks/stats.py).

    Args:
        sample: Draws of the items of both methods, from ``suite_draws``.
        a: Name of one method in it, of at least two seeds.
        b: Name of the other, of at least two seeds.
        rng: The generator of the draws of seeds.
        level: Confidence level, in (0, 1).

    Returns:
        The difference with percentile intervals of it and of P(A > B).

    Raises:
        ValueError: fewer than two seeds on a side, a name that is not in the sample, or a bad level.

    >>> from bench.stats.checks import generator
    >>> seeds = np.array([[0.80], [0.82], [0.70], [0.72]])  # two of each method, on one task
    >>> runs = {"a": slice(0, 2), "b": slice(2, 4)}
    >>> sample = SuiteDraws(runs, ("STSB",), (50,), seeds, np.stack([seeds] * 500))
    >>> found = hierarchical_bootstrap(sample, "a", "b", generator(1, "seeds"))
    >>> round(found.difference, 3), round(found.low, 3), round(found.high, 3), found.superiority
    (0.1, 0.08, 0.12, 1.0)
    """
    check_level(level)
    (seen_a, draws_a), (seen_b, draws_b) = sample.of(a), sample.of(b)
    n_a, n_b, draws = len(seen_a), len(seen_b), len(draws_a)
    if min(n_a, n_b) < 2:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 2 per side")
    first = np.take_along_axis(draws_a.mean(2), rng.integers(0, n_a, (draws, n_a)), axis=1)
    second = np.take_along_axis(draws_b.mean(2), rng.integers(0, n_b, (draws, n_b)), axis=1)
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(first.mean(1) - second.mean(1), ends)
    above = (np.sign(first[:, :, None] - second[:, None, :]).mean((1, 2)) + 1) / 2
    above_low, above_high = np.quantile(above, ends)
    return HierarchicalDifference(
        float(seen_a.mean() - seen_b.mean()),
        float(low),
        float(high),
        superiority(seen_a.mean(1), seen_b.mean(1)),
        float(above_low),
        float(above_high),
        draws,
        n_a,
        n_b,
    )


def variance_components(
    sample: SuiteDraws,
    a: str,
    b: str,
    *,
    deterministic_a: bool = False,
    deterministic_b: bool = False,
    level: float = 0.95,
) -> ComponentsDifference:
    """Interval of the difference for further seeds and further items: seed variance plus item variance.

    V = s_a^2 / n_a + s_b^2 / n_b + sum over tasks of v_t / T^2, with s^2 the variance of the suite average
    over seeds and v_t that of the difference in task t over a bootstrap of its items. The interval is
    difference -+ t sqrt(V), with Satterthwaite's (1946) degrees of freedom V^2 / sum of (component^2 / its
    own): n - 1 for seeds, pairs - 1 for a task. An item that is hard for one seed alone adds to both parts,
    so the interval is a little too wide where items count most. Measured coverage with 5 seeds per side and
    the seven STS tasks: 94.8% (1,000 simulations, 99% interval 92.7 to 96.4%; benchmarks/stats.py).

    Args:
        sample: Draws of the items of both methods, from ``suite_draws``.
        a: Name of one method in it, of at least two seeds.
        b: Name of the other, of at least two seeds.
        deterministic_a: a has no seeds: one run, without seed variance.
        deterministic_b: The same of b.
        level: Confidence level, in (0, 1).

    Returns:
        The difference, its t interval and the components.

    Raises:
        ValueError: a side with fewer than two seeds that isn't deterministic, or a deterministic one with
            more than one run, a name that is not in the sample, or a bad level.

    >>> seeds = np.array([[0.80], [0.82], [0.70], [0.72]])  # two of each method; here items add nothing
    >>> runs = {"a": slice(0, 2), "b": slice(2, 4)}
    >>> sample = SuiteDraws(runs, ("STSB",), (50,), seeds, np.stack([seeds] * 9))
    >>> found = variance_components(sample, "a", "b")
    >>> round(found.difference, 3), round(found.low, 3), round(found.high, 3), round(found.df, 1)
    (0.1, 0.039, 0.161, 2.0)
    """
    check_level(level)
    (seen_a, draws_a), (seen_b, draws_b) = sample.of(a), sample.of(b)
    seeds_a, df_a = _seed_variance(seen_a.mean(1), deterministic_a, a)
    seeds_b, df_b = _seed_variance(seen_b.mean(1), deterministic_b, b)
    tasks = (draws_a.mean(1) - draws_b.mean(1)).var(axis=0, ddof=1) / len(sample.tasks) ** 2
    components = np.r_[seeds_a, seeds_b, tasks]
    freedom = np.r_[df_a, df_b, np.asarray(sample.pairs) - 1]
    difference = float(seen_a.mean() - seen_b.mean())
    facts = (seeds_a, seeds_b, float(tasks.sum()), len(seen_a), len(seen_b))
    total = float(components.sum())
    if total == 0:
        return ComponentsDifference(difference, difference, difference, None, *facts)
    df = total**2 / float((components**2 / freedom).sum())
    half = float(stats.t.ppf((1 + level) / 2, df)) * math.sqrt(total)
    return ComponentsDifference(difference, difference - half, difference + half, df, *facts)


def _seed_variance(averages: FloatArray, deterministic: bool, name: str) -> tuple[float, int]:
    """Return the variance of the mean over seeds and its degrees of freedom."""
    if deterministic != (len(averages) == 1):
        expected = "1 of a deterministic method" if deterministic else "at least 2 seeds"
        raise ValueError(f"{name} has {len(averages)} run(s); expected {expected}")
    if deterministic:
        return 0.0, 1
    return float(averages.var(ddof=1) / len(averages)), len(averages) - 1
