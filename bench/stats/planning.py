"""How many seeds? Plans by design, each number with the interval that the spread's own uncertainty leaves.

A spread estimated from few seeds is hardly known: from two seeds, the true standard deviation is between half
and sixteen times the estimate. So each plan is made three times: for the estimate, and for both ends of the
chi-square interval of the variance (5 to 95%).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from scipy import optimize, stats
from scipy.special import ndtri

from bench.stats.inputs import check_level
from bench.stats.power import MOST_SEEDS, welch_power
from bench.stats.spread import Spread

POWER = 0.8
WIDEST = 15  # times the lower end: a wider interval of a number of seeds says nothing
_FAR = 5.0  # beyond it, the other side of a two-sided test adds less than 1e-8 to its power


@dataclass(frozen=True)
class Range:
    """A number that depends on the spread.

    Args:
        value: With the spread as estimated.
        low: The lower of both ends of the spread's interval; as ``value`` where the spread is given.
        high: The higher.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SeedPlan:
    """How many seeds a design needs.

    Args:
        seeds: Per side, or pairs, with the spread as estimated; None for more than 10,000.
        low: With the spread at the lower end of its interval.
        high: With the spread at the upper end.
        detect: The true difference to be shown.
        power: The chance to show it.
        spread: The spread as estimated or given, with the design.
    """

    seeds: int | None
    low: int | None
    high: int | None
    detect: float
    power: float
    spread: Spread

    @property
    def sure(self) -> bool:
        """Whether the interval gives a number: its upper end is at most 15 times its lower."""
        return self.low is not None and self.high is not None and self.high <= WIDEST * self.low


def paired_power(difference: float, sd: float, n: int, alpha: float = 0.05) -> float:
    """Chance that the two-sided paired t test shows a true difference, for normal differences: exact.

    P(|T| > t(alpha / 2, n - 1)) for T of the noncentral t distribution with n - 1 degrees of freedom and
    noncentrality difference sqrt(n) / sd. Also that of Student's test of one method against a fixed score.

    Args:
        difference: True difference, in the scores' unit.
        sd: True standard deviation of the differences.
        n: Pairs, at least 2.
        alpha: Error rate of the test.

    Returns:
        The power, in [0, 1].

    Raises:
        ValueError: an argument out of its range.

    >>> round(paired_power(0.3, 0.8 * (2 * (1 - 0.9)) ** 0.5, 5), 2)  # sd 0.8, r = 0.9, five pairs
    0.3
    """
    check_level(alpha)
    if not (math.isfinite(difference) and 0 < sd < math.inf) or n < 2:
        raise ValueError(f"difference={difference}, sd={sd}, n={n}; expected sd > 0 and at least 2 pairs")
    critical, shift = float(stats.t.isf(alpha / 2, n - 1)), abs(difference) / sd * math.sqrt(n)
    other = float(stats.nct.cdf(-critical, n - 1, shift)) if shift < _FAR else 0.0
    return min(1.0, float(stats.nct.sf(critical, n - 1, shift)) + other)


def compute_power_range(
    detect: float, spread: Spread, n_a: int, n_b: int | None = None, level: float = 0.95
) -> Range:
    """The chance that given numbers of seeds show a true difference, with its interval.

    Args:
        detect: The true difference.
        spread: The spread; its design decides between ``paired_power`` and ``welch_power``.
        n_a: Seeds of a, or pairs.
        n_b: Seeds of b; default as a. Not used in pairs.
        level: 1 - alpha of the test.

    Returns:
        The power; its lower end is that at the upper end of the spread.

    Raises:
        ValueError: an argument out of its range.

    >>> from bench.stats.spread import spread_of_sides
    >>> found = compute_power_range(1.0, spread_of_sides([75.2, 76.1, 76.8], [75.0, 75.9, 76.4]), 5)
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.42, 0.11, 0.78)
    """
    low, high = spread.ends()
    value, most, least = (
        _design_power(detect, spread.scaled(by), n_a, n_b, level) for by in (1.0, low, high)
    )
    return Range(value, least, most)


