"""The gate's decision on records, and its table, markdown, JSON and JUnit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from bench.errors import DataError, InputError, NotComparableError
from bench.gate.judge import judge
from bench.gate.verdict import Status
from bench.gate.verdict_tables import build_gate_grid, describe_gate, format_gate_json
from bench.records.record import RunRecord
from bench.render.formats import render_text
from bench.stats.coverage import find_coverage
from tests.support.gate_records import OTHER, OTHER_DATA, average, one, record, runs
from tests.support.messages import missing_facts, numbers_in

REFERENCE = runs((0.60, 0.61, 0.62))


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (runs((0.60, 0.61, 0.62)), "equal"),
        (runs((0.60, 0.61, 0.62), provenance=OTHER, timing={}), "equal"),
        (runs((0.50, 0.51, 0.52)), "regression"),
        (runs((0.612, 0.598, 0.615), first=4), "ok"),  # other seeds, a change as large as their noise
        (runs((0.595, 0.605, 0.615)), "ok"),  # by 0.5 points, not more
        (runs((0.585, 0.58, 0.62)), "unclear"),  # 1.5 points, sd of the pairs' drops 1.5
        (runs((0.50, 0.55, 0.66)), "regression"),  # too wide for the pairs, beyond the reference's spread
        (runs((0.60, 0.61, 0.05)), "regression"),
        (runs((0.70, 0.71, 0.72)), "improved"),
        (runs((0.60, 0.72, 0.90)), "ok"),
        (runs((0.55, 0.56), first=8), "regression"),
        (runs((0.59, 0.60), first=8), "unclear"),
        (runs((0.61,), first=2), "equal"),
        (runs((0.604,), first=2), "regression"),
        (runs((0.606,), first=2), "ok"),
        (runs((0.616,), first=2), "improved"),
        ([], "missing"),
        ([*REFERENCE[:2], record(0.6, 3, status="failed", scores=(), reason="no luck")], "failed"),
    ],
)
def test_verdicts_over_seeds(new: list[RunRecord], status: str) -> None:
    gate = judge(REFERENCE, new, tolerance=0.0055)
    assert one(gate).status == status
    assert gate.exit_code == (1 if status in ("regression", "missing", "failed") else 0)


@pytest.mark.parametrize(
    ("value", "status"), [(0.6, "equal"), (0.598, "ok"), (0.594, "regression"), (0.606, "improved")]
)
def test_a_deterministic_method_is_judged_by_the_tolerance(value: float, status: str) -> None:
    cell = one(judge([record(0.6, None)], [record(value, None)]))
    assert (cell.status, cell.seeds) == (status, (None,))
    assert average(cell).drop == pytest.approx(0.6 - value)
    assert average(cell).low is None


THEN, NOW = (0.60, 0.63, 0.57), (0.585, 0.622, 0.556)  # drops of 1.5, 0.8 and 1.4 points; sd 3


def paired_interval(then: Sequence[float], now: Sequence[float], level: float = 0.95) -> tuple[float, ...]:
    return tuple(stats.ttest_rel(then, now).confidence_interval(level))


@pytest.mark.parametrize("changes", [{}, {"provenance": OTHER}])
def test_the_same_seeds_are_pairs_on_any_machine(changes: dict[str, Any]) -> None:
    cell = one(judge(runs(THEN), runs(NOW, **changes)))
    drop = average(cell)
    assert (cell.status, cell.test, numbers_in(cell.error_term)) == ("regression", "paired t", [3])
    assert (drop.low, drop.high) == pytest.approx(paired_interval(THEN, NOW))
    assert drop.p == pytest.approx(stats.ttest_rel(THEN, NOW).pvalue)


def test_other_seeds_are_no_pairs() -> None:
    """The scores are those that pairs show to have fallen: the design chooses, not the result."""
    cell = one(judge(runs(THEN), runs(NOW, first=4)))
    assert (cell.status, numbers_in(cell.error_term)) == ("unclear", [3, 3])
    expected, drop = stats.ttest_ind(THEN, NOW, equal_var=False), average(cell)
    assert (drop.low, drop.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert drop.p == pytest.approx(expected.pvalue)
    cell = one(judge(runs(THEN), runs((*NOW[1:], 0.6), first=2)))  # two of four seeds in common
    assert (cell.seeds, cell.new_seeds, cell.test) == ((1, 2, 3), (2, 3, 4), "Welch")
    cell = one(judge(runs(THEN), runs(NOW[:2], first=8)))
    assert (cell.test, numbers_in(cell.error_term)) == ("Welch", [3, 2])


@pytest.mark.parametrize(("lacking", "whose"), [("then", "the new records"), ("now", "the reference")])
def test_where_one_side_lacks_a_seed_the_others_are_pairs(lacking: str, whose: str) -> None:
    sides = {"then": runs(THEN), "now": runs(NOW)}
    del sides[lacking][1]
    cell = one(judge(sides["then"], sides["now"]))
    assert (cell.seeds, cell.new_seeds, cell.test) == ((1, 3), (1, 3), "paired t")
    assert average(cell).drop == pytest.approx(0.0145)  # of 1.5 and 1.4 points
    assert (average(cell).low, average(cell).high) == pytest.approx(paired_interval(THEN[::2], NOW[::2]))
    assert not missing_facts(cell.reasons, f"seed 2 of {whose}")


def test_a_foreign_seed_on_either_side_does_not_hide_what_pairs_show() -> None:
    spread = (0.50, 0.60, 0.70, 0.40, 0.55)
    fell = [value - 0.02 - 0.0001 * place for place, value in enumerate(spread)]
    new = [*runs(fell[:4]), record(0.52, 6)]  # seed 5 died, and seed 6 took its place
    cell = one(judge(runs(spread), new))
    assert (cell.status, cell.test, numbers_in(cell.error_term)) == ("regression", "paired t", [4])
    assert not missing_facts(cell.reasons, "seed 5 of", "seed 6 of")


def test_equal_cells_name_the_seeds_that_were_not_compared() -> None:
    gate = judge(runs(THEN), runs(THEN[:1]))
    assert one(gate).status == "equal"
    for text in (one(gate).reasons, format_gate_json(gate), build_gate_grid(gate).notes):
        assert not missing_facts(text, "seeds 2, 3", "left out")


def test_drops_that_do_not_vary() -> None:
    gate = judge(runs((0.6, 0.7, 0.8)), runs((0.59, 0.69, 0.79)))
    assert not missing_facts(describe_gate(gate), "1.00 points", "on every seed", "paired t over")
    cell = one(gate)
    assert (cell.status, cell.test) == ("regression", "paired t")
    assert average(cell).low == pytest.approx(0.01)
    assert average(cell).p == 0.0
    cell = one(judge(runs((0.6, 0.6)), runs((0.594, 0.592))))  # a reference without any spread
    assert (cell.status, cell.limit) == ("regression", 0.0)
    assert (average(cell).low or 0.0) < 0


def test_intervals_are_shared_among_the_cells_that_changed() -> None:
    others = [runs(THEN, method=name) for name in ("a", "b", "c")]
    changed = [runs(NOW, method="a"), runs(NOW, method="b"), others[2]]
    gate = judge([r for cell in others for r in cell], [r for cell in changed for r in cell])
    assert (gate.tested, [cell.status for cell in gate.cells]) == (3, ["unclear", "unclear", "equal"])
    drop = average(gate.cells[0])
    assert (drop.low, drop.high) == pytest.approx(paired_interval(THEN, NOW, 1 - 0.05 / 3))
    assert drop.adjusted_p == pytest.approx(3 * stats.ttest_rel(THEN, NOW).pvalue)
    assert (drop.low or 0.0) < 0
    assert (drop.adjusted_p or 0.0) > 0.05  # the interval and the corrected p agree


def ten_cells(draws: Any, first: int = 1, **changes: Any) -> list[RunRecord]:
    """Records of ten cells with these averages, (cells, seeds)."""
    cells = [runs(row.tolist(), first, method=f"m{cell}", **changes) for cell, row in enumerate(draws)]
    return list(chain.from_iterable(cells))


def test_pairs_show_a_drop_of_one_point_in_one_of_ten_cells_that_welch_does_not() -> None:
    """Ten seeds, sd 2 and correlation 0.95: the drops' sd is 0.63 points."""
    shared, first, second = np.random.default_rng(3).normal(size=(3, 10, 10))
    then, now = (0.6 + 0.02 * (0.95**0.5 * shared + 0.05**0.5 * own) for own in (first, second))
    now[4] -= 0.01
    gate = judge(ten_cells(then), ten_cells(now))
    assert (gate.tested, [cell.key[1] for cell in gate.having(Status.REGRESSION)]) == (11, ["m4"])
    welch = judge(ten_cells(then), ten_cells(now, first=11))
    assert (welch.tested, welch.having(Status.REGRESSION)) == (11, ())


