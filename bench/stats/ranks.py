"""Which of k methods are told apart: all pairs with one correction, and the groups and ranks that follow.

All that tables and figures say of k methods comes from one :class:`Ranking`, so no two contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from bench.stats.correction import METHODS, adjust_levels, adjust_p_values, describe_family
from bench.stats.inputs import check_level, check_scores

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_LETTERS = 3  # of one method; more are written as first and last


@dataclass(frozen=True)
class PairTest:
    """The test of two methods, before correction.

    Args:
        difference: first - second.
        p: Two-sided p; None where the two can't be tested.
        test: Name of the test, or why there is none.
        interval: Its confidence interval, of this pair alone; None where there is none.
    """

    difference: float
    p: float | None
    test: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class RankedPair:
    """Two methods of a ranking.

    Args:
        first: The method that stands before the other.
        second: The other.
        difference: first - second, as their test has it.
        p: Before correction; None where the two can't be tested.
        adjusted: After it.
        differs: True if the corrected p shows a difference.
        test: Name of the test, or why there is none.
        level: Confidence level at which its interval leaves out 0 just where the two differ, see
            :func:`bench.stats.correction.adjust_levels`; None where they can't be tested.
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
        methods: Names, the best first; without those of which no pair can be tested.
        scores: Theirs.
        pairs: All pairs, in the order of the scores; those of the methods left out too.
        left_out: Methods of which no pair can be tested.
        alpha: The chance of any false difference among all pairs.
        caption: The correction in words.
    """

    methods: tuple[str, ...]
    scores: tuple[float, ...]
    pairs: tuple[RankedPair, ...]
    left_out: tuple[str, ...]
    alpha: float
    caption: str

    @cached_property
    def groups(self) -> tuple[range, ...]:
        """Runs of neighbours, as long as can be, in which each pair was tested and none is shown to differ.

        Each is a range of places in ``methods``; every method is in one or more, perhaps alone. "Not shown to
        differ" isn't transitive: a may not differ from b, nor b from c, though a differs from c; then the
        groups are (a, b) and (b, c). So methods that share a group are not shown to differ. Of those that
        share none, ``pairs`` says whether they differ: it may be another pair between the two that does (a
        noisy method may not be told from the best, though a steadier one between them is), or a pair there
        that was not tested.
        """
        count, place = len(self.methods), {name: i for i, name in enumerate(self.methods)}
        ends = [count] * (count + 1)  # how far the longest run goes that starts at each method
        for one in self.pairs:
            if (one.differs or one.p is None) and {one.first, one.second} <= place.keys():
                ends[place[one.first]] = min(ends[place[one.first]], place[one.second])
        for i in reversed(range(count)):
            ends[i] = min(ends[i], ends[i + 1])
        del ends[count]
        return tuple(range(i, end) for i, end in enumerate(ends) if i == 0 or end > ends[i - 1])

    @cached_property
    def letters(self) -> dict[str, str]:
        """Each method's groups as letters, a for the first; "c-f" where it is in more than three.

        This is a compact letter display (Piepho 2004, J. Comput. Graph. Stat. 13), restricted to neighbours.
        """
        found: dict[str, list[str]] = {method: [] for method in self.methods}
        for number, group in enumerate(self.groups):
            for place in group:
                found[self.methods[place]].append(_group_letter(number))
        return {
            method: f"{own[0]}-{own[-1]}" if len(own) > _MOST_LETTERS else "".join(own)
            for method, own in found.items()
        }

    @property
    def first(self) -> tuple[str, ...]:
        """The first group: the best method, and those after it of which no pair is shown to differ.

        A method further down may be the best too, where its rank's interval begins at 1: it is not shown to
        differ from the best, but a method between them is.
        """
        return tuple(self.methods[i] for i in self.groups[0]) if self.groups else ()

    @cached_property
    def intervals(self) -> dict[str, tuple[int, int]]:
        """The ranks that each method may have: 1 + methods shown better, k - methods shown worse.

        All k intervals hold together with the chance 1 - alpha (Mogstad, Romano, Shaikh and Wilhelm 2024,
        Rev. Econ. Stud. 91). Where methods are equal, each of their ranks is covered.

        Not the percentiles of the ranks in draws of seeds (or of items), as leaderboards elsewhere have them:
        these draws repeat the order that the data happened to give (Hall and Miller 2009, Ann. Statist. 37),
        and would contradict the tests. Measured with 5 independent seeds of 5 and of 10 methods (2,000
        simulations each; benchmarks/ranks.py): means that are all but equal, a 95% interval has the true rank
        in 84% and 77%, those of all methods together in 49% and 9%; the intervals here in 95.2% at least.
        """
        better, worse = dict.fromkeys(self.methods, 0), dict.fromkeys(self.methods, 0)
        for one in self.pairs:
            if one.differs and one.difference:
                up, down = (one.first, one.second) if one.difference > 0 else (one.second, one.first)
                better[down] += 1
                worse[up] += 1
        return {name: (1 + better[name], len(self.methods) - worse[name]) for name in self.methods}

    def pair(self, a: str, b: str) -> RankedPair:
        """Return the pair of two methods, which may stand in either order."""
        return self._by_names[frozenset((a, b))]

    @cached_property
    def _by_names(self) -> dict[frozenset[str], RankedPair]:
        return {frozenset((one.first, one.second)): one for one in self.pairs}

    def among(self, methods: Collection[str]) -> Ranking:
        """The same for some of the methods; the correction stays that over all pairs."""
        kept = [i for i, name in enumerate(self.methods) if name in methods]
        return replace(
            self,
            methods=tuple(self.methods[i] for i in kept),
            scores=tuple(self.scores[i] for i in kept),
            pairs=tuple(one for one in self.pairs if one.first in methods and one.second in methods),
            left_out=tuple(name for name in self.left_out if name in methods),
        )

    def renamed(self, shown: Callable[[str], str]) -> Ranking:
        """The same under other names, no two alike."""
        return replace(
            self,
            methods=tuple(map(shown, self.methods)),
            pairs=tuple(replace(one, first=shown(one.first), second=shown(one.second)) for one in self.pairs),
            left_out=tuple(map(shown, self.left_out)),
        )

    @property
    def untested(self) -> tuple[RankedPair, ...]:
        """Pairs that can't be tested, of methods that are not left out."""
        there = set(self.methods)
        return tuple(one for one in self.pairs if one.p is None and {one.first, one.second} <= there)


