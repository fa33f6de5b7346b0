from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from scipy import stats

from bench.comparison.comparison import Comparison, compare
from bench.comparison.confounders import are_paired, describe_pairing
from bench.comparison.design import Design, choose_comparison_design, choose_tested_runs
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, match_sides, resolve_sides
from bench.comparison.wording import describe_comparison, describe_verdict
from bench.errors import InputError, NotComparableError
from bench.stats.seed_design import RequestedTest
from tests.support.messages import missing_facts, numbers_in
from tests.support.sides import STORE, Keys, level_of, sentence, shared, side

A = [0.710, 0.755, 0.690, 0.740, 0.725]
B = [0.708, 0.751, 0.689, 0.735, 0.722]  # correlated with A by 0.999, whatever the records say


def changed(group: Group, **changes: Any) -> Group:
    runs = [CampaignRun(run.store, replace(run.record, **changes)) for run in group.runs]
    return replace(group, runs=tuple(runs))


def committed(name: str) -> Group:
    one, other = resolve_sides([name, "simcse"], STORE, "test")
    ((group, _),) = match_sides(one, other, "test", suite="mini")
    return group


def test_the_headline_of_the_committed_records_is_paired_and_a_quarter_as_wide() -> None:
    found = compare(committed("tncse"), committed("jtcse"))
    pairs = level_of(found).pairs
    assert pairs is not None
    assert level_of(found).design == Design("paired", "auto", "have 2 trained stages in common")
    low, high = found.headline.low, found.headline.high
    assert high - low <= (pairs.unpaired.high - pairs.unpaired.low) / 4
    assert pairs.gain == pytest.approx((pairs.unpaired.high - pairs.unpaired.low) / (high - low))
    assert (round(100 * low, 2), round(100 * high, 2), pairs.n) == (-0.28, 0.03, 5)
    numbers = [[2], [5, 0.99, -1.16, 0.9, 6.6], [0.125, 0.0625]]  # stages, pairs, the exact test
    assert [numbers_in(line) for line in describe_comparison(found)[:3]] == numbers
    assert not missing_facts(describe_comparison(found)[:3], "paired t test", "sign flips")


def test_methods_that_share_stages_are_told_apart() -> None:
    found = compare(committed("jtcse_d"), committed("tncse_d"))
    head = found.headline
    assert (head.test, round(head.p, 3)) == ("paired", 0.027)
    assert (round(100 * head.low, 2), round(100 * head.high, 2)) == (0.04, 0.43)
    said = describe_verdict(found)
    assert numbers_in(said)[-3:] == [0.0266, 5, 0.0625]  # p, pairs, the least p of an exact test
    assert not missing_facts(said, "paired t test", "near-normal", "exact test")


@pytest.mark.parametrize(
    ("one", "other", "pairs"),
    [
        (shared, shared, "have 1 trained stage in common"),
        (lambda s: [f"x {s}", f"y {s}"], lambda s: [f"y {s}", f"x {s}"], "have 2 trained stages in common"),
        (lambda s: [f"own {s}"], lambda s: [f"other {s}"], None),
        (lambda s: ["fixed"], lambda s: ["fixed"], None),  # alike for all seeds
        (lambda s: ["all", f"x {s}"], lambda s: ["all", f"x {s}"], "have 1 trained stage in common"),
        (lambda s: [f"x {s}"], lambda s: [f"x {s + 1}"], None),  # stages of other seeds
        (lambda s: [f"x {s}"] if s < 5 else ["a"], lambda s: [f"x {s}"] if s < 5 else ["b"], None),
        (lambda s: [""], lambda s: [""], None),  # no key is no common stage
        (lambda s: [f"m {s}"], lambda s: [f"n {s}"], "see the same sentences in the same order"),
    ],
)
def test_the_same_numbers_of_seeds_are_not_enough_for_pairs(
    one: Keys, other: Keys, pairs: str | None
) -> None:
    text = "text" if one(1) == ["m 1"] else None  # of both, which with the batch size makes the order
    a, b = side("a", A, one, text), side("b", B, other, text)
    assert describe_pairing(a, b) == describe_pairing(b, a) == pairs
    if {"fixed", "all"} & {*one(1)}:  # a stage of all seeds: they are no sample
        with pytest.raises(NotComparableError) as error:
            compare(a, b)
        assert not missing_facts(str(error.value), "a", "trained stage", "a#1")
        return
    found = compare(a, b)
    test = stats.ttest_ind(A, B, equal_var=False) if pairs is None else stats.ttest_rel(A, B)
    head = found.headline
    assert head.test == ("welch" if pairs is None else "paired")
    assert (head.p, head.low, head.high) == pytest.approx((test.pvalue, *test.confidence_interval(0.95)))


