"""Tests of all pairs at once are those of each pair, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.stats.difference_test import WELCH, pair_test
from bench.stats.method_ranking import PairTest
from bench.stats.pair_table import PairTable, make_pair_table
from bench.stats.seed_design import choose_design

Array = NDArray[np.float64]
SEEDS = 12


def draw_scores(rng: np.random.Generator, methods: int) -> Array:
    """Scores of methods with other seeds each: constant, equal, one seed and no seed among them."""
    scores = 0.7 + rng.normal(size=(methods, 1)) / 50 + rng.normal(size=(methods, SEEDS)) / 100
    scores[1:3] = scores[0] + [[0.0], [0.01]]  # copies, moved
    scores[3] = scores[4] = 0.7
    scores[5] = 0.1 + 0.2
    for row in scores:
        kept = rng.integers(1, SEEDS + 1) if rng.random() < 0.7 else SEEDS
        row[kept:] = np.nan
    scores[6, 1:], scores[7] = np.nan, np.nan
    return scores


def check_one_by_one(
    table: PairTable, by_seed: Array, paired: NDArray[np.bool_], fixed: float, parts: Sequence[tuple[Array, float]]
) -> None:
    """Compare a table with ``pair_test`` of every pair."""
    found = table.pair_tests()
    order = [int(name) for name in table.methods]
    assert len(found) == len(order) * (len(order) - 1) / 2
    for (a, b), test in found.items():
        sides = [row[~np.isnan(row)] for row in (by_seed[int(a)], by_seed[int(b)])]
        deterministic = not len(sides[0]), not len(sides[1])
        pairs = bool(paired[int(a), int(b)])
        if pairs:
            common = ~np.isnan(by_seed[int(a)]) & ~np.isnan(by_seed[int(b)])
            sides = [by_seed[int(a)][common], by_seed[int(b)][common]]
        x, y = (np.array([fixed]) if none else side for side, none in zip(sides, deterministic, strict=True))
        i, j = order.index(int(a)), order.index(int(b))
        of_items = [(float(part[i, j]), df) for part, df in parts]

        def one(*, fewest: bool) -> PairTest:
            return pair_test(
                x, y, deterministic=deterministic, paired=pairs, parts=of_items, level=None, fewest=fewest
            )

        assert test == one(fewest=False)
        other = one(fewest=True).p
        assert test.p is None or table.fewest[i, j] == other
        assert (table.differences[i, j], table.p[i, j]) == (-table.differences[j, i], table.p[j, i]) or test.p is None
    assert {pair.test for pair in found.values()} >= {WELCH + " + items" * bool(parts)}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_a_table_is_that_of_its_pairs(seed: int, groups: int) -> None:
    rng, methods = np.random.default_rng(seed), 24
    by_seed, fixed = draw_scores(rng, methods), 0.71
    means = np.array([np.nanmean(row) if (~np.isnan(row)).any() else fixed for row in by_seed])
    order = sorted(range(methods), key=lambda place: (-means[place], str(place)))
    may_pair = rng.random((methods, methods)) < 0.6
    paired = np.zeros((methods, methods), dtype=np.bool_)
    for i in range(methods):
        for j in range(i):
            a, b = (tuple(np.flatnonzero(~np.isnan(by_seed[place])).tolist()) for place in (i, j))
            chosen = choose_design(a, b, pairs=bool(may_pair[i, j])).paired
            paired[i, j] = paired[j, i] = chosen
    variances = rng.exponential(size=(groups, methods, methods)) / 1e4 * (rng.random() < 0.9)
    parts = [((each + each.T), 30.5 + number) for number, each in enumerate(variances)]

    def single(a: str, b: str) -> PairTest:
        sides = [by_seed[int(name)] for name in (a, b)]
        sides = [side[~np.isnan(side)] for side in sides]
        deterministic = not len(sides[0]), not len(sides[1])
        x, y = (side if len(side) else np.array([fixed]) for side in sides)
        i, j = (order.index(int(name)) for name in (a, b))
        of_items = [(float(part[i, j]), df) for part, df in parts]
        pairs = bool(paired[int(a), int(b)])
        return pair_test(x, y, deterministic=deterministic, paired=pairs, parts=of_items, level=None)

    table = make_pair_table(
        {str(place): float(means[place]) for place in order},
        by_seed[order],
        paired[np.ix_(order, order)],
        lambda i, j: [(part[i, j], df) for part, df in parts],
        single,
    )
    check_one_by_one(table, by_seed, paired, fixed, parts)