Tests = Callable[[str, str], PairTest] | Mapping[tuple[str, str], PairTest]
"""The test of two methods: as a function of their names, or a table with each pair in either order."""


def rank_methods(
    scores: Mapping[str, float], tests: Tests, *, alpha: float = 0.05, name: str = "all pairs of methods"
) -> Ranking:
    """Test all pairs of methods, each by its own design, with Holm's correction over all of them.

    Holm's correction bounds the chance of any false difference by alpha, however the tests depend on each
    other. Measured at alpha = 0.05 with 5 seeds of 5 and of 10 methods (20,000 simulations each, +-0.4 points
    at most; benchmarks/ranks.py): all equal, 3.0% and 2.8% by Welch's tests, 4.9% and 4.7% by paired t tests
    of seeds that correlate at 0.9; half of the methods better by three standard deviations, 2.9% and 1.8%,
    3.3% and 2.6%. The ranks of all methods lie in their intervals together in 95.2% at least.

    Args:
        scores: Mean of each method; larger is better.
        tests: The test of each pair, before correction; see :func:`bench.stats.pair_test.pair_test`.
        alpha: The chance of any false difference among all pairs, in (0, 1).
        name: What the pairs are, for the caption.

    Returns:
        The methods in their order, best first, ties in the order of the names; with all pairs.

    Raises:
        ValueError: a score that is not finite, a pair that ``tests`` lacks, a p outside [0, 1], a bad alpha.

    >>> means = {"tncse": 78.0, "jtcse": 77.9, "simcse": 76.0, "untrained": 60.0}
    >>> p = {("tncse", "jtcse"): 0.60, ("tncse", "simcse"): 0.004, ("jtcse", "simcse"): 0.03}
    >>> def welch(a: str, b: str) -> PairTest:
    ...     return PairTest(means[a] - means[b], p.get((a, b), 0.0001), "Welch")
    >>> found = rank_methods(means, welch)
    >>> found.letters
    {'tncse': 'a', 'jtcse': 'ab', 'simcse': 'b', 'untrained': 'c'}
    >>> found.intervals
    {'tncse': (1, 2), 'jtcse': (1, 3), 'simcse': (2, 3), 'untrained': (4, 4)}
    >>> found.first, found.caption
    (('tncse', 'jtcse'), 'Holm over 6 comparisons (all pairs of methods)')
    """
    check_level(alpha)
    check_scores(list(scores.values()), "scores", least=0)
    order = sorted(scores, key=lambda method: (-scores[method], method))
    found = {pair: _find_test(tests, *pair) for pair in combinations(order, 2)}
    for (a, b), one in found.items():
        if one.p is not None and not 0 <= one.p <= 1:
            raise ValueError(f"{a} against {b}: p={one.p}; expected a number in [0, 1]")
    there = {method for pair, one in found.items() if one.p is not None for method in pair}
    tested = {pair: one.p for pair, one in found.items() if one.p is not None}
    adjusted = dict(zip(tested, adjust_p_values(list(tested.values()), "holm"), strict=True))
    levels = adjust_levels({str(pair): p for pair, p in tested.items()}, "holm", 1 - alpha)
    pairs = tuple(
        RankedPair(*pair, one.difference, one.p, p, p is not None and p <= alpha, one.test, level)
        for pair, one in found.items()
        for p, level in ((adjusted.get(pair), levels.get(str(pair))),)
    )
    methods = tuple(method for method in order if method in there)
    return Ranking(
        methods,
        tuple(float(scores[method]) for method in methods),
        pairs,
        tuple(method for method in order if method not in there),
        alpha,
        describe_family(METHODS["holm"], len(tested), name),
    )


def _find_test(tests: Tests, a: str, b: str) -> PairTest:
    if callable(tests):
        return tests(a, b)
    if (a, b) in tests:
        return tests[a, b]
    if (b, a) not in tests:
        raise ValueError(f"no test of {a} against {b}; expected one of every pair")
    turned = tests[b, a]
    return PairTest(-turned.difference, turned.p, turned.test)


def _group_letter(number: int) -> str:
    """The letters a to z, then a2 to z2, and so on."""
    turn, place = divmod(number, len(_LETTERS))
    return _LETTERS[place] + (str(turn + 1) if turn else "")
