"""Effect sizes, statistics robust to collapsed seeds, and descriptive summaries; verdicts ignore them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats
from scipy.special import gammaln, ndtri, stdtrit

from bench.stats.argument_checks import (
    FloatArray,
    check_draws,
    check_level,
    check_scores,
    check_sides,
    check_table,
)
from bench.stats.seeds import satterthwaite


def probability_of_superiority(a: ArrayLike, b: ArrayLike) -> float:
    """P(A > B): the share of pairs of seeds in which a scores higher; a tie counts half.

    Vargha and Delaney's A (2000): the Mann-Whitney U divided by n_a n_b.

    >>> round(probability_of_superiority([3, 5], [1, 3, 2]), 3)  # one tie among six pairs
    0.917
    """
    x, y = check_sides(a, b)
    return float((np.sign(x[:, None] - y).mean() + 1) / 2)


def cohen_d(a: ArrayLike, b: ArrayLike) -> float:
    """Cohen's d: (mean a - mean b) / s, with s^2 the variance pooled over both sides' degrees of freedom.

    >>> round(cohen_d([3, 5], [1, 3, 2]), 3)
    1.732
    """
    x, y = check_sides(a, b, 2)
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        raise ValueError("no score varies over seeds, so an effect in standard deviations is undefined")
    squares = (len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)
    return float((x.mean() - y.mean()) / math.sqrt(squares / (len(x) + len(y) - 2)))


def hedges_g(a: ArrayLike, b: ArrayLike) -> float:
    """Hedges' g: Cohen's d without its bias in small samples (Hedges 1981, eq. 6e).

    g = d Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2)) with m = n_a + n_b - 2.

    >>> round(hedges_g([3, 5], [1, 3, 2]), 3)
    1.253
    """
    d = cohen_d(a, b)
    m = np.size(a) + np.size(b) - 2
    return d * math.exp(float(gammaln(m / 2) - gammaln((m - 1) / 2))) / math.sqrt(m / 2)


@dataclass(frozen=True)
class IqmDifference:
    """The difference of two methods' interquartile means.

    Args:
        low: Lower end of the t interval with the bootstrap's standard error; ``high`` is the upper.
        percentile: Percentile interval, as rliable prints it; too narrow for few seeds.
    """

    difference: float
    low: float
    high: float
    percentile: tuple[float, float]
    draws: int
    n_a: int
    n_b: int


@dataclass(frozen=True)
class Superiority:
    """P(A > B) over all pairs of runs, or over the n pairs of seeds, with its interval; a tie counts half."""

    share: float
    low: float
    high: float
    n_a: int
    n_b: int


def iqm_difference(
    a: ArrayLike,
    b: ArrayLike,
    rng: np.random.Generator,
    *,
    paired: bool = False,
    draws: int = 2000,
    level: float = 0.95,
) -> IqmDifference:
    """Difference of interquartile means with its bootstrap interval (Agarwal et al. 2021, sec. 4.3; rliable).

    Scores are (runs,) or (runs, tasks). Each draw takes whole runs, as one checkpoint is scored on all tasks;
    rliable draws the runs of each task separately. The interval is difference -+ t sqrt(V) with V the sum of
    both sides' bootstrap variances, each times n / (n - 1), and Satterthwaite's degrees of freedom; n - 1 for
    pairs. Measured coverage: ``bench.stats.coverage``, methods "iqm" and "iqm, percentile". With fewer than
    four scores on a side, the IQM is the mean.

    >>> from bench.stats.argument_checks import make_generator
    >>> collapsed = [76.1, 76.4, 61.0, 76.3, 76.0]
    >>> iqm = iqm_difference(collapsed, [75.2, 75.9, 75.6, 75.1, 75.7], make_generator(1, "iqm"))
    >>> round(iqm.difference, 2), round(sum(collapsed) / 5 - 75.5, 2)
    (0.63, -2.34)
    """
    x, y = _check_rows(a, "a"), _check_rows(b, "b")
    check_draws(draws)
    check_level(level)
    if x.shape[1] != y.shape[1] or (paired and len(x) != len(y)):
        raise ValueError(
            f"a has shape {x.shape}, b {y.shape}; expected the same tasks, and in pairs the same runs"
        )
    if max(len(x), len(y)) < 2:
        raise ValueError("one run of each method; expected at least two seeds of one of them")
    chosen = rng.integers(0, len(x), (draws, len(x)))
    drawn_a = _interquartile_means(x[chosen])
    drawn_b = _interquartile_means(y[chosen if paired else rng.integers(0, len(y), (draws, len(y)))])
    groups = [(drawn_a - drawn_b, len(x))] if paired else [(drawn_a, len(x)), (drawn_b, len(y))]
    difference = float(_interquartile_means(x[None])[0] - _interquartile_means(y[None])[0])
    half = _half_width(groups, level)
    low, high = np.quantile(drawn_a - drawn_b, [(1 - level) / 2, (1 + level) / 2])
    ends = (difference - half, difference + half)
    return IqmDifference(difference, *ends, (float(low), float(high)), draws, len(x), len(y))


def superiority_interval(
    a: ArrayLike, b: ArrayLike, *, paired: bool = False, level: float = 0.95
) -> Superiority:
    """P(A > B) with a confidence interval that also holds if all runs of a side are ahead.

    Independent seeds: Newcombe's method 5 (2006, Stat. Med. 25, 559): all shares w with |share - w| <= c
    sqrt(V(w)), V(w) = w (1 - w) (1 + (m - 1) ((1 - w) / (2 - w) + w / (1 + w))) / (n_a n_b) and m = (n_a +
    n_b) / 2; c is Student's quantile with n_a + n_b - 2 degrees of freedom, not Newcombe's normal one. Pairs,
    and one side without seeds: Clopper and Pearson's (1934) interval of the share of n.
    Measured: ``bench.stats.coverage``, methods "superiority" and "superiority, paired".

    >>> above = superiority_interval([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.95, 75.6, 75.1, 75.7])
    >>> above.share, round(above.low, 2), round(above.high, 2)
    (0.96, 0.52, 1.0)
    """
    x, y = check_sides(a, b, paired=paired)
    check_level(level)
    n_a, n_b = len(x), len(y)
    if max(n_a, n_b) < 2:
        raise ValueError("one run of each method; expected at least two seeds of one of them")
    if paired or min(n_a, n_b) == 1:
        share = float((np.sign(x - y).mean() + 1) / 2)
        return Superiority(share, *_clopper_pearson(share, max(n_a, n_b), level), n_a, n_b)
    share = probability_of_superiority(x, y)
    return Superiority(share, *_newcombe(share, n_a, n_b, level), n_a, n_b)


def _check_rows(values: ArrayLike, name: str) -> FloatArray:
    """Return (runs, tasks) of finite scores; (runs,) is one task."""
    array = np.asarray(values, dtype=np.float64)
    return check_table(array[:, None] if array.ndim == 1 else array, name)


def _interquartile_means(drawn: FloatArray) -> FloatArray:
    """Return (draws,) interquartile means of (draws, runs, tasks)."""
    scores = np.sort(drawn.reshape(len(drawn), -1), axis=1)
    cut = scores.shape[1] // 4
    means: FloatArray = scores[:, cut : scores.shape[1] - cut].mean(axis=1)
    return means


def _half_width(groups: list[tuple[FloatArray, int]], level: float) -> float:
    """Return half of a t interval from each group's (draws,) and number of runs; one run adds nothing."""
    parts = [(float(drawn.var(ddof=1)) * n / (n - 1), n - 1) for drawn, n in groups if n > 1]
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0
    return float(stdtrit(satterthwaite(parts), (1 + level) / 2)) * math.sqrt(total)


