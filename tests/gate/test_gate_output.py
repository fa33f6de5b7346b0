"""What the gate prints and writes: all questions and statuses, the average over cells, what it sees."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.gate.verdict import AVERAGE, CellVerdict, Drop, Gate, Question, Status
from bench.gate.verdict_page import page
from bench.gate.verdict_tables import (
    build_gate_grid,
    describe_cell_verdict,
    describe_gate,
    format_gate_json,
    format_gate_markdown,
    format_gate_text,
    format_headline,
    format_junit,
)
from tests.support.chromium import chromium
from tests.support.markup import Skeleton
from tests.support.messages import missing_facts, numbers_in

HOSTILE = '<b>&"x"|`[y](z)\x1b[31m\x00\ud800\n::error::'
SEEDS, NONE = (1, 2, 3), (None,)
STAGE = "training of sub1"
WHY = f"numbers changed on equal versions and CPU, first in {STAGE}"


def verdict(
    method: str, status: Status, then: float | None = None, now: float = 0.0, **more: Any
) -> CellVerdict:
    """A cell with two tasks around its average, or without scores."""
    drops = {}
    if then is not None:
        drops = {
            "T1": Drop(then + 0.05, now + 0.02, p=0.01, adjusted_p=0.02),
            "T2": Drop(then - 0.05, now - 0.02, p=0.01, adjusted_p=0.0001),
            AVERAGE: Drop(then, now, *more.pop("ends", (None, None))),
        }
    profile = more.pop("profile", "mini")
    given = {"seeds": SEEDS, "new_seeds": SEEDS, "drops": drops} | more
    return CellVerdict((profile, method, "toy"), status, **given)


def alone(method: str, status: Status, then: float, now: float, **more: Any) -> CellVerdict:
    return verdict(method, status, then, now, **{"seeds": NONE, "new_seeds": NONE} | more)


PASSED = verdict("fine", Status.OK, 0.58, 0.579, ends=(-0.01, 0.012), test="paired t")
BETTER = verdict("closer", Status.CHANGED, 0.61, 0.618, stage=STAGE, reasons=(WHY,))


def whole(method: str = "mild", **changes: Any) -> Gate:
    """Every status and question, a method with this name, and the average."""
    paired: dict[str, Any] = {"test": "paired t", "limit": 0.05}
    cells = (
        alone("words", Status.EQUAL, 0.195, 0.195, question=Question.RECOMPUTE, sees=0.005),
        replace(BETTER, drops=verdict("", Status.OK, 0.61, 0.618, ends=(-0.012, -0.004)).drops, **paired),
        verdict("fell", Status.REGRESSION, 0.5577, 0.1511, ends=(0.17, 0.64), sees=0.019, **paired),
        verdict(
            method,
            Status.UNCLEAR,
            0.58,
            0.5634,
            ends=(-0.01, 0.0432),
            sees=0.029,
            reasons=(method,),
            **paired,
        ),
        verdict("rose", Status.IMPROVED, 0.58, 0.63, ends=(-0.07, -0.03), new_seeds=(4, 5), test="Welch"),
        verdict("same", Status.OK, 0.58, 0.579, ends=(-0.01, 0.012), **paired),
        verdict("broken", Status.FAILED, reasons=("seed 3: no luck",), new_seeds=(1, 2)),
        verdict("gone", Status.MISSING, reasons=("there is no record of it",), new_seeds=()),
        alone("mine", Status.OK, 0.71, 0.707, ends=(-0.001, 0.007), question=Question.ITEMS, sees=0.006),
        verdict(
            "scored", Status.CHANGED, question=Question.RESCORE, stage="scores", reasons=("T1 was 0.61",)
        ),
    )
    given: dict[str, Any] = {
        "tested": 5,
        "repeated": True,
        "warnings": ("torch then 2.1, now 2.0", method),
        "strict": True,
        "overall": average(Status.OK),
        "build": {"date": "2026-01-02T03:04:05+00:00", "bench": "0.2", "commit": "a" * 40, "more": method},
        "rescored": 12,
    }
    return Gate(cells, 0.005, 0.95, **given | changes)


def average(status: Status) -> CellVerdict:
    drops = {AVERAGE: Drop(0.58, 0.5605, 0.012, 0.028, 0.001, 0.005)}
    return CellVerdict(("", "average of 5 cells", ""), status, SEEDS, SEEDS, drops, "paired t", sees=0.0081)


def gate_of(*cells: CellVerdict, **more: Any) -> Gate:
    return Gate(cells, **{"tolerance": 0.005, "level": 0.95} | more)


def row(gate: Gate, method: str) -> dict[str, str]:
    """A row of the table by its columns."""
    made = build_gate_grid(gate)
    (found,) = (line for line in made.rows if line[1] == method)
    return dict(zip(made.header, map(str, found), strict=True))


def test_the_table_has_question_and_what_it_sees() -> None:
    gate = whole()
    fell = {
        **{"verdict": "REGRESSION", "method": "fell", "suite": "toy", "question": "retrain", "seeds": "3"},
        **{"reference": "55.77", "new": "15.11", "drop": "+40.66", "interval": "[+17.00, +64.00]"},
        **{"sees": "1.90", "test": "paired t"},
    }
    assert row(gate, "fell") == fell
    assert row(gate, "closer")["sees"] == "-"
    asked = {line[1]: line[3] for line in build_gate_grid(gate).rows if line[1]}
    assert (asked["words"], asked["mine"], asked["scored"]) == ("recompute", "items", "rescore")
    assert (row(gate, "rose")["seeds"], row(gate, "gone")["seeds"]) == ("3 / 2", "3 / -")
    for cell in gate.verdicts:  # both scores wherever there are any
        there = row(gate, cell.key[1])
        scores: tuple[str, ...] = ("-", "-")
        if cell.average is not None:
            scores = tuple(f"{100 * v:.2f}" for v in (cell.average.reference, cell.average.new))
        assert (there["reference"], there["new"]) == scores


def test_a_cell_that_is_hardly_guarded_is_named() -> None:
    assert not any("Hardly guarded" in note for note in build_gate_grid(whole()).notes)
    blind = verdict("cls", Status.EQUAL, 0.32, 0.32, question=Question.RETRAIN, sees=0.2056)
    for question, advice in ((Question.RETRAIN, "More seeds"), (Question.ITEMS, "More items")):
        grid = build_gate_grid(replace(whole(), cells=(replace(blind, question=question),)))
        (said,) = (note for note in grid.notes if "guarded" in note)
        assert (numbers_in(said), missing_facts(said, "cls on toy", advice)) == ([20.56], [])


def test_the_average_over_cells_is_the_last_row() -> None:
    last = dict(zip(build_gate_grid(whole()).header, build_gate_grid(whole()).rows[-1], strict=True))
    assert (last["verdict"], last["method"], last["suite"]) == ("ok", "average of 5 cells", "-")
    assert (last["reference"], last["new"], last["sees"]) == ("58.00", "56.05", "0.81")
    assert build_gate_grid(gate_of(PASSED)).rows[-1][1] == "fine"


def test_tasks_stand_below_what_changed() -> None:
    rows = build_gate_grid(whole()).rows
    at = [line[1] for line in rows].index("closer")
    assert [line[2] for line in rows[at : at + 4]] == ["toy", "T1", "T2", "toy"]
    assert rows[at + 2][4:8] == ("p <0.001", "56.00", "59.80", "-3.80")
    assert [line[2] for line in build_gate_grid(gate_of(PASSED)).rows] == ["toy"]


def test_what_is_equal_in_all_rows_is_said_once() -> None:
    table = build_gate_grid(gate_of(PASSED, overall=average(Status.OK)))
    assert not {"profile", "test"} & set(table.header)
    assert table.title.endswith("profile mini")
    assert any("paired t" in note for note in table.notes)
    other = replace(PASSED, key=("full", "fine", "toy"), test="Welch")
    table = build_gate_grid(gate_of(PASSED, other, overall=average(Status.OK)))
    assert [line[3] for line in table.rows] == ["mini", "full", "-"]
    assert [line[-1] for line in table.rows] == ["paired t", "Welch", "paired t"]


@pytest.mark.parametrize(
    ("cell", "numbers", "facts"),
    [
        (BETTER, [0.8, 61, 61.8], (STAGE, "for the better")),
        (
            alone("m", Status.CHANGED, 0.6, 0.599, stage="similarities", reasons=("one reason",)),
            [0.1, 60, 59.9],
            ("in similarities", "for the worse", "(one reason)"),
        ),
        (
            alone("m", Status.CHANGED, 0.6, 0.6, stage="similarities"),
            [60, 60],
            ("in similarities", "as it was"),
        ),
        (verdict("m", Status.CHANGED, stage="scores", reasons=("T1 was 0.61",)), [0.61], ("in scores",)),
        (alone("m", Status.EQUAL, 0.6, 0.6), [60], ("is equal", "last bit")),
        (alone("m", Status.EQUAL, 0.6, 0.6, reasons=("another CPU",)), [60], ("is equal", "another CPU")),
        (
            alone("m", Status.DIFFERENT, 0.6, 0.5, reasons=("other data",)),
            [60, 50],
            ("isn't the reference's", "other data"),
        ),
        (
            alone("m", Status.OK, 0.71, 0.707, question=Question.ITEMS),
            [0.3, 71, 70.7, 3.3],
            ("fell by", "most on T1"),
        ),
    ],
)
def test_a_cell_in_words(cell: CellVerdict, numbers: list[float], facts: tuple[str, ...]) -> None:
    text = describe_cell_verdict(cell)
    assert numbers_in(text) == numbers
    assert not missing_facts(text, f"{cell.key[1]} on toy", "(profile mini)", *facts)
    assert ("--update --why TEXT" in text) == (cell.status is Status.CHANGED)


def test_the_sentence_counts_cells_and_names_the_average_if_it_fails() -> None:
    assert describe_gate(gate_of(PASSED, overall=average(Status.OK))) == "PASSED, 1 cell: 1 ok"
    fell = [5, 1.95, 1.2, 2.8, 3, 58, 56.05]  # cells, drop, interval, seeds, scores
    gone = whole().cells[7]
    for cells, status, counts, facts in (
        ((PASSED, PASSED), Status.REGRESSION, [2], ("FAILED", "the average alone", "none of")),
        ((PASSED,), Status.UNCLEAR, [1, 1], ("PASSED",)),
        ((PASSED, gone), Status.REGRESSION, [1, 2], ("FAILED", "and the average", "gone on toy")),
    ):
        said = describe_gate(gate_of(*cells, overall=average(status)))
        assert numbers_in(said) == counts + fell
        assert not missing_facts(said, *facts)


def test_cells_that_do_not_compare_are_counted() -> None:
    gate = gate_of(PASSED, replace(PASSED, status=Status.DIFFERENT, reasons=("other data",)))
    assert numbers_in(format_headline(gate)) == [1, 2]
    assert not missing_facts(describe_gate(gate), "NOT COMPARABLE", "fine on toy", "other data")


def test_notes_are_of_the_questions_that_were_asked() -> None:
    words = alone("words", Status.OK, 0.195, 0.194, question=Question.RECOMPUTE, sees=0.005)
    mine = alone("mine", Status.OK, 0.71, 0.707, question=Question.ITEMS)
    for gate, kinds in (
        (gate_of(PASSED), ["retrain", "Intervals"]),
        (gate_of(words, rescored=1), ["rescore", "recompute", "sees"]),
        (gate_of(mine, strict=True), ["items", "strict"]),
    ):
        notes = build_gate_grid(gate).notes[1:]
        assert [re.split("[:;]", note)[0] for note in notes] == kinds
    (many,) = (note for note in build_gate_grid(whole()).notes if note.startswith("rescore"))
    assert numbers_in(many) == [12, 1e-9]
    assert numbers_in(build_gate_grid(gate_of(words, rescored=1)).notes[1]) == [1, 1e-9]
    assert numbers_in(build_gate_grid(gate_of(PASSED, tolerance=0.015)).notes[1])[0] == 1.5
    assert not missing_facts(build_gate_grid(whole()).notes, "closer on toy", WHY)


def test_the_sentence_says_once_how_changes_are_accepted() -> None:
    assert describe_gate(gate_of(BETTER)).endswith(describe_cell_verdict(BETTER))
    assert describe_gate(gate_of(BETTER, BETTER)).count("--update --why TEXT") == 1
    assert "--update" not in describe_gate(gate_of(PASSED, whole().cells[2]))


def test_text_and_markdown_begin_with_the_sentence() -> None:
    gate = whole()
    assert format_gate_text(gate).startswith(f"{describe_gate(gate)}\n\n")
    pairs = replace(gate, cells=tuple(cell for cell in gate.cells if cell.test != "Welch"))
    assert max(map(len, format_gate_text(pairs).split("\n\n")[2].splitlines())) <= 120
    assert not missing_facts(format_gate_markdown(gate)[:60], "## bench check", "**FAILED, 5 of")
    assert "warning: torch then" in format_gate_markdown(gate)


def test_json_has_every_field() -> None:
    gate = whole(HOSTILE)
    text = format_gate_json(gate)
    text.encode("ascii")
    data = json.loads(text)
    assert {field.name for field in fields(Gate)} | {"verdicts", "exit_code", "sentence"} <= set(data)
    assert (data["strict"], data["rescored"], data["build"]) == (True, 12, gate.build)
    assert (data["exit_code"], data["tolerance"], data["level"], data["tested"]) == (1, 0.005, 0.95, 5)
    assert data["sentence"] == describe_gate(gate)
    own = {field.name for field in fields(CellVerdict)} - {"key"} | {"profile", "method", "suite"}
    for cell, facts in zip(gate.verdicts, [*data["cells"], data["overall"]], strict=True):
        assert set(facts) == own
        assert (facts["profile"], facts["method"], facts["suite"]) == cell.key
        names = ("status", "question", "stage", "sees", "limit", "test")  # to the last digit
        assert [facts[name] for name in names] == [getattr(cell, name) for name in names]
        for task, drop in cell.drops.items():
            assert facts["drops"][task] == {"drop": drop.drop, **asdict(drop)}
    assert [one["status"] for one in data["verdicts"]] == [cell.status for cell in gate.verdicts]
    assert not missing_facts(data["verdicts"][-1]["text"], "average of 5", "1.95 points")
    assert json.loads(format_gate_json(gate_of(PASSED)))["overall"] is None


def test_junit_skips_what_is_unclear() -> None:
    (suite,) = ElementTree.fromstring(format_junit(whole()))  # noqa: S314
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["11", "3", "2", "1"]
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    tags = {name: case[0].tag for name, case in cases.items()}
    assert tags == {
        **dict.fromkeys(("closer", "fell", "scored"), "failure"),
        **dict.fromkeys(("broken", "gone"), "error"),
        "mild": "skipped",
        **dict.fromkeys(("words", "rose", "same", "mine", "average"), "system-out"),
    }
    assert STAGE in str(cases["closer"][0].get("message"))
    assert (cases["closer"][0].get("type"), cases["closer"].get("classname")) == ("CHANGED", "mini.toy")
    assert numbers_in(str(cases["mild"][0].get("message")))[0] == 1.66
    (suite,) = ElementTree.fromstring(format_junit(gate_of(PASSED, overall=average(Status.REGRESSION))))  # noqa: S314
    assert [suite.get(name) for name in ("tests", "failures")] == ["2", "1"]
    (failed,) = (case for case in suite.iter("testcase") if case[0].tag == "failure")
    assert (failed.get("classname"), failed.get("name")) == ("all cells", "average")


def test_the_page_asks_for_nothing_and_has_headers() -> None:
    found = Skeleton(page(whole()))
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert {"src", "href", "style", "onclick"} & {name for _, at in found.elements for name in at} == {"href"}
    assert [at["href"] for at in found.of("a")] == ["#content"]
    assert all(at.get("scope") in ("col", "row") for at in found.of("th"))
    assert any("default-src 'none'" in (at.get("content") or "") for at in found.of("meta"))
    assert len(list(found.of("caption"))) == len(list(found.of("table")))
    assert next(found.of("html")) == {"lang": "en"}
    assert "prefers-color-scheme: dark" in page(whole())
    assert "@media print" in page(whole())


def test_the_page_says_it_all() -> None:
    gate = whole()
    found = Skeleton(page(gate))
    assert found.text.index("FAILED, 5 of") < found.text.index("Cells against")
    facts = ("61.00", "61.80", "-0.80", "[+17.00, +64.00]", "recompute", "rescore", "items", STAGE, "12")
    assert not missing_facts(found.text, *facts, "no luck", "Warning: torch then", "a" * 40)
    more = ("2026-01-02T03:04:05+00:00", "yes (strict)", "1.90 points: fell", "0.81 points: average")
    assert not missing_facts(found.text, *more)
    details = list(found.of("details"))
    assert [("open" in at) for at in details] == [True, True, False, False, False, False]
    assert not missing_facts(Skeleton(page(gate_of(PASSED))).text, "No cell says", "PASSED, 1 cell")
    page(gate_of())


def bars(gate: Gate) -> dict[str, ElementTree.Element]:
    """The bar of every cell, by its label."""
    made = re.findall(r"<svg.*?</svg>", page(gate))
    found = [ElementTree.fromstring(text) for text in made]  # noqa: S314
    with_scores = [cell.key[1] for cell in gate.verdicts if cell.average]
    return dict(zip(with_scores, found, strict=True))


def place(svg: ElementTree.Element, style: str) -> float:
    """Where along x a mark of this class begins."""
    (mark,) = (each for each in svg if each.get("class") == style)
    return float(mark.get("x1") or re.findall(r"-?[0-9.]+", str(mark.get("d")))[0])


def test_bars_share_an_axis_that_one_outlier_does_not_flatten() -> None:
    drawn = bars(whole())
    assert len({place(svg, "limit") for svg in drawn.values()}) == 1
    zero, limit = place(drawn["same"], "axis"), place(drawn["same"], "limit")
    assert limit - zero > 3  # 0.5 points, beside a drop of 40
    assert zero < place(drawn["mild"], "dot") + 4.5 < place(drawn["mild"], "sees") + 4
    assert place(drawn["closer"], "dot") + 4.5 < zero
    assert place(drawn["words"], "dot") + 4.5 == pytest.approx(zero, abs=0.1)
    assert "beyond the axis" in str(drawn["fell"].get("aria-label"))
    assert "beyond the axis" not in str(drawn["mild"].get("aria-label"))
    low, high = (float(mark) for mark in str(drawn["fell"].get("viewBox")).split()[::2])
    for svg in drawn.values():
        assert low <= place(svg, "dot") <= high
    assert numbers_in(str(drawn["mild"].get("aria-label"))) == [1.66, -1.00, 4.32, 2.90, 0.5]


def test_no_name_becomes_an_element_of_the_page() -> None:
    mild, hostile = (Skeleton(page(whole(name))) for name in ("mild[a=b,c=d]", HOSTILE))
    assert hostile.kinds() <= mild.kinds()
    text = page(whole(HOSTILE))
    assert text.replace("\n", "").isprintable()
    text.encode("utf-8")
    assert "<b>" not in text
    assert '<b>&"x"|`[y](z)\\x1b[31m\\x00\\ud800\\n::error::' in hostile.text.replace("\u200b", "")
    (suite,) = ElementTree.fromstring(format_junit(whole(HOSTILE)))  # noqa: S314
    names = [case.get("name", "") for case in suite]
    assert any(name.startswith('<b>&"x"|`[y](z)\ufffd[31m\ufffd\ufffd') for name in names)
    marked = format_gate_markdown(whole(HOSTILE))
    for said in (format_gate_text(whole(HOSTILE), details=True), format_gate_text(whole(HOSTILE)), marked):
        assert all(line.isprintable() and not line.lstrip().startswith("::") for line in said.splitlines())
    assert missing_facts(marked, "<b>", "[y](") == ["<b>", "[y]("]
    assert len({line.replace("\\|", "").count("|") for line in marked.splitlines() if line[:1] == "|"}) == 1


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "gate.html"
    path.write_text(page(whole(HOSTILE)), encoding="utf-8")
    with chromium() as browser:
        for width, theme in ((1280, "light"), (400, "dark")):
            browser.show_as(width, 800, theme)
            browser.open(path)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
        assert {address.split(":")[0] for address in browser.requests()} == {"file"}
        assert browser.complaints() == []
