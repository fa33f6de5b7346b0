from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.effect_sizes import cohen_d, hedges_g, probability_of_superiority
from bench.stats.seed_planning import welch_power
from bench.stats.seeds import (
    ExactTest,
    exact_permutation,
    judge_p_value,
    one_sample,
    satterthwaite,
    seed_difference,
    side_parts,
    sign_flip,
    welch,
)


def flip(a: ArrayLike, b: ArrayLike) -> ExactTest:
    return sign_flip(a, b, same_order=True)


def normal(rng: np.random.Generator, n_a: int, n_b: int) -> tuple[FloatArray, FloatArray]:
    return rng.normal(size=n_a), rng.normal(size=n_b)


def test_streams_are_repeatable_and_apart() -> None:
    draws = [
        make_generator(*stream).random(3).tolist() for stream in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))
    ]
    assert draws[0] == draws[1]
    assert len({tuple(draw) for draw in draws}) == 3


def test_welch_by_hand() -> None:
    # means 2 and 4.25, squared standard errors 1 / 3 and (35 / 12) / 4
    found = welch([1, 2, 3], [2, 4, 5, 6])
    one, other = 1 / 3, 35 / 48
    df = (one + other) ** 2 / (one**2 / 2 + other**2 / 3)
    half = stats.t.ppf(0.975, df) * math.sqrt(one + other)
    assert found.difference == -2.25
    assert found.t == pytest.approx(-2.25 / math.sqrt(one + other))
    assert found.df == pytest.approx(df)
    assert (found.low, found.high) == pytest.approx((-2.25 - half, -2.25 + half))
    assert found.p == pytest.approx(2 * stats.t.cdf(-2.25 / math.sqrt(one + other), df))
    assert (found.n_a, found.n_b, found.minimum_p) == (3, 4, 0)
    wider = welch([1, 2, 3], [2, 4, 5, 6], level=0.99)
    assert wider.low < found.low < found.high < wider.high


def test_one_sample_by_hand() -> None:
    found = one_sample([1, 2, 3, 6], 1.5)
    error = math.sqrt(14 / 3 / 4)
    half = stats.t.ppf(0.975, 3) * error
    assert (found.difference, found.t, found.df) == pytest.approx((1.5, 1.5 / error, 3))
    assert (found.low, found.high) == pytest.approx((1.5 - half, 1.5 + half))
    assert (found.n_a, found.n_b) == (4, 1)


@pytest.mark.filterwarnings("ignore:Precision loss")  # of scipy: a side that does not vary
def test_both_t_tests_equal_scipy() -> None:
    rng = np.random.default_rng(3)
    for n_a, n_b, spread in [(2, 2, 1.0), (4, 7, 1e-6), (10, 5, 40.0), (4, 3, 0.0)]:
        a, b = 76 + rng.normal(size=n_a), 75 + spread * rng.normal(size=n_b)
        for found, peer, fixed in (
            (welch(a, b, 0.9), stats.ttest_ind(a, b, equal_var=False), 0.0),
            (one_sample(a, 75.5, 0.9), stats.ttest_1samp(a, 75.5), 75.5),
        ):
            ends = np.array(peer.confidence_interval(0.9)) - fixed
            expected = (peer.statistic, peer.df, peer.pvalue, *ends)
            assert (found.t, found.df, found.p, found.low, found.high) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n_a", "n_b"), [(3, 6), (10, 2), (3, 2)])
def test_uneven_sides_have_the_freedom_of_the_fewer_seeds(n_a: int, n_b: int) -> None:
    rng = np.random.default_rng(n_a)
    a, b = rng.normal(size=n_a), rng.normal(size=n_b)
    found, scipys = welch(a, b, 0.9), stats.ttest_ind(a, b, equal_var=False)
    t = float(scipys.statistic)
    error, df = found.difference / t, min(n_a, n_b) - 1
    half = stats.t.ppf(0.95, df) * error
    assert (found.t, found.df, found.p) == pytest.approx((t, df, 2 * stats.t.sf(abs(t), df)))
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half))
    assert found.p > scipys.pvalue


