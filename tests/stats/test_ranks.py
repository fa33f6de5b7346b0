from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from bench.stats.argument_checks import make_generator
from bench.stats.difference_test import ITEMS, PAIRED, STUDENT, WELCH, pair_test
from bench.stats.method_ranking import PairTest, RankedPair, Ranking, rank_methods
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import seed_difference

BOTH = (True, True)


def ranking(names: str, apart: str = "", untested: str = "") -> Ranking:
    """Methods of one letter each, best first; ``apart`` are pairs that differ, such as "ac bd"."""
    scores = {name: -float(i) for i, name in enumerate(names)}

    def test(a: str, b: str) -> PairTest:
        p = None if a + b in untested.split() else 1e-9 if a + b in apart.split() else 0.9
        return PairTest(scores[a] - scores[b], p, "Welch")

    return rank_methods(scores, test)


def members(found: Ranking) -> list[str]:
    return ["".join(found.methods[i] for i in group) for group in found.groups]


@pytest.mark.parametrize(
    ("names", "apart", "groups", "ranks"),
    [
        ("abcd", "", "abcd", [(1, 4)] * 4),
        ("abc", "ab ac bc", "a b c", [(1, 1), (2, 2), (3, 3)]),
        ("abcd", "ac ad bd", "ab bc cd", [(1, 2), (1, 3), (2, 4), (3, 4)]),
        # a noisy method below a steady one may be the best outside the first group
        ("abc", "ab", "a bc", [(1, 2), (2, 3), (1, 3)]),
        # a method below the best beats the last one
        ("abc", "bc", "ab c", [(1, 3), (1, 2), (2, 3)]),
    ],
)
def test_groups_and_ranks(names: str, apart: str, groups: str, ranks: list[tuple[int, int]]) -> None:
    found = ranking(names, apart)
    assert members(found) == groups.split()
    assert found.intervals == dict(zip(names, ranks, strict=True))
    assert found.caption == f"Holm over {math.comb(len(names), 2)} comparisons (all pairs of methods)"


def test_a_pair_that_cannot_be_tested_joins_no_group() -> None:
    found = ranking("abc", untested="ab")
    assert members(found) == ["a", "bc"]
    assert found.intervals["b"] == (1, 3)
    assert [(one.first, one.second, one.adjusted) for one in found.untested] == [("a", "b", None)]
    assert found.caption == "Holm over 2 comparisons (all pairs of methods)"


def test_a_method_without_any_test_is_left_out() -> None:
    found = ranking("abc", "ac", untested="ab bc")
    assert (found.methods, found.scores, found.left_out) == (("a", "c"), (0.0, -2.0), ("b",))
    assert found.intervals == {"a": (1, 1), "c": (2, 2)}
    differ = {pair.first + pair.second: pair.differs for pair in found.pairs}
    assert differ == {"ab": False, "ac": True, "bc": False}
    assert found.untested == ()
    nothing = ranking("ab", untested="ab")
    assert (nothing.methods, nothing.groups, nothing.left_out) == ((), (), ("a", "b"))
    assert ranking("a").left_out == ("a",)


def test_groups_are_all_maximal_runs_without_a_difference() -> None:
    """Against all runs, tried one by one, for every table of four methods."""
    pairs = ["".join(pair) for pair in combinations("abcd", 2)]
    for apart in product((False, True), repeat=len(pairs)):
        differing = [pair for pair, differs in zip(pairs, apart, strict=True) if differs]
        free = [
            "abcd"[i:j]
            for i, j in combinations(range(5), 2)
            if not any(set(pair) <= set("abcd"[i:j]) for pair in differing)
        ]
        maximal = [run for run in free if not any(run != other and run in other for other in free)]
        assert members(ranking("abcd", " ".join(differing))) == sorted(maximal)


def test_groups_overlap_along_a_chain() -> None:
    names = "abcdefgh"
    runs = ranking(names, " ".join(a + b for a, b in combinations(names, 2) if ord(b) - ord(a) > 3))
    assert members(runs) == ["abcd", "bcde", "cdef", "defg", "efgh"]


