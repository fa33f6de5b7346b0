"""Single-step correction of a family: several rows against one baseline, over seeds that they share.

Differences of rows from one baseline go together: the baseline's own runs are in all of them, and rows that
share seeds share what a seed does. Bonferroni ignores this. The correction here simulates the largest |t| of
a family whose differences have one common correlation, estimated from the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from bench.stats.argument_checks import FloatArray

DRAWS = 20_000
Sums = NDArray[np.float32]
_SEED = 20_261_128
_BLOCK = 8  # numbers from which numpy adds several at once
_HIGHEST = 0.98  # of a common correlation: rows that differ by a constant still have noise of their own


@dataclass(frozen=True)
class FamilyCorrection:
    """What a family of tests does to the p and the level of each.

    Args:
        smallest: (draws,) smallest p of the simulated rows, sorted; empty without such rows.
        others: Number of further tests, which Bonferroni's inequality adds.
    """

    smallest: FloatArray
    others: int

    def adjust(self, p: float) -> float:
        """Return the chance, where no row differs, that the smallest p of the family is at most ``p``."""
        simulated = np.searchsorted(self.smallest, p, side="right")
        share = (simulated + 1) / (len(self.smallest) + 1) if len(self.smallest) else 0.0
        return float(min(1.0, max(p, share + self.others * p)))

    def level(self, alpha: float = 0.05) -> float:
        """Return the confidence level of each interval, so that all hold at once with 1 - ``alpha``."""
        low, high = alpha / max(1, self.others + len(self.smallest)), alpha
        for _ in range(60):  # adjust is a rising step function of p
            middle = (low + high) / 2
            low, high = (middle, high) if self.adjust(middle) <= alpha else (low, middle)
        return 1 - low


def common_correlation(differences: ArrayLike) -> float:
    """Return the mean correlation of a family's differences, at least 0.

    Args:
        differences: (seeds, rows) of one family; a row that doesn't vary is left out.

    >>> round(common_correlation([[1.0, 2.0], [2.0, 3.0], [4.0, 5.0]]), 2)
    0.98
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 3:
        return 0.0
    deviations = values - values.mean(axis=0)
    lengths = np.sqrt((deviations**2).sum(axis=0))
    varies = lengths > 0
    rows = int(varies.sum())
    if rows < 2:
        return 0.0
    standard = deviations[:, varies] / lengths[varies]
    total = float((standard.sum(axis=1) ** 2).sum())  # of all correlations, the diagonal's ones among them
    return float(np.clip((total - rows) / (rows * (rows - 1)), 0.0, _HIGHEST))


def correct_family(seeds: Sequence[int], correlation: float = 0.0, others: int = 0) -> FamilyCorrection:
    """Return the correction of a family of paired t tests against one baseline.

    Args:
        seeds: Of each row, the number of its differences, at least 2.
        correlation: Common correlation of the differences, in [0, 1), see :func:`common_correlation`. It is
            rounded down to a multiple of 0.05, which widens the intervals a little.
        others: Number of further tests of the family whose dependence isn't known.

    Raises:
        ValueError: a row with one seed.

    >>> correct_family([5]).adjust(0.03)
    0.03
    >>> 0.05 < correct_family([5] * 4, 0.5).adjust(0.02) < 0.08
    True
    """
    if any(count < 2 for count in seeds):
        raise ValueError("a row has one seed; expected 2 or more")
    if len(seeds) + others <= 1:
        return FamilyCorrection(np.array([]), 1)
    if len(seeds) < 2:
        return FamilyCorrection(np.array([]), others + len(seeds))
    counts = tuple(sorted((count, list(seeds).count(count)) for count in set(seeds)))
    return FamilyCorrection(_smallest_p(counts, int(20 * correlation) / 20), others)


@lru_cache(maxsize=128)
def _smallest_p(counts: tuple[tuple[int, int], ...], correlation: float) -> FloatArray:
    """(draws,) smallest p of rows of which none differs, sorted; ``counts`` are (seeds, rows)."""
    smallest = np.ones(DRAWS)
    for seeds, rows in counts:
        largest = np.sqrt(_draws_of(seeds).find_largest(rows, correlation) * seeds * (seeds - 1))
        smallest = np.minimum(smallest, 2 * stdtr(seeds - 1, -largest))
    smallest.sort()
    return smallest


class _Draws:
    """Sums over the draws of rows of n seeds, and over a draw that all rows share.

    A draw x sqrt(1 - r) + c sqrt(r) has its mean and deviations from these at any correlation r. The draws
    of a row don't depend on the number of rows, nor the shared draw of a seed on the number of seeds.
    """

    def __init__(self, seeds: int) -> None:
        common = np.random.default_rng(_SEED).standard_normal((seeds, DRAWS))
        self._common_mean = common.mean(axis=0)
        self._deviations = common - self._common_mean
        self._common_square = (self._deviations**2).sum(axis=0)
        self._generator = np.random.default_rng([_SEED, seeds])
        self._sums: list[tuple[Sums, Sums, Sums]] = []  # of each row: (draws,) means, squares and products

    def find_largest(self, rows: int, correlation: float) -> FloatArray:
        """Return the (draws,) largest mean^2 / sum of squared deviations of the first rows.

        Row by row, as the sums of one row fit into the processor's cache.
        """
        own, common = 1 - correlation, correlation
        shared_mean, shared_square = np.sqrt(common) * self._common_mean, common * self._common_square
        largest = np.zeros(DRAWS)
        for mean, square, product in self._take(rows):
            means = shared_mean + np.sqrt(own) * mean
            squares = shared_square + own * square + 2 * np.sqrt(own * common) * product
            np.maximum(largest, means**2 / squares, out=largest)
        return largest

    def _take(self, rows: int) -> list[tuple[Sums, Sums, Sums]]:
        while len(self._sums) < rows:
            seeds = len(self._deviations)
            own = np.ascontiguousarray(self._generator.standard_normal((DRAWS, seeds)).T)
            own_mean = _sum_seeds(own) / seeds
            spread = own - own_mean
            sums = (own_mean, _sum_seeds(spread**2), _sum_seeds(spread * self._deviations))
            mean, square, product = (each.astype(np.float32) for each in sums)
            self._sums.append((mean, square, product))
        return self._sums[:rows]


def _sum_seeds(values: FloatArray) -> FloatArray:
    """Return the (draws,) sums of (seeds, draws), in numpy's order of adding the seeds of each draw."""
    in_order = values if len(values) < _BLOCK else np.ascontiguousarray(values.T)
    sums: FloatArray = in_order.sum(axis=0 if in_order is values else 1)
    return sums


_draws_of = lru_cache(maxsize=32)(_Draws)
