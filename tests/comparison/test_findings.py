from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.comparison.campaign_intervals import compute_method_intervals
from bench.comparison.comparison import compare, correct_comparisons
from bench.comparison.design import Design
from bench.comparison.evidence import find_component_coverage, find_seed_coverage
from bench.comparison.finding import (
    ComparisonFinding,
    CorrectionMethod,
    correct_findings,
    select_consistent_interval,
)
from bench.comparison.selection import Group
from bench.comparison.wording import describe_comparison, describe_coverage, describe_verdict
from bench.reports.tables.comparison_tables import comparison_grid
from bench.stats.argument_checks import make_generator
from bench.stats.correction import adjust_levels
from bench.stats.coverage import find_coverage
from bench.stats.seeds import welch
from bench.stats.variance_components import ComponentsDifference
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts, numbers_in
from tests.support.sides import RESULTS, level_of, sentence, shared, side

COMMITTED = ("--campaign", "mini", "--results", str(RESULTS), "--draws", "200")


def normal(name: str, n: int, mean: float = 0.7, sd: float = 0.01, tasks: int = 1) -> Group:
    rng = make_generator(0, f"findings/{name}")
    scores = mean + sd * rng.normal(size=(n, tasks))
    return side(name, scores.tolist())


def test_levels_by_hand() -> None:
    p = {"a": 0.2, "b": 0.001, "c": 0.02, "d": 0.012}
    # Holm rejects b at alpha / 4, d at alpha / 3, c at alpha / 2; Benjamini-Hochberg all three at 3 alpha / 4
    holm = {"a": 0.9875, "b": 0.9875, "c": 0.975, "d": 1 - 0.05 / 3}
    assert adjust_levels(p, "holm") == pytest.approx(holm)
    fdr = {"a": 0.9875, "b": 0.9625, "c": 0.9625, "d": 0.9625}
    assert adjust_levels(p, "fdr_bh") == pytest.approx(fdr)
    assert adjust_levels({"a": 0.01}, "holm", 0.9) == pytest.approx({"a": 0.9})
    with pytest.raises(ValueError, match=r"p=1.5"):
        adjust_levels({"a": 0.1, "b": 1.5}, "holm")


@pytest.mark.parametrize("method", ["holm", "fdr_bh"])
def test_no_interval_contradicts_the_corrected_p_beside_it(method: CorrectionMethod) -> None:
    rng, turned, shown_p = make_generator(0, f"agree/{method}"), 0, set()
    for _ in range(60):
        means = 0.7 + rng.uniform(-0.02, 0.02, size=4)
        scores = [(0.7 + 0.01 * rng.normal(size=5), mean + 0.01 * rng.normal(size=4)) for mean in means]
        tests = [welch(x, y) for x, y in scores]
        found = [
            ComparisonFinding("seeds", "welch", d.difference, d.low, d.high, d.df, d.p, 0.0, 0.95, None, None)
            for d in tests
        ]
        for (x, y), one in zip(scores, correct_findings(found, "f", method), strict=True):
            assert one.corrected is not None
            assert one.interval is not None
            again = welch(x, y, one.corrected.level)
            assert one.interval == pytest.approx((again.low, again.high))
            assert (again.low > 0 or again.high < 0) == (one.corrected.p <= 0.05)
            shown_p.add(one.corrected.p <= 0.05)
            turned += (one.p <= 0.05) != (one.corrected.p <= 0.05)
    assert shown_p == {True, False}
    assert turned > 5  # whose interval at 95% would have contradicted the corrected p


def test_a_corrected_verdict_and_its_table_show_one_interval() -> None:
    ours = side("ours", [0.70, 0.71, 0.72, 0.73])
    gaps = (0.023, 0.03)
    others = [side(str(gap), [score - gap for score in (0.70, 0.71, 0.72, 0.73)]) for gap in gaps]
    first, second = correct_comparisons([compare(ours, other) for other in others], "ours", "holm")
    error = 0.01 * np.sqrt(5 / 3 / 2)  # sd^2 = 5e-4 / 3 on both sides, of four each; 6 degrees of freedom
    p = 2 * stats.t.sf(np.array([0.023, 0.03]) / error, 6)
    half = stats.t.ppf(1 - 0.05 / 2, 6) * error
    assert p[0] < 0.05 < 2 * p[0]
    corrected = first.headline.corrected
    assert corrected is not None
    assert [corrected.p, corrected.level] == pytest.approx([p[0], 0.95])
    ends = f"[{100 * (0.023 - half):+.2f}, {100 * (0.023 + half):+.2f}]"
    facts = (f"95% interval {ends}", f"p = {p[0]:.4f}", "Welch's test", "Holm over 2")
    assert not missing_facts(describe_verdict(first), *facts)
    assert [row[4] for row in comparison_grid(first).rows] == [ends, ends]
    half = stats.t.ppf(1 - 0.05 / 4, 6) * error
    ends = f"[{100 * (0.03 - half):+.2f}, {100 * (0.03 + half):+.2f}]"
    assert not missing_facts(describe_verdict(second), f"97.5% interval {ends}", f"p = {2 * p[1]:.4f}")


