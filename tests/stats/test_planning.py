from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

from bench.stats.argument_checks import make_generator
from bench.stats.seed_planning import (
    Range,
    SeedPlan,
    compute_power_range,
    describe_seed_plan,
    detectable_difference,
    paired_power,
    plan_seeds,
    welch_power,
)
from bench.stats.spread import Spread, spread_of_correlated, spread_of_pairs, spread_of_sides


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("effect", [0.1, 0.5, 1.0])
def test_paired_power_is_statsmodels(n: int, effect: float) -> None:
    expected = TTestPower().power(effect, n, 0.05, alternative="two-sided")
    assert paired_power(effect * 0.3, 0.3, n) == pytest.approx(expected, abs=1e-8)
    assert paired_power(-effect, 1.0, n) == paired_power(effect, 1.0, n)


def test_paired_power_by_simulation() -> None:
    d = make_generator(0, "power").normal(size=(40_000, 5)) * 0.36 + 0.3
    shown = np.mean(stats.ttest_1samp(d, 0, axis=1).pvalue <= 0.05)
    assert paired_power(0.3, 0.36, 5) == pytest.approx(float(shown), abs=0.0075)


def test_limits_of_the_power() -> None:
    assert paired_power(0.0, 1.0, 4, alpha=0.1) == pytest.approx(0.1)
    values = [paired_power(effect, 1.0, 2) for effect in np.geomspace(0.01, 1e7, 60)]
    assert values == sorted(values)  # scipy's noncentral t has no NaN and no step back
    assert values[-1] == 1
    assert paired_power(3.0, 1.0, 10_000) == 1


def test_a_number_of_pairs_is_the_smallest() -> None:
    for effect in (0.2, 0.5, 1.0, 2.0, 30.0):
        seeds = plan_seeds(effect, Spread("pairs", 1.0)).seeds or 0
        assert paired_power(effect, 1.0, seeds) >= 0.8
        assert seeds == 2 or paired_power(effect, 1.0, seeds - 1) < 0.8
    expected = TTestPower().solve_power(0.25, None, 0.05, 0.8)
    assert plan_seeds(0.25, Spread("pairs", 1.0)).seeds == math.ceil(expected)


def test_a_number_of_seeds_per_side_is_that_of_welch() -> None:
    for effect, other in ((0.5, 1.0), (1.0, 3.0), (4.0, 0.2)):
        found = plan_seeds(effect, Spread("sides", 1.0, other), power=0.7, level=0.9)
        n = found.seeds or 0
        assert found.low == found.high == n
        assert welch_power(effect, 1.0, other, n, n, 0.1) >= 0.7
        assert n == 2 or welch_power(effect, 1.0, other, n - 1, n - 1, 0.1) < 0.7


def test_more_than_the_most_seeds() -> None:
    found = plan_seeds(0.01, Spread("pairs", 1.0, df=4, pilot=5))
    assert (found.seeds, found.high, found.sure) == (None, None, False)
    assert describe_seed_plan(found) == "can't be said from 5 pairs: more than 10,000 to more than 10,000"
    edge = math.sqrt((stats.norm.isf(0.025) + stats.norm.ppf(0.8)) ** 2 / 9_990)
    assert 9_985 < (plan_seeds(edge, Spread("pairs", 1.0)).seeds or 0) <= 10_000


def test_a_plan_carries_the_interval_of_the_spread() -> None:
    spread = Spread("pairs", 0.8, df=4, pilot=5)
    low, high = spread.ends()
    assert (low, high) == pytest.approx((math.sqrt(4 / 9.487729), math.sqrt(4 / 0.710723)), rel=1e-6)
    found = plan_seeds(0.5, spread)
    assert found == SeedPlan(
        plan_seeds(0.5, Spread("pairs", 0.8)).seeds,
        plan_seeds(0.5, Spread("pairs", 0.8 * low)).seeds,
        plan_seeds(0.5, Spread("pairs", 0.8 * high)).seeds,
        0.5,
        0.8,
        spread,
    )
    given = plan_seeds(0.5, Spread("pairs", 0.8))
    assert given.seeds == given.low == given.high == found.seeds


def test_a_pilot_of_two_says_next_to_nothing() -> None:
    """500 pilots of two pairs; the true answer is 14."""
    pilots = 1.2 * make_generator(0, "pilot").normal(size=(500, 2))
    sds = pilots.std(axis=1, ddof=1)
    numbers = [plan_seeds(1.0, Spread("pairs", float(sd))).seeds or 10_000 for sd in sds]
    low, middle, high = np.quantile(numbers, [0.05, 0.5, 0.95])
    assert plan_seeds(1.0, Spread("pairs", 1.2)).seeds == 14
    assert low <= 3
    assert 6 <= middle <= 10
    assert high >= 40


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (plan_seeds(1.0, Spread("sides", 0.8, 0.8)), "12 seeds per side"),
        (plan_seeds(0.2, Spread("pairs", 0.8)), "130 pairs"),
        (plan_seeds(1.0, Spread("one side", 0.8, df=9, pilot=10)), "about 8 seeds (5 to 16)"),
        (plan_seeds(1.0, Spread("pairs", 0.8, df=1, pilot=2)), "can't be said from 2 pairs: 4 to 1,300"),
        (plan_seeds(1.0, Spread("sides", 0.01, 0.01, df=4, pilot=3)), "about 2 seeds per side (2 to 2)"),
    ],
)
def test_plans_in_words(found: SeedPlan, words: str) -> None:
    assert describe_seed_plan(found) == words


