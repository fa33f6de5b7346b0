from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.comparison.comparison import Comparison, compare, correct_comparisons
from bench.comparison.finding import ComparisonFinding
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.questions import Questions
from bench.comparison.render import describe_comparison
from bench.comparison.selection import Group
from bench.data.published_tables import WIKI, published_rows
from bench.errors import InputError
from bench.reports.tables.comparison_tables import published_differences
from bench.stats.equivalence import (
    claim_test,
    equivalence_test,
    estimate_from_interval,
    predict_run_difference,
)
from bench.stats.planning import compute_power_range, describe_seed_plan, plan_seeds
from bench.stats.seed_design import RequestedTest
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import least_p, welch
from bench.stats.spread import spread_of_pairs, spread_of_sides
from tests.support.cli import Cli, refusal
from tests.support.sides import RESULTS, Keys, shared, side

A = [0.710, 0.755, 0.690, 0.740, 0.725]
B = [0.708, 0.751, 0.690, 0.735, 0.722]
ASKED = Questions(margin=0.003, claim=0.002)
MINI = ("--campaign", "mini", "--results", str(RESULTS), "--seeds-only")


def asked(a: list[float] = A, b: list[float] = B, keys: Keys = shared, **questions: Any) -> Comparison:
    return compare(side("a", a, keys), side("b", b, keys), asked=Questions(**questions))


def said(found: Comparison, start: str) -> str:
    (line,) = (line for line in describe_comparison(found) if line.startswith(start))
    return line


def test_equality_within_a_margin() -> None:
    t = paired_t(A, B)
    error = t.sd / np.sqrt(5)
    low, high = (t.difference + sign * stats.t.ppf(0.95, 4) * error for sign in (-1, 1))
    found = asked(margin=0.005)
    assert found.answers.margin == equivalence_test(estimate_from_interval(t), 0.005)
    p = stats.t.cdf((t.difference - 0.005) / error, 4)
    assert said(found, "Equal") == (
        "Equal within 0.50 points, for further seeds on these test pairs: the 90% interval "
        f"[{100 * low:+.2f}, {100 * high:+.2f}] lies inside (two one-sided t tests, p = {p:.4f})."
    )
    found = asked(margin=0.003)
    p = stats.t.cdf((t.difference - 0.003) / error, 4)
    assert said(found, "Equal") == (
        "Equality within 0.30 points is not shown, for further seeds on these test pairs: the 90% interval "
        f"[{100 * low:+.2f}, {100 * high:+.2f}] reaches beyond (two one-sided t tests, p = {p:.4f}). The "
        f"smallest margin that it would show is {math.ceil(10_000 * high) / 100:.2f} points."
    )
    found = asked(margin=0.0001)
    p = 2 * stats.t.sf((t.difference - 0.0001) / error, 4)
    assert said(found, "Different by") == (
        f"Different by more than 0.01 points, for further seeds on these test pairs (one-sided t test, "
        f"p = {p:.4f})."
    )


def test_a_claimed_lead() -> None:
    t = paired_t(A, B)
    error = t.sd / np.sqrt(5)
    low, high = (100 * (t.difference + sign * stats.t.ppf(0.95, 4) * error) for sign in (-1, 1))
    p = {size: stats.t.cdf((size - t.difference) / error, 4) for size in (0.0005, 0.0025, 0.009)}
    scope, test = "for further seeds on these test pairs", "at 95% (one-sided t test, p ="
    expected = {
        0.0005: f"The records support a lead of a over b of at least 0.05 points, {scope}: the lead is at "
        f"least {low:+.2f} points {test} {p[0.0005]:.4f}).",
        0.0025: f"The records do not support a lead of a over b of at least 0.25 points, {scope}: all that "
        f"is sure {test} {p[0.0025]:.4f}) is a lead of at least {low:+.2f} points. They don't rule it out: "
        f"at most {high:+.2f} points are possible.",
        0.009: f"The records contradict a lead of a over b of at least 0.90 points, {scope}: the lead is at "
        f"most {high:+.2f} points {test} {1 - p[0.009]:.4f}).",
    }
    for size, sentence in expected.items():
        found = asked(claim=size)
        assert found.answers.claim == claim_test(estimate_from_interval(t), size)
        assert said(found, "The records ") == sentence
    assert said(asked(claim=-0.003), "The records ").startswith(
        "The records support a lead of a over b of at"
    )


def test_a_published_difference_is_held_against_one_further_run_of_each() -> None:
    questions = Questions(published={"Paper, Table 1": 0.02, "as given": 0.2})
    found = compare(side("a", A, shared), side("b", B, shared), asked=questions)
    low, high = predict_run_difference(A, B)
    inside, outside = (line for line in describe_comparison(found) if line.startswith("Published: "))
    assert inside == (
        "Published: +2.00 points (Paper, Table 1). If each were trained once more, the difference of these "
        f"two runs would lie in [{100 * low:+.2f}, {100 * high:+.2f}] with a chance of 95%; the published "
        "one lies inside: other seeds alone can make it."
    )
    assert outside.endswith("lies outside: other seeds alone hardly make it: something else differs too.")
    flat = compare(side("a", [0.7, 0.7]), side("b", [0.6, 0.6]), asked=questions)
    assert said(flat, "Published") == "Published: not checked, as our runs give no spread over seeds."