def test_tasks_have_intervals_that_agree_with_their_corrected_p() -> None:
    a, b = normal("a", 5, 0.706, tasks=7), normal("b", 5, tasks=7)
    found = compare(a, b)
    assert len(found.corrected_tasks) == 7
    for task, one in found.corrected_tasks.items():
        test = welch(a.scores(task), b.scores(task), one.level)
        assert one.interval == pytest.approx((test.low, test.high))
        assert (test.low > 0 or test.high < 0) == (one.p <= 0.05)
    grid = comparison_grid(found)
    assert grid.header[4:] == ("seeds, corrected", "p", "exact p (lowest possible)", "p corrected")
    assert grid.rows[-1][-1] == "-"
    assert not missing_facts(sentence(found, "Tasks: "), "Welch's test", "Benjamini-Hochberg", "7 tasks")
    exact = compare(a, b, test="permutation")
    assert level_of(exact).exact["T0"].p <= exact.corrected_tasks["T0"].p


def test_an_interval_that_contradicts_an_exact_test_is_not_shown() -> None:
    assert select_consistent_interval((0.1, 0.3), 0.2, 0.05) is None
    assert select_consistent_interval((-0.1, 0.3), 0.2, 0.05) == (-0.1, 0.3)
    assert select_consistent_interval((-0.3, -0.1), 0.05, 0.05) == (-0.3, -0.1)
    a, b = side("a", [0.80, 0.81, 0.82, 0.99]), side("b", [0.70, 0.71, 0.72, 0.73])
    found = compare(a, b, test="permutation")
    assert found.headline.low < 0 < found.headline.high
    assert found.headline.p == pytest.approx(2 / 70)
    assert numbers_in(describe_verdict(found)) == [14, 0.0286, 4]  # no interval
    assert not missing_facts(describe_verdict(found), "a is ahead", "exact permutation test")


def run(cli: Cli, *arguments: str) -> str:
    code, out, err = cli("compare", "tncse", "jtcse", *COMMITTED, *arguments)
    assert (code, err) == (0, "")
    return out


def test_the_verdict_speaks_for_seeds_and_items_where_both_are_there(cli: Cli) -> None:
    (found,) = json.loads(run(cli, "--format", "json"))
    both, seeds = found["findings"]
    assert (both["speaks_for"], seeds["speaks_for"], found["test"]) == ("both", "seeds", "components")
    components = found["item_level"]["components"]
    assert components["paired"] is True
    assert found["interval"] == [both["low"], both["high"]]
    assert both["high"] - both["low"] >= seeds["high"] - seeds["low"]
    assert not missing_facts(
        found["verdict"], "New seeds, new items", "5 paired runs", "no significant difference"
    )
    assert not missing_facts(
        found["statements"][0], "New seeds, these items", "5 paired runs", "no significant difference"
    )
    assert found["asked"] == {"detect": 0.005, "margin": None, "claim": None, "published": {}}
    assert found["answers"]["plan"]["spread"]["design"] == "pairs"
    assert found["seed_level"]["design"]["pairs"] == "have 2 trained stages in common"


@pytest.mark.parametrize(
    ("arguments", "facts", "test"),
    [
        ("--for seeds", ("New seeds, these items",), "paired"),
        ("--for items", ("10 checkpoints, new items", "jtcse is ahead"), "items"),
        ("--for both --test welch", ("New seeds, new items",), "components"),
        ("--test sign-flip", ("New seeds", "5 paired runs", "cannot"), "sign-flip"),
        ("--seeds-only", ("New seeds, these items",), "paired"),
    ],
)
def test_the_scope_can_be_chosen(cli: Cli, arguments: str, facts: tuple[str, ...], test: str) -> None:
    (found,) = json.loads(run(cli, "--format", "json", *arguments.split()))
    assert not missing_facts(found["verdict"], *facts)
    assert found["test"] == test


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("tncse jtcse --for both --test sign-flip", ("--test sign-flip", "--for seeds")),
        ("tncse jtcse --for both --seeds-only", ("seeds and items", "leave out --seeds-only")),
        ("tncse#1 jtcse#1 --for seeds", ("tncse#1 against jtcse#1", "one run", "--for items")),
    ],
)
def test_scopes_without_a_test(cli: Cli, arguments: str, facts: tuple[str, ...]) -> None:
    assert not missing_facts(
        refusal(cli, "compare", *arguments.split(), *COMMITTED), "mini, suite mini", *facts
    )