@pytest.mark.parametrize(("n_a", "n_b", "spread"), [(2, 10, 1.0), (2, 3, 10.0), (3, 10, 1.0), (3, 6, 3.0)])
def test_uneven_sides_keep_small_p_rare(n_a: int, n_b: int, spread: float) -> None:
    """Where a correction for many comparisons reads them; Satterthwaite's degrees of freedom don't."""
    rng, alpha, draws = make_generator(0, f"tails {n_a} {n_b}"), 5e-4, 200_000
    var_a = spread**2 * rng.chisquare(n_a - 1, draws) / (n_a - 1) / n_a
    var_b = rng.chisquare(n_b - 1, draws) / (n_b - 1) / n_b
    t = rng.normal(size=draws) * math.sqrt(spread**2 / n_a + 1 / n_b) / np.sqrt(var_a + var_b)
    parts = [(var_a, n_a - 1), (var_b, n_b - 1)]
    ours, satterthwaites = (
        float((2 * stats.t.sf(np.abs(t), satterthwaite(some)) <= alpha).mean())
        for some in (side_parts(*parts), parts)
    )
    assert ours <= alpha
    assert satterthwaites > 3 * alpha


def test_seeds_that_are_equal_but_for_rounding_do_not_vary() -> None:
    a = [(0.1 + 0.5) / 2, (0.2 + 0.4) / 2, (0.3 + 0.3) / 2]
    assert len(set(a)) > 1
    for rounded, equal in ((a, [0.3] * 3), ([x + 60 for x in a], [60.3] * 3)):
        b = [equal[0] - 0.005] * 3
        assert welch(rounded, b).p == welch(equal, b).p == 0.1
        assert one_sample(rounded, b[0]).p == one_sample(equal, b[0]).p == 0.25


def test_a_side_of_one_score_is_fixed_and_turning_changes_the_signs() -> None:
    a, b, fixed = [1.0, 2.0, 3.0], [2.0, 4.0, 5.0, 6.0], [1.5]
    assert seed_difference(a, b, 0.9) == welch(a, b, 0.9)
    assert seed_difference(a, fixed) == one_sample(a, 1.5)
    found, turned = one_sample(a, 1.5), seed_difference(fixed, a)
    assert turned == found.reverse()
    assert (turned.difference, turned.low, turned.high) == (-found.difference, -found.high, -found.low)
    assert (turned.t, turned.df, turned.p) == (-(found.t or 0), found.df, found.p)
    assert (turned.n_a, turned.n_b, found.reverse().reverse()) == (1, 3, found)


@pytest.mark.parametrize(
    ("a", "b", "difference"), [([0.1] * 3, [0.1] * 2, 0), ([0.75] * 2, [0.5] * 5, 0.25), ([2] * 8, [1], 1)]
)
def test_seeds_that_never_vary_have_the_p_of_an_exact_test(
    a: list[float], b: list[float], difference: float
) -> None:
    flipped = sign_flip(a, b[:1] * len(a), same_order=True)
    expected = {one_sample(a, b[0]): flipped, seed_difference(b[:1], a).reverse(): flipped}
    if len(b) > 1:
        expected[welch(a, b)] = exact_permutation(a, b)
    for found, exact in expected.items():
        assert (found.difference, found.low, found.high) == (difference,) * 3
        assert (found.p, found.minimum_p) == (exact.p, exact.minimum_p)
        assert found.t is found.df is None


def scipys(samples: tuple[FloatArray, ...], kind: Literal["independent", "samples"], statistic: Any) -> float:
    """p of scipy's enumeration of splits ("independent") or of signs ("samples")."""
    found = stats.permutation_test(samples, statistic, permutation_type=kind, n_resamples=10_000)
    return float(found.pvalue)


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 5), (3, 3), (6, 4), (5, 5), (5, 8)])
def test_exact_tests_are_scipys_with_and_without_ties(n_a: int, n_b: int) -> None:
    rng = make_generator(0, f"splits {n_a} {n_b}")
    for _ in range(5):
        for pool in (rng.normal(size=n_a + n_b), rng.integers(0, 4, n_a + n_b) / 8 + 0.75):
            a, b = pool[:n_a], pool[n_a:]
            expected = scipys((a, b), "independent", lambda x, y, axis: x.mean(axis) - y.mean(axis))
            assert exact_permutation(a, b).p == pytest.approx(expected)
            d = a - np.resize(b, n_a)
            expected = scipys((d,), "samples", lambda x, axis: x.mean(axis))
            assert flip(a, np.resize(b, n_a)).p == pytest.approx(expected)


def test_exact_tests_of_one_seed_by_hand() -> None:
    assert exact_permutation([1], [2]).p == flip([1], [0]).p == 1
    assert exact_permutation([5], [1, 2, 3, 4]).p == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("test", "n", "minimum"),
    [
        (exact_permutation, 3, 0.10),
        (exact_permutation, 5, 2 / 252),
        (exact_permutation, 6, 2 / 924),
        (exact_permutation, 20, 2 / math.comb(40, 20)),
        (flip, 6, 0.03125),
        (flip, 40, 2 / 2**40),
    ],
)
def test_smallest_p_is_reached_by_seeds_that_are_apart(
    test: Callable[[ArrayLike, ArrayLike], ExactTest], n: int, minimum: float
) -> None:
    a, b = np.arange(n) / 100, np.arange(n) / 100 - 1
    for first, second in ((a, b), (b, a)):
        found = test(first, second)
        assert found.p == found.minimum_p == pytest.approx(minimum)
        assert found.difference == pytest.approx(1 if first is a else -1)


