"""Tests of all pairs of methods at once: the numbers of ``pair_test``, to the last bit, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from bench.stats.argument_checks import FloatArray
from bench.stats.difference_test import AND_ITEMS, PAIRED, WELCH, mean_variance
from bench.stats.method_ranking import PairTest
from bench.stats.seeds import ROUNDING, least_p, side_parts

Parts = Sequence[tuple[FloatArray, float]]
"""(pairs,) variances that a task's items add to each difference, with their degrees of freedom."""
IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class SeedTests:
    """Tests of m pairs of samples.

    Args:
        differences: (m,) first - second.
        p: (m,) before correction.
        fewest: (m,) p of Welch's tests with the degrees of freedom of the fewer seeds; p of the others.
    """

    differences: FloatArray
    p: FloatArray
    fewest: FloatArray


def paired_tests(a: FloatArray, b: FloatArray, parts: Parts = ()) -> SeedTests:
    """Test m pairs of methods by the paired t test over the same n seeds.

    Args:
        a: (m, n) scores of the first method of each pair; ``b`` are those of the second.
        parts: What items add, for tests that hold for seeds and items.

    >>> tests = paired_tests(np.array([[70.1, 72.3, 71.0]]), np.array([[70.0, 72.1, 70.7]]))
    >>> tests.differences.round(2).tolist(), tests.p.round(3).tolist()
    ([0.2], [0.074])
    """
    n, d = a.shape[1], a - b
    differences = a.mean(axis=1) - b.mean(axis=1)
    rounding = ROUNDING * np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1))
    spread = np.ptp(d, axis=1)
    is_constant = spread <= rounding
    differences[is_constant & (np.abs(differences) <= rounding)] = 0.0
    deviations = d - (d.sum(axis=1) / n)[:, None]
    variances = np.vecdot(deviations, deviations) / (n - 1) / n
    variances[is_constant | (spread <= ROUNDING * np.abs(d).max(axis=1))] = 0.0
    p = _t_tests(differences, [(variances, n - 1)], parts, least_p(n, n, paired=True))
    return SeedTests(differences, p, p)


def welch_tests(
    samples: Sequence[FloatArray], first: IntArray, second: IntArray, parts: Parts = ()
) -> SeedTests:
    """Test m pairs of methods by Welch's test.

    Args:
        samples: (runs,) scores of each method, two or more.
        first: (m,) places of the first method of each pair in ``samples``; ``second`` those of the second.
        parts: What items add, for tests that hold for seeds and items.

    >>> samples = [np.array([70.1, 72.3, 71.0]), np.array([69.0, 68.5])]
    >>> tests = welch_tests(samples, np.array([0]), np.array([1]))
    >>> tests.differences.round(2).tolist(), tests.p.round(3).tolist(), tests.fewest.round(3).tolist()
    ([2.38], [0.178], [0.178])
    """
    sizes = np.array([len(sample) for sample in samples])
    means, starts, variances = np.zeros((3, len(samples)))
    for place in {*first.tolist(), *second.tolist()}:
        sample = samples[place]
        means[place], starts[place], variances[place] = sample.mean(), sample[0], mean_variance(sample)[0]
    differences, p, fewest = np.empty(len(first)), np.empty(len(first)), np.empty(len(first))
    for n_a, n_b in {*zip(sizes[first].tolist(), sizes[second].tolist(), strict=True)}:
        chosen = np.flatnonzero((sizes[first] == n_a) & (sizes[second] == n_b))
        i, j = first[chosen], second[chosen]
        one, other, of_items = variances[i], variances[j], [(part[chosen], df) for part, df in parts]
        varies = (one != 0) | (other != 0)
        differences[chosen] = np.where(varies, means[i] - means[j], starts[i] - starts[j])
        least = least_p(n_a, n_b)
        sides = side_parts((one, n_a - 1), (other, n_b - 1))
        p[chosen] = _t_tests(differences[chosen], sides, of_items, least)
        fewer = [(one + other, min(n_a, n_b) - 1)]
        fewest[chosen] = _t_tests(differences[chosen], fewer, of_items, least)
    return SeedTests(differences, p, fewest)


def _t_tests(differences: FloatArray, seeds: Parts, items: Parts, least: float) -> FloatArray:
    """(m,) p of t tests of differences with independent parts of variance, as for one pair."""
    variances, freedom = _sum_parts([*seeds, *items])
    varies = variances > 0
    errors = np.sqrt(np.where(varies, variances, 1.0))
    p = 2 * stdtr(np.where(varies, freedom, 1.0), -np.abs(differences) / errors)
    p = np.where(varies, p, np.where(differences != 0, least, 1.0))
    if items:  # a statement on seeds and items includes the one on seeds
        p = np.where(varies, np.maximum(p, _t_tests(differences, seeds, (), least)), p)
    return p


def _sum_parts(parts: Parts) -> tuple[FloatArray, FloatArray]:
    """Return (m,) variances and Satterthwaite's degrees of freedom.

    Sums and squares are Python's, which differ from numpy's in the last bit: the numbers of a table are those
    of its pairs tested one by one.
    """
    variances = _add([part for part, _ in parts])
    whole = np.where(variances > 0, variances, 1.0)
    if len(parts) == 1:
        return variances, np.full(len(variances), 1 / (1 / parts[0][1]))
    shares = [(part / whole, freedom) for part, freedom in parts]
    squares = _add([_square(share) / freedom for share, freedom in shares])
    return variances, _square(_add([share for share, _ in shares])) / np.where(variances > 0, squares, 1.0)


