"""Statistics that a few collapsed seeds hardly move, shown beside the means: they replace no verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from bench.stats.effects import probability_of_superiority
from bench.stats.inputs import FloatArray, check_draws, check_level, check_scores, check_table

MAD_SCALE = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
LEAST_NAMED = 4  # of three seeds, the rule would need 22 MADs
_LIMITS = {4: 6.88, 5: 7.89, 6: 5.51, 7: 5.83, 8: 4.92, 9: 5.06, 10: 4.58}


@dataclass(frozen=True)
class IqmDifference:
    """The difference of two methods' interquartile means.

    Args:
        difference: IQM(a) - IQM(b), in the scores' unit.
        low: Lower end of the t interval with the bootstrap's standard error.
        high: Upper end.
        percentile: Ends of the percentile interval, as rliable prints it; too narrow for few seeds.
        draws: Number of draws.
        n_a: Seeds of a.
        n_b: Seeds of b.
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
    """P(A > B), a tie counted half, with its interval.

    Args:
        share: Of all pairs of runs; for paired seeds, of the n pairs.
        low: Lower end.
        high: Upper end.
        n_a: Seeds of a.
        n_b: Seeds of b.
    """

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

    Each draw takes whole runs with replacement, from each side by itself, or pairs of runs. rliable draws the
    runs of each task by themselves, which is too narrow, as one checkpoint is scored on all tasks. With one
    task both are the same.

    The percentile interval of so few runs is too narrow, too. So the interval is difference -+ t sqrt(V) with
    V the sum of both sides' bootstrap variances, each times n / (n - 1), and Satterthwaite's degrees of
    freedom; n - 1 for pairs. Measured coverage of both: ``bench.stats.coverage``, methods "iqm" and "iqm,
    percentile". With fewer than four scores on a side, nothing is trimmed: the IQM is the mean.

    Args:
        a: (runs,) or (runs, tasks) scores of one method; one run for a deterministic one.
        b: The same of the other; in pairs, run i of both is a pair.
        rng: The generator of the draws.
        paired: Whether the runs are pairs (``bench.stats.seed_pairs`` says when).
        draws: Number of draws, at least 100.
        level: Confidence level, in (0, 1).

    Returns:
        The difference with both intervals.

    Raises:
        ValueError: shapes that don't fit, one run on both sides or in a pair, a score that is not finite, too
            few draws, or a bad level.

    >>> from bench.stats.inputs import make_generator
    >>> collapsed = [76.1, 76.4, 61.0, 76.3, 76.0]
    >>> found = iqm_difference(collapsed, [75.2, 75.9, 75.6, 75.1, 75.7], make_generator(1, "iqm"))
    >>> round(found.difference, 2), round(sum(collapsed) / 5 - 75.5, 2)
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
    difference, half = (
        float(_interquartile_means(x[None])[0] - _interquartile_means(y[None])[0]),
        _half_width(groups, level),
    )
    low, high = np.quantile(drawn_a - drawn_b, [(1 - level) / 2, (1 + level) / 2])
    ends = (difference - half, difference + half)
    return IqmDifference(difference, *ends, (float(low), float(high)), draws, len(x), len(y))


def superiority_interval(
    a: ArrayLike, b: ArrayLike, *, paired: bool = False, level: float = 0.95
) -> Superiority:
    """P(A > B) with a confidence interval that also holds where all runs of a side are ahead.

    Independent seeds: Newcombe's method 5 (2006, Stat. Med. 25, 559): all shares w with |share - w| <= c
    sqrt(V(w)), V(w) = w (1 - w) (1 + (m - 1) ((1 - w) / (2 - w) + w / (1 + w))) / (n_a n_b) and m = (n_a +
    n_b) / 2; c is Student's quantile with n_a + n_b - 2 degrees of freedom, where Newcombe has the normal
    one, too small for 3 seeds. Brunner and Munzel's interval has width 0 where one side is wholly ahead.
    Pairs, and one side without seeds: Clopper and Pearson's (1934) interval of the share of n, which covers
    at least its level. Measured: ``bench.stats.coverage``, methods "superiority" and "superiority, paired".

    Args:
        a: (runs,) scores of one method; one score for a deterministic one.
        b: The same of the other; in pairs, run i of both is a pair.
        paired: Whether the runs are pairs (``bench.stats.seed_pairs`` says when).
        level: Confidence level, in (0, 1).

    Returns:
        The share and its interval, in [0, 1].

    Raises:
        ValueError: one run on both sides or in a pair, pairs of different numbers, another shape, a score
            that is not finite, or a bad level.

    >>> found = superiority_interval([76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.95, 75.6, 75.1, 75.7])
    >>> found.share, round(found.low, 2), round(found.high, 2)
    (0.96, 0.52, 1.0)
    """
    x, y = check_scores(a, "a", least=1), check_scores(b, "b", least=1)
    check_level(level)
    if paired and len(x) != len(y):
        raise ValueError(f"{len(x)} against {len(y)} seeds; expected pairs")
    n_a, n_b = len(x), len(y)
    if max(n_a, n_b) < 2:
        raise ValueError("one run of each method; expected at least two seeds of one of them")
    if paired or min(n_a, n_b) == 1:
        share = float((np.sign(x - y).mean() + 1) / 2)
        return Superiority(share, *_clopper_pearson(share, max(n_a, n_b), level), n_a, n_b)
    share = probability_of_superiority(x, y)
    return Superiority(share, *_newcombe(share, n_a, n_b, level), n_a, n_b)


