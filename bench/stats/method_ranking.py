"""Rankings of k methods: tests of all pairs with one correction, and the groups and ranks that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from bench.stats.argument_checks import check_level, check_scores
from bench.stats.correction import METHODS, adjust_levels, adjust_p_values, describe_family


@dataclass(frozen=True)
class PairTest:
    """The test of two methods before correction: first - second, and p if tested.

    Args:
        test: Name of the test, or the obstacle to one.
        interval: Confidence interval of this pair.
        df: Degrees of freedom of a test over tasks.
    """

    difference: float
    p: float | None
    test: str
    interval: tuple[float, float] | None = None
    df: float | None = None


@dataclass(frozen=True)
class RankedPair:
    """Two methods of a ranking, ``first`` with the higher score.

    Args:
        p: Before correction, if tested; ``adjusted`` after it.
        level: Confidence level at which the interval excludes 0 exactly if the two differ, from
            :func:`bench.stats.correction.adjust_levels`.
    """

    first: str
    second: str
    difference: float
    p: float | None
    adjusted: float | None
    differs: bool
    test: str
    level: float | None


@dataclass(frozen=True)
class Ranking:
    """k methods in the order of their scores, and all pairs of them.

    Args:
        methods: Names of methods with a tested pair, the best first; ``left_out`` are the others.
        pairs: All pairs, in the order of the scores, with those of ``left_out``.
        alpha: Bound of the chance of any false difference among all pairs.
    """

    methods: tuple[str, ...]
    scores: tuple[float, ...]
    pairs: tuple[RankedPair, ...]
    left_out: tuple[str, ...]
    alpha: float
    caption: str

    @cached_property
    def groups(self) -> tuple[range, ...]:
        """Longest runs of neighbours whose pairs were all tested and are insignificant, as places.

        They cover all methods and may overlap: if only a and c differ, the groups are (a, b) and (b, c).
        """
        count, place = len(self.methods), {name: i for i, name in enumerate(self.methods)}
        ends = [count] * (count + 1)  # where the longest run ends that starts at each method
        for pair in self.pairs:
            if (pair.differs or pair.p is None) and {pair.first, pair.second} <= place.keys():
                ends[place[pair.first]] = min(ends[place[pair.first]], place[pair.second])
        for i in reversed(range(count)):
            ends[i] = min(ends[i], ends[i + 1])
        del ends[count]
        return tuple(range(i, end) for i, end in enumerate(ends) if i == 0 or end > ends[i - 1])

    @cached_property
    def intervals(self) -> dict[str, tuple[int, int]]:
        """95% confidence set of each rank: 1 + significantly better methods, k - significantly worse ones.

        All k sets hold together with probability 1 - alpha (Mogstad, Romano, Shaikh and Wilhelm 2024,
        Rev. Econ. Stud. 91), measured: at least 95.2% (benchmarks/ranks.py). A percentile interval of ranks
        in draws of seeds has the true rank in 77 to 84%.
        """
        better, worse = dict.fromkeys(self.methods, 0), dict.fromkeys(self.methods, 0)
        for pair in self.pairs:
            if pair.differs and pair.difference:
                names = (pair.first, pair.second)
                winner, loser = names if pair.difference > 0 else reversed(names)
                better[loser] += 1
                worse[winner] += 1
        return {name: (1 + better[name], len(self.methods) - worse[name]) for name in self.methods}

    def pair(self, a: str, b: str) -> RankedPair:
        """Return the pair of two methods, in either order."""
        return self._by_names[frozenset((a, b))]

    def find_pair(self, a: str, b: str) -> RankedPair | None:
        """Return the pair of two methods, in either order; None if one isn't among them."""
        return self._by_names.get(frozenset((a, b)))

    @cached_property
    def _by_names(self) -> dict[frozenset[str], RankedPair]:
        return {frozenset((pair.first, pair.second)): pair for pair in self.pairs}

    def among(self, methods: Collection[str]) -> Ranking:
        """Return the ranking of some of the methods, with the correction over all pairs."""
        places = [i for i, name in enumerate(self.methods) if name in methods]
        names = tuple(self.methods[i] for i in places)
        scores = tuple(self.scores[i] for i in places)
        pairs = tuple(pair for pair in self.pairs if {pair.first, pair.second} <= set(methods))
        left_out = tuple(name for name in self.left_out if name in methods)
        return replace(self, methods=names, scores=scores, pairs=pairs, left_out=left_out)

    def renamed(self, shown: Callable[[str], str]) -> Ranking:
        """Return the ranking under other, distinct names."""
        pairs = [replace(pair, first=shown(pair.first), second=shown(pair.second)) for pair in self.pairs]
        names, left_out = tuple(map(shown, self.methods)), tuple(map(shown, self.left_out))
        return replace(self, methods=names, pairs=tuple(pairs), left_out=left_out)

    @property
    def untested(self) -> tuple[RankedPair, ...]:
        """Untested pairs of ``methods``."""
        names = set(self.methods)
        return tuple(pair for pair in self.pairs if pair.p is None and {pair.first, pair.second} <= names)


