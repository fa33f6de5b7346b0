"""Probes of vectors against independent computations: pair by pair, scipy's pdist, known spectra."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import norm

from bench.data.tasks import PairSubset, PairTask
from bench.errors import BenchError, InputError
from bench.probes.alignment import alignment, positive_pairs
from bench.probes.density import compare_densities, density_overlap, gold_groups
from bench.probes.isotropy import isotropy, spectrum
from bench.probes.uniformity import uniformity
from tests.support.messages import missing_facts

RNG = np.random.default_rng(0)


def vectors(n: int, d: int = 6) -> NDArray[np.float32]:
    return np.random.default_rng(n).normal(0.3, 1.0, (n, d)).astype(np.float32)


def units(x: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    return np.stack([row / math.sqrt(sum(value * value for value in row)) for row in wide])


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_alignment_pair_by_pair(alpha: float) -> None:
    x, y = vectors(20), vectors(21)[:20]
    total = sum(math.dist(a, b) ** alpha for a, b in zip(units(x).tolist(), units(y).tolist(), strict=True))
    assert alignment(x, y, alpha) == pytest.approx(total / 20, rel=1e-12)


def test_alignment_of_known_pairs() -> None:
    x = np.array([[1.0, 0.0], [3.0, 0.0]])
    assert alignment(x, 5 * x) == 0
    assert alignment(x, x[:, ::-1]) == pytest.approx(2)
    assert alignment(x, -x) == pytest.approx(4)


@pytest.mark.parametrize("n", [2, 3, 1024, 1025, 2100])  # within a block, at its end, over several
@pytest.mark.parametrize("t", [2.0, 0.5])
def test_uniformity_against_pdist(n: int, t: float) -> None:
    x = vectors(n)
    expected = math.log(np.exp(-t * pdist(units(x), "sqeuclidean")).mean())
    assert uniformity(x, t) == pytest.approx(expected, abs=1e-12)


def test_uniformity_of_known_vectors() -> None:
    assert uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.array([[1.0, 0], [-2, 0]])) == pytest.approx(-8)
    assert uniformity(np.array([[1.0, 0], [0, 2]])) == pytest.approx(-4)


def test_positive_pairs_by_threshold() -> None:
    one = PairSubset("a", ("a", "b", "c"), ("d", "e", "f"), (4.0, 3.9, 5.0))
    task = PairTask("T", (one, PairSubset("b", ("g",), ("h",), (4.0,))))
    assert positive_pairs([task]) == (["a", "c", "g"], ["d", "f", "h"])
    assert positive_pairs([task], strict=True) == (["c"], ["f"])
    assert positive_pairs([task, task], 5.0) == (["c", "c"], ["f", "f"])


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_isotropy_of_identity_and_of_rank_one(scale: float) -> None:
    even = isotropy(scale * np.eye(8))
    assert even["effective_rank"] == pytest.approx(8)
    assert even["mean_cosine"] == pytest.approx(0, abs=1e-12)
    assert even["cumulative"] == pytest.approx({"1": 1 / 8, "2": 2 / 8, "4": 4 / 8, "8": 1})
    line = isotropy(scale * np.outer([1.0, 2.0, 3.0, 5.0], [1.0, -1.0, 0.5]))
    assert line["effective_rank"] == pytest.approx(1)
    assert line["mean_cosine"] == pytest.approx(1)
    assert line["deviation"] == pytest.approx(0, abs=1e-7)


def test_isotropy_against_the_gram_matrix_and_all_pairs() -> None:
    x = vectors(40)
    found = isotropy(x)
    singular = np.sqrt(np.linalg.eigvalsh(x.astype(np.float64).T @ x)[::-1])
    shares = singular / singular.sum()
    assert found["spectrum"] == pytest.approx(shares.tolist())
    assert found["effective_rank"] == pytest.approx(math.prod(share**-share for share in shares))
    assert found["mean_cosine"] == pytest.approx(1 - pdist(x, "cosine").mean(), abs=1e-6)
    assert found["deviation"] == pytest.approx(np.sqrt(units(x).var(0)).mean() * math.sqrt(6))
    assert found["dim"] == 6
    assert sum(found["spectrum"]) == pytest.approx(1)
    assert spectrum(x[:3]).shape == (3,)


def test_gold_groups_of_width_one_and_of_like_size() -> None:
    gold = np.array([0.0, 0.9, 1.0, 2.5, 3.999, 4.0, 5.0, 4.2])
    values = np.arange(8.0)
    groups = gold_groups(values, gold)
    assert [(group.low, group.high) for group in groups] == [(low, low + 1) for low in range(5)]
    assert [group.similarities.tolist() for group in groups] == [[0, 1], [2], [3], [4], [5, 6, 7]]
    many = RNG.uniform(0, 5, 500)
    assert [len(group.similarities) for group in gold_groups(many, many, "quantiles")] == [100] * 5
    tied = np.repeat([1.0, 2.0, 5.0], [60, 20, 20])
    groups = gold_groups(tied, tied, "quantiles")
    assert [(g.low, g.high) for g in groups] == [
        pytest.approx(ends) for ends in ((1, 1.4), (1.4, 2.6), (2.6, 5))
    ]
    assert [len(g.similarities) for g in groups] == [60, 20, 20]
    (only,) = gold_groups(values[:3], np.full(3, 2.0))
    assert (only.low, only.high) == (2, 3)
    (only,) = gold_groups(values[:3], np.full(3, 2.0), "quantiles")
    assert len(only.similarities) == 3


def kernel_density(sample: NDArray[np.float64], at: float) -> float:
    """Scott's rule and the Gaussian kernel, written out."""
    n = len(sample)
    mean = sum(sample.tolist()) / n
    width = math.sqrt(sum((x - mean) ** 2 for x in sample.tolist()) / (n - 1)) / math.pow(n, 0.2)
    total = sum(math.exp(-(((at - x) / width) ** 2) / 2) for x in sample)
    return total / (n * width * math.sqrt(2 * math.pi))