def test_runs_of_one_specification_are_pairs_on_any_machine() -> None:
    a = side("a", A)
    elsewhere = changed(a, provenance={**a.runs[0].record.provenance, "device": "cuda"})
    for other in (side("a", B), elsewhere):
        assert describe_pairing(a, other) == "have one specification"
    assert describe_pairing(a, side("a", dict.fromkeys(range(7, 12), 0.7))) is None


def test_no_score_is_read_to_choose() -> None:
    sides = (side("a", A, shared), side("b", B, shared), side("c", B))
    a, b, c = (changed(group, scores=()) for group in sides)
    design = choose_comparison_design(a, b, "auto", "")[2]
    assert design == Design("paired", "auto", "have 1 trained stage in common")
    assert choose_comparison_design(a, c, "auto", "")[2] == Design("welch", "auto", None)


@pytest.mark.parametrize(
    ("first", "second", "used"),
    [
        (range(1, 6), range(1, 5), (1, 2, 3, 4)),
        (range(1, 4), range(1, 11), (1, 2, 3)),
        (range(1, 7), range(4, 10), (4, 5, 6)),
        (range(1, 8), range(5, 12), None),  # three of seven in common: under half
        (range(1, 5), range(3, 7), None),  # two in common
        (range(1, 5), range(4, 8), None),  # one
    ],
)
def test_seeds_that_both_have_are_the_pairs(
    first: range, second: range, used: tuple[int, ...] | None
) -> None:
    a = side("a", {seed: 0.7 + 0.01 * seed**2 for seed in first}, shared)
    b = side("b", {seed: 0.69 + 0.011 * seed**2 for seed in second}, shared)
    found = compare(a, b)
    left_out = level_of(found).design.left_out
    if used is None:
        assert (found.headline.test, found.seeds) == ("welch", (tuple(first), tuple(second)))
        said = sentence(found, "Test over seeds")
        assert (left_out, numbers_in(said)) == (((), ()), [len({*first} & {*second})])
        assert not missing_facts(said, "Welch's test", "unpaired", "in common")
        return
    assert left_out == tuple(tuple(seed for seed in seeds if seed not in used) for seeds in (first, second))
    assert (found.headline.test, found.seeds) == ("paired", (used, used))
    mean = sum(0.7 + 0.01 * seed**2 for seed in used) / len(used)
    assert found.means["avg"][0] == pytest.approx(mean)
    assert "no partner" in sentence(found, "Left out: ")
    assert compare(a, b, test="welch").seeds == (tuple(first), tuple(second))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("welch", "--test welch says"),
        ("permutation", "--test permutation says"),
        ("paired", "paired by seed"),
        ("sign-flip", "paired by seed"),
    ],
)
def test_the_choice_can_be_overridden(asked: RequestedTest, why: str) -> None:
    found = compare(side("a", A, shared), side("b", B, shared), test=asked)
    tests = {
        "welch": stats.ttest_ind(A, B, equal_var=False).pvalue,
        "paired": stats.ttest_rel(A, B).pvalue,
        "permutation": level_of(found).exact["avg"].p,
        "sign-flip": 2 / 32,  # all five differences are above 0
    }
    assert found.headline.test == asked
    assert found.headline.p == pytest.approx(tests[asked])
    assert not missing_facts(sentence(found, "Test over seeds: "), why, "1 trained stage")


def test_pairs_that_no_record_names_are_a_claim_of_the_user() -> None:
    found = compare(side("a", A), side("b", B), test="paired")
    assert found.headline.p == pytest.approx(stats.ttest_rel(A, B).pvalue)
    said = sentence(found, "Test over seeds: ")
    assert not missing_facts(said, "--test paired says", "no trained stages", "only if")