def test_equal_seeds_differ_in_no_split() -> None:
    assert exact_permutation([0.7] * 3, [0.7] * 4).p == flip([0.7] * 6, [0.7] * 6).p == 1


def test_verdict_refuses_what_the_test_cannot_show() -> None:
    apart = exact_permutation([1, 2, 3], [4, 5, 6])
    assert judge_p_value(apart.p, apart.minimum_p) == "cannot show"
    assert judge_p_value(apart.p, apart.minimum_p, alpha=0.1) == "differs"
    assert judge_p_value(0.05, 0.0079) == "differs"
    assert judge_p_value(0.051, 0.0079) == "not shown"


def attainable(outcomes: int) -> float:
    """The level of an exact test with p <= .05 and so many equally likely outcomes without ties."""
    return math.floor(0.05 * outcomes / 2) * 2 / outcomes


@pytest.mark.parametrize(
    ("test", "n_a", "n_b", "level"),
    [
        (welch, 5, 5, 0.05),
        (welch, 12, 6, 0.05),
        (exact_permutation, 5, 5, attainable(252)),
        (exact_permutation, 6, 4, attainable(210)),
        (flip, 6, 6, attainable(64)),
        (flip, 8, 8, attainable(256)),
    ],
)
def test_tests_over_seeds_hold_their_level(
    test: Callable[[ArrayLike, ArrayLike], ExactTest], n_a: int, n_b: int, level: float
) -> None:
    rng, simulations = make_generator(0, f"level {n_a} {n_b}"), 1000
    false = sum(test(*normal(rng, n_a, n_b)).p <= 0.05 for _ in range(simulations))
    low, high = stats.binom.interval(0.999, simulations, level)
    assert low <= false <= high


def test_effect_sizes_by_hand() -> None:
    a, b = [3.0, 5.0], [1.0, 3.0, 2.0]
    assert probability_of_superiority(a, b) == pytest.approx(5.5 / 6)  # one tie of six pairs
    assert probability_of_superiority(b, a) == pytest.approx(0.5 / 6)
    pooled = math.sqrt((2 + 2) / 3)
    assert cohen_d(a, b) == pytest.approx(2 / pooled)
    correction = math.gamma(1.5) / (math.sqrt(1.5) * math.gamma(1))
    assert hedges_g(a, b) == pytest.approx(2 / pooled * correction)


def test_hedges_g_is_unbiased_where_d_is_not() -> None:
    samples = make_generator(0, "hedges").normal([[1.0], [0.0]], size=(4000, 2, 5))
    g = np.array([hedges_g(a, b) for a, b in samples])
    d = np.array([cohen_d(a, b) for a, b in samples])
    error = g.std() / math.sqrt(len(g))
    assert abs(g.mean() - 1) < 3.5 * error < d.mean() - 1


@pytest.mark.parametrize(
    ("n_a", "n_b", "gap", "sd_b"),
    [(5, 5, 1.0, 0.8), (3, 3, 2.0, 0.8), (8, 4, 1.5, 2.0), (7, 4, 1.5, 2.0), (5, 5, 0.0, 0.8)],
)
def test_power_is_what_simulation_gives(n_a: int, n_b: int, gap: float, sd_b: float) -> None:
    rng, simulations = make_generator(0, f"power {n_a} {n_b} {gap}"), 1000
    shown = sum(
        welch(0.8 * rng.normal(size=n_a) + gap, sd_b * rng.normal(size=n_b)).p <= 0.05
        for _ in range(simulations)
    )
    low, high = stats.binom.interval(0.999, simulations, welch_power(gap, 0.8, sd_b, n_a, n_b))
    assert low <= shown <= high


@pytest.mark.parametrize("shift", [0.0, 0.3, 2.0])
def test_power_of_many_seeds_is_that_of_the_noncentral_t(shift: float) -> None:
    critical = stats.t.isf(0.025, 798)
    expected = stats.nct.sf(critical, 798, shift) + stats.nct.sf(critical, 798, -shift)
    assert welch_power(shift * math.sqrt(2 / 400), 1, 1, 400, 400) == pytest.approx(expected, abs=2e-4)