def find_outliers(scores: ArrayLike) -> tuple[int, ...]:
    """Which seeds lie far from the others: beyond ``outlier_limit`` scaled MADs from the median.

    A scaled MAD is 1.4826 times the median absolute deviation from the median. The usual limit of 3.5
    (Iglewicz and Hoaglin 1993) names a seed in 21% of normal samples of 5 and in 12% of 10; with these limits
    it is 5% for every number of seeds (``bench.stats.coverage``, method "outlying").

    Args:
        scores: (runs,) scores of one method, or differences of pairs.

    Returns:
        Their places, in order; none of fewer than four.

    Raises:
        ValueError: another shape, or a score that is not finite.

    >>> find_outliers([76.1, 76.4, 61.0, 76.3, 76.0])
    (2,)
    """
    values = check_scores(scores, "scores", least=1)
    if len(values) < LEAST_NAMED:
        return ()
    away = np.abs(values - np.median(values))
    limit = max(outlier_limit(len(values)) * MAD_SCALE * float(np.median(away)), 1e-12 * np.abs(values).max())
    return tuple(int(place) for place in np.flatnonzero(away > limit))


def outlier_limit(n: int) -> float:
    """How many scaled MADs from the median name a seed: in 5% of normal samples of n, one or more lie beyond.

    Simulated for 4 to 10 seeds (200,000 samples each). Beyond that, the limit for the largest of n normal
    scores, Phi^-1((1 + 0.95^(1 / n)) / 2), times 1 + 6.7 / n for the error of the MAD: 4.5 to 5.3% up to 40.

    Args:
        n: Seeds, at least 4.

    Raises:
        ValueError: fewer.

    >>> [round(outlier_limit(n), 2) for n in (4, 5, 10, 20)]
    [6.88, 7.89, 4.58, 4.03]
    """
    if n < LEAST_NAMED:
        raise ValueError(f"{n} seeds; expected at least {LEAST_NAMED}")
    return _LIMITS.get(n) or float(stats.norm.ppf((1 + 0.95 ** (1 / n)) / 2)) * (1 + 6.7 / n)


def _check_rows(values: ArrayLike, name: str) -> FloatArray:
    """(runs, tasks) of finite scores; (runs,) is one task."""
    array = np.asarray(values, dtype=np.float64)
    return check_table(array[:, None] if array.ndim == 1 else array, name)


def _interquartile_means(drawn: FloatArray) -> FloatArray:
    """Interquartile means (draws,) of (draws, runs, tasks): ``iqm`` of each draw."""
    scores = np.sort(drawn.reshape(len(drawn), -1), axis=1)
    cut = scores.shape[1] // 4
    found: FloatArray = scores[:, cut : scores.shape[1] - cut].mean(axis=1)
    return found


def _half_width(groups: list[tuple[FloatArray, int]], level: float) -> float:
    """Half of a t interval from each group's draws (draws,) and its number of runs; one run adds nothing."""
    parts = [(float(drawn.var(ddof=1)) * n / (n - 1), n - 1) for drawn, n in groups if n > 1]
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0
    df = total**2 / sum(part**2 / own for part, own in parts)
    return float(stats.t.ppf((1 + level) / 2, df)) * math.sqrt(total)


def _clopper_pearson(share: float, n: int, level: float) -> tuple[float, float]:
    above, rest = share * n, n - share * n  # halves where pairs are tied
    low = float(stats.beta.ppf((1 - level) / 2, above, rest + 1)) if above else 0.0
    return low, float(stats.beta.ppf((1 + level) / 2, above + 1, rest)) if rest else 1.0


def _newcombe(share: float, n_a: int, n_b: int, level: float) -> tuple[float, float]:
    more = (n_a + n_b) / 2 - 1
    square = float(stats.t.ppf((1 + level) / 2, n_a + n_b - 2)) ** 2 / (n_a * n_b)

    def outside(w: float) -> float:
        variance = w * (1 - w) * (1 + more * ((1 - w) / (2 - w) + w / (1 + w)))
        return (share - w) ** 2 - square * variance

    near = 1e-9
    low = optimize.brentq(outside, 0, min(share, 1 - near)) if share > near else 0.0
    high = optimize.brentq(outside, max(share, near), 1) if share < 1 - near else 1.0
    return float(low), float(high)