def test_the_correction_is_holms_over_all_pairs() -> None:
    means = {"u": 0.9, "v": 0.8, "w": 0.7, "x": 0.6}
    p = dict(zip(combinations(means, 2), (0.0001, 0.4, 0.016, 0.004, 0.9, 0.03), strict=True))
    found = rank_methods(
        means, {(b, a): PairTest(means[b] - means[a], p[a, b], "Welch") for a, b in p}, alpha=0.1
    )
    rejected, adjusted, *_ = multipletests(list(p.values()), 0.1, "holm")
    assert [(one.first, one.second) for one in found.pairs] == list(p)
    assert [one.adjusted for one in found.pairs] == pytest.approx(list(adjusted))
    assert [one.differs for one in found.pairs] == list(rejected)
    assert 0 < sum(rejected) < len(p)
    assert all(one.difference == pytest.approx(means[one.first] - means[one.second]) for one in found.pairs)


def test_the_interval_of_a_pair_leaves_out_0_just_where_it_differs() -> None:
    """Of all designs, the items' bootstrap within and beyond the reach of its draws too."""
    rng, seen = make_generator(0, "levels"), set()
    for _ in range(40):
        k = int(rng.integers(3, 8))
        runs = {f"s{i}": rng.normal(i / 2, 1, 4) for i in range(k)} | {f"d{i}": [1.2 * i] for i in range(k)}
        drawn = {name: float(own[0]) + rng.normal(0, 0.4, 300) for name, own in runs.items()}

        def test(a: str, b: str, level: float | None = None, runs=runs, drawn=drawn) -> PairTest:  # type: ignore[no-untyped-def]
            alone = (a[0] == "d", b[0] == "d")
            items = drawn[a] - drawn[b] if all(alone) else None
            paired = a[0] == b[0] == "s" and (int(a[1]) + int(b[1])) % 2 == 0
            return pair_test(runs[a], runs[b], deterministic=alone, paired=paired, items=items, level=level)

        found = rank_methods({name: float(np.mean(own)) for name, own in runs.items()}, test)
        for one in found.pairs:
            ends = test(one.first, one.second, one.level).interval
            assert ends is not None
            # draws of a percentile lie between two values, p counts whole ones
            near = one.test == ITEMS and min(map(abs, ends)) < 0.02
            assert near or (ends[0] > 0 or ends[1] < 0) == one.differs
            seen.add((one.test, one.differs))
        assert found.pair("s1", "s0") == found.pair("s0", "s1")
    assert seen == {(test, differs) for test in (PAIRED, WELCH, STUDENT, ITEMS) for differs in (True, False)}


def test_some_of_the_methods_keep_the_correction_over_all() -> None:
    whole = ranking("abcd", "ac ad", untested="bd")
    some = whole.among({"a", "c", "d"})
    assert (some.methods, some.scores) == (("a", "c", "d"), (0.0, -2.0, -3.0))
    assert [one for one in whole.pairs if "b" not in (one.first, one.second)] == list(some.pairs)
    assert (some.caption, some.left_out) == ("Holm over 5 comparisons (all pairs of methods)", ())
    assert some.intervals == {"a": (1, 1), "c": (2, 3), "d": (2, 3)}
    assert members(some) == ["a", "cd"]
    assert ranking("abc", untested="ab bc").among({"a", "b"}).left_out == ("b",)


def test_a_table_may_have_a_pair_in_either_order() -> None:
    table = {("b", "a"): PairTest(-1.0, 0.01, "Welch", (-1.5, -0.5))}
    (pair,) = rank_methods({"a": 1.0, "b": 0.0}, table).pairs
    assert pair == RankedPair("a", "b", 1.0, 0.01, 0.01, True, "Welch", 0.95)


def test_equal_scores_stand_in_the_order_of_their_names() -> None:
    found = rank_methods({"b": 1.0, "a": 1.0}, lambda *_: PairTest(0.0, 1.0, "Welch"))
    assert found.methods == ("a", "b")


A, B = [70.1, 72.3, 71.0, 69.5], [70.0, 72.1, 70.7, 69.6]


def is_test(found: PairTest, difference: float, p: float, test: str) -> bool:
    numbers = (found.difference, found.p)
    return found.test == test and numbers == pytest.approx((difference, p))


def test_each_pair_has_the_test_of_its_design() -> None:
    welch, paired = stats.ttest_ind(A, B, equal_var=False), stats.ttest_rel(A, B)
    assert is_test(pair_test(A, B), 0.125, float(welch.pvalue), WELCH)
    assert is_test(pair_test(A, B, paired=True), 0.125, float(paired.pvalue), PAIRED)
    assert paired.pvalue < 0.3 < 0.8 < welch.pvalue
    student = float(stats.ttest_1samp(A, 68.0).pvalue)
    assert is_test(pair_test(A, [68.0], deterministic=(False, True)), 2.725, student, STUDENT)
    assert is_test(pair_test([68.0], A, deterministic=(True, False)), -2.725, student, STUDENT)


