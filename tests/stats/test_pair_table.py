"""Tests of all pairs at once are those of each pair, to the last bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.stats.difference_test import WELCH, pair_test
from bench.stats.method_ranking import PairTest
from bench.stats.pair_table import PairTable, make_pair_table
from bench.stats.seed_design import choose_design

Array = NDArray[np.float64]
METHODS, SEEDS = 24, 12
FIXED = 0.71
"""Score of a method without seeds."""


@dataclass
class Rows:
    """Rows 0, 1, ... with their scores by seed, their pairings, and the items' parts of variances."""

    by_seed: Array
    paired: NDArray[np.bool_]
    parts: list[tuple[Array, float]]

    def test(self, a: str, b: str, *, fewest: bool = False) -> PairTest:
        """The test of one pair."""
        i, j = int(a), int(b)
        runs = ~np.isnan(self.by_seed[[i, j]])
        if self.paired[i, j]:
            runs[:] = runs.all(axis=0)
        x, y = (self.by_seed[place][chosen] for place, chosen in zip((i, j), runs, strict=True))
        return pair_test(
            x if len(x) else [FIXED],
            y if len(y) else [FIXED],
            deterministic=(not len(x), not len(y)),
            paired=bool(self.paired[i, j]),
            parts=[(float(part[i, j]), df) for part, df in self.parts],
            level=None,
            fewest=fewest,
        )

    def table(self) -> PairTable:
        """The tests of all pairs."""
        means = {str(row): float(np.mean(self._runs(row))) for row in range(METHODS)}
        means = dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))
        order = np.array([int(name) for name in means])
        return make_pair_table(
            means,
            self.by_seed[order],
            self.paired[np.ix_(order, order)],
            lambda i, j: [(part[order[i], order[j]], df) for part, df in self.parts],
            self.test,
        )

    def _runs(self, row: int) -> Array:
        runs = self.by_seed[row]
        return runs[~np.isnan(runs)] if (~np.isnan(runs)).any() else np.array([FIXED])


def draw_rows(seed: int, groups: int) -> Rows:
    """Rows with other seeds each; constant, equal and moved ones, one with one seed and one without."""
    rng = np.random.default_rng(seed)
    scores = 0.7 + rng.normal(size=(METHODS, 1)) / 50 + rng.normal(size=(METHODS, SEEDS)) / 100
    scores[1:3] = scores[0] + [[0.0], [0.01]]
    scores[3] = scores[4] = 0.7
    scores[5] = 0.1 + 0.2
    for row in scores[rng.random(METHODS) < 0.7]:
        row[rng.integers(1, SEEDS + 1) :] = np.nan
    scores[8:16, :] = np.where(rng.random((8, SEEDS)) < 0.2, np.nan, scores[8:16])
    scores[6, 1:], scores[7] = np.nan, np.nan
    paired = np.zeros((METHODS, METHODS), dtype=np.bool_)
    for i in range(METHODS):
        for j in range(i):
            a, b = (tuple(np.flatnonzero(~np.isnan(scores[row])).tolist()) for row in (i, j))
            paired[i, j] = paired[j, i] = choose_design(a, b, pairs=rng.random() < 0.6).paired
    variances = rng.exponential(size=(groups, METHODS, METHODS)) / 1e4
    return Rows(scores, paired, [(each + each.T, 30.5 + number) for number, each in enumerate(variances)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_a_table_is_that_of_its_pairs(seed: int, groups: int) -> None:
    rows = draw_rows(seed, groups)
    table = rows.table()
    found, places = table.pair_tests(), {name: place for place, name in enumerate(table.methods)}
    assert len(found) == METHODS * (METHODS - 1) / 2
    for (a, b), test in found.items():
        i, j = places[a], places[b]
        assert test == rows.test(a, b)
        if test.p is not None:
            assert table.fewest[i, j] == table.fewest[j, i] == rows.test(a, b, fewest=True).p
            assert (table.p[j, i], table.differences[j, i]) == (test.p, -test.difference)
    assert WELCH + " + items" * bool(groups) in {pair.test for pair in found.values()}
    assert places.keys() - {table.methods[place] for place in table.tested} == {"6"}