def test_plans_are_of_the_design_and_of_a_chosen_difference() -> None:
    pairs, sides = asked(detect=0.01), asked(keys=lambda _: (), detect=0.01)
    assert pairs.answers.plan == plan_seeds(0.01, spread_of_pairs(A, B))
    assert sides.answers.plan == plan_seeds(0.01, spread_of_sides(A, B))
    assert pairs.answers.power == compute_power_range(0.01, spread_of_pairs(A, B), 5)
    chance = compute_power_range(0.01, spread_of_sides(A, B), 5, 5)
    assert said(sides, "Plan: ") == (
        "Plan: to show a true difference of 1.00 points on these test pairs with a chance of 80% takes "
        f"{describe_seed_plan(plan_seeds(0.01, spread_of_sides(A, B)))}. The 5 seeds per "
        f"side at hand show it with a chance of {chance.value:.0%} ({chance.low:.0%} to {chance.high:.0%}); the ranges come "
        "from a spread that is only estimated."
    )
    few = asked(A[:2], B[:2], lambda _: (), detect=0.01)
    assert said(few, "Plan: ").startswith(
        "Plan: how many seeds show a true difference of 1.00 points on these test pairs with a chance of 80% "
        "can't be said from 2 seeds per side: "
    )
    assert "; so small a pilot is none to plan from. The 2 seeds per side at hand" in said(few, "Plan: ")
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
        assert ", at 98.75% each so that all comparisons hold together. The 5" in said(one, "Plan: ")


def test_items_that_vary_answer_nothing_for_seeds_that_do_not() -> None:
    """Variance components have only the items' variance there, however few the seeds."""
    ends = (0.03, 0.02, 0.04, 12.0)
    still = ComparisonFinding("both", "components", *ends, least_p(5, 5), least_p(5, 5), 0.95, None, None)
    assert (still.said, still.possible, still.unjudged) == ("differs", None, "nothing varies over seeds")
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
    flat = asked(A, A, margin=0.003)
    assert said(flat, "Neither") == ("Neither equality nor a claim can be judged: nothing varies over seeds.")
    few = compare(
        side("a", A[:3]), side("b", [score - 0.3 for score in B[:3]]), test="permutation", asked=ASKED
    )
    assert few.headline.said == "cannot show"
    assert (few.answers.margin, few.answers.claim) == (None, None)
    assert said(few, "Neither") == (
        "Neither equality nor a claim can be judged: the test can show no difference with so few seeds."
    )
    with pytest.raises(InputError) as error:
        compare(side("a", A), side("b", B), level=0.5, asked=Questions(claim=0.1))
    assert str(error.value) == "--level 0.5 with --margin or --claim; expected a level above 0.5"


def test_the_command_takes_points(cli: Cli) -> None:
    options = ("--margin", "0.3", "--claim", "0.9", "--published", "-1.5", "--detect", "1")
    code, out, err = cli("compare", "tncse", "jtcse", *MINI, *options, "--format", "json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    assert found["asked"].pop("published") == pytest.approx({"as given": -0.015})
    assert found["asked"] == pytest.approx({"detect": 0.01, "margin": 0.003, "claim": 0.009})
    assert (found["answers"]["margin"]["verdict"], found["answers"]["claim"]["verdict"]) == (
        "equal within",
        "contradicted",
    )
    assert found["answers"]["published"][0]["inside"] is True


@pytest.mark.parametrize(
    ("option", "value"), [("--margin", "0"), ("--margin", "nan"), ("--detect", "0"), ("--claim", "101")]
)
def test_options_out_of_range(cli: Cli, option: str, value: str) -> None:
    assert f"Invalid value for '{option}'" in refusal(cli, "compare", "tncse", "jtcse", *MINI, option, value)


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
    found = published_differences(a, b)
    by_hand = {}
    rows = [
        line for line in published_rows("sts7") if line.first.backbone == "bert-base" and line.text == WIKI
    ]
    for one in rows:
        for other in rows:
            same = one.first.source == other.first.source
            if same and (one.first.method, other.first.method) == ("simcse", "esimcse"):
                gap = float(one.figures["avg"].text) - float(other.figures["avg"].text)
                by_hand[one.first.source] = pytest.approx(gap / 100)
    assert by_hand
    assert found == by_hand
    assert published_differences(a, printed("esimcse", "own.txt")) == {}
    assert published_differences(printed("simcse", "wiki1m_for_simcse.txt", "mini-bert"), b) == {}
