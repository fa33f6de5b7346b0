"""Plans of seeds by design, and their power, each also for both ends of the spread's interval (5 to 95%)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import optimize, stats
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from bench.stats.argument_checks import FloatArray, check_level
from bench.stats.seeds import satterthwaite, side_parts
from bench.stats.spread import Spread

POWER = 0.8
MOST_SEEDS = 10_000
WIDEST = 15  # times the lower end: a wider interval of a number of seeds is useless
_FAR = 5.0  # beyond it, the other side of a two-sided test adds less than 1e-8 to its power
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_GAUSS_NODES + 1) / 2, _GAUSS_WEIGHTS / 2  # on (0, 1)


@dataclass(frozen=True)
class Range:
    """A number that depends on the spread, and its interval; ``low == value == high`` for a given spread."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SeedPlan:
    """Seeds per side, or pairs, for the spread and both ends of its interval; None for more than 10,000."""

    seeds: int | None
    low: int | None
    high: int | None
    detect: float
    power: float
    spread: Spread

    @property
    def sure(self) -> bool:
        """True if the upper end of the interval is at most 15 times its lower."""
        return self.low is not None and self.high is not None and self.high <= WIDEST * self.low


def paired_power(difference: float, sd: float, n: int, alpha: float = 0.05) -> float:
    """Power of the two-sided paired t test, exact for normal differences; n >= 2 is the number of pairs.

    P(|T| > t(alpha / 2, n - 1)) for T of the noncentral t distribution with n - 1 degrees of freedom and
    noncentrality difference sqrt(n) / sd. Student's test of one method against a fixed score has the same.

    >>> round(paired_power(0.3, 0.8 * (2 * (1 - 0.9)) ** 0.5, 5), 2)  # sd 0.8, r = 0.9, five pairs
    0.3
    """
    check_level(alpha)
    if not (math.isfinite(difference) and 0 < sd < math.inf) or n < 2:
        raise ValueError(f"difference={difference}, sd={sd}, n={n}; expected sd > 0 and at least 2 pairs")
    critical, shift = -float(stdtrit(n - 1, alpha / 2)), abs(difference) / sd * math.sqrt(n)
    other = float(stats.nct.cdf(-critical, n - 1, shift)) if shift < _FAR else 0.0
    return min(1.0, float(stats.nct.sf(critical, n - 1, shift)) + other)


def welch_power(
    difference: float, sd_a: float, sd_b: float, n_a: int, n_b: int, alpha: float = 0.05
) -> float:
    """Power of Welch's two-sided test for normal scores.

    Gauss-Legendre quadrature over both sample variances: given them, it is the chance of a normal difference
    in means beyond t(alpha / 2, df) standard errors. It is within 0.003 of simulation (benchmarks/stats.py).

    >>> round(welch_power(1.0, 0.8, 0.8, 5, 5), 2)  # one point, sd 0.8, five seeds per side
    0.39
    """
    check_level(alpha)
    if not (math.isfinite(difference) and 0 < sd_a < math.inf and 0 < sd_b < math.inf):
        raise ValueError(f"difference={difference}, sd_a={sd_a}, sd_b={sd_b}; expected positive deviations")
    if min(n_a, n_b) < 2:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 2 per side")
    true_a, true_b = sd_a**2 / n_a, sd_b**2 / n_b
    var_a = true_a * _variance_quantiles(n_a - 1)[:, None]
    var_b = true_b * _variance_quantiles(n_b - 1)
    df = satterthwaite(side_parts((var_a, n_a - 1), (var_b, n_b - 1)))
    critical = -stdtrit(df, alpha / 2) * np.sqrt((var_a + var_b) / (true_a + true_b))
    shift = abs(difference) / math.sqrt(true_a + true_b)
    return float(_WEIGHTS @ (ndtr(shift - critical) + ndtr(-shift - critical)) @ _WEIGHTS)


@cache
def _variance_quantiles(df: int) -> FloatArray:
    """Return quantiles of a sample variance in units of the true one, at the nodes."""
    quantiles: FloatArray = chdtri(df, 1 - _NODES) / df
    return quantiles


def compute_power_range(
    detect: float, spread: Spread, n_a: int, n_b: int | None = None, level: float = 0.95
) -> Range:
    """Return the power of given numbers of seeds with its interval, by ``paired_power`` or ``welch_power``.

    ``detect`` is the true difference. ``n_a`` counts seeds of a, or pairs; ``n_b`` is as ``n_a`` by default.

    >>> from bench.stats.spread import spread_of_sides
    >>> power = compute_power_range(1.0, spread_of_sides([75.2, 76.1, 76.8], [75.0, 75.9, 76.4]), 5)
    >>> round(power.value, 2), round(power.low, 2), round(power.high, 2)
    (0.42, 0.11, 0.78)
    """
    factors = (1.0, *reversed(spread.ends()))  # the larger spread has the lower power
    return Range(*(_design_power(detect, spread.scaled(by), n_a, n_b, level) for by in factors))


