"""Leaderboards by hand, in every format."""

from __future__ import annotations

import csv as csv_module
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import NotComparableError, printable
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.render.formats import FORMATS, markdown_escape
from bench.render.latex import escape_latex as latex_escape
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.record_groups import LONG_COLUMNS
from bench.reports.report import render_report
from bench.reports.tables.leaderboard import all_leaderboards
from tests.support.messages import missing_facts

HOSTILE = 'a|b & 50% <script>alert("x")</script> \\input{x} _$#^~[x]\n\x07'


def record(method: str, seed: int | None, one: float, two: float, **changes: object) -> RunRecord:
    scores = (
        Score("STS12", "all", "spearman", one, 10),
        Score("STS12", "mean", "spearman", one / 2, 10),
        Score("SICKR", "all", "spearman", two, 20),
        Score("avg", "all", "spearman", (one + two) / 2, 2),
    )
    data = {"STS12": {"sha256": "a", "reference": True}, "SICKR": {"sha256": "b", "reference": True}}
    made = RunRecord("mini", method, method, 1, {}, None, seed, "sts7", data, "k", "ok", scores)
    return replace(made, **changes)  # type: ignore[arg-type]


def failed(method: str, seed: int, reason: str) -> RunRecord:
    return record(method, seed, 0, 0, status="failed", scores=(), reason=reason, traceback=("x",))


def campaign(records: Sequence[RunRecord]) -> Campaign:
    return make_campaign(ResultStore(Path("nowhere"), "camp"), records)


def render(records: Sequence[RunRecord], form: str) -> str:
    return render_report(campaign(records), form)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv_module.DictReader(io.StringIO(text)))


def test_leaderboard_by_hand() -> None:
    records = [record("x", 1, 0.5, 0.7), record("x", 2, 0.7, 0.7), record("y", None, 0.9, 0.9)]
    (table,) = all_leaderboards(campaign(records))
    assert table.tasks == ("STS12", "SICKR", "avg")  # the suite's order, not the alphabet's
    assert [row.method for row in table.rows] == ["y", "x"]
    cell = table.rows[1].cells["STS12"]
    assert cell.mean == pytest.approx(0.6)
    assert cell.n == 2
    assert cell.sd == pytest.approx(0.1 * 2**0.5)
    assert table.rows[0].cells["STS12"].sd is None
    text = render(records, "text")
    assert not missing_facts(text.splitlines()[0], "sts7", "profile mini", "campaign camp")
    cells = [line.split() for line in text.splitlines()]
    assert ["y", "-", "90.00", "90.00", "90.00", "-", "1-2", "a"] in cells
    assert ["x", "2", "60.00±14.14", "70.00±0.00", "65.00", "7.07", "1-2", "a"] in cells
    assert "over 2 seeds." in text


def test_csv_is_long_and_at_full_precision() -> None:
    text = render([record("x", 1, 0.1 + 0.2, 0.7), failed("x", 2, "no, luck")], "csv")
    rows = rows_of(text)
    assert tuple(rows[0]) == LONG_COLUMNS
    assert list(rows[0].values()) == [
        *("camp", "mini", "", "x", "1", "sts7", "STS12", "all", "spearman"),
        *("0.30000000000000004", "10", "ok", "", ""),
    ]
    assert (len(rows), rows[1]["subset"]) == (5, "mean")
    failure = [rows[4][name] for name in ("status", "value", "reason", "seed")]
    assert failure == ["failed", "", "no, luck", "2"]


def test_a_failed_cell_is_no_number_in_any_format() -> None:
    records = [record("x", 1, 0.511, 0.711), failed("x", 2, "no luck"), failed("z", 1, "none")]
    for form in FORMATS:
        text = render(records, form)
        assert ("0.00" in text, "no luck" in text) == (False, True)
    table = all_leaderboards(campaign(records))[0]
    assert [(row.method, row.failed, row.cells["avg"].n) for row in table.rows] == [("x", 1, 1), ("z", 1, 0)]
    (row,) = (
        line.split(" | ") for line in render(records, "markdown").splitlines() if line.startswith("| z")
    )
    assert row[1:5] == ["0 of 1", "-", "-", "-"]
    assert not missing_facts(render([failed("z", 1, "none")], "text"), "Failed: z seed", "1: none")


def test_different_data_are_not_put_side_by_side() -> None:
    other = record("y", 1, 0.5, 0.5, tasks={"STS12": {"sha256": "c", "reference": False}})
    with pytest.raises(NotComparableError, match="2 versions"):
        render([record("x", 1, 0.5, 0.7), other], "text")
    assert "reference data: STS12." in render([other], "text")


def test_profiles_and_suites_are_apart() -> None:
    plain = record("x", 1, 0.5, 0.7)
    tables = all_leaderboards(campaign([plain, replace(plain, profile="big"), replace(plain, suite="b")]))
    assert [(t.profile, t.suite) for t in tables] == [("big", "sts7"), ("mini", "b"), ("mini", "sts7")]


def test_latex_is_booktabs_with_subscripts() -> None:
    text = render([record("x_1", 1, 0.5, 0.7), record("x_1", 2, 0.7, 0.7)], "latex")
    (row,) = (line.split(" & ") for line in text.splitlines() if line.startswith("x"))
    assert row == [r"x\_1", "2", r"60.00$_{\pm 14.14}$", r"70.00$_{\pm 0.00}$", "65.00", r"7.07 \\"]
    assert r"\begin{tabular}{lrrrrr}" in text
    for line in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(line) == 1


def test_hostile_text_is_inert() -> None:
    escaped = latex_escape(HOSTILE)
    assert escaped.isprintable()
    assert not missing_facts(escaped, r"\textbackslash{}input\{x\}", r"50\%")
    assert markdown_escape(HOSTILE).startswith("a\\|b &amp; 50% ")
    assert "\n" not in markdown_escape(HOSTILE)
    text = render([failed(HOSTILE, 1, HOSTILE)], "text")
    assert "[x]" in text  # no markup is interpreted
    (row,) = rows_of(render([failed(HOSTILE, 1, HOSTILE)], "csv"))
    assert (row["method"], row["reason"]) == (printable(HOSTILE), printable(HOSTILE))


def test_seeds_of_different_specifications_are_never_averaged() -> None:
    with pytest.raises(NotComparableError, match=r"the seeds of x .* different specifications"):
        render([record("x", 1, 0.5, 0.7), record("x", 2, 0.5, 0.7, options={"lr": 1e-5})], "text")


def test_a_method_that_saw_the_grammars_paraphrases_as_pairs_stands_below_the_ranked() -> None:
    stage = {"sentences_seen": 8, "text": {"name": "x", "sha256": "y", "paired": True}}
    trained = {"training": {"stages": {"s": stage}}, "timing": {"training_cpu_seconds": {"s": 1.0}}}
    records = [
        record("informed", 1, 0.9, 0.9, world={"seed": 1}, **trained),
        record("elsewhere", 1, 0.8, 0.8, **trained),  # real translations tell nothing of the test pairs
        record("plain", 1, 0.5, 0.5, world={"seed": 1}),
    ]
    (table,) = all_leaderboards(campaign(records))
    assert [(row.method, row.ranked) for row in table.rows] == [
        ("elsewhere", True),
        ("plain", True),
        ("informed", False),
    ]