Tests = Callable[[str, str], PairTest] | Mapping[tuple[str, str], PairTest]
"""The test of two methods: a function of their names, or a table with each pair in either order."""


def rank_methods(
    scores: Mapping[str, float], tests: Tests, *, alpha: float = 0.05, name: str = "all pairs of methods"
) -> Ranking:
    """Test all pairs of methods, each by its own design, with Holm's correction over all of them.

    Holm's correction bounds the chance of any false difference by alpha, for any dependence of the tests.
    Measured at alpha = 0.05: 1.8 to 4.9% (benchmarks/ranks.py). ``tests`` are before correction; see
    :func:`bench.stats.difference_test.pair_test`. ``name`` names the family of pairs in the caption. Ties
    stand in the order of the names.

    >>> means = {"tncse": 78.0, "jtcse": 77.9, "simcse": 76.0, "untrained": 60.0}
    >>> p = {("tncse", "jtcse"): 0.60, ("tncse", "simcse"): 0.004, ("jtcse", "simcse"): 0.03}
    >>> def welch(a: str, b: str) -> PairTest:
    ...     return PairTest(means[a] - means[b], p.get((a, b), 0.0001), "Welch")
    >>> ranking = rank_methods(means, welch)
    >>> ranking.intervals
    {'tncse': (1, 2), 'jtcse': (1, 3), 'simcse': (2, 3), 'untrained': (4, 4)}
    >>> ranking.groups, ranking.caption
    ((range(0, 2), range(1, 3), range(3, 4)), 'Holm over 6 comparisons (all pairs of methods)')
    """
    check_level(alpha)
    check_scores(list(scores.values()), "scores", least=0)
    order = sorted(scores, key=lambda method: (-scores[method], method))
    by_pair = {pair: _find_test(tests, *pair) for pair in combinations(order, 2)}
    p_values = {pair: test.p for pair, test in by_pair.items() if test.p is not None}
    for (a, b), value in p_values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{a} against {b}: p={value}; expected a number in [0, 1]")
    tested = {method for pair in p_values for method in pair}
    adjusted = dict(zip(p_values, adjust_p_values(list(p_values.values()), "holm"), strict=True))
    levels = adjust_levels(p_values, "holm", 1 - alpha)
    pairs = []
    for pair, test in by_pair.items():
        p = adjusted.get(pair)
        differs = p is not None and p <= alpha
        pairs.append(RankedPair(*pair, test.difference, test.p, p, differs, test.test, levels.get(pair)))
    methods = tuple(method for method in order if method in tested)
    means = tuple(float(scores[method]) for method in methods)
    left_out = tuple(method for method in order if method not in tested)
    caption = describe_family(METHODS["holm"], len(p_values), name)
    return Ranking(methods, means, tuple(pairs), left_out, alpha, caption)


def _find_test(tests: Tests, a: str, b: str) -> PairTest:
    if callable(tests):
        return tests(a, b)
    if (a, b) in tests:
        return tests[a, b]
    if (b, a) not in tests:
        raise ValueError(f"no test of {a} against {b}; expected one of every pair")
    reverse = tests[b, a]
    return PairTest(-reverse.difference, reverse.p, reverse.test)
