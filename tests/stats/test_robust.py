from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.effect_sizes import (
    IqmDifference,
    Superiority,
    almost_stochastic_order,
    interquartile_mean,
    iqm_difference,
    performance_profile,
    superiority_interval,
)
from bench.stats.outliers import find_outliers, outlier_limit

A = np.array([[0.71, 0.80], [0.73, 0.82], [0.60, 0.79], [0.74, 0.85], [0.72, 0.81]])
B = np.array([[0.70, 0.78], [0.69, 0.80], [0.72, 0.79]])


def rliable(a: FloatArray, b: FloatArray, rng: np.random.Generator, draws: int, paired: bool) -> FloatArray:
    """rliable's aggregate_iqm in each draw of whole runs, draw by draw; (draws, 2)."""
    first = rng.integers(0, len(a), (draws, len(a)))
    second = first if paired else rng.integers(0, len(b), (draws, len(b)))
    means = [
        [
            stats.trim_mean(side[rows], proportiontocut=0.25, axis=None)
            for side, rows in ((a, one), (b, other))
        ]
        for one, other in zip(first, second, strict=True)
    ]
    return np.array(means)


def test_the_percentile_interval_is_rliables() -> None:
    found = iqm_difference(A, B, make_generator(1, "iqm"), draws=300, level=0.9)
    drawn = rliable(A, B, make_generator(1, "iqm"), 300, paired=False)
    assert found.difference == pytest.approx(interquartile_mean(A) - interquartile_mean(B))
    assert found.percentile == pytest.approx(np.percentile(drawn[:, 0] - drawn[:, 1], [5, 95]))
    parts = [drawn[:, 0].var(ddof=1) * 5 / 4, drawn[:, 1].var(ddof=1) * 3 / 2]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 2)
    half = stats.t.ppf(0.95, df) * math.sqrt(sum(parts))
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half))
    assert (found.draws, found.n_a, found.n_b) == (300, 5, 3)


def test_pairs_are_drawn_together() -> None:
    b = A - 0.01 * np.arange(5)[:, None]
    found = iqm_difference(A, b, make_generator(2, "iqm"), paired=True, draws=300)
    drawn = rliable(A, b, make_generator(2, "iqm"), 300, paired=True)
    differences = drawn[:, 0] - drawn[:, 1]
    assert found.percentile == pytest.approx(np.percentile(differences, [2.5, 97.5]))
    half = stats.t.ppf(0.975, 4) * math.sqrt(differences.var(ddof=1) * 5 / 4)
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half))
    same = iqm_difference(A, A + 0.5, make_generator(2, "iqm"), paired=True)
    assert (same.low, same.high) == pytest.approx((-0.5, -0.5))


def test_one_task_may_be_flat_and_a_collapsed_seed_hardly_counts() -> None:
    scores, others = [76.1, 76.4, 61.0, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7]
    found = iqm_difference(scores, others, make_generator(1, "iqm"))
    assert found.difference == pytest.approx((76.0 + 76.1 + 76.3) / 3 - (75.2 + 75.6 + 75.7) / 3)
    columns = iqm_difference(np.c_[scores], np.c_[others], make_generator(1, "iqm"))
    assert found == columns


def test_a_fixed_score_adds_no_variance_and_no_spread_gives_no_width() -> None:
    scores = make_generator(0, "scores").normal(size=5)
    found = iqm_difference(scores, [0.0], make_generator(1, "iqm"))
    drawn = iqm_difference(scores, np.zeros(4), make_generator(1, "iqm"))
    assert (found.low, found.high) == (drawn.low, drawn.high)
    fixed = iqm_difference([1.0, 1.0], [0.5, 0.5], make_generator(1, "iqm"))
    assert fixed == IqmDifference(0.5, 0.5, 0.5, (0.5, 0.5), 2000, 2, 2)


def newcombe(share: float, n_a: int, n_b: int, level: float) -> tuple[float, float]:
    """All shares within c standard errors of their own, on a fine grid (Hanley and McNeil's Q1 and Q2)."""
    c = stats.t.ppf((1 + level) / 2, n_a + n_b - 2)
    grid = np.linspace(0, 1, 400_001)[1:-1]
    m = (n_a + n_b) / 2
    q1, q2 = grid / (2 - grid), 2 * grid**2 / (1 + grid)
    variance = (grid * (1 - grid) + (m - 1) * (q1 - grid**2) + (m - 1) * (q2 - grid**2)) / (n_a * n_b)
    inside = grid[np.abs(share - grid) <= c * np.sqrt(variance)]
    return float(inside[0]), float(inside[-1])


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (3, 3), (2, 5), (10, 10)])
def test_the_share_of_independent_seeds_is_newcombes(n_a: int, n_b: int) -> None:
    rng = make_generator(n_a, f"share/{n_b}")
    for gap in (-8.0, 0.0, 1.0, 8.0):
        a, b = rng.normal(size=n_a) + gap, rng.normal(size=n_b)
        found = superiority_interval(a, b, level=0.9)
        assert found.share == stats.mannwhitneyu(a, b).statistic / (n_a * n_b)
        assert (found.low, found.high) == pytest.approx(newcombe(found.share, n_a, n_b, 0.9), abs=1e-5)
        turned = superiority_interval(b, a, level=0.9)
        assert (turned.low, turned.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)


def test_a_side_wholly_ahead_still_has_a_width() -> None:
    found = superiority_interval([4, 5, 6], [1, 2, 3])
    assert (found.share, found.high) == (1, 1)
    assert 0.2 < found.low < 0.5  # three seeds cannot show that more than half lie above