@pytest.mark.parametrize(("form", "fact"), [("markdown", "New seeds"), ("latex", "\\toprule")])
def test_other_formats_hold_the_verdict_too(cli: Cli, form: str, fact: str) -> None:
    assert not missing_facts(run(cli, "--format", form), fact, "new items", "5 paired runs")


def test_the_coverage_that_is_quoted_fits_the_test_and_its_numbers() -> None:
    alike, wide = [0.70, 0.71, 0.72, 0.70, 0.71], [0.50, 0.90]
    welchs, students = Design("welch", "auto", None), Design("student", "auto", None)
    assert find_seed_coverage(welchs, alike, alike, None) == find_coverage("welch", 5, 5)
    unequal = find_seed_coverage(welchs, alike, wide, None)
    assert (unequal.method, unequal.n_a, unequal.n_b) == ("welch", 2, 5)
    assert find_seed_coverage(students, [0.7], alike, None) == find_coverage("student", 5, 1)
    paired = find_seed_coverage(Design("sign-flip", "auto", "x"), alike, alike, 0.99)
    assert paired == find_coverage("paired t", 5, 5, correlation=0.99)
    both = ComponentsDifference(0.1, 0.0, 0.2, 2.0, 4.0, 0.1, 2e-4, 1e-4, 5, 5, True)
    row = find_component_coverage(both, 0.9)
    assert (row.method, row.design, row.n_a) == ("components, paired", "seeds dominate", 5)
    assert row.target.endswith("further items")
    assert find_component_coverage(replace(both, items=3e-4, paired=False), None).design == "items dominate"
    said = " ".join(describe_comparison(compare(side("a", wide), side("b", alike))))
    assert not missing_facts(said, "of freedom, 1.")
    assert "too narrow" not in said
    said = " ".join(describe_comparison(compare(side("a", alike), side("b", alike[::-1]))))
    assert missing_facts(said, "too narrow", "wider than") == ["too narrow", "wider than"]
    two = compare(side("a", [0.70, 0.72]), side("b", [0.71, 0.74]))
    (wide,) = (numbers_in(line) for line in describe_comparison(two) if "wider than" in line)
    assert wide == [2, 95, 97.7]


def test_a_permutation_of_sides_that_spread_unequally_says_how_often_it_errs() -> None:
    narrow = [0.70, 0.71, 0.72, 0.70, 0.71, 0.72, 0.715, 0.705, 0.71, 0.70]
    wide = [0.68, 0.76, 0.72]
    row = find_coverage("permutation", 3, 10, design="spread 3:1")
    assert (row.n_a, row.n_b, row.keeps) == (3, 10, False)
    for test in ("auto", "permutation"):
        found = compare(side("a", narrow), side("b", wide), test=test)
        said = sentence(found, "The sides spread unequally")
        assert numbers_in(said) == [3, 10, round(100 * row.measured, 1)]
        assert "but equal spreads" in " ".join(describe_comparison(found))
    alike = compare(side("a", narrow[:5]), side("b", narrow[5:]))
    assert not any("spread unequally" in line for line in describe_comparison(alike))


def test_seeds_far_from_the_others_are_named_with_what_is_robust() -> None:
    a = side("a", [0.761, 0.764, 0.610, 0.763, 0.760])
    b = side("b", [0.752, 0.759, 0.756, 0.751, 0.757])
    found = compare(a, b)
    level = level_of(found)
    assert level.iqm is not None
    assert level.outlying.first == (3,)
    row, iqm = find_coverage("welch", 5, 5, design="collapse"), level.iqm.difference
    assert not missing_facts(sentence(found, "Far from"), "seed 3", describe_coverage(row))
    assert f"is +{100 * iqm:.2f} points" in " ".join(describe_comparison(found))
    assert found.headline.difference < 0 < iqm
    pairs = compare(
        side("a", [0.71, 0.73, 0.70, 0.72, 0.75], shared),
        side("b", [0.70, 0.721, 0.691, 0.709, 0.50], shared),
    )
    assert "of seed 5" in " ".join(describe_comparison(pairs))


def test_a_method_has_students_interval_and_none_for_equal_seeds() -> None:
    (equal,) = compute_method_intervals(side("a", [0.1, 0.1, 0.1]).runs, 0.95)
    assert (equal.sd, equal.interval) == (0.0, None)
    scores = [0.70, 0.72, 0.75]
    (found,) = compute_method_intervals(side("a", scores).runs, 0.9)
    expected = stats.ttest_1samp(scores, 0).confidence_interval(0.9)
    assert found.interval == pytest.approx((expected.low, expected.high))