@pytest.mark.long
@pytest.mark.parametrize(
    ("correlation", "first", "count"), [(0.0, 1, 3), (0.99, 1, 3), (0.0, 4, 3), (0.0, 2, 1)]
)
def test_ten_unchanged_cells_fail_the_gate_by_chance_in_one_of_twenty_at_most(
    correlation: float, first: int, count: int
) -> None:
    """On another CPU, at a tolerance of 0: three standard deviations would fail in more than a quarter."""
    random, gates, failed = np.random.default_rng(2), 60, 0
    for _ in range(gates):
        shared, one, other = 0.02 * random.normal(size=(3, 10, 7))
        was, now = (0.6 + correlation**0.5 * shared + (1 - correlation) ** 0.5 * own for own in (one, other))
        new = ten_cells(now[:, first - 1 : first - 1 + count], first, provenance=OTHER)
        failed += judge(ten_cells(was[:, :3]), new, tolerance=0).exit_code
    assert failed <= 0.05 * gates + 4  # two standard errors of so few


def test_tasks_are_corrected_together_and_decide_nothing() -> None:
    then, now = ((0.51, 0.61), (0.52, 0.62), (0.53, 0.63)), ((0.404, 0.711), (0.417, 0.728), (0.433, 0.733))
    gate = judge(*([*runs(side), *runs(side, method="b")] for side in (then, now)))
    drops = [cell.drops[task] for cell in gate.cells for task in ("T1", "T2")]
    adjusted = [drop.adjusted_p or 0.0 for drop in drops]
    assert adjusted == pytest.approx(list(multipletests([drop.p for drop in drops], method="holm")[1]))
    assert max(adjusted) < 0.05
    cell = gate.cells[0]
    assert cell.status == "ok"
    expected = stats.ttest_rel((0.56, 0.57, 0.58), (0.5575, 0.5725, 0.583)).pvalue
    assert average(cell).p == pytest.approx(expected)
    assert average(cell).adjusted_p == 1.0
    assert [cell.drops[task].low for task in ("T1", "T2")] == [None, None]
    task, worst = cell.worst or ("", average(cell))
    assert task == "T1"
    assert worst.drop == pytest.approx(0.102)