@pytest.mark.parametrize(
    ("a", "b", "asked", "fact", "hint"),
    [
        (side("a", A), side("b", B[:4]), "paired", "a and b", "use --test welch"),
        (side("a", A), side("b", {None: 0.7}), "sign-flip", "sign-flip", "leave out --test"),
        (side("a", [0.7] * 21), side("b", [0.7] * 20), "permutation", "40 seeds", "use --test welch"),
        (side("a", [0.7] * 41), side("b", [0.7] * 41), "sign-flip", "40 pairs", "use --test paired"),
    ],
)
def test_impossible_tests_for_these_sides(
    a: Group, b: Group, asked: RequestedTest, fact: str, hint: str
) -> None:
    with pytest.raises(InputError, match=fact) as error:
        choose_comparison_design(a, b, asked, "here")
    assert (error.value.where, error.value.hint) == ("here", hint)


def test_one_seed_against_five_is_refused() -> None:
    with pytest.raises(InputError, match="one finished seed") as error:
        compare(side("a", A[:1]), side("b", B))
    assert error.value.where == "mini, suite mini"
    assert not missing_facts(error.value, "two seeds", "a#1")


def test_a_sign_flip_of_five_pairs_cannot_show_anything() -> None:
    found = compare(side("a", A, shared), side("b", B, shared), test="sign-flip")
    assert found.headline.interval is None  # the t interval leaves out 0, the test shows nothing
    said = describe_verdict(found)
    assert numbers_in(said) == [5, 95, 0.0625, 0.5, 95]
    assert not missing_facts(said, "5 paired runs", "cannot", "sign-flip", "t interval")


def test_two_pairs_have_no_correlation_and_say_how_little_they_are() -> None:
    found = compare(side("a", [0.70, 0.72], shared), side("b", [0.60, 0.6201], shared))
    pairs = level_of(found).pairs
    assert pairs is not None
    assert (pairs.correlation, pairs.n, found.headline.test) == (None, 2, "paired")
    assert numbers_in(describe_verdict(found))[-1] == 0.5  # the least p of an exact test
    assert sentence(found, "Pairs: ").startswith("Pairs: 2. Welch's interval")


def test_pairs_that_do_not_vary_have_no_interval_and_the_p_of_an_exact_test() -> None:
    def compared(scores: list[float], gap: float) -> Comparison:
        return compare(side("a", [score + gap for score in scores], shared), side("b", scores, shared))

    equal, six = compared(A, 0.0), [*A, 0.7]
    assert numbers_in(describe_verdict(equal)) == [5, 95, 0.0625]
    assert not missing_facts(describe_verdict(equal), "cannot", "don't vary")
    assert (equal.headline.interval, equal.headline.possible, equal.answers.plan) == (None, None, None)
    assert describe_verdict(compared(A, 0.01)) == describe_verdict(equal)
    for gap, numbers in ((0.01, [1, 0.0312, 6]), (0.0, [0, 1])):  # points, p, pairs
        said = describe_verdict(compared(six, gap))
        assert numbers_in(said)[-len(numbers) :] == numbers
        assert not missing_facts(said, "don't vary", "exact test")


def test_tables_choose_the_runs_of_a_comparison() -> None:
    options = [{"batch_size": 8}, {"batch_size": 16}, {}]
    groups = [committed(name) for name in ("tncse", "jtcse", "tncse_d", "jtcse_d", "simcse[match=tncse]")]
    for group in list(groups):
        groups += [changed(group, options=given) for given in options]
        groups += [replace(group, runs=group.runs[1:]), replace(group, runs=group.runs[:2])]
    groups.append(committed("untrained"))
    kinds = set()
    for a, b in product(groups, repeat=2):
        one, other, design = choose_comparison_design(a, b, "auto", "")
        x, y, paired = choose_tested_runs(a, b)
        assert (x.seeds, y.seeds, paired) == (one.seeds, other.seeds, design.paired)
        assert are_paired(a, b) == (describe_pairing(a, b) is not None)
        kinds.add((design.test, design.pairs))
    assert len(kinds) > 5
