"""Statistics over the items of an evaluation: they hold for these checkpoints, not for a method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kurtosis, norm
from scipy.stats import t as student

from bench.stats.argument_checks import MIN_PAIRS, FloatArray, check_items, check_level
from bench.stats.item_units import LEAST_EFFECTIVE, Labels, SuiteUnits, UnitSummary, draw_scores
from bench.stats.resampling import spearman_rows, spearman_statistic

AVERAGE = "avg"


def _check_clusters(clusters: Mapping[str, ArrayLike], task: str, items: int) -> Labels:
    """Return (items,) whole numbers of a task's clusters."""
    labels = np.asarray(clusters.get(task, ()))
    if labels.shape != (items,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"clusters of {task}: {labels.dtype} {labels.shape}; expected {items} whole numbers")
    return labels.astype(np.intp)


@dataclass(frozen=True)
class SuiteDraws:
    """The draws that the item bootstraps of all pairs of methods share; ``pairs`` counts those of a task.

    Args:
        rows: Each method's runs, as a slice of all methods' runs.
        observed: (runs of all methods, tasks).
        draws: (draws, runs of all methods, tasks); in a draw all runs see the same pairs of a task.
        units: The drawn clusters of pairs; None if no two pairs share a sentence.
    """

    rows: dict[str, slice]
    tasks: tuple[str, ...]
    pairs: tuple[int, ...]
    observed: FloatArray
    draws: FloatArray
    units: UnitSummary | None = None

    def count_clusters(self, task: str) -> int | None:
        """Return the number of clusters of a task, or of all for "avg"; None if each pair is one."""
        if self.units is None or not self.units.shared:
            return None
        if task == AVERAGE:
            return self.units.clusters
        return self.units.tasks[task].clusters if self.units.tasks[task].shared else None

    def effective_clusters(self, task: str) -> float | None:
        """Return the effective number of clusters of a task, or of "avg"; None if each pair is one."""
        return None if self.units is None else self.units.effective_clusters(task, AVERAGE)

    def item_groups(self) -> list[tuple[list[int], float]]:
        """Return the columns of tasks that are drawn together, and their effective number of clusters."""
        if self.units is None:
            return [([column], float(pairs)) for column, pairs in enumerate(self.pairs)]
        groups = []
        for linked in self.units.linked:
            groups.append(([self.tasks.index(task) for task in linked.tasks], linked.effective))
        return groups

    def select(self, method: str) -> tuple[FloatArray, FloatArray]:
        """Return a method's observed (runs, tasks) and (draws, runs, tasks); raise ValueError without one."""
        if method not in self.rows:
            raise ValueError(f"no method '{method}' in the sample; expected one of {', '.join(self.rows)}")
        return self.observed[self.rows[method]], self.draws[:, self.rows[method]]


def draw_suite(
    predictions: Mapping[str, Mapping[str, ArrayLike]],
    gold: Mapping[str, ArrayLike],
    rng: np.random.Generator,
    draws: int = 10_000,
    clusters: Mapping[str, ArrayLike] | None = None,
) -> SuiteDraws:
    """Draw the items of every task with replacement, once for all methods and runs.

    Args:
        predictions: For every method and task (runs, pairs), or (pairs,) for one run; the same runs in the
            same order on all tasks.
        gold: For every task (pairs,); ``rng`` is used in their order.
        clusters: For every task (pairs,) numbers of the clusters to draw, over all tasks; default each pair.

    >>> from bench.stats.argument_checks import make_generator
    >>> gold = {"STSB": [1, 2, 3, 4] * 5}
    >>> predictions = {"ours": {"STSB": [[0.1, 0.3, 0.2, 0.9] * 5] * 2}, "theirs": {"STSB": [4, 1, 3, 2] * 5}}
    >>> sample = draw_suite(predictions, gold, make_generator(1, "items"), draws=100)
    >>> sample.rows, sample.draws.shape
    ({'ours': slice(0, 2, None), 'theirs': slice(2, 3, None)}, (100, 3, 1))
    """
    if not predictions or not gold:
        raise ValueError(f"{len(predictions)} methods on {len(gold)} tasks; expected at least one of each")
    rows, start = {}, 0
    checked: dict[str, list[FloatArray]] = {task: [] for task in gold}
    for method, of_tasks in predictions.items():
        if of_tasks.keys() != gold.keys():
            raise ValueError(f"{method} has tasks {sorted(of_tasks)}; expected those of gold, {sorted(gold)}")
        for task, values in of_tasks.items():
            checked[task].append(check_items(values, gold[task], f"{method}, {task}")[0])
        counts = {len(checked[task][-1]) for task in gold}
        if len(counts) > 1:
            raise ValueError(f"{method} has {sorted(counts)} runs; expected the same runs on all tasks")
        rows[method] = slice(start, start + counts.pop())
        start = rows[method].stop
    stacked = {task: np.concatenate(parts) for task, parts in checked.items()}
    observed = np.stack([spearman_rows(stacked[task], gold[task]) for task in gold], axis=1)
    units = SuiteUnits.independent({task: [np.size(scores)] for task, scores in gold.items()})
    if clusters is not None:
        units = SuiteUnits({task: [_check_clusters(clusters, task, np.size(gold[task]))] for task in gold})
        if shortage := units.find_shortage():
            raise ValueError(f"{shortage}; expected at least {LEAST_EFFECTIVE:.0f}")
    statistics = {task: [spearman_statistic(stacked[task], gold[task])] for task in gold}
    drawn = draw_scores(statistics, units, draws, lambda _: rng)
    pairs = tuple(map(np.size, gold.values()))
    return SuiteDraws(rows, tuple(gold), pairs, observed, drawn, None if clusters is None else units.summary)


