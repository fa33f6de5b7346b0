"""Hostile text in records: every report shows it, and nothing that reads a report obeys it."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.errors import BenchError, DataError, InputError, printable
from bench.gate.verdict import CellVerdict, Gate, Status
from bench.gate.verdict_tables import format_gate_markdown, format_junit
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import METHODS
from bench.render import svg
from bench.render.figure import Figure, Series
from bench.render.figure_files import draw_figures
from bench.render.formats import grids_csv, markdown_escape, quote_formula
from bench.render.grid import Grid, Quoted, ScoreCell
from bench.render.latex import latex_tables
from bench.reports.campaign import make_campaign
from bench.reports.report import render_report
from tests.support.campaigns import make_record
from tests.support.cli import Cli, refusal

SPACE = "{http://www.w3.org/2000/svg}"
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "</title></style></script></textarea><svg onload=alert(1)>",
    "<!-- ]]> --!> &lt;b&gt; &#x3c;",
    "{{7*7}}{% include '/etc/passwd' %}${7*7}",
    "javascript:alert(1)//https://evil.example/?a=1&b=2 www.evil.example",
    "[x](https://evil.example) ![y](z) <https://evil.example> `a` | b | ~~c~~ $d$ #1 @user",
    r"\input{/etc/passwd}\write18{id}^^5cinput",
    "*%$#_&{}~^\\",
    "=cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1)",
    "::stop-commands::x",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m\x00\x08\x7f",
    "a\u2028b\u2029c\u0085d\r\n::error::e",
    "\u202egpj.exe\u2066\u200b\ufeff",
)
"""What a results folder that came from elsewhere may hold as a method's name, a reason, a note."""
LONG = "long, " * 20


def records_of(name: str) -> list[RunRecord]:
    """Two methods and a failed run; the name is wherever a record has a text."""
    found = []
    for method, seed in product((name, "plain"), (1, 2)):
        record = make_record(method, seed, {"STS12": -0.1 * seed, "STSB": 0.5}, name=method, backbone=name)
        found.append(replace(record, profile=name, suite=name, notes=(name,)))
    return [*found, replace(found[0], seed=3, status="failed", scores=(), reason=name, traceback=())]