def plan_seeds(detect: float, spread: Spread, *, level: float = 0.95, power: float = POWER) -> SeedPlan:
    """Return the smallest number of seeds per side, or pairs, with a power to detect a true difference.

    ``detect`` is not 0 and chosen without the observed difference. The interval of 5 to 95% holds the true
    number in 90% of pilots (measured: ``bench.stats.coverage``, method "plan").

    >>> plan = plan_seeds(0.5, Spread("pairs", 0.8, df=39, pilot=40))
    >>> plan.seeds, plan.low, plan.high
    (23, 17, 33)
    """
    check_level(power)
    if not detect or not math.isfinite(detect):
        raise ValueError(f"detect={detect}; expected a difference other than 0")
    low, high = spread.ends()
    needed = {by: _find_seed_count(detect, spread.scaled(by), level, power) for by in {1.0, low, high}}
    return SeedPlan(needed[1.0], needed[low], needed[high], detect, power, spread)


def detectable_difference(
    spread: Spread, n_a: int, n_b: int | None = None, *, level: float = 0.95, power: float = POWER
) -> Range:
    """Return the smallest true difference that given numbers of seeds detect with a power, and its interval.

    >>> difference = detectable_difference(Spread("sides", 0.8, 0.8), 5)
    >>> round(difference.value, 2), difference.low == difference.value
    (1.67, True)
    """
    check_level(level)
    if not 1 - level < power < 1:
        raise ValueError(f"power={power}; expected a number in ({1 - level:g}, 1)")

    def lack(difference: float) -> float:
        return _design_power(difference, spread, n_a, n_b, level) - power

    top = spread.a
    while lack(top) < 0:
        top *= 2
    value = float(optimize.brentq(lack, 0, top, rtol=1e-6))
    low, high = spread.ends()  # only the difference in standard deviations counts
    return Range(value, value * low, value * high)


def describe_seed_plan(plan: SeedPlan) -> str:
    """Describe a plan; large numbers have two digits.

    >>> describe_seed_plan(plan_seeds(0.2, Spread("pairs", 0.8, df=40, pilot=41)))
    'about 130 pairs (93 to 190)'
    >>> describe_seed_plan(plan_seeds(1.0, Spread("sides", 0.63, 0.63, df=2, pilot=2)))
    "can't be said from 2 seeds per side: 4 to 120"
    """
    unit = {"pairs": "pairs", "sides": "seeds per side", "one side": "seeds"}[plan.spread.design]
    ends = f"{_format_count(plan.low)} to {_format_count(plan.high)}"
    if plan.spread.pilot is None:
        return f"{_format_count(plan.seeds)} {unit}"
    if plan.sure:
        return f"about {_format_count(plan.seeds)} {unit} ({ends})"
    return f"can't be said from {plan.spread.pilot} {unit}: {ends}"


def _format_count(number: int | None) -> str:
    if number is None:
        return f"more than {MOST_SEEDS:,}"
    return f"{number if number < 100 else round(number, 1 - math.floor(math.log10(number))):,}"


def _design_power(detect: float, spread: Spread, n_a: int, n_b: int | None, level: float) -> float:
    if spread.b is None:
        return paired_power(detect, spread.a, n_a, 1 - level)
    return welch_power(detect, spread.a, spread.b, n_a, n_a if n_b is None else n_b, 1 - level)


def _find_seed_count(detect: float, spread: Spread, level: float, power: float) -> int | None:
    """Return the smallest number from 2 with the power, searched from that of a normal test."""

    @cache
    def is_enough(n: int) -> bool:
        return _design_power(detect, spread, n, None, level) >= power

    variance = spread.a**2 + (spread.b or 0.0) ** 2
    quantile = float(ndtri((1 + level) / 2))
    normal = (quantile + float(ndtri(power))) ** 2 * variance / detect**2
    return _search_smallest(is_enough, normal + quantile**2 / (2 if spread.b is None else 4))


def _search_smallest(is_enough: Callable[[int], bool], guess: float) -> int | None:
    """Return the smallest number in 2..MOST_SEEDS that is enough, searched outwards from a guess."""
    high, step = max(2, min(MOST_SEEDS, round(guess))), 1
    while not is_enough(high):
        if high == MOST_SEEDS:
            return None
        high, step = min(MOST_SEEDS, high + step), 2 * step
    low, step = high - 1, 1
    while low > 1 and is_enough(low):
        low, high, step = max(1, low - 2 * step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