def spearman_interval(rho: float, n: int, level: float = 0.95, *, held: int = 0) -> tuple[float, float]:
    """Confidence interval of a Spearman correlation (Bonett and Wright 2000, Psychometrika 65, eq. 3).

    Fisher's z with standard error sqrt((1 + rho^2 / 2) / (n - 3)); (rho, rho) if |rho| is 1. Variables
    ``held`` fixed are subtracted from n (Fisher 1924, Metron 3). Measured: ``bench.stats.coverage``, methods
    "bonett-wright", "rank correlation" and "partial rank correlation".

    >>> low, high = spearman_interval(0.82, n=1379)
    >>> round(low, 3), round(high, 3)
    (0.799, 0.839)
    """
    if held < 0 or n - held < MIN_PAIRS or not -1 <= rho <= 1 or not 0 < level < 1:
        raise ValueError(f"rho={rho}, n={n}, level={level}, held={held}")
    if abs(rho) == 1:
        return rho, rho
    half = float(norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - held - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


@dataclass(frozen=True)
class ItemDifference:
    """The difference of two systems' Spearman correlations on the same pairs, from a paired bootstrap.

    Args:
        difference: rho(a) - rho(b), each the mean over its runs, for "avg" over tasks too.
        p: Two-sided p: twice the share of draws on the rarer side of 0, at most 1; at least 2 / (draws + 1).
        n: Pairs; for "avg" of all tasks together.
        clusters: Clusters of pairs that share sentences, the drawn units; None if each pair is one.
        excess_kurtosis: Of the draws of clusters: near 0 if many clusters add to the variance, far from 0 if
            a few carry it; None without clusters.
    """

    difference: float
    low: float
    high: float
    p: float
    minimum_p: float
    draws: int
    n: int
    clusters: int | None = None
    excess_kurtosis: float | None = None

    @property
    def is_rough(self) -> bool:
        """True if draws of clusters are far from normal, beyond the error of their number."""
        error = math.sqrt(24 / self.draws)
        return self.excess_kurtosis is not None and abs(self.excess_kurtosis) > 1 / 4 + 3 * error


def paired_bootstrap(
    sample: SuiteDraws, a: str, b: str, level: float | Mapping[str, float] = 0.95
) -> dict[str, ItemDifference]:
    """Paired bootstrap of the difference in Spearman of each task, and of their mean as "avg".

    The correlations of a side's runs are averaged in each draw: the result holds for those checkpoints
    together. Measured: ``bench.stats.coverage``, methods "paired bootstrap" and "item bootstrap". With levels
    by task only these tasks are tested.

    >>> from bench.stats.argument_checks import make_generator
    >>> from bench.stats.item_statistics import draw_suite
    >>> gold, noise = np.linspace(0, 5, 40), make_generator(1, "noise").normal(size=(2, 40))
    >>> systems = {"good": {"STSB": gold + noise[0]}, "poor": {"STSB": gold + 3 * noise[1]}}
    >>> sample = draw_suite(systems, {"STSB": gold}, make_generator(1, "items"), draws=200)
    >>> test = paired_bootstrap(sample, "good", "poor")["avg"]
    >>> test.low < test.difference < test.high, test.n, round(test.minimum_p, 4)
    (True, 40, 0.01)
    """
    (observed_a, draws_a), (observed_b, draws_b) = sample.select(a), sample.select(b)
    observed = observed_a.mean(0) - observed_b.mean(0)
    differences, result = draws_a.mean(1) - draws_b.mean(1), {}
    columns = {task: (differences[:, i], observed[i], sample.pairs[i]) for i, task in enumerate(sample.tasks)}
    columns[AVERAGE] = differences.mean(1), observed.mean(), sum(sample.pairs)
    levels = level if isinstance(level, Mapping) else dict.fromkeys(columns, level)
    for task, of_task in levels.items():
        test = item_difference(*columns[task], of_task, sample.effective_clusters(task))
        result[task] = replace(test, clusters=sample.count_clusters(task))
    return result


def item_difference(
    differences: ArrayLike, observed: float, n: int, level: float = 0.95, effective: float | None = None
) -> ItemDifference:
    """Percentile interval and p of a difference, from its (draws,) bootstrap values.

    The interval is that of Efron and Tibshirani (1993, ch. 13). p is twice the share of values on the rarer
    side of 0, with the data counted as one more value on each side. With an effective number of clusters,
    interval and p are those of :func:`expand_share`.

    >>> test = item_difference([-1.0, 1.0, 2.0, 3.0, 4.0], observed=2.0, n=30)
    >>> round(test.p, 3), round(test.minimum_p, 3)  # one of five values is below 0: 2 (1 + 1) / (5 + 1)
    (0.667, 0.333)
    """
    values = np.asarray(differences, dtype=np.float64)
    check_level(level)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"differences have shape {values.shape}; expected (draws,)")
    low, high = percentile_interval(values, level, effective)
    minimum = 2 / (len(values) + 1)
    beyond = min(np.count_nonzero(values <= 0), np.count_nonzero(values >= 0)) + 1
    p = min(1.0, float(beyond * minimum))
    excess = None
    if effective is not None:
        minimum, p = (min(1.0, 2 * contract_share(share / 2, effective)) for share in (minimum, p))
        excess = float(kurtosis(values)) if np.ptp(values) else 0.0
    return ItemDifference(float(observed), low, high, p, minimum, len(values), n, excess_kurtosis=excess)


