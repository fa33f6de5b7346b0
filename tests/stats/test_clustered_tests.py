from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import FloatArray
from bench.stats.classification_statistics import effective_items, mcnemar, wilson_interval
from bench.stats.clustered_tests import clustered_test, spearman_influence
from bench.stats.correlations import williams
from bench.stats.resampling import spearman_rows

RNG = np.random.default_rng(7)


def weighted_spearman(x: FloatArray, y: FloatArray, weights: FloatArray) -> float:
    """Pearson's correlation of weighted average ranks, as plain loops."""
    weights = weights / weights.sum()

    def ranks(values: FloatArray) -> list[float]:
        found = []
        for value in values:
            below = sum(w for w, other in zip(weights, values, strict=True) if other < value)
            equal = sum(w for w, other in zip(weights, values, strict=True) if other == value)
            found.append(below + equal / 2 - 0.5)
        return found

    a, b = ranks(x), ranks(y)
    cross = sum(w * p * q for w, p, q in zip(weights, a, b, strict=True))
    one = sum(w * p * p for w, p in zip(weights, a, strict=True))
    other = sum(w * q * q for w, q in zip(weights, b, strict=True))
    return float(cross / np.sqrt(one * other))


@pytest.mark.parametrize("digits", [0, 1, 9])
def test_influence_is_the_derivative_by_an_items_weight(digits: int) -> None:
    x, y = np.round(RNG.normal(size=(2, 23)), digits)
    found = spearman_influence([x, -2 * x, y], y)
    for row, values in zip(found, (x, -2 * x, y), strict=True):
        for item in range(23):
            step = 1e-5 * (np.arange(23) == item)
            up, down = (weighted_spearman(values, y, np.ones(23) + side * step) for side in (1, -1))
            assert row[item] == pytest.approx(23 * (up - down) / 2e-5, abs=2e-7)
        assert row.sum() == pytest.approx(0, abs=1e-10)
    np.testing.assert_allclose(found[1], -found[0], atol=1e-12)
    np.testing.assert_allclose(found[2], 0, atol=1e-12)  # a correlation of 1 stays 1


def test_clustered_test_is_the_sandwich_of_the_difference() -> None:
    gold = RNG.normal(size=60)
    first, second = gold + RNG.normal(size=(2, 60))
    clusters = RNG.integers(0, 20, 60)
    found = clustered_test(first, second, gold, clusters * 7 - 3)
    influence = np.subtract(*spearman_influence([first, second], gold)) / 60
    numbers = sorted(set(clusters.tolist()))
    sums = [sum(influence[i] for i in range(60) if clusters[i] == c) for c in numbers]
    error = np.sqrt(len(numbers) / (len(numbers) - 1) * sum(s**2 for s in sums))
    rho = spearman_rows([first, second], gold)
    sizes = [np.count_nonzero(clusters == c) for c in numbers]
    df = round(3600 / sum(s**2 for s in sizes)) - 1
    assert (found.difference, found.statistic) == pytest.approx((rho[0] - rho[1], (rho[0] - rho[1]) / error))
    assert (found.df, found.n) == (df, 60)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.statistic), df))
    turned = clustered_test(second, first, gold, clusters)
    assert (turned.statistic, turned.p) == pytest.approx((-found.statistic, found.p))


def test_of_single_items_it_is_near_williams() -> None:
    gold = RNG.normal(size=3000)
    first, second = 0.8 * gold + RNG.normal(size=(2, 3000))
    ours = clustered_test(first, second, gold, np.arange(3000))
    r12, r13 = spearman_rows([first, second], gold).tolist()
    theirs = williams(r12, r13, float(spearman_rows(first, second)[0]), 3000)
    assert ours.statistic == pytest.approx(theirs.statistic, rel=0.1)
    one, other, scores = (np.repeat(side, 2) for side in (first, second, gold))
    doubled = clustered_test(one, other, scores, np.arange(6000) // 2)
    assert doubled.statistic == pytest.approx(ours.statistic, rel=1e-6)  # a copy adds nothing
    alone = clustered_test(one, other, scores, np.arange(6000))
    assert alone.statistic == pytest.approx(np.sqrt(2) * ours.statistic, rel=1e-3)


@pytest.mark.parametrize(
    ("clusters", "fact"), [([0] * 5, "one cluster"), ([0, 1, 2], "clusters of"), (range(6), "clusters of")]
)
def test_impossible_clusters_are_refused(clusters: list[int], fact: str) -> None:
    five = [1.0, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=fact):
        clustered_test(five, [2.0, 1, 3, 4, 5], five, list(clusters))
    with pytest.raises(ValueError, match="clusters of"):
        mcnemar([1] * 5, [0] * 5, [0, 1, 2])


def test_equal_systems_have_p_1() -> None:
    five = [1.0, 2, 3, 4, 5]
    found = clustered_test(five, five, [2.0, 1, 3, 5, 4], [0, 0, 1, 2, 3])
    assert (found.difference, found.p) == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(6))
def test_mcnemar_by_clusters_counts_all_flips(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.random((2, 40)) < [[0.7], [0.5]]
    clusters = rng.integers(0, 12, 40)
    found = mcnemar(first, second, clusters)
    sums = [
        int(first[clusters == c].sum()) - int(second[clusters == c].sum()) for c in set(clusters.tolist())
    ]
    sums = [one for one in sums if one]
    flips = [
        abs(sum(s * d for s, d in zip(signs, sums, strict=True)))
        for signs in product((1, -1), repeat=len(sums))
    ]
    share = np.mean(np.array(flips) >= abs(int(first.sum()) - int(second.sum())))
    assert found.p == pytest.approx(share)
    assert found.clusters == len(sums)
    assert found.minimum_p == pytest.approx(min(1, 2 / 2 ** len(sums)))
    alone = mcnemar(first, second)
    assert (found.only_first, found.only_second, found.n) == (alone.only_first, alone.only_second, 40)
    single = mcnemar(first, second, np.arange(40))
    assert (single.p, single.minimum_p) == pytest.approx((alone.p, alone.minimum_p))


def test_effective_items_give_wilsons_interval_its_width() -> None:
    right = np.repeat(RNG.random(400) < 0.8, 3).astype(float)  # every answer thrice
    share, clusters = right.mean(), np.arange(1200) // 3
    variance = np.sum(np.bincount(clusters, right - share) ** 2) / 1200**2
    number = effective_items(share, variance, 1200, 400.0)
    assert number == pytest.approx(400)
    assert wilson_interval(share, number) == pytest.approx(wilson_interval(share, 400))
    assert effective_items(0.5, 1e-9, 1200, 400.0) == 1200
    assert effective_items(1.0, 0.0, 1200, 400.0) == 400
