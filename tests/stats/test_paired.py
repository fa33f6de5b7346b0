from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.stats.inputs import FloatArray, make_generator
from bench.stats.seed_pairs import PairedDifference, paired_t, pairing_gain
from bench.stats.seeds import sign_flip, welch
from bench.stats.suite_draws import SuiteDraws
from bench.stats.variance_components import variance_components


def sample_of(a: FloatArray, b: FloatArray, noise: FloatArray, pairs: tuple[int, ...]) -> SuiteDraws:
    """Two methods of as many runs; ``noise`` (draws, tasks) moves a alone."""
    observed = np.concatenate([a, b])
    draws = np.repeat(observed[None], len(noise), axis=0)
    draws[:, : len(a)] += noise[:, None]
    rows = {"a": slice(0, len(a)), "b": slice(len(a), len(observed))}
    return SuiteDraws(rows, tuple(f"t{i}" for i in range(len(pairs))), pairs, observed, draws)


def test_paired_t_by_hand() -> None:
    # differences 1, 1, 2, 4: mean 2, squares about it 1 + 1 + 0 + 4 = 6, so s^2 = 2 and the error sqrt(2 / 4)
    found = paired_t([2, 3, 5, 8], [1, 2, 3, 4], level=0.9)
    half = stats.t.ppf(0.95, 3) * math.sqrt(0.5)
    assert found.difference == 2
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))
    assert found.t == pytest.approx(2 / math.sqrt(0.5))
    assert found.p == pytest.approx(2 * stats.t.sf(2 / math.sqrt(0.5), 3))
    assert (found.df, found.n, found.n_a, found.n_b, found.minimum_p) == (3, 4, 4, 4, 0)
    assert found.sd == pytest.approx(math.sqrt(2))
    # deviations -2.5 -1.5 .5 3.5 and -1.5 -.5 .5 1.5: products 10, squares 21 and 5
    assert found.correlation == pytest.approx(10 / math.sqrt(21 * 5))


@pytest.mark.parametrize("n", [2, 3, 7])
def test_it_is_scipys(n: int) -> None:
    rng = make_generator(n, "paired")
    a, b = rng.normal(size=(2, n))
    found, theirs = paired_t(a, b), stats.ttest_rel(a, b)
    assert (found.t, found.p, found.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    expected = None if n == 2 else pytest.approx(stats.pearsonr(a, b).statistic)
    assert found.correlation == expected


def test_turning_changes_the_signs() -> None:
    a, b = [76.1, 76.4, 75.9], [75.8, 76.2, 75.7]
    found, turned = paired_t(a, b), paired_t(b, a)
    for name in ("p", "sd", "correlation", "df", "n"):
        assert getattr(found, name) == pytest.approx(getattr(turned, name)), name
    assert (found.difference, found.low, found.high, found.t) == pytest.approx(
        (-turned.difference, -turned.high, -turned.low, -(turned.t or 0))
    )


@pytest.mark.parametrize(
    ("a", "b", "difference", "p"),
    [
        ([0.75, 0.5], [0.75, 0.5], 0.0, 1.0),
        ([0.75, 0.5, 0.625], [0.5, 0.25, 0.375], 0.25, 0.25),
        ([0.7613, 0.7721, 0.7504], [0.7513, 0.7621, 0.7404], 0.01, 0.25),  # equal but for rounding
        ([0.1 + 0.2, 0.7], [0.3, 0.7], 0.0, 1.0),
    ],
)
def test_differences_that_do_not_vary(a: list[float], b: list[float], difference: float, p: float) -> None:
    found = paired_t(a, b)
    assert found.difference == pytest.approx(difference, abs=1e-12)
    assert (found.low, found.high) == (found.difference, found.difference)
    assert (found.t, found.df, found.p, found.sd) == (None, None, p, 0)
    exact = sign_flip(a, b, same_order=True)
    assert found.minimum_p == paired_t(b, a).minimum_p == exact.minimum_p
    assert p == pytest.approx(exact.p)
    assert pairing_gain(a, b) is None


def test_a_spread_just_above_rounding_counts() -> None:
    found = paired_t([0.7613, 0.7721, 0.7504 + 1e-12], [0.7513, 0.7621, 0.7404])
    assert found.df == 2
    assert 0 < found.high - found.low < 1e-11


def test_a_side_that_does_not_vary_has_no_correlation() -> None:
    found = paired_t([1.0, 2.0, 4.0], [3.0, 3.0, 3.0])
    assert (found.correlation, found.df) == (None, 2)


@pytest.mark.parametrize("r", [0.0, 0.9, 0.99])
def test_what_pairing_gains(r: float) -> None:
    rng = make_generator(0, f"gain/{r}")
    a = rng.normal(size=(400, 5))
    b = r * a + math.sqrt(1 - r**2) * rng.normal(size=a.shape)
    gains = [pairing_gain(x, y) or 0 for x, y in zip(a, b, strict=True)]
    expected = stats.t.ppf(0.975, 8) / stats.t.ppf(0.975, 4) / math.sqrt(1 - r)
    assert np.median(gains) == pytest.approx(expected, rel=0.15)
    x, y = a[0], b[0]
    sides, pairs = welch(x, y, 0.9), paired_t(x, y, 0.9)
    ratio = (sides.high - sides.low) / (pairs.high - pairs.low)
    assert pairing_gain(x, y, 0.9) == pytest.approx(ratio)


def test_components_of_pairs_by_hand() -> None:
    rng = make_generator(0, "components")
    a, b, noise = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.normal(size=(300, 2)) * [1.5, 3.0]
    found = variance_components(sample_of(a, b, noise, (50, 80)), "a", "b", level=0.9, paired=True)
    d = a.mean(1) - b.mean(1)
    parts = [d.var(ddof=1) / 4, noise[:, 0].var(ddof=1) / 4, noise[:, 1].var(ddof=1) / 4]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 49 + parts[2] ** 2 / 79)
    half = stats.t.ppf(0.95, df) * math.sqrt(sum(parts))
    assert (found.low, found.high, found.df) == pytest.approx((d.mean() - half, d.mean() + half, df))
    assert (found.difference, found.seeds, found.items, found.n_a, found.paired) == pytest.approx(
        (d.mean(), parts[0], parts[1] + parts[2], 4, True)
    )