@pytest.mark.parametrize(
    ("new", "status", "reason"),
    [
        # no interval shows it, but three seeds with an sd of 1 point don't fall by 29
        ((0.61, 0.30, 0.05), "regression", "interval holds 0"),
        ((0.585, 0.58, 0.62), "unclear", "noise"),
        ((0.5805, 0.591, 0.6005), "regression", None),  # within the limit; the pairs show it
        ((0.60, 0.61, 0.6201), "ok", None),
    ],
)
@pytest.mark.parametrize("machine", ["same", "other"])
def test_a_drop_beyond_the_references_own_spread_fails_too(
    new: tuple[float, ...], status: str, reason: str | None, machine: str
) -> None:
    changes: dict[str, Any] = {"provenance": OTHER} if machine == "other" else {}
    cell = one(judge(REFERENCE, runs(new, **changes)))
    assert cell.status == status
    expected = stats.t.ppf(0.975, 2) * 0.01 * (2 / 3) ** 0.5
    assert cell.limit == pytest.approx(expected)
    assert reason is None or not missing_facts(cell.reasons, reason)
    has_hint = not missing_facts(cell.reasons, "versions or hardware")
    assert has_hint == (machine == "other" and status != "ok")


def test_one_pair_of_seeds() -> None:
    """Here unchanged code gives equal bytes, and the tolerance decides; elsewhere numbers may move."""
    cell = one(judge(REFERENCE, runs((0.59,), first=2)))
    assert (cell.status, cell.test, cell.limit, cell.error_term) == ("regression", None, None, "")
    assert not missing_facts(cell.reasons[0], "one pair of", "tolerance alone decides")
    limit = stats.t.ppf(0.975, 2) * 0.01 * 2**0.5
    for drop, status in ((0.02, "unclear"), (0.07, "regression"), (-0.02, "ok"), (-0.07, "improved")):
        cell = one(judge(REFERENCE, runs((0.61 - drop,), first=2, provenance=OTHER)))
        assert (cell.status, cell.test) == (status, None)
        assert cell.limit == pytest.approx(limit)
        assert not missing_facts(cell.reasons, "own spread", "decides")
        assert ("than noise" in " ".join(cell.reasons)) == (status == "unclear")
    cell = one(judge(REFERENCE[:1], runs((0.59,), provenance=OTHER)))  # one seed has no spread
    assert (cell.status, cell.limit) == ("regression", None)
    assert not missing_facts(cell.reasons[0], "tolerance alone decides", "chance")
    unused = one(judge(REFERENCE[:1], runs((0.59, 0.6, 0.61)))).reasons
    assert [2, 3] in [numbers_in(reason) for reason in unused if "new records" in reason]


