from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.comparison.comparison import compare, correct_comparisons
from bench.comparison.design import Design
from bench.comparison.evidence import find_component_coverage, find_seed_coverage
from bench.comparison.finding import (
    ComparisonFinding,
    CorrectionMethod,
    correct_findings,
    select_consistent_interval,
)
from bench.comparison.render import describe_comparison, describe_coverage, describe_verdict
from bench.comparison.selection import Group
from bench.reports.tables.comparison_tables import comparison_grid
from bench.stats.correction import adjust_levels
from bench.stats.coverage import find_coverage
from bench.stats.inputs import make_generator
from bench.stats.seeds import welch
from bench.stats.variance_components import ComponentsDifference
from tests.support.cli import Cli
from tests.support.sides import RESULTS, shared, side

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
    with pytest.raises(ValueError, match=r"^p=1.5; expected p in \[0, 1\]$"):
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
    others = [
        side(f"o{i}", [score - gap for score in (0.70, 0.71, 0.72, 0.73)])
        for i, gap in enumerate((0.023, 0.03))
    ]
    first, second = correct_comparisons(
        [compare(ours, other) for other in others], "ours against o0, o1", "holm"
    )
    error = 0.01 * np.sqrt(5 / 3 / 2)  # sd^2 = 5e-4 / 3 on both sides, of four each; 6 degrees of freedom
    p = 2 * stats.t.sf(np.array([0.023, 0.03]) / error, 6)
    half = stats.t.ppf(1 - 0.05 / 2, 6) * error
    assert p[0] < 0.05 < 2 * p[0]
    assert first.corrected is not None
    assert [first.corrected.p, first.corrected.level] == pytest.approx([p[0], 0.95])
    ends = f"[{100 * (0.023 - half):+.2f}, {100 * (0.023 + half):+.2f}]"
    assert (
        f"95% interval {ends}, p = {p[0]:.4f} by Welch's test after correction by Holm over 2"
        in describe_verdict(first)
    )
    assert [row[4] for row in comparison_grid(first).rows] == [ends, ends]
    half = stats.t.ppf(1 - 0.05 / 4, 6) * error
    ends = f"[{100 * (0.03 - half):+.2f}, {100 * (0.03 + half):+.2f}]"
    assert f"97.5% interval {ends}, p = {2 * p[1]:.4f} by Welch's test" in describe_verdict(second)


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
    (said,) = (line for line in describe_comparison(found) if line.startswith("Tasks: "))
    assert "(Welch's test, corrected by Benjamini-Hochberg over the 7 tasks)" in said
    exact = compare(a, b, test="permutation")
    p = exact.seed_level.exact["T0"].p if exact.seed_level else 0
    assert p <= exact.corrected_tasks["T0"].p


def test_an_interval_that_contradicts_an_exact_test_is_not_shown() -> None:
    assert select_consistent_interval((0.1, 0.3), 0.2, 0.05) is None
    assert select_consistent_interval((-0.1, 0.3), 0.2, 0.05) == (-0.1, 0.3)
    assert select_consistent_interval((-0.3, -0.1), 0.05, 0.05) == (-0.3, -0.1)
    a, b = side("a", [0.80, 0.81, 0.82, 0.99]), side("b", [0.70, 0.71, 0.72, 0.73])
    found = compare(a, b, test="permutation")
    low, high = found.interval
    assert low < 0 < high
    assert found.p == pytest.approx(2 / 70)
    assert describe_verdict(found) == (
        "For further seeds on these test pairs: a is ahead: a - b = +14.00 points, p = 0.0286 by the exact "
        "permutation test, from 4 seeds per side"
    )


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
    assert found["verdict"].startswith(
        "For further seeds and further test pairs: 5 pairs of runs show no diff"
    )
    assert found["statements"][0].startswith("For further seeds on these test pairs: 5 pairs of runs show no")
    assert found["asked"] == {"detect": 0.005, "margin": None, "claim": None, "published": {}}
    assert found["answers"]["plan"]["spread"]["design"] == "pairs"
    assert found["seed_level"]["design"]["pairs"] == "have 2 trained stages in common"


