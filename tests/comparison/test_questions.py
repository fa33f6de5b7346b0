from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from bench.comparison.comparison import Comparison, compare, correct_comparisons
from bench.comparison.finding import ComparisonFinding
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.questions import Questions
from bench.comparison.selection import Group
from bench.comparison.wording import describe_comparison
from bench.data.published_tables import WIKI, published_rows
from bench.errors import InputError
from bench.reports.tables.comparison_tables import published_differences
from bench.stats.equivalence import (
    claim_test,
    equivalence_test,
    estimate_from_interval,
    predict_run_difference,
)
from bench.stats.seed_design import RequestedTest
from bench.stats.seed_pairs import paired_t
from bench.stats.seed_planning import compute_power_range, describe_seed_plan, plan_seeds
from bench.stats.seeds import least_p, welch
from bench.stats.spread import spread_of_pairs, spread_of_sides
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts, numbers_in
from tests.support.sides import RESULTS, Keys, sentence, shared, side

A = [0.710, 0.755, 0.690, 0.740, 0.725]
B = [0.708, 0.751, 0.690, 0.735, 0.722]
ASKED = Questions(margin=0.003, claim=0.002)
MINI = ("--campaign", "mini", "--results", str(RESULTS), "--seeds-only")
T = paired_t(A, B)
ERROR = T.sd / math.sqrt(5)
LOW, HIGH = (T.difference + sign * stats.t.ppf(0.95, 4) * ERROR for sign in (-1, 1))
ENDS = [90, round(100 * LOW, 2), round(100 * HIGH, 2)]
LEAST = math.ceil(10_000 * HIGH) / 100  # the smallest margin that would be shown, in points


def asked(a: list[float] = A, b: list[float] = B, keys: Keys = shared, **questions: Any) -> Comparison:
    return compare(side("a", a, keys), side("b", b, keys), asked=Questions(**questions))


@pytest.mark.parametrize(
    ("margin", "verdict", "ends", "p", "least"),
    [
        (0.005, "Equal within", ENDS, stats.t.cdf((T.difference - 0.005) / ERROR, 4), []),
        (0.003, "Equality within", ENDS, stats.t.cdf((T.difference - 0.003) / ERROR, 4), [LEAST]),
        (0.0001, "Different by", [], 2 * stats.t.sf((T.difference - 0.0001) / ERROR, 4), []),
    ],
)
def test_equality_within_a_margin(
    margin: float, verdict: str, ends: list[float], p: float, least: list[float]
) -> None:
    found = asked(margin=margin)
    assert found.answers.margin == equivalence_test(estimate_from_interval(T), margin)
    numbers = numbers_in(sentence(found, verdict))
    assert numbers == [round(100 * margin, 2), *ends, round(p, 4), *least]


@pytest.mark.parametrize(
    ("size", "verdict", "bounds"),
    [
        (0.0005, "support", (LOW,)),
        (0.0025, "do not support", (LOW, HIGH)),
        (0.009, "contradict", (HIGH,)),
        (-0.003, "support", (LOW,)),
    ],
)
def test_a_claimed_lead(size: float, verdict: str, bounds: tuple[float, ...]) -> None:
    found = asked(claim=size)
    assert found.answers.claim == claim_test(estimate_from_interval(T), size)
    text = sentence(found, f"The records {verdict} ")
    p = stats.t.cdf((size - T.difference) / ERROR, 4)
    p = 1 - p if verdict == "contradict" else p
    assert {round(100 * size, 2), 95, round(p, 4), *(round(100 * b, 2) for b in bounds)} == {
        *numbers_in(text)
    }
    assert "a over b" in text


def test_a_published_difference_is_held_against_one_further_run_of_each() -> None:
    questions = Questions(published={"Paper, Table 1": 0.02, "as given": 0.2})
    found = compare(side("a", A, shared), side("b", B, shared), asked=questions)
    low, high = predict_run_difference(A, B)
    inside, outside = (line for line in describe_comparison(found) if line.startswith("Published: "))
    ends = [round(100 * low, 2), round(100 * high, 2)]
    assert (numbers_in(inside), numbers_in(outside)) == ([2, 1, *ends, 95], [20, *ends, 95])
    assert not missing_facts(inside, "(Paper, Table 1)", "lies inside")
    assert not missing_facts(outside, "(as given)", "lies outside")
    flat = compare(side("a", [0.7, 0.7]), side("b", [0.6, 0.6]), asked=questions)
    assert "not checked" in sentence(flat, "Published")


def test_plans_are_of_the_design_and_of_a_chosen_difference() -> None:
    pairs, sides = asked(detect=0.01), asked(keys=lambda _: (), detect=0.01)
    plan = plan_seeds(0.01, spread_of_sides(A, B))
    assert pairs.answers.plan == plan_seeds(0.01, spread_of_pairs(A, B))
    assert sides.answers.plan == plan
    assert pairs.answers.power == compute_power_range(0.01, spread_of_pairs(A, B), 5)
    power = compute_power_range(0.01, spread_of_sides(A, B), 5, 5)
    chance = f"{power.value:.0%} ({power.low:.0%} to {power.high:.0%})"
    facts = ("1.00 points", "chance of 80%", describe_seed_plan(plan), "5 seeds", chance)
    assert not missing_facts(sentence(sides, "Plan: "), *facts)
    few = asked(A[:2], B[:2], lambda _: (), detect=0.01)
    assert not missing_facts(sentence(few, "Plan: "), "can't be said", "2 seeds", "1.00 points")
    fixed = compare(side("a", A), side("b", {None: 0.7}), asked=Questions(detect=0.02))
    assert fixed.answers.plan == plan_seeds(0.02, spread_of_sides(A, [0.7]))
    flat = compare(side("a", A), side("b", [0.7] * 5))  # seeds that happen to agree are no fixed score
    assert (flat.answers.plan, flat.answers.power) == (None, None)