@pytest.mark.parametrize("score", [0.75, 0.755, 0.8, 0.9, 0.705])
def test_a_drop_of_just_the_tolerance_is_within_it_however_rounded(score: float) -> None:
    """0.75 - 0.745 is a little more than 0.005 in binary, 0.705 - 0.7 a little less."""
    for sign, status in ((1, "ok"), (1.01, "regression"), (-1, "ok"), (-1.01, "improved")):
        gate = judge([record(score, None)], [record(round(score - 0.005 * sign, 6), None)])
        assert one(gate).status == status


def test_drops_that_are_all_alike_are_shown_only_where_chance_has_no_part() -> None:
    """As accuracies over few items are: elsewhere that says nothing of their spread."""
    assert one(judge(REFERENCE, runs((0.59, 0.60, 0.61)))).status == "regression"
    elsewhere = one(judge(REFERENCE, runs((0.59, 0.60, 0.61), provenance=OTHER)))
    assert (elsewhere.status, average(elsewhere).low) == ("unclear", None)
    assert one(judge(REFERENCE, runs((0.52, 0.53, 0.54), provenance=OTHER))).status == "regression"


def test_changed_numbers_of_shared_seeds_are_seen_among_others() -> None:
    """Seeds 1-3 against 2-4: by Welch's test, but seeds 2 and 3 were due to be equal."""
    new = runs((0.6101, 0.62, 0.6), first=2)
    gate = judge(REFERENCE, new, strict=True)
    assert (one(gate).test, one(gate).status, one(gate).stage) == ("Welch", "changed", "scores")
    new[0] = replace(REFERENCE[1])
    assert one(judge(REFERENCE, new, strict=True)).status == "ok"


def test_a_repetition_has_every_seed() -> None:
    cell = one(judge(REFERENCE, REFERENCE[:2], repeated=True))
    assert (cell.status, missing_facts(cell.reasons, "seed 3")) == ("missing", [])
    assert one(judge(REFERENCE[:1], runs((0.594,)), repeated=True)).status == "regression"


CLOSE = (0.60, 0.61, 0.6201)


@pytest.mark.parametrize(
    ("new", "stage"),
    [
        (runs(CLOSE), "scores"),
        (runs(CLOSE, timing={"processor": "two"}), None),
        (runs(CLOSE, first=4), None),
        ([replace(r, predictions={"file": "x", "sha256": "1"}) for r in REFERENCE], "similarities"),
    ],
)
def test_other_bytes_on_an_equal_machine_are_named(new: list[RunRecord], stage: str | None) -> None:
    cell = one(judge(REFERENCE, new))
    assert (cell.stage, bool(missing_facts(cell.reasons, "numbers changed"))) == (stage, stage is None)


