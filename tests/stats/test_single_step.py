"""The single-step correction of a family that shares a baseline."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtr

from bench.stats.single_step import _SEED, DRAWS, _smallest_p, common_correlation, correct_family


def test_one_row_is_not_corrected() -> None:
    alone = correct_family([7])
    assert alone.adjust(0.031) == pytest.approx(0.031)
    assert alone.level() == pytest.approx(0.95)


@pytest.mark.parametrize("others", [2, 9, 46])
def test_rows_of_unknown_dependence_are_bonferronis(others: int) -> None:
    family = correct_family([], others=others)
    assert family.adjust(0.001) == pytest.approx(0.001 * others)
    assert family.level() == pytest.approx(1 - 0.05 / others)


@pytest.mark.parametrize(("rows", "seeds"), [(4, 3), (10, 5), (46, 10)])
def test_independent_rows_are_sidaks(rows: int, seeds: int) -> None:
    level = correct_family([seeds] * rows).level()
    assert 1 - level == pytest.approx(1 - 0.95 ** (1 / rows), rel=0.1)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_level_is_that_of_a_direct_simulation(correlation: float) -> None:
    rng = np.random.default_rng(5)
    common, own = rng.standard_normal((20_000, 6, 1)), rng.standard_normal((20_000, 6, 12))
    scores = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    t = scores.mean(1) / (scores.std(1, ddof=1) / np.sqrt(6))
    smallest = 2 * stats.t.sf(np.abs(t).max(1), 5)
    assert 1 - correct_family([6] * 12, correlation).level() == pytest.approx(
        np.quantile(smallest, 0.05), rel=0.12
    )


def test_shared_noise_narrows_and_more_rows_widen() -> None:
    levels = [correct_family([8] * 20, r).level() for r in (0.0, 0.5, 0.8, 0.95)]
    assert all(low > high for low, high in pairwise(levels))
    levels = [correct_family([8] * rows, 0.5).level() for rows in (1, 2, 5, 20)]
    assert all(low < high for low, high in pairwise(levels))


def test_p_and_level_say_the_same() -> None:
    family = correct_family([5] * 10 + [8] * 6, 0.6, others=3)
    limit = 1 - family.level()
    assert family.adjust(limit * 0.999) <= 0.05 < family.adjust(limit * 1.01)


def test_rows_of_other_seeds_share_a_family() -> None:
    mixed = correct_family([5] * 10 + [10] * 10, 0.5).level()
    assert correct_family([10] * 10, 0.5).level() < mixed < 1 - 0.05 / 20 * 0.95


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [2.0, 7.0]], np.corrcoef([1, 3, 2], [2, 4, 7])[0, 1]),
        ([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]], 0.0),
        ([[1.0, 2.0, 5.0], [3.0, 4.0, 5.0], [2.0, 7.0, 5.0]], np.corrcoef([1, 3, 2], [2, 4, 7])[0, 1]),
        ([[1.0], [2.0], [3.0]], 0.0),
        ([[1.0, 1.0], [2.0, 2.0]], 0.0),
    ],
    ids=["two rows", "opposite", "a constant row", "one row", "two seeds"],
)
def test_the_common_correlation(differences: list[list[float]], expected: float) -> None:
    assert common_correlation(differences) == pytest.approx(max(0.0, expected))


def test_a_row_of_one_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="one seed"):
        correct_family([5, 1])


def test_all_intervals_hold_at_once() -> None:
    rng, held = np.random.default_rng(3), []
    for _ in range(400):
        differences = rng.standard_normal((5, 46)) - rng.standard_normal((5, 1))
        level = correct_family([5] * 46, common_correlation(differences)).level()
        half = stats.t.ppf((1 + level) / 2, 4) * differences.std(0, ddof=1) / np.sqrt(5)
        held.append(np.all(np.abs(differences.mean(0)) <= half))
    assert 0.92 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("counts", [((5, 12),), ((3, 2), (7, 3)), ((8, 4), (13, 2)), ((20, 3),)])
@pytest.mark.parametrize("correlation", [0.0, 0.35, 0.98])
def test_rows_one_by_one_are_all_rows_at_once(
    counts: tuple[tuple[int, int], ...], correlation: float
) -> None:
    own, shared = 1 - correlation, correlation
    smallest = np.ones(DRAWS)
    for seeds, rows in counts:
        common = np.random.default_rng(_SEED).standard_normal((seeds, DRAWS)).T
        deviations = common - common.mean(axis=1, keepdims=True)
        rng, sums = np.random.default_rng([_SEED, seeds]), []
        for _ in range(rows):
            drawn = rng.standard_normal((DRAWS, seeds))
            spread = drawn - drawn.mean(axis=1, keepdims=True)
            parts = (drawn.mean(axis=1), (spread**2).sum(axis=1), (spread * deviations).sum(axis=1))
            sums.append(np.stack(parts).astype(np.float32))
        mean, square, product = np.stack(sums, axis=2)
        means = np.sqrt(shared) * common.mean(axis=1)[:, None] + np.sqrt(own) * mean
        squares = shared * (deviations**2).sum(axis=1)[:, None] + own * square
        squares = squares + 2 * np.sqrt(own * shared) * product
        largest = np.sqrt((means**2 / squares).max(axis=1) * seeds * (seeds - 1))
        smallest = np.minimum(smallest, 2 * stdtr(seeds - 1, -largest))
    assert (_smallest_p(counts, correlation) == np.sort(smallest)).all()