def _clopper_pearson(share: float, n: int, level: float) -> tuple[float, float]:
    above, rest = share * n, n - share * n  # tied pairs count half
    low = float(stats.beta.ppf((1 - level) / 2, above, rest + 1)) if above else 0.0
    return low, float(stats.beta.ppf((1 + level) / 2, above + 1, rest)) if rest else 1.0


def _newcombe(share: float, n_a: int, n_b: int, level: float) -> tuple[float, float]:
    weight = (n_a + n_b) / 2 - 1
    square = float(stdtrit(n_a + n_b - 2, (1 + level) / 2)) ** 2 / (n_a * n_b)

    def outside(w: float) -> float:
        variance = w * (1 - w) * (1 + weight * ((1 - w) / (2 - w) + w / (1 + w)))
        return (share - w) ** 2 - square * variance

    near = 1e-9
    low = optimize.brentq(outside, 0, min(share, 1 - near)) if share > near else 0.0
    high = optimize.brentq(outside, max(share, near), 1) if share < 1 - near else 1.0
    return float(low), float(high)


LEAST_SEEDS = 5


def interquartile_mean(scores: ArrayLike) -> float:
    """Interquartile mean of (runs, tasks) scores together, without floor(n / 4) scores at either end.

    >>> interquartile_mean([[1, 2, 3, 100], [5, 6, 7, -9]])
    4.0
    """
    return float(stats.trim_mean(check_table(scores, "scores"), 0.25, axis=None))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> FloatArray:
    """Return the share of (runs, tasks) scores above each of (k,) thresholds (Agarwal et al. 2021, eq. 2).

    >>> performance_profile([[0.7, 0.8], [0.7, 0.9]], thresholds=[0.6, 0.7, 0.85]).tolist()
    [1.0, 0.5, 0.25]
    """
    values = np.sort(check_table(scores, "scores"), axis=None)
    limits = check_scores(thresholds, "thresholds", least=1)
    shares: FloatArray = 1 - np.searchsorted(values, limits, side="right") / len(values)
    return shares