@pytest.mark.parametrize(
    ("arguments", "start", "test"),
    [
        (("--for", "seeds"), "For further seeds on these test pairs: ", "paired"),
        (
            ("--for", "items"),
            "For these 10 checkpoints alone on further test pairs: jtcse is ahead",
            "items",
        ),
        (("--for", "both", "--test", "welch"), "For further seeds and further test pairs: ", "components"),
        (
            ("--test", "sign-flip"),
            "For further seeds on these test pairs: 5 pairs of runs cannot",
            "sign-flip",
        ),
        (("--seeds-only",), "For further seeds on these test pairs: ", "paired"),
    ],
)
def test_the_scope_can_be_chosen(cli: Cli, arguments: tuple[str, ...], start: str, test: str) -> None:
    (found,) = json.loads(run(cli, "--format", "json", *arguments))
    assert found["verdict"].startswith(start)
    assert found["test"] == test


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tncse", "jtcse", "--for", "both", "--test", "sign-flip"), "mini, suite mini: --for both with "
         "--test sign-flip; expected --for seeds: it has no items\n"),
        (("tncse", "jtcse", "--for", "both", "--seeds-only"), "mini, suite mini: nothing speaks for seeds "
         "and items together; expected the items; leave out --seeds-only\n"),
        (("tncse#1", "jtcse#1", "--for", "seeds"), "mini, suite mini: tncse#1 against jtcse#1: one run says "
         "nothing about its spread over seeds; expected --for items\n"),
    ],
)  # fmt: skip
def test_scopes_that_the_records_cannot_speak_for(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    assert cli("compare", *arguments, *COMMITTED) == (2, "", f"error: {message}")


@pytest.mark.parametrize(
    ("form", "fact"),
    [("markdown", "- For further seeds and further test pairs"), ("latex", "\\toprule")],
)
def test_other_formats_hold_the_verdict_too(cli: Cli, form: str, fact: str) -> None:
    out = run(cli, "--format", form)
    assert fact.removeprefix("- ") in out
    assert "For further seeds and further test pairs: 5 pairs of runs show no difference" in out.replace(
        "\n", " "
    )


def test_the_coverage_that_is_quoted_fits_the_test_and_its_numbers() -> None:
    alike, wide = [0.70, 0.71, 0.72, 0.70, 0.71], [0.50, 0.90]
    assert find_seed_coverage(Design("welch", "auto", None), alike, alike, None) == find_coverage(
        "welch", 5, 5
    )
    unequal = find_seed_coverage(Design("welch", "auto", None), alike, wide, None)
    assert (unequal.method, unequal.n_a, unequal.n_b) == ("welch", 2, 5)
    assert find_seed_coverage(Design("student", "auto", None), [0.7], alike, None) == find_coverage(
        "student", 5, 1
    )
    paired = find_seed_coverage(Design("sign-flip", "auto", "x"), alike, alike, 0.99)
    assert paired == find_coverage("paired t", 5, 5, correlation=0.99)
    both = ComponentsDifference(0.1, 0.0, 0.2, 2.0, 4.0, 0.1, 2e-4, 1e-4, 5, 5, True)
    row = find_component_coverage(both, 0.9)
    assert (row.method, row.design, row.target, row.n_a) == (
        *("components, paired", "seeds dominate", "further seeds, further items"),
        5,
    )
    assert find_component_coverage(replace(both, items=3e-4, paired=False), None).design == "items dominate"
    said = " ".join(describe_comparison(compare(side("a", wide), side("b", alike))))
    assert "the test has the smaller side's degrees of freedom, 1." in said
    assert "too narrow" not in said
    said = " ".join(describe_comparison(compare(side("a", alike), side("b", alike[::-1]))))
    assert "too narrow" not in said
    assert "wider than" not in said
    two = compare(side("a", [0.70, 0.72]), side("b", [0.71, 0.74]))
    assert (
        "For further seeds on these test pairs, the interval is wider than it need be: in simulations with 2 "
        "seeds per side, such a 95% interval held the true difference in 97.7%."
    ) in describe_comparison(two)


def test_a_permutation_of_sides_that_spread_unequally_says_how_often_it_errs() -> None:
    narrow = [0.70, 0.71, 0.72, 0.70, 0.71, 0.72, 0.715, 0.705, 0.71, 0.70]
    wide = [0.68, 0.76, 0.72]
    row = find_coverage("permutation", 3, 10, design="spread 3:1")
    assert (row.n_a, row.n_b, row.keeps) == (3, 10, False)
    for test in ("auto", "permutation"):
        said = describe_comparison(compare(side("a", narrow), side("b", wide), test=test))
        assert (
            "The sides spread unequally: in simulations with 3 seeds that spread three times as far as the "
            "others' 10, the permutation of runs called equal methods different in "
            f"{100 * row.measured:.1f}%."
        ) in said
        assert "needs no normal scores, but equal spreads: p = " in " ".join(said)
    said = describe_comparison(compare(side("a", narrow[:5]), side("b", narrow[5:])))
    assert not any(line.startswith("The sides spread unequally") for line in said)


def test_seeds_far_from_the_others_are_named_with_what_is_robust() -> None:
    a = side("a", [0.761, 0.764, 0.610, 0.763, 0.760])
    b = side("b", [0.752, 0.759, 0.756, 0.751, 0.757])
    found = compare(a, b)
    assert found.seed_level is not None
    assert found.seed_level.iqm is not None
    assert found.seed_level.outlying.first == (3,)
    row = find_coverage("welch", 5, 5, design="collapse")
    said = describe_comparison(found)
    assert (
        f"Far from the others: seed 3 of a. Where one run in ten collapses, the interval can't be relied on: "
        f"{describe_coverage(row)}. Look at these runs, and at the interquartile means."
    ) in said
    assert f"is +{100 * found.seed_level.iqm.difference:.2f} points, bootstrap interval [" in " ".join(said)
    assert found.difference < 0 < found.seed_level.iqm.difference
    pairs = compare(
        side("a", [0.71, 0.73, 0.70, 0.72, 0.75], shared),
        side("b", [0.70, 0.721, 0.691, 0.709, 0.50], shared),
    )
    assert "the difference of seed 5" in " ".join(describe_comparison(pairs))