def test_components_without_items_are_the_paired_t() -> None:
    a, b = np.array([[0.70], [0.72], [0.77]]), np.array([[0.69], [0.70], [0.77]])
    found = variance_components(sample_of(a, b, np.zeros((9, 1)), (50,)), "a", "b", paired=True)
    pairs = paired_t(a.ravel(), b.ravel())
    assert (found.low, found.high, found.df, found.p) == pytest.approx(
        (pairs.low, pairs.high, pairs.df, pairs.p)
    )
    same = variance_components(sample_of(a, a, np.zeros((9, 1)), (50,)), "a", "b", paired=True)
    assert (same.low, same.difference, same.high, same.df, same.p) == (0, 0, 0, None, 1)


def test_components_of_pairs_are_narrower_where_seeds_are_shared() -> None:
    rng = make_generator(0, "narrow")
    a = rng.normal(size=(5, 1))
    sample = sample_of(a, a + 0.1 * rng.normal(size=a.shape), 0.05 * rng.normal(size=(200, 1)), (500,))
    pairs, sides = variance_components(sample, "a", "b", paired=True), variance_components(sample, "a", "b")
    assert pairs.items == pytest.approx(sides.items)
    assert pairs.high - pairs.low < (sides.high - sides.low) / 5


@pytest.mark.slow
@pytest.mark.parametrize(("r", "n"), [(0.0, 3), (0.99, 5)])
def test_it_covers(r: float, n: int) -> None:
    """4,000 simulations: 95% +- 1.1 points at three and a bit standard errors."""
    rng = make_generator(1, f"coverage/{r}/{n}")
    a = rng.normal(size=(4000, n))
    b = r * a + math.sqrt(1 - r**2) * rng.normal(size=a.shape)
    found: list[PairedDifference] = [paired_t(x, y) for x, y in zip(a, b, strict=True)]
    assert abs(np.mean([d.low <= 0 <= d.high for d in found]) - 0.95) < 0.0115
    assert all((d.p <= 0.05) != (d.low <= 0 <= d.high) for d in found)