def test_overlap_of_two_densities() -> None:
    first, second = RNG.normal(0.2, 0.1, 30), RNG.normal(0.35, 0.2, 20)
    grid = np.linspace(-1.5, 2, 1001)
    smaller = [min(kernel_density(first, x), kernel_density(second, x)) for x in grid]
    assert density_overlap(first, second) == pytest.approx(sum(smaller) * (grid[1] - grid[0]), abs=1e-5)
    assert density_overlap(first, first) == pytest.approx(1, abs=1e-5)
    assert density_overlap(first, first + 10) == pytest.approx(0, abs=1e-5)
    assert density_overlap(first, second) == pytest.approx(density_overlap(second, first))
    wide = RNG.normal(0, 1, 20_000), RNG.normal(1, 1, 20_000)
    assert density_overlap(*wide) == pytest.approx(2 * norm.cdf(-0.5), abs=0.02)


def test_density_of_neighbouring_groups() -> None:
    gold = np.repeat([0.5, 1.5, 2.5, 4.5], [40, 40, 3, 40])
    values = np.concatenate([RNG.normal(mean, 0.05, 40) for mean in (0.1, 0.2, 0.7)])
    values = np.insert(values, 80, [0.3, 0.4, 0.5])
    found = compare_densities(values, gold)
    assert found["overlaps"] == [pytest.approx(density_overlap(values[:40], values[40:80])), None, None]
    assert found["value"] == found["overlaps"][0]
    assert [group["pairs"] for group in found["groups"]] == [40, 40, 3, 40]
    assert found["groups"][0]["mean"] == pytest.approx(values[:40].mean())
    assert found["groups"][0]["sd"] == pytest.approx(values[:40].std(ddof=1))
    assert [curve is None for curve in found["curves"]] == [False, False, True, False]
    assert found["curves"][0][55] == pytest.approx(kernel_density(values[:40], 0.1))
    assert "width 1" in found["convention"]


def test_undefined_figures_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, flat = vectors(4), np.full(20, 0.7)
    zero = x.copy()
    zero[2] = 0
    gold = np.repeat([0.5, 1.5], 10)
    calls: dict[Any, tuple[str, ...]] = {
        lambda: alignment(x[:0], x[:0]): ("no pair", "alignment"),
        lambda: alignment(x, zero): ("vector 3 of 4", "length 0"),
        lambda: uniformity(zero): ("vector 3 of 4", "length 0"),
        lambda: uniformity(x[:1]): ("uniformity", "two sentences", "1"),
        lambda: isotropy(x[:1]): ("isotropy", "two sentences", "1"),
        lambda: isotropy(0 * x): ("vectors are 0", "no spectrum"),
        lambda: gold_groups(flat[:0], flat[:0]): ("no pair", "gold score"),
        lambda: compare_densities(flat, gold): ("2 gold group(s)", "too few pairs", "all alike"),
    }
    for call, facts in calls.items():
        with pytest.raises(BenchError) as caught:
            call()
        assert not missing_facts(caught.value, *facts)
    monkeypatch.setattr("bench.probes.uniformity.MOST", 3)
    with pytest.raises(InputError, match=r"uniformity of 4 .*at most 3"):
        uniformity(x)
    for bad in (
        lambda: alignment(x, x[:2]),
        lambda: alignment(x, x, 0),
        lambda: uniformity(x, 0),
        lambda: uniformity(x, 101),
        lambda: gold_groups(flat, flat, "x"),
        lambda: gold_groups(flat, flat[:3]),
    ):
        with pytest.raises(ValueError, match=r"vectors|t=|by="):
            bad()