def test_several_comparisons_share_the_error_rate_of_their_answers() -> None:
    ours = side("ours", A)
    others = [side(f"o{i}", [score - 0.04 * i for score in B]) for i in range(4)]
    questions = Questions(margin=0.05, claim=0.01)
    found = correct_comparisons([compare(ours, o, asked=questions) for o in others], "f", "holm")
    for one, other in zip(found, others, strict=True):
        assert one.answers.level == pytest.approx(0.9875)
        d = estimate_from_interval(welch(A, other.scores("avg")))
        assert one.answers.claim == claim_test(d, 0.01, one.answers.level)
        assert one.answers.margin == equivalence_test(d, 0.05, one.answers.level)
        assert "98.75% each" in sentence(one, "Plan: ")


def test_items_that_vary_answer_nothing_for_seeds_that_do_not() -> None:
    """Variance components have only the items' variance there, however few the seeds."""
    ends = (0.03, 0.02, 0.04, 12.0)
    still = ComparisonFinding("both", "components", *ends, least_p(5, 5), least_p(5, 5), 0.95, None, None)
    assert (still.verdict, still.possible, still.unjudged is None) == ("differs", None, False)
    assert ComparisonFinding("both", "components", *ends, 0.001, 0.0, 0.95, None, None).unjudged is None
    assert ComparisonFinding("items", "items", *ends, 0.001, 2e-4, 0.95, None, None).unjudged is None


@pytest.mark.parametrize("test", ["permutation", "sign-flip"])
def test_an_exact_test_has_no_plan_of_a_t_test(test: RequestedTest) -> None:
    eight = ([*A, *A[:3]], [score - 0.01 for score in (*B, *B[:3])])
    found = compare(side("a", eight[0], shared), side("b", eight[1], shared), test=test, asked=ASKED)
    assert (found.answers.plan, found.answers.power) == (None, None)
    assert found.answers.margin is not None
    assert not any(line.startswith("Plan: ") for line in describe_comparison(found))


def test_what_cannot_be_answered_is_said() -> None:
    assert "nothing varies" in sentence(asked(A, A, margin=0.003), "Neither")
    lower = side("b", [score - 0.3 for score in B[:3]])
    few = compare(side("a", A[:3]), lower, test="permutation", asked=ASKED)
    assert (few.headline.verdict, few.headline.p, few.headline.minimum_p) == ("cannot show", 0.1, 0.1)
    assert (few.answers.margin, few.answers.claim) == (None, None)
    assert "so few seeds" in sentence(few, "Neither")
    with pytest.raises(InputError) as error:
        compare(side("a", A), side("b", B), level=0.5, asked=Questions(claim=0.1))
    assert not missing_facts(error.value, "--level 0.5", "--margin", "--claim", "above 0.5")


def test_the_command_takes_points(cli: Cli) -> None:
    options = ("--margin", "0.3", "--claim", "0.9", "--published", "-1.5", "--detect", "1")
    code, out, err = cli("compare", "tncse", "jtcse", *MINI, *options, "--format", "json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    answers = found["answers"]
    assert found["asked"].pop("published") == pytest.approx({"as given": -0.015})
    assert found["asked"] == pytest.approx({"detect": 0.01, "margin": 0.003, "claim": 0.009})
    assert (answers["margin"]["verdict"], answers["claim"]["verdict"]) == ("equal within", "contradicted")
    assert answers["published"][0]["inside"] is True


@pytest.mark.parametrize(
    ("option", "value"), [("--margin", "0"), ("--margin", "nan"), ("--detect", "0"), ("--claim", "101")]
)
def test_options_out_of_range(cli: Cli, option: str, value: str) -> None:
    assert f"'{option}'" in refusal(cli, "compare", "tncse", "jtcse", *MINI, option, value)


def printed(name: str, text: str, backbone: str = "bert-base-uncased") -> Group:
    """Runs of a method as the papers train it."""
    group = side(name, A, shared)
    runs = []
    for run in group.runs:
        training = {"corpus": {"name": text, "sentences": 1_000_000}, "stages": run.record.training["stages"]}
        record = replace(run.record, suite="sts7", options={}, backbone={"name": backbone}, training=training)
        runs.append(CampaignRun(run.store, record))
    return Group(name, tuple(runs))


def test_published_differences_are_those_of_one_table_and_of_our_setting() -> None:
    a, b = printed("simcse", "wiki1m_for_simcse.txt"), printed("esimcse", "wiki1m_for_simcse.txt")
    figures: dict[str, dict[str, float]] = {}
    for row in published_rows("sts7"):
        if row.first.backbone == "bert-base" and row.text == WIKI:
            figures.setdefault(row.first.source, {})[row.first.method] = float(row.figures["avg"].text)
    by_hand = {
        source: pytest.approx((of["simcse"] - of["esimcse"]) / 100)
        for source, of in figures.items()
        if {"simcse", "esimcse"} <= of.keys()
    }
    assert by_hand
    assert published_differences(a, b) == by_hand
    assert published_differences(a, printed("esimcse", "own.txt")) == {}
    assert published_differences(printed("simcse", "wiki1m_for_simcse.txt", "mini-bert"), b) == {}