def test_the_share_of_pairs_is_clopper_and_pearsons() -> None:
    found = superiority_interval([2, 3, 4, 1], [1, 2, 3, 4], paired=True)
    exact = stats.binomtest(3, 4).proportion_ci(0.95)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert (found.share, found.n_a, found.n_b) == (0.75, 4, 4)
    for b, share in (([0, 0, 0], 1.0), ([9, 9, 9], 0.0)):
        exact = stats.binomtest(int(3 * share), 3).proportion_ci(0.95)
        ends = superiority_interval([1, 2, 3], b, paired=True)
        assert ends == Superiority(share, ends.low, ends.high, 3, 3)
        assert (ends.low, ends.high) == pytest.approx((exact.low, exact.high))
    assert superiority_interval([1, 2], [1, 3], paired=True).share == 0.25  # a tie counts half


def test_against_one_score_the_share_is_that_of_the_runs() -> None:
    found, turned = superiority_interval([1, 2, 3, 4, 5], [1.5]), superiority_interval([1.5], [1, 2, 3, 4, 5])
    exact = stats.binomtest(4, 5).proportion_ci(0.95)
    assert (found.share, found.low, found.high) == pytest.approx((0.8, exact.low, exact.high))
    assert (turned.share, turned.low, turned.high) == pytest.approx((0.2, 1 - exact.high, 1 - exact.low))


def test_outlying_seeds_by_hand() -> None:
    # median 3, deviations 2 1 0 1 x: their median 1; five seeds: beyond 7.89 x 1.4826 = 11.70
    assert find_outliers([1, 2, 3, 4, 14.6]) == ()
    assert find_outliers([1, 2, 3, 4, 14.8]) == (4,)
    assert find_outliers([-8.8, 2, 3, 4, 14.8]) == (0, 4)
    assert find_outliers([1, 2, 300]) == ()
    assert find_outliers([0.7] * 4 + [0.1]) == (4,)
    assert find_outliers([0.1 + 0.2, 0.3, 0.3, 0.3]) == ()


@pytest.mark.parametrize("n", [4, 5, 7, 10, 11, 20, 40])
def test_one_normal_sample_in_twenty_names_a_seed(n: int) -> None:
    """10,000 samples of scores around 0.7, transcribed; 5% +- 1.1 points."""
    scores = 0.7 + 0.008 * make_generator(0, f"outlying/{n}").normal(size=(10_000, n))
    away = np.abs(scores - np.median(scores, axis=1, keepdims=True))
    named = away > outlier_limit(n) * 1.4826 * np.median(away, axis=1, keepdims=True)
    assert abs(named.any(1).mean() - 0.05) < 0.011
    assert [find_outliers(row) for row in scores[:50]] == [tuple(np.flatnonzero(row)) for row in named[:50]]


@pytest.mark.parametrize("n", [3, 5])
def test_intervals_cover(n: int) -> None:
    """1,000 simulations of equal methods: the t interval holds, the percentile one does not."""
    rng = make_generator(0, f"coverage/{n}")
    a, b = rng.normal(size=(2, 1000, n))
    found = [iqm_difference(x, y, rng, draws=200) for x, y in zip(a, b, strict=True)]
    assert np.mean([d.low <= 0 <= d.high for d in found]) > 0.93
    assert np.mean([d.percentile[0] <= 0 <= d.percentile[1] for d in found]) < 0.945
    shares = [superiority_interval(x, y) for x, y in zip(a, b, strict=True)]
    assert np.mean([s.low <= 0.5 <= s.high for s in shares]) > 0.95


def test_iqm_by_hand() -> None:
    # two of eight off at either end
    assert interquartile_mean([[1, 2, 3, 100], [5, 6, 7, -9]]) == (2 + 3 + 5 + 6) / 4
    assert interquartile_mean([[1.0, 2.0, 6.0]]) == 3


def test_performance_profile_by_hand() -> None:
    scores = [[0.7, 0.8], [0.7, 0.9]]
    np.testing.assert_allclose(performance_profile(scores, [0.6, 0.7, 0.85, 0.9]), [1, 0.5, 0.25, 0])


def violation(a: FloatArray, b: FloatArray) -> float:
    """The violation ratio as a loop over a fine grid of quantiles."""
    a, b, steps = np.sort(a), np.sort(b), len(a) * len(b)
    against = total = 0.0
    for i in range(steps):
        gap = a[i * len(a) // steps] - b[i * len(b) // steps]
        total += gap**2
        against += gap**2 if gap < 0 else 0
    return against / total


@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 8), (5, 7)])
def test_aso_is_the_loop(n: int, m: int) -> None:
    data = make_generator(0, f"aso {n} {m}")
    a, b = data.normal(size=n) + 0.5, data.normal(size=m)
    rng = make_generator(1, "draws")
    draws_a, draws_b = rng.choice(a, (200, n)), rng.choice(b, (200, m))
    ratios = [violation(x, y) for x, y in zip(draws_a, draws_b, strict=True)]
    expected = min(1, violation(a, b) + 1.6448536269514722 * float(np.std(ratios)))
    assert expected > 0
    assert almost_stochastic_order(a, b, make_generator(1, "draws"), draws=200) == pytest.approx(expected)


def test_aso_of_methods_apart_and_of_equals() -> None:
    low, high = np.arange(5.0), np.arange(6.0) + 10
    assert almost_stochastic_order(high, low, make_generator(0, "apart")) == 0
    assert almost_stochastic_order(low, high, make_generator(0, "apart")) == 1
    assert almost_stochastic_order([1.0] * 5, [1.0] * 5, make_generator(0, "equal")) == 0.5
