"""The gate's decision on records, and its table, markdown, JSON and JUnit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev
from typing import Any
from xml.etree import ElementTree

import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from bench.errors import DataError, InputError, NotComparableError
from bench.gate.judge import judge
from bench.gate.verdict import CellVerdict, Gate
from bench.records.facts import same_result
from bench.records.record import RunRecord
from bench.reports.formats.junit import junit
from bench.reports.formats.render import text
from bench.reports.tables.gate import as_json, as_markdown, grid, sentence
from tests.support.campaigns import make_record

OTHER = {"versions": {"torch": "2.0"}, "device": "cpu", "threads": 1}
OTHER_DATA = {"T1": {"pairs": 100, "sha256": "1" * 64, "reference": True}}
HOSTILE = '<b>&"x"|`[y](z)\x1b[31m\x00\ud800\n::error::'


def record(value: float | Sequence[float], seed: int | None = 1, **changes: Any) -> RunRecord:
    """A record with one task, or with several."""
    values = [value] if isinstance(value, float) else value
    made = make_record("noise", seed, {f"T{i}": v for i, v in enumerate(values, 1)}, suite="toy", corpus=None)
    base = {
        "backbone": None,
        "options": {"scale": 1.0},
        "tasks": {name: {"pairs": 100, "sha256": "0" * 64, "reference": True} for name in made.tasks},
        "provenance": {"versions": {"torch": "2.1"}, "device": "cpu", "threads": 1, "git": {"commit": "a"}},
        "timing": {"processor": "one", "wall_seconds": 1.0},
    }
    return replace(made, **base | changes)


def runs(values: Sequence[float], first: int = 1, **changes: Any) -> list[RunRecord]:
    return [record(value, seed, **changes) for seed, value in enumerate(values, start=first)]


def one(gate: Gate) -> CellVerdict:
    (cell,) = gate.cells
    return cell


REFERENCE = runs((0.60, 0.61, 0.62))


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (runs((0.60, 0.61, 0.62)), "equal"),
        (runs((0.60, 0.61, 0.62), provenance=OTHER, timing={}), "equal"),
        (runs((0.50, 0.51, 0.52)), "regression"),
        (runs((0.612, 0.598, 0.615), first=4), "ok"),  # other seeds, a change as large as their noise
        (runs((0.595, 0.605, 0.615)), "ok"),  # by 0.5 points, not more
        (runs((0.50, 0.55, 0.66)), "unclear"),
        (runs((0.60, 0.61, 0.05)), "unclear"),
        (runs((0.70, 0.71, 0.72)), "improved"),
        (runs((0.60, 0.72, 0.90)), "ok"),
        (runs((0.55, 0.56), first=8), "regression"),
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
    assert cell.average is not None
    assert cell.average.drop == pytest.approx(0.6 - value)
    assert cell.average.low is None


def test_the_interval_is_welchs_and_shared_among_the_cells_that_changed() -> None:
    then, now = (0.60, 0.61, 0.62), (0.5795, 0.5805, 0.581)
    gate = judge(REFERENCE, runs(now))
    expected = stats.ttest_ind(then, now, equal_var=False)
    average = one(gate).average
    assert average is not None
    assert (average.low, average.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert average.p == pytest.approx(expected.pvalue)
    assert one(gate).status == "regression"

    others = [runs(then, method=name) for name in ("a", "b", "c")]
    changed = [runs(now, method="a"), runs(now, method="b"), others[2]]
    gate = judge([r for cell in others for r in cell], [r for cell in changed for r in cell])
    assert (gate.tested, [cell.status for cell in gate.cells]) == (2, ["unclear", "unclear", "equal"])
    average = gate.cells[0].average
    assert average is not None
    low = expected.confidence_interval(0.975).low
    assert average.low == pytest.approx(low)
    assert low < 0


def test_tasks_are_corrected_together_and_decide_nothing() -> None:
    then = [record((0.5 + s / 100, 0.6 + s / 100), s) for s in (1, 2, 3)]
    now = [record((0.4 + s / 100, 0.705 + s / 100), s) for s in (1, 2, 3)]
    gate = judge(then + [replace(r, method="b") for r in then], now + [replace(r, method="b") for r in now])
    p = [cell.drops[task].p for cell in gate.cells for task in ("T1", "T2")]
    adjusted = [cell.drops[task].adjusted_p for cell in gate.cells for task in ("T1", "T2")]
    assert adjusted == pytest.approx(list(multipletests(p, method="holm")[1]))
    assert max(adjusted) < 0.05  # type: ignore[type-var, operator]
    cell = gate.cells[0]
    assert cell.status == "ok"
    assert cell.average is not None
    assert cell.average.adjusted_p is None
    assert cell.worst is not None
    assert cell.worst[0] == "T1"
    assert cell.worst[1].drop == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("new", "machine", "repeated", "status"),
    [
        ((0.5805, 0.581, 0.5815), "same", True, "regression"),  # by Welch's interval, within 3 sd
        ((0.5805, 0.581, 0.5815), "other", True, "unclear"),
        ((0.5805, 0.581, 0.5815), "other", False, "regression"),
        ((0.50, 0.51, 0.52), "other", True, "regression"),
        ((0.61, 0.30, 0.05), "same", True, "regression"),  # too wide for Welch, far beyond 3 sd
        ((0.61, 0.30, 0.05), "other", True, "regression"),
        ((0.61, 0.30, 0.05), "same", False, "unclear"),
        ((0.60, 0.61, 0.6201), "other", True, "ok"),
    ],
)
def test_a_repetition_may_fall_by_three_standard_deviations(
    new: tuple[float, ...], machine: str, repeated: bool, status: str
) -> None:
    provenance = OTHER if machine == "other" else REFERENCE[0].provenance
    cell = one(judge(REFERENCE, runs(new, provenance=provenance), repeated=repeated))
    assert cell.status == status
    assert cell.spread == (pytest.approx(3 * stdev((0.60, 0.61, 0.62))) if repeated else None)
    if status == "unclear":
        noise = "3 standard deviations of the reference's seeds" if repeated else "the interval"
        assert f"no more than noise, by {noise}" in cell.reasons


def test_a_repetition_has_every_seed() -> None:
    cell = one(judge(REFERENCE, REFERENCE[:2], repeated=True))
    assert (cell.status, cell.reasons) == ("missing", ("there is no record of seed 3",))
    cell = one(judge(REFERENCE[:1], runs((0.594,)), repeated=True))
    assert (cell.status, cell.spread) == ("regression", None)


def test_other_bytes_on_an_equal_machine_are_named() -> None:
    reason = "other bytes on equal versions and CPU: the program's numbers have changed"
    close = (0.60, 0.61, 0.6201)
    assert reason in one(judge(REFERENCE, runs(close))).reasons
    assert reason not in one(judge(REFERENCE, runs(close, timing={"processor": "two"}))).reasons
    assert reason not in one(judge(REFERENCE, runs(close, first=4))).reasons
    moved = [replace(r, predictions={"file": "x", "sha256": "1"}) for r in REFERENCE]
    assert reason in one(judge(REFERENCE, moved)).reasons


def test_versions_and_hardware_are_warnings() -> None:
    changes: dict[str, Any] = {
        "provenance": {"versions": {"torch": "2.0"}, "device": "cpu", "threads": 2, "git": {"commit": "b"}},
        "timing": {"processor": "two"},
    }
    new = [*runs((0.60, 0.61, 0.62), **changes), record(0.1, method="extra")]
    gate = judge(REFERENCE, new)
    assert gate.exit_code == 0
    assert gate.warnings == (
        "threads then 1, now 2",
        "torch then 2.1, now 2.0",
        "CPU then one, now two",
        "not in the reference: extra on toy (profile mini)",
    )


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
)  # fmt: skip
def test_other_specifications_and_data_do_not_compare(changes: dict[str, Any], line: str) -> None:
    new = [replace(r, **changes) for r in runs((0.50, 0.51, 0.52))]
    gate = judge(REFERENCE, new)
    assert (one(gate).status, one(gate).reasons, gate.exit_code) == ("different", (line,), 3)
    assert sentence(gate) == f"NOT COMPARABLE: noise on toy (profile mini) isn't the reference's: {line}"


def test_equal_scores_on_other_data_are_not_the_same_result() -> None:
    assert same_result(REFERENCE[0], record(0.6))
    assert not same_result(REFERENCE[0], record(0.6, tasks=OTHER_DATA))


def test_bad_records_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"noise on toy \(profile mini\) has seeds \(1,\) in the reference and"
    ):
        judge(REFERENCE[:1], runs((0.5,), first=2))
    with pytest.raises(NotComparableError, match="the reference's seeds of noise on toy"):
        judge([*REFERENCE, record(0.6, 4, version=2)], REFERENCE)
    lacking = replace(REFERENCE[0], scores=REFERENCE[0].scores[:1])
    with pytest.raises(DataError, match="the record of noise, seed 1, has no score of avg on toy"):
        judge(REFERENCE, [lacking, *REFERENCE[1:]])


def mixed(method: str) -> Gate:
    """A regression with two tasks, a failed and a missing cell, and one that is equal."""
    then = [record((0.5 + s / 100, 0.6 + s / 100), s, method=method) for s in (1, 2, 3)]
    now = [record((0.3 + s / 100, 0.601 + s / 100), s, method=method) for s in (1, 2, 3)]
    rest = [record(0.6, None, method=name) for name in ("broken", "gone", "same")]
    failed = replace(rest[0], status="failed", scores=(), reason="RuntimeError: no luck", provenance=OTHER)
    return judge(then + rest, [*now, failed, rest[2], record(0.1, None, method="new")])


def test_the_table_says_which_cell_and_task_and_by_how_much() -> None:
    gate = mixed("twin")
    assert gate.exit_code == 1
    said = sentence(gate)
    assert said.startswith("FAILED, 3 of 4 cells: ")
    assert "broken on toy (profile mini) failed: the run: RuntimeError: no luck" in said
    assert "gone on toy (profile mini) is missing: there is no record of it" in said
    assert "twin on toy (profile mini) fell by 9.95 points [+" in said
    assert "from 57.00 to 47.05, most on T1: 20.00" in said
    lines = [line.split() for line in text([grid(gate)]).splitlines()]
    assert ["MISSING", "gone", "toy", "mini", "-", "/", "-", "-", "-", "-", "-"] in lines
    assert ["equal", "same", "toy", "mini", "-", "60.00", "60.00", "+0.00", "-"] in lines
    (row,) = (line for line in lines if line[:1] == ["REGRESSION"])
    assert row[1:8] == ["twin", "toy", "mini", "3", "57.00", "47.05", "+9.95"]
    (task,) = (line for line in lines if line[:1] == ["T1"])
    assert task[1:2] + task[3:6] == ["p", "52.00", "32.00", "+20.00"]
    passed = sentence(judge(REFERENCE, runs((0.50, 0.55, 0.66))))
    assert passed.startswith("PASSED, 1 cell: 1 unclear; noise on toy (profile mini) fell by 4.00 points [")


def test_json_holds_every_figure() -> None:
    gate = mixed("twin")
    data = json.loads(as_json(gate))
    assert (data["exit_code"], data["tolerance"], data["level"]) == (1, 0.005, 0.95)
    assert (data["tested"], data["sentence"]) == (1, sentence(gate))
    assert data["warnings"] == ["not in the reference: new on toy (profile mini)"]
    cells = {cell["method"]: cell for cell in data["cells"]}
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "broken": "failed",
        "gone": "missing",
        "same": "equal",
        "twin": "regression",
    }
    average = gate.cells[3].average
    assert average is not None
    assert cells["twin"]["drops"]["avg"]["drop"] == average.drop
    assert cells["twin"]["drops"]["avg"]["low"] == average.low
    assert (cells["twin"]["seeds"], cells["same"]["seeds"]) == ([1, 2, 3], [None])


def test_junit_is_a_test_case_a_cell() -> None:
    root = ElementTree.fromstring(junit(mixed("twin")))  # noqa: S314
    (suite,) = root
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "2", "0"]
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert [child.tag for child in cases["twin"]] == ["failure"]
    assert "fell by 9.95 points" in str(cases["twin"][0].get("message"))
    assert cases["twin"].get("classname") == "mini.toy"
    assert [cases[name][0].tag for name in ("broken", "gone", "same")] == ["error", "error", "system-out"]


def test_hostile_names_stay_inert() -> None:
    gate = mixed(HOSTILE)
    root = ElementTree.fromstring(junit(gate))  # noqa: S314
    names = [case.get("name", "") for case in root.iter("testcase")]
    assert any(name.startswith('<b>&"x"|`[y](z)\ufffd[31m\ufffd\ufffd') for name in names)
    assert HOSTILE in {cell["method"] for cell in json.loads(as_json(gate))["cells"]}
    as_json(gate).encode("ascii")
    marked = as_markdown(gate)
    for bad in ("<b>", "\x1b", "\x00", "\ud800", "[y](", "\n::error"):
        assert bad not in marked
        assert bad not in text([grid(gate)]).replace("<b>", "").replace("[y](", "")
    header, *rows = (line for line in marked.splitlines() if line.startswith("|"))
    columns = header.count("|")
    for row in rows:
        assert row.replace("\\|", "").count("|") == columns