def test_versions_and_hardware_are_warnings() -> None:
    changes: dict[str, Any] = {
        "provenance": {"versions": {"torch": "2.0"}, "device": "cpu", "threads": 2, "git": {"commit": "b"}},
        "timing": {"processor": "two"},
    }
    new = [*runs((0.60, 0.61, 0.62), **changes), record(0.1, method="extra")]
    gate = judge(REFERENCE, new)
    assert (gate.exit_code, len(gate.warnings)) == (0, 4)
    facts = ("threads then 1", "torch then 2.1", "CPU then one", "extra on toy")
    assert not missing_facts(gate.warnings, *facts)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"options": {"scale": 2.0}}, "option scale then 1.0, now 2.0"),
        ({"options": {"scale": 1.0, "more": 1}}, "option more then not set, now 1"),
        ({"version": 2}, "method version then 1, now 2"),
        ({"name": "other"}, "method then noise, now other"),
        ({"seed": None}, "seeds then several, now none"),
        ({"backbone": {"name": "b", "sha256": "c" * 64}}, "weights then none, now b cccccccc"),
        ({"world": {"seed": 2}}, "world seed then not set, now 2"),
        ({"tasks": OTHER_DATA}, "data T1 then 000000000000, now 111111111111"),
        ({"training": {"dev": {"task": "t", "sha256": "d" * 64}}}, "dev set then none, now t dddddddd"),
        ({"evaluation": {"version": 2}}, "version of the evaluation then 1, now 2"),
    ],
)
def test_other_specifications_and_data_do_not_compare(changes: dict[str, Any], line: str) -> None:
    new = [replace(r, **changes) for r in runs((0.50, 0.51, 0.52))]
    gate = judge(REFERENCE, new)
    assert (one(gate).status, one(gate).reasons, gate.exit_code) == ("different", (line,), 3)
    assert not missing_facts(describe_gate(gate), "NOT COMPARABLE", "noise on toy", line)


def test_bad_records_are_refused() -> None:
    with pytest.raises(InputError, match=r"noise on toy .* \(1,\) .* \(2,\)"):
        judge(REFERENCE[:1], runs((0.5,), first=2))
    with pytest.raises(NotComparableError, match="seeds of noise on toy"):
        judge([*REFERENCE, record(0.6, 4, version=2)], REFERENCE)
    lacking = replace(REFERENCE[0], scores=REFERENCE[0].scores[:1])
    with pytest.raises(DataError, match=r"noise, seed 1, .* avg on toy"):
        judge(REFERENCE, [lacking, *REFERENCE[1:]])


def test_the_table_says_which_cell_and_task_and_by_how_much() -> None:
    then, now = ((0.51, 0.61), (0.52, 0.62), (0.53, 0.63)), ((0.3, 0.611), (0.32, 0.621), (0.34, 0.631))
    rest = [record(0.6, None, method=name) for name in ("broken", "gone", "same")]
    failed = replace(rest[0], status="failed", scores=(), reason="RuntimeError: no luck", provenance=OTHER)
    new = [*runs(now, method="twin"), failed, rest[2], record(0.1, None, method="new")]
    gate = judge([*runs(then, method="twin"), *rest], new)
    assert gate.exit_code == 1
    said = describe_gate(gate)
    assert not missing_facts(said, "FAILED, 3 of", "broken on toy", "no luck", "gone on toy", "is missing")
    assert not missing_facts(said, "twin on toy", "9.95 points", "[+8.71, +11.19]", "3 seeds", "T1: 20.00")
    assert not missing_facts(said, "explains up to", "3.51", "from 57.00", "to 47.05")
    lines = [line.split() for line in render_text([build_gate_grid(gate)]).splitlines()]
    assert ["MISSING", "gone", "toy", "recompute", "-", "/", "-", *["-"] * 5] in lines
    assert ["equal", "same", "toy", "recompute", "-", "60.00", "60.00", "+0.00", "-", "0.50"] in lines
    (row,) = (line for line in lines if line[:1] == ["REGRESSION"])
    assert row[1:-1] == [*("twin", "toy", "retrain", "3", "57.00", "47.05", "+9.95", "[+8.71,", "+11.19]")]
    assert float(row[-1]) > 3.51  # what it sees is more than the limit
    (task,) = (line for line in lines if line[:1] == ["T1"])
    assert task[1:2] + task[3:] == ["p", "52.00", "32.00", "+20.00", "-"]
    passed = describe_gate(judge(REFERENCE, runs((0.585, 0.58, 0.62))))
    assert not missing_facts(passed, "PASSED, 1 cell", "1 unclear", "noise on toy", "1.50 points", "[-2")


