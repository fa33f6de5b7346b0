"""The one verdict on two methods: its rule, its numbers and both its directions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.site.method_pairs import PairJudge, compare_method_pairs
from bench.site.pair_verdict import ALPHA, WORDS, PairVerdict, round_p_value, round_points
from tests.support.site import RESULTS, call, real
from tests.support.standings import alone, seeds

OPEN = PairVerdict(0.26, (-0.1, 0.62), (10, 10), "paired t", 0.14, 1.0, 1081)


@pytest.mark.parametrize(
    ("p", "corrected", "pairs", "answer"),
    [
        (0.14, 1.0, 1081, "neither"),
        (0.01, 0.3, 1081, "alone"),
        (0.00001, 0.01, 1081, "both"),
        (0.04, 0.04, 1, "only ahead"),
        (0.06, 0.06, 1, "only open"),
        (0.05, None, 1081, "aside ahead"),
        (0.0501, None, 1081, "aside open"),
        (None, None, 1081, "untested"),
    ],
)
def test_the_corrected_test_decides_where_there_is_one(
    p: float | None, corrected: float | None, pairs: int, answer: str
) -> None:
    verdict = replace(OPEN, p=p, corrected=corrected, pairs=pairs)
    assert verdict.answer == answer
    assert verdict.reverse().answer == answer
    text = verdict.describe("TNCSE", "JTCSE", {"JTCSE": "with one seed"})
    assert ("ahead" in text.partition(": ")[2]) == (answer in ("both", "alone", "only ahead", "aside ahead"))
    assert ("treat as open" in text) == (answer == "alone")
    assert ("1,081" in text) == (answer in ("both", "alone", "neither"))
    assert ("JTCSE (with one seed)" in text) == answer.startswith("aside")
    assert "{" not in text


def test_the_sentence_keeps_the_order_that_was_asked_for() -> None:
    assert OPEN.describe("TNCSE", "JTCSE") == (
        "TNCSE is 0.26 above JTCSE [-0.10, +0.62] (10 paired seeds): no difference shown for this pair "
        "alone; among all 1,081 pairs of the leaderboard neither."
    )
    shown = replace(OPEN, p=1e-9, corrected=1e-6, seeds=(10, 8), test="Welch")
    assert shown.reverse().describe("JTCSE", "TNCSE") == (
        "JTCSE is 0.26 below TNCSE [-0.62, +0.10] (8 and 10 seeds): shown to be behind, also after the "
        "correction for all 1,081 pairs of the leaderboard."
    )
    assert shown.reverse().reverse() == shown


def test_names_with_braces_stay_as_they_are() -> None:
    text = OPEN.describe("{b}", "{0}")
    assert text.startswith("{b} is 0.26 above {0} [")


def test_seeds_are_counted_by_their_design() -> None:
    told = [
        replace(OPEN, seeds=sizes, test=test).describe_seeds()
        for sizes, test in [
            ((5, 5), "paired t"),
            ((5, 5), "Welch + items"),
            ((0, 5), "Student"),
            ((5, 0), "Student"),
            ((0, 0), "items' bootstrap"),
        ]
    ]
    fixed = WORDS["fixed"].format(n=5)
    assert told == ["5 paired seeds", "5 seeds each", fixed, fixed, "rows without seeds"]


def test_rounding_keeps_the_side_of_an_end_near_zero() -> None:
    assert [round_points(x) for x in (0.2571, -0.0031, 0.0, -1.005)] == [0.26, -0.003, 0.0, -1.0]
    assert [round_p_value(p) for p in (0.04996, 0.00012, 3.4e-7, 0.0)] == [0.05, 0.0001, 3e-7, 0.0]


@pytest.mark.parametrize("campaign", ["mini", pytest.param("unsee", marks=pytest.mark.long)])
def test_numbers_are_those_of_the_command(campaign: str) -> None:
    """Every pair of committed records, in the order of the file and in the other one."""
    (block,) = compare_method_pairs(make_campaign(store := ResultStore(RESULTS, campaign), store.records()))
    rows = block["rows"]
    where = ("--results", str(RESULTS), "--campaign", campaign, "--seeds-only", "--format", "json")
    checked = 0
    for number, line in enumerate(block["pairs"]):
        i, j, answer, difference, low, high, n, m, test, p, _ = line
        if block["texts"][answer] == "untested":
            continue
        turned = number % 2
        a, b = (rows[j], rows[i]) if turned else (rows[i], rows[j])
        code, out, err = call("compare", a, b, *where)
        assert (code, err) == (0, ""), err
        (told,) = json.loads(out)
        sign = -1 if turned else 1
        ends = (-high, -low) if turned else (low, high)
        assert 100 * told["difference"] == pytest.approx(sign * difference, abs=0.00501)
        assert [100 * end for end in told["interval"]] == pytest.approx(ends, abs=0.00501)
        assert told["p"] == pytest.approx(p, abs=0.0000501)
        assert [len(side) for side in told["seeds"]] == ([m, n] if turned else [n, m])
        assert block["texts"][test].lower().startswith(told["test"])
        checked += 1
    assert checked > 40


def test_the_family_is_that_of_the_leaderboard(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    records = [r for i in range(6) for r in seeds(f"m{i}", *(0.5 + 0.008 * i + 0.006 * rng.normal(size=5)))]
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    ranking = run_pairwise_tests(source, source.records).of()
    (block,) = compare_method_pairs(source)
    answers = []
    for i, j, answer, difference, *_, p, corrected in block["pairs"]:
        pair = ranking.pair(block["rows"][i], block["rows"][j])
        sign = 1 if pair.first == block["rows"][i] else -1
        assert difference == pytest.approx(100 * sign * pair.difference, abs=0.00501)
        assert corrected == round_p_value(pair.adjusted or 0.0)
        assert p == round_p_value(pair.p or 0.0)
        answers.append(block["texts"][answer])
        assert (answers[-1] == "both") == pair.differs
        assert (answers[-1] == "alone") == (not pair.differs and pair.p is not None and pair.p <= ALPHA)
    assert block["tested"] == 15
    assert set(answers) == {"both", "alone", "neither"}


def test_rows_that_the_leaderboard_sets_aside_have_their_own_test(tmp_path: Path) -> None:
    records = [
        *seeds("a", 0.52, 0.53, 0.525),
        *seeds("b", 0.50, 0.515, 0.509),
        *seeds("c", 0.45, 0.44, 0.446),
        *seeds("a[steps=3]", 0.60, 0.61, 0.606),
        *seeds("once", 0.48),
        alone("fixed", 0.3),
        alone("constant", 0.2),
        *(shared := seeds("shared", 0.49, 0.51)),
    ]
    for record in shared:
        record.training["stages"]["simcse"]["key"] = "one stage"
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    judge = PairJudge(source, source.records)
    assert set(judge.aside) == {"a[steps=3]", "once", "shared"}
    assert judge.judge("a[steps=3]", "c").answer == "aside ahead"
    one = judge.judge("a", "once")
    assert (one.answer, one.p, one.interval) == ("untested", None, None)
    assert "once has one seed" in one.describe("a", "once")
    assert judge.judge("a", "fixed").seeds == (3, 0)
    assert judge.judge("fixed", "constant").answer == "untested"
    text = judge.judge("once", "shared").describe("once", "shared")
    wanted = "once is 2.00 below shared (1 and 2 seeds): not tested, as shared is set aside (whose"
    assert text.startswith(wanted)
    assert judge.tested == 9  # all pairs of a, b, c, fixed and constant but the last two


def test_a_pair_is_stored_once_and_in_few_bytes(tmp_path: Path) -> None:
    store = real(tmp_path)
    (block,) = compare_method_pairs(make_campaign(store, store.records()))
    assert [line[:2] for line in block["pairs"]] == [[0, 1], [0, 2], [1, 2]]
    assert all(len(json.dumps(line)) < 100 for line in block["pairs"])
