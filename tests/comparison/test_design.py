from __future__ import annotations

from dataclasses import replace

import pytest
from scipy import stats

from bench.comparison.comparison import Comparison, compare
from bench.comparison.confounders import describe_pairing
from bench.comparison.design import Design, choose_comparison_design
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, match_sides, resolve_sides
from bench.comparison.wording import describe_comparison, describe_verdict
from bench.errors import InputError
from bench.stats.seed_design import RequestedTest
from tests.support.messages import missing_facts
from tests.support.sides import STORE, Keys, sentence, shared, side

A = [0.710, 0.755, 0.690, 0.740, 0.725]
B = [0.708, 0.751, 0.689, 0.735, 0.722]  # correlated with A by 0.999, whatever the records say


def committed(name: str) -> Group:
    one, other = resolve_sides([name, "simcse"], STORE, "test")
    ((group, _),) = match_sides(one, other, "test", suite="mini")
    return group


def test_the_headline_of_the_committed_records_is_paired_and_a_quarter_as_wide() -> None:
    found = compare(committed("tncse"), committed("jtcse"))
    assert found.seed_level is not None
    pairs = found.seed_level.pairs
    assert pairs is not None
    assert found.seed_level.design == Design("paired", "auto", "have 2 trained stages in common")
    low, high = found.headline.low, found.headline.high
    assert high - low <= (pairs.unpaired.high - pairs.unpaired.low) / 4
    assert pairs.gain == pytest.approx((pairs.unpaired.high - pairs.unpaired.low) / (high - low))
    assert (round(100 * low, 2), round(100 * high, 2), pairs.n) == (-0.28, 0.03, 5)
    said = " ".join(describe_comparison(found)[:3])
    assert not missing_facts(said, "paired t test", "2 trained stages", "Pairs: 5", "+0.99")
    assert not missing_facts(said, "[-1.16, +0.90]", "6.6 times", "sign flips", "p = 0.1250", "0.0625")


def test_methods_that_share_stages_are_told_apart() -> None:
    found = compare(committed("jtcse_d"), committed("tncse_d"))
    head = found.headline
    assert (head.test, round(head.p, 3)) == ("paired", 0.027)
    assert (round(100 * head.low, 2), round(100 * head.high, 2)) == (0.04, 0.43)
    facts = ("p = 0.0266", "paired t test", "5 pairs", "near-normal", "exact test", "p = 0.0625")
    assert not missing_facts(describe_verdict(found), *facts)


@pytest.mark.parametrize(
    ("one", "other", "text", "pairs"),
    [
        (shared, shared, None, "have 1 trained stage in common"),
        (
            lambda s: [f"x {s}", f"y {s}"],
            lambda s: [f"y {s}", f"x {s}"],
            None,
            "have 2 trained stages in common",
        ),
        (lambda s: [f"own {s}"], lambda s: [f"other {s}"], None, None),
        (lambda s: ["fixed"], lambda s: ["fixed"], None, None),  # alike for all seeds
        (lambda s: ["all", f"x {s}"], lambda s: ["all", f"x {s}"], None, "have 1 trained stage in common"),
        (lambda s: [f"x {s}"], lambda s: [f"x {s + 1}"], None, None),  # stages of other seeds
        (lambda s: [f"x {s}"] if s < 5 else ["a"], lambda s: [f"x {s}"] if s < 5 else ["b"], None, None),
        (lambda s: [""], lambda s: [""], None, None),  # no key is no common stage
        (
            lambda s: [f"own {s}"],
            lambda s: [f"other {s}"],
            "text",
            "see the same sentences in the same order",
        ),
    ],
)
def test_the_same_numbers_of_seeds_are_not_enough_for_pairs(
    one: Keys, other: Keys, text: str | None, pairs: str | None
) -> None:
    a, b = side("a", A, one, text), side("b", B, other, text)
    assert describe_pairing(a, b) == describe_pairing(b, a) == pairs
    found = compare(a, b)
    test = stats.ttest_ind(A, B, equal_var=False) if pairs is None else stats.ttest_rel(A, B)
    head = found.headline
    assert head.test == ("welch" if pairs is None else "paired")
    assert (head.p, head.low, head.high) == pytest.approx((test.pvalue, *test.confidence_interval(0.95)))