def test_a_number_is_said_up_to_fifteen_times_its_lower_end() -> None:
    spread = Spread("pairs", 1.0)
    assert SeedPlan(20, 10, 150, 1.0, 0.8, spread).sure
    assert not SeedPlan(20, 10, 151, 1.0, 0.8, spread).sure
    assert not SeedPlan(20, 10, None, 1.0, 0.8, spread).sure


def test_power_with_its_interval() -> None:
    spread = Spread("sides", 0.8, 0.4, df=5.0, pilot=4)
    low, high = spread.ends()
    found = compute_power_range(1.0, spread, 5, 3)
    for value, factor in ((found.value, 1.0), (found.low, high), (found.high, low)):
        assert value == pytest.approx(welch_power(1.0, 0.8 * factor, 0.4 * factor, 5, 3), rel=1e-12)
    assert compute_power_range(1.0, spread, 5).value == pytest.approx(welch_power(1.0, 0.8, 0.4, 5, 5))
    assert compute_power_range(1.0, Spread("pairs", 0.5), 5, level=0.9).value == paired_power(
        1.0, 0.5, 5, 0.1
    )


@pytest.mark.parametrize(
    "spread", [Spread("pairs", 0.3, df=4, pilot=5), Spread("sides", 0.8, 0.5, df=6, pilot=5)]
)
def test_the_detectable_difference_has_the_power(spread: Spread) -> None:
    found = detectable_difference(spread, 5, power=0.7, level=0.9)
    for difference, factor in zip((found.value, found.low, found.high), (1.0, *spread.ends()), strict=True):
        power = compute_power_range(difference, spread.scaled(factor), 5, level=0.9).value
        assert power == pytest.approx(0.7, abs=1e-4)
    given = Spread(spread.design, spread.a, spread.b)
    value = detectable_difference(given, 5, power=0.7, level=0.9).value
    assert detectable_difference(given, 5, power=0.7, level=0.9) == Range(value, value, value)
    assert value == pytest.approx(found.value)


def test_the_detectable_difference_and_the_number_of_seeds_agree() -> None:
    spread = Spread("pairs", 0.8)
    difference = detectable_difference(spread, 9).value
    assert plan_seeds(difference * 1.0001, spread).seeds == 9
    assert plan_seeds(difference * 0.9999, spread).seeds == 10


def test_spread_of_pairs() -> None:
    found = spread_of_pairs([2, 3, 5, 8], [1, 2, 3, 4])
    assert found == Spread("pairs", found.a, None, 3.0, 4)
    assert found.a == pytest.approx(math.sqrt(2))


def test_spread_of_sides() -> None:
    # variances 1 and 4.5 of 3 and 2 seeds: 5.5^2 / (1 / 2 + 4.5^2)
    found = spread_of_sides([1, 2, 3], [3, 6])
    assert (found.design, found.pilot, found.a) == ("sides", 2, 1)
    assert (found.b, found.df) == pytest.approx((math.sqrt(4.5), 5.5**2 / (0.5 + 4.5**2)))
    for other in ([5.0], [5.0, 5.0]):
        assert spread_of_sides([1, 2, 3], other) == Spread("one side", 1.0, None, 2.0, 3)
        assert spread_of_sides(other, [1, 2, 3]) == Spread("one side", 1.0, None, 2.0, 3)


def test_spread_of_correlated_pairs() -> None:
    rng = make_generator(0, "correlated")
    a = 0.8 * rng.normal(size=100_000)
    b = 0.9 * a + math.sqrt(1 - 0.81) * 0.8 * rng.normal(size=len(a))
    assert spread_of_correlated(0.8, 0.9).a == pytest.approx((a - b).std(), rel=0.01)
    found = spread_of_correlated(0.8, 0.5, df=4)
    assert found == Spread("pairs", found.a, None, 4, 5)
    assert found.a == pytest.approx(0.8)


@pytest.mark.parametrize("n", [2, 5])
def test_the_interval_holds_the_true_number(n: int) -> None:
    """1,000 pilots of pairs: 90% +- 3 points, a little more as numbers are whole."""
    true = plan_seeds(1.0, Spread("pairs", 1.0)).seeds or 0
    pilots = make_generator(0, f"plan/{n}").normal(size=(1000, n))
    spreads = [Spread("pairs", float(d.std(ddof=1)), None, n - 1.0, n) for d in pilots]
    held = [low <= 1 <= high for low, high in (tuple(np.array(s.ends()) * s.a) for s in spreads)]
    assert abs(np.mean(held) - 0.9) < 0.03
    for spread, inside in list(zip(spreads, held, strict=True))[:40]:
        found = plan_seeds(1.0, spread)
        assert not inside or (found.low or 0) <= true <= (found.high or 10_000)