def almost_stochastic_order(
    a: ArrayLike, b: ArrayLike, rng: np.random.Generator, *, draws: int = 1000, level: float = 0.95
) -> float:
    """Almost stochastic order: how far a is from scoring above b at every quantile (Dror et al. 2019).

    eps = violation + z_level sd(violation over draws), clipped to [0, 1]: 0 for a above b, 1 for b above a.
    The violation is the share of the squared distance of the two quantile functions where b is above (del
    Barrio et al. 2018); the draws resample the seeds of each side. Descriptive: eps < 0.5 occurs for equal
    methods far more often than in 5% (``bench.stats.coverage``, method "aso").

    >>> from bench.stats.argument_checks import make_generator
    >>> better, worse = [7.0, 7.5, 8.0, 8.0, 9.0], [1.0, 1.5, 2.0, 2.0, 3.0]
    >>> almost_stochastic_order(better, worse, make_generator(1, "aso"))
    0.0
    >>> almost_stochastic_order(worse, better, make_generator(1, "aso"))
    1.0
    """
    x, y = check_sides(a, b, LEAST_SEEDS)
    check_draws(draws)
    check_level(level)
    drawn = _violation_ratios(rng.choice(x, (draws, len(x))), rng.choice(y, (draws, len(y))))
    bound = _violation_ratios(x[None], y[None])[0] + float(ndtri(level)) * drawn.std()
    return float(np.clip(bound, 0, 1))


def _violation_ratios(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return (draws,) violation ratios of (draws, runs) samples, whose quantile functions are steps."""
    n, m = a.shape[1], b.shape[1]
    common = math.lcm(n, m)
    steps = np.unique(np.r_[np.arange(n + 1) * (common // n), np.arange(m + 1) * (common // m)])
    starts, lengths = steps[:-1], np.diff(steps)
    gaps = np.sort(a)[:, starts // (common // n)] - np.sort(b)[:, starts // (common // m)]
    squares = lengths * gaps**2
    total = squares.sum(1)
    violations = np.where(gaps < 0, squares, 0).sum(1)
    ratios = np.full(len(total), 0.5)
    np.divide(violations, total, out=ratios, where=total > 0)
    return ratios