def test_runs_of_one_specification_are_pairs_on_any_machine() -> None:
    a = side("a", A)
    assert describe_pairing(a, side("a", B)) == "have one specification"
    elsewhere = [
        CampaignRun(run.store, replace(run.record, provenance={**run.record.provenance, "device": "cuda"}))
        for run in a.runs
    ]
    assert describe_pairing(a, Group("again", tuple(elsewhere))) == "have one specification"
    assert describe_pairing(a, side("a", {7: 0.7, 8: 0.7, 9: 0.7, 10: 0.7, 11: 0.7})) is None


def test_no_score_is_read_to_choose() -> None:
    def without(group: Group) -> Group:
        runs = [CampaignRun(run.store, replace(run.record, scores=())) for run in group.runs]
        return replace(group, runs=tuple(runs))

    a, b = without(side("a", A, shared)), without(side("b", B, shared))
    design = choose_comparison_design(a, b, "auto", "")[2]
    assert design == Design("paired", "auto", "have 1 trained stage in common")
    assert choose_comparison_design(a, without(side("c", B)), "auto", "")[2] == Design("welch", "auto", None)


@pytest.mark.parametrize(
    ("first", "second", "used", "left_out"),
    [
        (range(1, 6), range(1, 5), (1, 2, 3, 4), ((5,), ())),
        (range(1, 4), range(1, 11), (1, 2, 3), ((), tuple(range(4, 11)))),
        (range(1, 7), range(4, 10), (4, 5, 6), ((1, 2, 3), (7, 8, 9))),
        (range(1, 8), range(5, 12), None, ((), ())),  # three of seven in common: under half
        (range(1, 5), range(3, 7), None, ((), ())),  # two in common
        (range(1, 5), range(4, 8), None, ((), ())),  # one
    ],
)
def test_seeds_that_both_have_are_the_pairs(
    first: range,
    second: range,
    used: tuple[int, ...] | None,
    left_out: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    a = side("a", {seed: 0.7 + 0.01 * seed**2 for seed in first}, shared)
    b = side("b", {seed: 0.69 + 0.011 * seed**2 for seed in second}, shared)
    found = compare(a, b)
    assert found.seed_level is not None
    assert found.seed_level.design.left_out == left_out
    if used is None:
        assert (found.headline.test, found.seeds) == ("welch", (tuple(first), tuple(second)))
        count = len({*first} & {*second})
        common = f"{count} seed{'s' * (count > 1)} in common"
        assert not missing_facts(sentence(found, "Test over seeds"), "Welch's test", "unpaired", common)
        return
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
    assert found.seed_level is not None
    tests = {
        "welch": stats.ttest_ind(A, B, equal_var=False).pvalue,
        "paired": stats.ttest_rel(A, B).pvalue,
        "permutation": found.seed_level.exact["avg"].p,
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
    facts = ("5 pairs", "cannot", "sign-flip", "is 0.0625", "0.50 points", "t interval", "95%")
    assert not missing_facts(describe_verdict(found), *facts)


def test_two_pairs_have_no_correlation_and_say_how_little_they_are() -> None:
    found = compare(side("a", [0.70, 0.72], shared), side("b", [0.60, 0.6201], shared))
    assert found.seed_level is not None
    assert found.seed_level.pairs is not None
    assert (found.seed_level.pairs.correlation, found.headline.test) == (None, "paired")
    assert "p = 0.5000" in describe_verdict(found)
    assert sentence(found, "Pairs: ").startswith("Pairs: 2. Welch's interval")


def test_pairs_that_do_not_vary_have_no_interval_and_the_p_of_an_exact_test() -> None:
    def compared(scores: list[float], gap: float) -> Comparison:
        return compare(side("a", [score + gap for score in scores], shared), side("b", scores, shared))

    equal, six = compared(A, 0.0), [*A, 0.7]
    assert not missing_facts(describe_verdict(equal), "5 pairs", "cannot", "don't vary", "is 0.0625")
    assert (equal.headline.interval, equal.headline.possible, equal.answers.plan) == (None, None, None)
    assert describe_verdict(compared(A, 0.01)) == describe_verdict(equal)
    facts = ("a is ahead", "+1.00 points", "don't vary", "p = 0.0312", "exact test")
    assert not missing_facts(describe_verdict(compared(six, 0.01)), *facts)
    assert not missing_facts(describe_verdict(compared(six, 0.0)), "+0.00 points", "don't vary", "p = 1.0000")
