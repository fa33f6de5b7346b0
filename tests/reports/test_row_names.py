"""Tables name rows by what distinguishes them, and say the other options in a footnote."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.comparison.labels import print_labels
from bench.render.formats import Screen
from bench.render.grid import Grid
from bench.render.row_names import RowParts, mark_rows, name_rows
from bench.render.short_text import is_required
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.formats.paper_latex import PaperStyle
from bench.reports.method_choice import use_published_names, use_short_ids
from bench.reports.report import TableOptions, render_report
from bench.reports.short_report import render_short_report
from bench.reports.tables.training_setup import code_notes
from tests.support.campaigns import make_record
from tests.support.standings import campaign, seeds

SET = "simcse[eval_every=10,steps=20]"
STYLED = TableOptions(style=PaperStyle("acl"))


@pytest.fixture
def source(tmp_path: Path) -> Campaign:
    """One SimCSE with options, two TNCSE that differ in one of two, a plain JTCSE."""
    rows = [
        *seeds(SET, 0.70, 0.71, 0.72),
        *seeds("tncse[lr=1e-05,steps=20]", 0.80, 0.81, 0.82),
        *seeds("tncse[lr=1e-05,steps=40]", 0.82, 0.83, 0.84),
        *seeds("jtcse", 0.85, 0.86, 0.87),
    ]
    named = [replace(record, name=record.method.partition("[")[0]) for record in rows]
    return campaign(tmp_path, *named, all_rows=True)


def test_names_have_what_distinguishes_and_footnotes_the_rest(source: Campaign) -> None:
    published, short = use_published_names(source), use_short_ids(source)
    assert published.names == {
        SET: "SimCSE",
        "tncse[lr=1e-05,steps=20]": "TNCSE, steps=20",
        "tncse[lr=1e-05,steps=40]": "TNCSE, steps=40",
        "jtcse": "JTCSE",
    }
    assert published.footnotes == {
        "SimCSE": "SimCSE: eval_every=10, steps=20",
        "TNCSE, steps=20": "TNCSE: lr=1e-05",
        "TNCSE, steps=40": "TNCSE: lr=1e-05",
    }
    assert sorted(short.names.values()) == ["jtcse", "simcse", "tncse[steps=20]", "tncse[steps=40]"]
    assert short.footnotes["simcse"] == "simcse: eval_every=10, steps=20"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"a": RowParts("a", "A"), "a[x=1]": RowParts("a", "A", ("x=1",))}, ["A", "A, x=1"]),
        ({"a[x=1]": RowParts("a", "A", ("x=1",)), "b": RowParts("b", "A")}, ["a[x=1]", "b"]),
        ({"A": RowParts("x", "A", (), "A"), "a[x=1]": RowParts("a", "A", ("x=1",))}, ["A", "a[x=1]"]),
        ({"B": RowParts("b", "A"), "a": RowParts("a", "A"), "c": RowParts("c", "B")}, ["B", "a", "c"]),
    ],
)
def test_two_rows_never_have_one_name(rows: dict[str, RowParts], expected: list[str]) -> None:
    named = name_rows(rows)
    assert list(named.names.values()) == expected
    assert set(named.footnotes) <= set(expected)


def test_marks_are_numbered_by_table_on_rows_numbers_and_headings() -> None:
    notes = {"A": "A: x=1", "B": "B: y=2", "B, z=1": "B: y=2"}
    rows = (("1 B", "A"), ("2 A", "AB"), ("B, z=1", "B"))
    marked = mark_rows(Grid("t", ("m", "n"), rows, ("first",), ((0, "A"),)), notes)
    assert marked.rows == (("1 B¹", "A²"), ("2 A²", "AB"), ("B, z=1¹", "B¹"))
    assert (marked.notes, marked.groups) == (("first", "¹ B: y=2.", "² A: x=1."), ((0, "A²"),))
    bare = Grid("t", ("m",), (("C",),), ())
    assert mark_rows(bare, notes) is bare


def test_text_and_markdown_have_short_ids_with_footnotes(source: Campaign) -> None:
    for text in (render_short_report(source, TableOptions()), render_report(source, "markdown")):
        assert re.search(r"simcse[¹²]", text)
        assert re.search(r"[¹²] simcse: eval\\?_every=10, steps=20\.", text)
        assert re.search(r"[¹²] tncse: lr=1e-05\.", text)
        assert SET not in text
        assert "eval_every=10,steps" not in text


def test_a_shortened_name_keeps_its_footnote(source: Campaign) -> None:
    long = "simcse[" + ",".join(f"option_{letter}=1" for letter in "abc") + "]"
    rows = [replace(record, method=f"{long[:-1]},x={x * 60}]") for x in "12" for record in source.records[:3]]
    narrow = render_short_report(replace(source, records=tuple(rows)), TableOptions(screen=Screen(70)))
    assert (narrow.count("¹"), narrow.count("...111]¹"), narrow.count("...222]¹")) == (3, 1, 1)
    assert "option_a=1, option_b=1, option_c=1." in narrow


def test_latex_has_superscripts_and_no_brackets_in_names(source: Campaign) -> None:
    for look in (TableOptions(), STYLED):
        text = render_report(source, "latex", look=look)
        names = [line.partition(" & ")[0] for line in text.splitlines() if " & " in line]
        assert "JTCSE" in names
        assert any(re.fullmatch(r"SimCSE\$\^[12]\$", name) for name in names)
        assert not any("{[}" in name for name in names)
        assert re.search(r"\\begin\{minipage\}.*SimCSE: eval\\_every=10, steps=20\.", text)


def test_the_page_has_marks_footnotes_and_ids_in_titles(source: Campaign) -> None:
    page = render_report(source, "html")
    assert f'<th scope="row" title="{SET}"><a href="#card-simcse">SimCSE</a>' in page
    assert len(re.findall(r"SimCSE(?:</a>)?[¹²]", page)) >= 3  # forest, tasks, table
    assert re.search(r"<li>[¹²] SimCSE: eval_every=10, steps=20\.</li>", page)
    anchors = set(re.findall(r'id="([^"]+)"', page))
    links = {link for link in re.findall(r'href="#([^"]+)"', page) if link.startswith(("row-", "card-"))}
    assert links
    assert links <= anchors


def test_csv_and_json_have_whole_ids(source: Campaign) -> None:
    rows = list(csv.DictReader(io.StringIO(render_report(source, "csv"))))
    assert {row["method"] for row in rows} == {record.method for record in source.records}
    boards = json.loads(render_report(source, "json"))
    assert SET in {row["method"] for row in boards[0]["rows"]}
    named = render_report(use_published_names(source), "csv")
    assert "SimCSE, eval_every=10, steps=20" in named  # chosen names are as unambiguous


def test_figures_say_the_options_in_their_notes(source: Campaign) -> None:
    drawn = {figure.name: figure for figure in suite_figures(source)}
    seeds_figure = drawn["mini-sts7-seeds"]
    assert set(seeds_figure.rows) == {"SimCSE", "TNCSE, steps=20", "TNCSE, steps=40", "JTCSE"}
    assert "SimCSE: eval_every=10, steps=20." in seeds_figure.note
    assert "SimCSE: eval_every=10, steps=20." in drawn["mini-sts7-groups"].note


def test_the_only_simcse_is_the_default_baseline(source: Campaign) -> None:
    assert "Against SimCSE: " in render_short_report(source, TableOptions())


@pytest.mark.parametrize(
    ("labels", "printed"),
    [
        ((SET, "tncse"), ("SimCSE, eval_every=10, steps=20", "TNCSE")),
        ((SET, "tncse[steps=20]"), ("SimCSE, eval_every=10", "TNCSE")),
        (("simcse[a=1,b=2]#1", "simcse[a=1,b=3]#1"), ("SimCSE, b=2#1", "SimCSE, b=3#1")),
        (("simcse (one)", "simcse (two)"), ("SimCSE (one)", "SimCSE (two)")),
        (("SimCSE", "simcse"), ("SimCSE", "simcse")),
        (("st:a[b", "x"), ("st:a[b", "x")),
    ],
)
def test_labels_of_an_answer(labels: tuple[str, str], printed: tuple[str, str]) -> None:
    assert print_labels(*labels) == printed


def test_rows_of_one_method_with_other_code_are_named() -> None:
    rows = {"own": "a" * 64, "own[lr=0.1]": "b" * 64, "own[lr=0.2]": "a" * 64}
    records = []
    for method, code in rows.items():
        plugins = {"own": {"file": "own.py", "sha256": "c" * 64, "code": code}}
        record = make_record(method, 1, {"STSB": 0.5}, name="own")
        records.append(replace(record, provenance={**record.provenance, "plugins": plugins}))
    (note,) = code_notes(records)
    assert "own" in note
    assert [part.split(": ")[-1] for part in note.rstrip(".").split("; ")] == ["a" * 8, "b" * 8]
    assert code_notes(records[::2]) == ()
    assert is_required(note)