def percentile_interval(
    values: ArrayLike, level: float = 0.95, effective: float | None = None
) -> tuple[float, float]:
    """Return the percentile interval of (draws,) bootstrap values, wider for few clusters of items.

    >>> [round(end, 2) for end in percentile_interval(range(101), 0.9)]
    [5.0, 95.0]
    >>> [round(end, 2) for end in percentile_interval(range(101), 0.9, 10.0)]
    [2.67, 97.33]
    """
    tail = (1 - level) / 2
    if effective is not None:
        tail = expand_share(tail, effective)
    low, high = np.quantile(np.asarray(values, dtype=np.float64), [tail, 1 - tail]).tolist()
    return low, high


def expand_share(tail: float, effective: float) -> float:
    """Return the share of draws to leave out on a side, of a number of clusters (Hesterberg 2015, ch. 3.3).

    A percentile interval of n units is as wide as a normal one with the variance over n; Student's, with the
    variance over n - 1, is wider. Phi(sqrt(n / (n - 1)) t), with t the quantile of ``tail`` with n - 1
    degrees of freedom.

    >>> round(expand_share(0.025, 10.0), 4), round(expand_share(0.025, 1e6), 4)
    (0.0086, 0.025)
    """
    if not effective > 1:
        raise ValueError(f"effective={effective}; expected more than one cluster")
    scale = math.sqrt(effective / (effective - 1))
    return float(norm.cdf(scale * student.ppf(tail, effective - 1)))


def contract_share(share: float, effective: float) -> float:
    """Return the tail whose :func:`expand_share` is a share, up to 1/2.

    >>> round(contract_share(expand_share(0.025, 10.0), 10.0), 6)
    0.025
    """
    scale = math.sqrt(effective / (effective - 1))
    return float(student.cdf(norm.ppf(min(share, 0.5)) / scale, effective - 1))