class Skeleton(HTMLParser):
    """The elements of a page with their attributes, and apart from them its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.kinds: set[tuple[str, ...]] = set()
        self.scripts = 0
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.kinds.add((tag, *(name for name, _ in attrs)))
        self.scripts += tag == "script" and ("type", "application/json") not in attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    def unknown_decl(self, data: str) -> None:
        self.kinds.add(("no element", data))

    handle_comment = handle_pi = unknown_decl


def report_of(name: str, form: str) -> str:
    return render_report(make_campaign(ResultStore(Path("nowhere"), "camp"), records_of(name)), form)


@pytest.fixture(scope="module")
def kinds() -> set[tuple[str, ...]]:
    """What elements, with what attributes, a page of harmless names has."""
    return set().union(*(Skeleton(report_of(name, "html")).kinds for name in ("mild", "a_b[c=d]", LONG)))


def check_page(name: str, kinds: set[tuple[str, ...]]) -> None:
    text = report_of(name, "html")
    found = Skeleton(text)
    assert found.kinds - kinds == set()
    assert found.scripts == 1
    assert printable(name) in found.text
    assert re.sub(r"[\n]", "", text).isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_no_name_becomes_an_element(name: str, kinds: set[tuple[str, ...]]) -> None:
    check_page(name, kinds)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=30) | st.text("<>\"'&=/!-{}% \n\tsvgx", min_size=1, max_size=30))
def test_no_text_becomes_an_element(kinds: set[tuple[str, ...]], name: str) -> None:
    assume(name not in METHODS.names())  # hypothesis reads them in the code; of these the page has a card
    check_page(name, kinds)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_holds_texts(name: str, tmp_path: Path) -> None:
    series = (Series(name, (0.0, 1.0), (0.0, 1.0), labels=(name, name)),)
    for kind in ("points", "lines", "strip", "ranking"):
        figure = Figure(name, "seeds", name, kind, name, name, (name,), series, rows=(name, name), note=name)
        root = ElementTree.fromstring(svg.draw_svg(figure))  # noqa: S314 - our own
        assert {element.tag for element in root.iter()} <= {"svg", "g", "text", "path", "title", "line"}
        shown = f"rank by {printable(name)}" if kind == "ranking" else printable(name)
        assert any(shown == element.text for element in root.iter())
        *_, file = draw_figures([replace(figure, name=kind)], tmp_path)
        file = file.with_suffix(".svg")
        assert ElementTree.fromstring(file.read_bytes()).findtext(f"{SPACE}title") == printable(name)  # noqa: S314
        assert [file.with_suffix(end).stat().st_size > 1000 for end in (".png", ".pdf")] == [True, True]


@pytest.mark.parametrize("name", NAMES)
def test_no_terminal_and_no_log_obeys(name: str) -> None:
    text = report_of(name, "text")
    assert text.replace("\n", "").isprintable()
    assert not re.search(r"(?m)^\s*::", text)
    assert printable(" ".join(name.split("\n"))).removeprefix("::") in text
    for kind in (BenchError, InputError, DataError):
        line = str(kind(name, where=name, expected=name, hint=name))
        assert line.isprintable()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "command", [("show",), ("run", "--suite", "toy", "--methods"), ("report", "--campaign")]
)
def test_errors_are_one_line_that_no_terminal_obeys(cli: Cli, name: str, command: tuple[str, ...]) -> None:
    refusal(cli, *command, name.replace("@", "x@"))


ESCAPED = re.compile(r"\\[\\`*_\[\]|#!~$/.]|&(amp|lt|gt);")


def is_inert_markdown(text: str) -> bool:
    rest = ESCAPED.sub("", text)
    return not set(rest) & set("\\`*_[]|#!~$<>&") and "://" not in rest and "www." not in rest


@pytest.mark.parametrize("name", [*NAMES, "a|b\\|c\\"])
def test_markdown_is_text(name: str) -> None:
    assert is_inert_markdown(markdown_escape(name))
    assert markdown_escape(name).isprintable()
    lines = report_of(name, "markdown").splitlines()
    widths = {len(re.sub(r"\\.", "", line).split("|")) for line in lines if line.startswith("|")}
    assert len(widths) == 1
    cells = (
        CellVerdict((name, name, name), status, (), (), reasons=(name,))
        for status in (Status.MISSING, Status.DIFFERENT)
    )
    gate = Gate(tuple(cells), 0.005, 0.95, warnings=(name,))
    summary = format_gate_markdown(gate).splitlines()
    assert all(line.isprintable() for line in summary)
    sentence = next(line for line in summary if line.startswith("**"))
    assert is_inert_markdown(sentence.strip("*"))
    root = ElementTree.fromstring(format_junit(gate))  # noqa: S314 - our own
    kinds = {"testsuites", "testsuite", "testcase", "error", "system-out"}
    assert {element.tag for element in root.iter()} == kinds


def latex_of(name: str) -> str:
    rows = ((name, ScoreCell(0.5, 0.1, 2, "best")), (name, name), (name, Quoted(name, True, name)))
    return latex_tables([Grid(name, (name, name), rows, (name,), ((0, name),))])


def commands(text: str) -> set[str]:
    return set(re.findall(r"\\([A-Za-z]+)", text))


COMMANDS = commands(latex_of("mild") + latex_of(LONG)) | {
    *("textbackslash", "textbar", "textgreater", "textless", "textasciicircum", "textasciitilde"),
    *("footnotesize", "mathdollar", "textquotedblright"),
}


@pytest.mark.parametrize("name", NAMES)
def test_latex_runs_none_of_it(name: str) -> None:
    text = latex_of(name)
    assert commands(text) - COMMANDS == set()
    assert "^^" not in text
    plain = re.sub(r"\\[^A-Za-z]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"\\\\\s*[*\[]", text)  # a line break would take it for its own


@pytest.mark.parametrize("name", NAMES)
def test_csv_computes_nothing_and_numbers_stay_numbers(name: str) -> None:
    rows = list(csv.DictReader(io.StringIO(report_of(name, "csv"))))
    assert {row["method"] for row in rows} == {quote_formula(printable(name)), "plain"}
    assert {row["value"] for row in rows} >= {"-0.1", "-0.2", "0.5"}
    grid = Grid(name, (name, name), ((name, ScoreCell(-0.05, None, 1, "")), (name, name), ("x", "-")), ())
    table = list(csv.DictReader(io.StringIO(grids_csv([grid]))))
    assert [row["value"] for row in table] == ["-0.05", "", ""]
    assert table[2]["text"] == "-"
    for row in (*rows, *table):
        for column, cell in row.items():
            assert column in ("value", "sd", "n") or not re.match(r"\s*[=@]|\s*[+-].*[A-Za-z|(]", cell), cell


@pytest.mark.parametrize("text", ["-", "-0.05", "+1.20*", "+0.23 [-1.21, +1.66]", "plain", "a=b", ""])
def test_figures_of_tables_are_no_formulas(text: str) -> None:
    assert quote_formula(text) == text
    for formula in ("=1", " =1", "\t=1", "\r=1", "@x", "+x", "-x", "-1+A1", "\uff1d1", "\n=1"):
        assert quote_formula(formula) == f"'{formula}"


@pytest.mark.parametrize("name", NAMES)
def test_json_is_the_text_itself_and_shows_harmless(name: str) -> None:
    text = report_of(name, "json")
    assert re.sub(r"\n", "", text).isprintable()
    (table,) = json.loads(text)
    assert {row["method"] for row in table["rows"]} == {name, "plain"}
    assert table["profile"] == name