def plan_seeds(detect: float, spread: Spread, *, level: float = 0.95, power: float = POWER) -> SeedPlan:
    """Seeds per side, or pairs, with which the design's t test would show a true difference.

    Args:
        detect: The true difference, not 0: chosen, not the one that was observed.
        spread: The spread of a pilot, of earlier records, or given.
        level: 1 - alpha of the test.
        power: The chance wanted, in (0, 1).

    Returns:
        The smallest numbers, at least 2, for the spread and for both ends of its interval (5 to 95%), which
        hold the true number in 90% of pilots (measured: ``bench.stats.coverage``, method "plan").

    Raises:
        ValueError: an argument out of its range.

    >>> found = plan_seeds(0.5, Spread("pairs", 0.8, df=39, pilot=40))
    >>> found.seeds, found.low, found.high
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
    """The smallest true difference that given numbers of seeds show with a power, with its interval.

    Args:
        spread: The spread.
        n_a: Seeds of a, or pairs, at least 2.
        n_b: Seeds of b; default as a. Not used in pairs.
        level: 1 - alpha of the test.
        power: The chance wanted; above 1 - level, which no difference at all has.

    Raises:
        ValueError: an argument out of its range.

    >>> found = detectable_difference(Spread("sides", 0.8, 0.8), 5)
    >>> round(found.value, 2), found.low == found.value
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


def describe_seed_plan(found: SeedPlan) -> str:
    """A plan in words; large numbers with two digits.

    >>> describe_seed_plan(plan_seeds(0.2, Spread("pairs", 0.8, df=40, pilot=41)))
    'about 130 pairs (93 to 190)'
    >>> describe_seed_plan(plan_seeds(1.0, Spread("sides", 0.63, 0.63, df=2, pilot=2)))
    "can't be said from 2 seeds per side: 4 to 120"
    """
    counted = {"pairs": "pairs", "sides": "seeds per side", "one side": "seeds"}[found.spread.design]
    ends = f"{_format_count(found.low)} to {_format_count(found.high)}"
    if found.spread.pilot is None:
        return f"{_format_count(found.seeds)} {counted}"
    if found.sure:
        return f"about {_format_count(found.seeds)} {counted} ({ends})"
    return f"can't be said from {found.spread.pilot} {counted}: {ends}"


def _format_count(number: int | None) -> str:
    if number is None:
        return f"more than {MOST_SEEDS:,}"
    return f"{number if number < 100 else round(number, 1 - math.floor(math.log10(number))):,}"


def _design_power(detect: float, spread: Spread, n_a: int, n_b: int | None, level: float) -> float:
    if spread.b is None:
        return paired_power(detect, spread.a, n_a, 1 - level)
    return welch_power(detect, spread.a, spread.b, n_a, n_a if n_b is None else n_b, 1 - level)


def _find_seed_count(detect: float, spread: Spread, level: float, power: float) -> int | None:
    """The smallest number of at least 2 with the power, searched from that of a normal test."""

    @cache
    def enough(n: int) -> bool:
        return _design_power(detect, spread, n, None, level) >= power

    variance = spread.a**2 + (spread.b or 0.0) ** 2
    quantile = float(ndtri((1 + level) / 2))
    normal = (quantile + float(ndtri(power))) ** 2 * variance / detect**2
    return _search_smallest(enough, normal + quantile**2 / (2 if spread.b is None else 4))


def _search_smallest(enough: Callable[[int], bool], guess: float) -> int | None:
    """The smallest number in 2..MOST_SEEDS that is enough, searched outwards from a guess."""
    high, step = max(2, min(MOST_SEEDS, round(guess))), 1
    while not enough(high):
        if high == MOST_SEEDS:
            return None
        high, step = min(MOST_SEEDS, high + step), 2 * step
    low, step = high - 1, 1
    while low > 1 and enough(low):
        low, high, step = max(1, low - 2 * step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