def test_p_and_interval_are_those_of_the_tests_by_themselves() -> None:
    rng = make_generator(0, "same")
    for n, m in product((2, 3, 5), (2, 4, 5)):
        a, b = rng.normal(70, 1, n), rng.normal(69, 3, m)
        for found, expected in (
            (pair_test(a, b, level=0.9), seed_difference(a, b, 0.9)),
            (pair_test(a, [69.0], deterministic=(False, True), level=0.9), seed_difference(a, [69.0], 0.9)),
            (pair_test([69.0], b, deterministic=(True, False), level=0.9), seed_difference([69.0], b, 0.9)),
            (pair_test(a, b[0] + a**2, paired=True, level=0.9), paired_t(a, b[0] + a**2, 0.9)),
        ):
            assert found.interval == pytest.approx((expected.low, expected.high), rel=1e-9)
            assert (found.difference, found.p) == pytest.approx((expected.difference, expected.p), rel=1e-9)


def test_pairs_that_cannot_be_tested() -> None:
    for one in (pair_test([70.0], A), pair_test(A, [70.0], paired=True), pair_test([70.0], [60.0])):
        assert (one.p, one.test) == (None, "one seed")
    assert pair_test([70.0], [60.0], deterministic=(True, False)).test == "one seed"
    alone = pair_test([70.0], [60.0], deterministic=BOTH)
    assert alone == PairTest(10.0, None, "no seeds, and no draws of the items")


def test_without_spread_over_seeds() -> None:
    assert pair_test([1, 1], [1, 1]) == PairTest(0.0, 1.0, WELCH, (0.0, 0.0))
    assert pair_test([2, 2], [1, 1], paired=True) == PairTest(1.0, 0.5, PAIRED, (1.0, 1.0))
    assert pair_test([2] * 5, [1] * 5, paired=True).p == 2 / 2**5
    assert pair_test([2] * 5, [1] * 4).p == 2 / math.comb(9, 4)
    assert pair_test([2] * 5, [1], deterministic=(False, True)).p == 2 / 2**5
    assert pair_test([1, 3], [1, 3], paired=True) == PairTest(0.0, 1.0, PAIRED, (0.0, 0.0))
    # differences that agree but for rounding don't vary
    assert pair_test([0.3, 0.7], [0.2, 0.6], paired=True).p == 0.5
    assert pair_test([0.1 + 0.2, 0.7], [0.3, 0.7], paired=True).p == 1


def test_equal_scores_do_not_vary_though_their_mean_is_rounded() -> None:
    """The mean of three times 0.1 isn't 0.1."""
    assert np.mean([0.1] * 3) != 0.1
    assert pair_test([0.1] * 3, [0.1] * 2) == PairTest(0.0, 1.0, WELCH, (0.0, 0.0))
    assert pair_test([0.1] * 3, [0.1], deterministic=(False, True)).p == 1
    assert pair_test([0.2] * 3, [0.1] * 2).p == 0.2


def test_items_add_to_the_variance() -> None:
    """V = s_a^2 / n_a + s_b^2 / n_b + items; Satterthwaite's degrees of freedom, by hand."""
    own = [float(np.var(x, ddof=1)) / 4 for x in (A, B)]
    parts = [(0.02, 99), (0.05, 49)]
    total = sum(own) + 0.07
    df = total**2 / (own[0] ** 2 / 3 + own[1] ** 2 / 3 + 0.02**2 / 99 + 0.05**2 / 49)
    found = pair_test(A, B, parts=parts, level=0.9)
    assert is_test(found, 0.125, float(2 * stats.t.sf(0.125 / total**0.5, df)), f"{WELCH} + items")
    half = float(stats.t.ppf(0.95, df)) * total**0.5
    assert found.interval == pytest.approx((0.125 - half, 0.125 + half))
    own = [float(np.var(np.subtract(A, B), ddof=1)) / 4]
    total = sum(own) + 0.07
    df = total**2 / (own[0] ** 2 / 3 + 0.02**2 / 99 + 0.05**2 / 49)
    found = pair_test(A, B, paired=True, parts=parts, level=None)
    assert is_test(found, 0.125, float(2 * stats.t.sf(0.125 / total**0.5, df)), f"{PAIRED} + items")
    assert found.interval is None
    # where seeds don't vary, the items' part is what is left of the variance
    found = pair_test([2.0] * 5, [1.0] * 5, parts=[(0.25, 30)])
    assert found.p == pytest.approx(2 * stats.t.sf(2, 30))
    assert pair_test([2.0] * 2, [1.0] * 2, parts=[(0.25, 30)]).p == 1 / 3  # as without items