def test_the_notes_name_the_tests_that_were_used() -> None:
    pairs, welch = (
        build_gate_grid(judge(REFERENCE, runs((0.5, 0.5, 0.5), first=first))).notes for first in (1, 4)
    )
    assert not missing_facts(pairs[1], "retrain:", "0.5 points", "above 0", "own spread")
    for note, test in ((pairs[2], "paired t"), (welch[2], "Welch's")):
        assert not missing_facts(note, f"Intervals: {test}", "95% confidence", "Bonferroni over 1", "Holm's")
    unseeded = build_gate_grid(judge([record(0.6, None)], [record(0.5, None)]))
    assert len(unseeded.notes) == 4  # with the cell's own


STEADY = (0.60, 0.605, 0.598, 0.603, 0.601)


@pytest.mark.parametrize("rate", [find_coverage("gate", 5, 5, design="collapse").measured])
def test_a_verdict_names_the_runs_that_collapsed(rate: float) -> None:
    """A drop that one run of five makes, and how often unchanged code fails where runs collapse."""
    cell = one(judge(runs(STEADY), runs((0.601, 0.602, 0.31, 0.604, 0.599), provenance=OTHER)))
    (reason,) = (text for text in cell.reasons if "collapsed" in text)
    assert cell.status == "regression"
    assert not missing_facts(reason, "new seed 3")
    assert numbers_in(reason) == [1, 10, 3, round(100 * rate)]
    plain = one(judge(runs(STEADY), runs([score - 0.1 for score in STEADY], provenance=OTHER)))
    assert plain.status == "regression"
    assert not any("collapsed" in text for text in plain.reasons)


@pytest.mark.parametrize("design", ["normal", "collapse"])
def test_the_simulated_rule_is_the_gates_own(design: str) -> None:
    """benchmarks/coverage_gate.py computes many gates at once; here each is judged by the gate itself."""
    rng, failed = np.random.default_rng(4), 0
    for _ in range(40):
        sides = rng.normal(0.5, 0.01, (2, 4, 3))
        if design == "collapse":
            sides -= 0.06 * (rng.random(sides.shape) < 0.3)
        sides[1, 0] -= rng.uniform(0, 0.1)
        then, now = ([r for i, row in enumerate(side) for r in cell_runs(i, row, who)] for side, who in
                     zip(sides, ({}, {"provenance": OTHER}), strict=True))  # fmt: skip
        verdict = judge(then, now, tolerance=0.0).exit_code == 1
        assert verdict == gate_fails(sides[0], sides[1])
        failed += verdict
    assert 3 < failed < 37


def cell_runs(number: int, scores: Sequence[float], changes: dict[str, Any]) -> list[RunRecord]:
    return [replace(run, method=f"m{number}") for run in runs(scores, **changes)]


def gate_fails(then: np.ndarray[Any, Any], now: np.ndarray[Any, Any]) -> bool:
    """The transcription of benchmarks/coverage_gate.py, for one gate of (cells, seeds) scores."""
    sides = [np.vstack([side, side.mean(0)]) for side in (then, now)]
    cells, seeds = sides[0].shape
    quantile = stats.t.ppf(1 - 0.05 / cells / 2, seeds - 1)
    differences = sides[0] - sides[1]
    by_interval = differences.mean(1) > quantile * differences.std(1, ddof=1) / np.sqrt(seeds)
    by_limit = differences.mean(1) > quantile * sides[0].std(1, ddof=1) * np.sqrt(2 / seeds)
    return bool((by_interval | by_limit).any())