def _add(arrays: Sequence[FloatArray]) -> FloatArray:
    if len(arrays) < 3:
        return arrays[0] if len(arrays) == 1 else arrays[0] + arrays[1]
    return np.array([sum(row) for row in zip(*(array.tolist() for array in arrays), strict=True)])


def _square(values: FloatArray) -> FloatArray:
    return np.array([value**2 for value in values.tolist()])


@dataclass(frozen=True)
class PairTable:
    """Tests of all pairs of k methods, which stand in the order of their scores.

    Args:
        methods: Names, the best first.
        differences: (k, k) of row - column.
        p: (k, k) before correction; not a number without a test.
        fewest: (k, k) as in :class:`SeedTests`.
        names: (k, k) places of the tests' names, or obstacles, in ``tests``.
    """

    methods: tuple[str, ...]
    differences: FloatArray
    p: FloatArray
    fewest: FloatArray
    names: NDArray[np.int32]
    tests: tuple[str, ...]

    @property
    def tested(self) -> list[int]:
        """Places of the methods with a tested pair."""
        return [int(place) for place in np.flatnonzero((~np.isnan(self.p)).any(axis=1))]

    def find(self, test: str) -> NDArray[np.bool_]:
        """Return the (k, k) pairs with a test of this name."""
        if test not in self.tests:
            return np.zeros(self.names.shape, dtype=np.bool_)
        chosen: NDArray[np.bool_] = np.equal(self.names, self.tests.index(test))
        np.fill_diagonal(chosen, val=False)
        return chosen

    def pair_tests(self) -> dict[tuple[str, str], PairTest]:
        """Return the test of every pair, the better method first."""
        first, second = np.triu_indices(len(self.methods), 1)
        columns = (first, second, self.differences[first, second], self.p[first, second])
        rows = zip(*(column.tolist() for column in (*columns, self.names[first, second])), strict=True)
        names, found = self.methods, {}
        for i, j, difference, p, name in rows:
            found[names[i], names[j]] = PairTest(difference, None if p != p else p, self.tests[name])
        return found


def make_pair_table(
    scores: Mapping[str, float],
    by_seed: FloatArray,
    paired: NDArray[np.bool_],
    parts: Callable[[IntArray, IntArray], Parts],
    test: Callable[[str, str], PairTest],
) -> PairTable:
    """Test all pairs of methods, each as ``pair_test`` does.

    Args:
        scores: Mean score by method, from the best to the worst.
        by_seed: (k, seeds) scores of these methods, not a number without a run; a method without seeds has
            none.
        paired: (k, k), whether the runs of the seeds that two methods have in common are pairs, and tested.
        parts: From two (m,) places of methods to what items add to their differences.
        test: The test of two methods one of which has fewer than two seeds.

    >>> from bench.stats.difference_test import pair_test
    >>> by_seed = np.array([[70.1, 72.3, 71.0], [70.0, 72.1, 70.7]])
    >>> scores, paired = {"a": 71.1, "b": 70.9}, np.full((2, 2), True)
    >>> table = make_pair_table(scores, by_seed, paired, lambda i, j: (), pair_test)
    >>> test = table.pair_tests()["a", "b"]
    >>> round(test.difference, 2), round(test.p, 3), test.test
    (0.2, 0.074, 'paired t')
    """
    methods, count = tuple(scores), len(scores)
    differences, p, fewest = np.zeros((count, count)), *np.full((2, count, count), np.nan)
    names, texts = np.zeros((count, count), dtype=np.int32), dict[str, int]()

    def fill(i: IntArray, j: IntArray, tests: SeedTests, text: str) -> None:
        differences[i, j], differences[j, i] = tests.differences, -tests.differences
        p[i, j] = p[j, i] = tests.p
        fewest[i, j] = fewest[j, i] = tests.fewest
        names[i, j] = names[j, i] = texts.setdefault(text, len(texts))

    has_run = ~np.isnan(by_seed)
    i, j = np.triu_indices(count, 1)
    enough = has_run.sum(axis=1) >= 2
    over_seeds, pairs = enough[i] & enough[j], paired[i, j]
    for one, other in _group_by_seeds(has_run, i[over_seeds & pairs], j[over_seeds & pairs]):
        common, of_items = has_run[one[0]] & has_run[other[0]], parts(one, other)
        a, b = (np.ascontiguousarray(by_seed[places][:, common]) for places in (one, other))
        fill(one, other, paired_tests(a, b, of_items), PAIRED + AND_ITEMS * bool(of_items))
    one, other = i[over_seeds & ~pairs], j[over_seeds & ~pairs]
    if len(one):
        samples = [row[runs] for row, runs in zip(by_seed, has_run, strict=True)]
        of_items = parts(one, other)
        fill(one, other, welch_tests(samples, one, other, of_items), WELCH + AND_ITEMS * bool(of_items))
    for place, counterpart in zip(i[~over_seeds].tolist(), j[~over_seeds].tolist(), strict=True):
        single = test(methods[place], methods[counterpart])
        numbers = np.array([single.difference]), np.array([np.nan if single.p is None else single.p])
        places = np.array([place]), np.array([counterpart])
        fill(*places, SeedTests(*numbers, numbers[1]), single.test)
    return PairTable(methods, differences, p, fewest, names, tuple(texts))


def _group_by_seeds(
    has_run: NDArray[np.bool_], first: IntArray, second: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the pairs of methods in groups of the same seeds."""
    _, kinds = np.unique(has_run, axis=0, return_inverse=True)
    both = kinds[first] * len(has_run) + kinds[second]
    for kind in np.unique(both):
        yield first[both == kind], second[both == kind]