def test_what_holds_for_seeds_and_items_holds_for_seeds() -> None:
    """Items add degrees of freedom; with two pairs the interval would be narrower than without them."""
    x, y, parts = [70.1, 70.9], [69.8, 69.9], [(0.05, 900)]
    alone = pair_test(x, y, paired=True)
    both = pair_test(x, y, paired=True, parts=parts)
    assert (both.p, both.interval) == (alone.p, alone.interval)
    many = pair_test(A * 4, B * 4, paired=True, parts=parts)
    assert many.p is not None
    assert many.p > (pair_test(A * 4, B * 4, paired=True).p or 0)


def test_items_between_deterministic_methods() -> None:
    draws = np.r_[np.full(97, 1.0), np.full(3, -1.0)]
    found = pair_test([2.0], [1.0], deterministic=BOTH, items=draws)
    assert is_test(found, 1.0, 2 * 4 / 101, ITEMS)
    assert found.interval == pytest.approx((-0.05, 1.0))  # the 2.475th and the 96.525th of 100
    # no draw beyond 0: the normal tail, as 2 / 1001 would survive no correction over 25 pairs
    drawn = 5 + make_generator(0, "items").normal(size=1000)
    found = pair_test([6.0], [1.0], deterministic=BOTH, items=drawn)
    assert found.p == pytest.approx(2 * stats.norm.sf(5 / drawn.std(ddof=1)))
    assert found.p is not None
    assert found.p < 1e-5 < 2 / 1001
    # a tail beyond the draws' own reach is never larger than theirs
    near = pair_test([1.1], [1.0], deterministic=BOTH, items=np.linspace(0.01, 3, 1000))
    assert near.p == pytest.approx(2 / 1001)
    assert pair_test([2.0], [1.0], deterministic=BOTH, items=np.ones(100)).p == 0
    assert pair_test([1.0], [1.0], deterministic=BOTH, items=np.zeros(100)).p == 1
    # a level beyond the draws' reach: all of them, and a normal distribution of their spread
    ends = pair_test([6.0], [1.0], deterministic=BOTH, items=drawn, level=1 - 1e-6).interval
    half = stats.norm.ppf(1 - 5e-7) * drawn.std(ddof=1)
    assert ends == pytest.approx((5 - half, 5 + half))
    wide = np.r_[drawn, -30.0]
    ends = pair_test([6.0], [1.0], deterministic=BOTH, items=wide, level=1 - 1e-6).interval
    assert ends is not None
    assert ends[0] == -30


# ---- in repeated experiments


@pytest.mark.parametrize(("paired", "most"), [(False, 0.05), (True, 0.08)])
def test_equal_methods_are_rarely_called_different(paired: bool, most: float) -> None:
    """At most 5% of families, and the ranks' intervals hold together in the others."""
    rng, names, false = make_generator(0, f"family {paired}"), "abcde", 0
    for _ in range(100):
        scores = (0.1 if paired else 1) * rng.normal(size=(5, 5)) + (rng.normal(size=(1, 5)) if paired else 0)
        runs = dict(zip(names, scores, strict=True))
        found = rank_methods(
            {name: float(values.mean()) for name, values in runs.items()},
            lambda a, b, runs=runs: pair_test(runs[a], runs[b], paired=paired),  # type: ignore[misc]
        )
        false += any(one.differs for one in found.pairs)
        assert any(one.differs for one in found.pairs) == (found.intervals != dict.fromkeys(names, (1, 5)))
    assert false / 100 <= most


def test_methods_far_apart_are_all_told_apart() -> None:
    rng = make_generator(0, "apart")
    for _ in range(20):
        runs = {name: 20 * i + rng.normal(size=5) for i, name in enumerate("abc")}
        found = rank_methods(
            {name: float(values.mean()) for name, values in runs.items()},
            lambda a, b, runs=runs: pair_test(runs[a], runs[b]),  # type: ignore[misc]
        )
        assert found.methods == ("c", "b", "a")
        assert found.intervals == {"c": (1, 1), "b": (2, 2), "a": (3, 3)}
