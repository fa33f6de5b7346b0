"""What formats and terminals do to texts and numbers of tables."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from bench.cli.terminal import get_screen
from bench.records.store import ResultStore
from bench.render.formats import (
    FILE,
    WIDEST,
    Screen,
    csv_cell,
    frame_csv,
    grids_csv,
    quote_formula,
    render_grids,
    render_text,
)
from bench.render.grid import (
    BEST,
    SECOND,
    Grid,
    Printed,
    Quoted,
    ScoreCell,
    Value,
    format_interval,
    hide_deviation,
    plain_text,
)
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.report import TableOptions, render_report
from bench.reports.sections import TABLES, table_grids
from bench.reports.tables.row_tests import run_pairwise_tests
from tests.support.campaigns import HOSTILE, make_record
from tests.support.cli import Cli
from tests.support.docs_commands import ROOT
from tests.support.messages import missing_facts
from tests.support.standings import campaign as campaign_of
from tests.support.standings import seeds
from tests.support.terminal import Terminal


def grid_of(*names: str) -> Grid:
    rows = tuple((name, ScoreCell(0.5, 0.1, 2), name) for name in names)
    return Grid("title", ("method", "avg", names[0]), rows, (), ((0, names[-1]),))


def labels(shown: str) -> list[str]:
    """First cells of a text table's rows, without the heading of its group."""
    lines = shown.splitlines()
    return [line.split("  ")[0].strip() for line in lines[5:]]


LONG = tuple(f"jtcse[{'option=value,' * 10}seed={n}{',last=option' * 10}]" for n in range(12))


def test_long_names_lose_their_middle_and_stay_apart() -> None:
    shown = render_text([grid_of("simcse", *LONG)])
    found = labels(shown)
    assert found[0] == "simcse"
    assert len(set(found)) == len(found) == 1 + len(LONG)
    for name, cut in zip(LONG, found[1:], strict=True):
        head, _, tail = cut.partition("...")
        assert len(cut) == WIDEST
        assert name.startswith(head)
        assert name.endswith(tail.rpartition("...")[2])
        assert name not in shown
    rows = [line.split() for line in shown.splitlines()[5:]]
    assert all(row[0] == row[-1] for row in rows)  # the same name is cut alike in every column


@pytest.mark.parametrize("size", [WIDEST - 1, WIDEST, WIDEST + 1])
def test_only_names_that_are_too_long_are_cut(size: int) -> None:
    name = "n" * size
    assert (name in render_text([grid_of(name)])) is (size <= WIDEST)


def test_a_cut_name_is_never_that_of_another_row() -> None:
    name = "a" * 50 + "b" * 50
    (cut,) = labels(render_text([grid_of(name)]))
    again = labels(render_text([grid_of(name, cut, name + "b")]))
    assert (again[1], len(set(again))) == (cut, 3)
    escaped = "\x1b" * 30  # short, but not as it is shown
    assert len(labels(render_text([grid_of(escaped)]))[0]) == WIDEST


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_other_formats_have_the_whole_name(form: str) -> None:
    whole = {row[0] for row in grid_of(*LONG, *HOSTILE).rows}
    out = render_grids([grid_of(*LONG, *HOSTILE)], form)
    if form == "csv":
        assert {row["row"] for row in csv.DictReader(io.StringIO(out))} == whole
    elif form == "json":
        assert {row[0] for row in json.loads(out)[0]["rows"]} == whole
    else:
        assert LONG[0].replace("[", r"\[").replace("]", r"\]") in out


STEERING = (
    *("\x1b[2J", "\x07", "a\nb", "a\r", "\t=1+1", "\x9b1m"),
    *("\N{RIGHT-TO-LEFT OVERRIDE}x", "\u2066y\u2069"),
)


@pytest.mark.parametrize("name", STEERING, ids=ascii)
def test_csv_steers_no_terminal(name: str) -> None:
    from pandas import DataFrame

    out = grids_csv([Grid(name, (name, name), ((name, name), (name, Quoted(name))), (), ((0, name),))])
    out += frame_csv(DataFrame({"method": [name, None], "value": [0.5, 0.1]}))
    assert out.replace("\n", "").isprintable()
    assert all(len(row) in (10, 2) for row in csv.reader(io.StringIO(out)))
    assert not any(cell.startswith(("=", "\t")) for row in csv.reader(io.StringIO(out)) for cell in row)


FORMULAS = ["=1", "@SUM(1)", "-2+3", "+1-1", "-1*2", "+1;2", "-A1", "+1,2(3)", "--1", "-1e", "-1|x", "+1.20x"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(formula: str) -> None:
    for text_of_it in (formula, f" {formula}"):
        assert csv_cell(text_of_it) == f"'{text_of_it}"


def test_numbers_and_intervals_as_tables_print_them() -> None:
    numbers = [f"{sign}{value}" for sign, value in product("+-", ("0.05", "1,234.5", "12", "1.5e-07"))]
    ends = ("", "*", "?", "\N{DAGGER}", "\N{PLUS-MINUS SIGN}0.30", " [-1.21, +1.66]")
    for figure in (*(n + end for n, end in product(numbers, ends)), "-"):
        assert quote_formula(figure) == figure
    assert format_interval(0.01234, 0.05) == "[+1.23, +5.00]"
    assert format_interval(0.00004, 0.05) == "[+0.004, +5.00]"
    assert format_interval(-0.05, -0.0000123) == "[-5.00, -0.001]"
    assert format_interval(-0.05, 0.0) == "[-5.00, +0.00]"
    for low, high in ((None, None), (0.1, 0.1), (0.3, 0.1 + 0.2)):
        assert format_interval(low, high) == "-"


TASKS = tuple(f"STS{n}" for n in range(12, 19))
RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
HEADER = ("method", "seeds", *TASKS, "avg", "sd", "rank")


def score_grid(*names: str, sd: float | None = 0.01) -> Grid:
    scores = [ScoreCell(0.5 + n / 100, sd, 2) for n in range(len(TASKS))]
    rows: list[tuple[Value, ...]] = [
        (name, "2", *scores, ScoreCell(0.53, None, 2), "1.00", "1-2") for name in names
    ]
    return Grid("title", HEADER, tuple(rows), ("a note",))


def heads(shown: str) -> list[list[str]]:
    """Headings of each part of a table."""
    return [line.split() for line in shown.splitlines() if line.startswith(" method")]


def test_a_table_that_fits_is_that_of_a_file_and_others_lose_deviations_first() -> None:
    grids = [score_grid("simcse", "tncse")]
    whole = render_text(grids)
    widest = max(map(len, whole.splitlines()))
    assert render_text(grids, Screen(widest)) == whole
    assert render_text(grids, Screen(widest - 1)) != whole
    bare = render_text(grids, Screen(105))
    assert heads(bare) == [list(HEADER)]
    assert "\N{PLUS-MINUS SIGN}" not in bare
    assert not missing_facts(bare, "Standard deviations", "105 characters")
    parts = render_text(grids, Screen(60))
    assert heads(parts) == [
        ["method", "seeds", *TASKS[:4], "avg"],
        ["method", *TASKS[4:], "avg", "sd", "rank"],
    ]
    assert max(map(len, parts.splitlines())) <= 60
    assert parts.count("53.00") == 2 * 2 + 2  # the average in both parts; STS15 has that score too
    assert "left out" not in render_text([score_grid("simcse", sd=None)], Screen(60))


@pytest.mark.parametrize("width", [40, 61, 80, 133])
def test_names_lose_their_middle_last_and_stay_apart(width: int) -> None:
    names = [f"simcse[{'option=value,' * 4}last={n}]" for n in range(3)]
    shown = render_text([score_grid(*names, "tncse")], Screen(width))
    assert max(map(len, shown.splitlines())) <= width
    labels = {line.split()[0] for line in shown.splitlines() if line.startswith(" simcse")}
    assert len(labels) == 3
    assert any("..." in label for label in labels) is (width // 2 < len(names[0]))


def test_only_a_terminal_gets_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ((HOSTILE[0], ScoreCell(0.5, 0.1, 2, BEST, "*"), ScoreCell(0.4, None, 1, SECOND), Quoted("7.0")),)
    grids = [Grid("title", ("method", "avg", "b", "c"), rows, ("Bold: best.",))]
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = render_text(grids, Screen(80, styled=True))
    assert "\x1b[1m50.00\x1b[0m\N{PLUS-MINUS SIGN}10.00*" in shown
    assert "\x1b[4m40.00\x1b[0m" in shown
    assert "\x1b[2m(7.0)\x1b[0m" in shown
    assert "Bold: best." in shown
    assert "\x1b" not in render_text(grids)
    assert "Bold" not in render_text(grids)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1m50.00\x1b[0m" in render_text(grids, Screen(80, styled=True))
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in render_text(grids, Screen(80, styled=True))


def test_a_file_is_whole_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert get_screen() == FILE
    assert get_screen(70) == Screen(70)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert get_screen() == Screen(50, styled=True, height=24)
    assert get_screen(70) == Screen(70, styled=True, height=24)


@pytest.mark.parametrize("name", ["", *(n.replace("SWEEP", "caels") for n in TABLES)])
def test_hostile_names_steer_no_terminal(
    campaign: Campaign, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    named = {method: f"{method}\x1b[2J\x07" for method in HOSTILE}
    shown = render_report(
        replace(campaign, names=named), "text", name or None, TableOptions(screen=Screen(80, styled=True))
    )
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert bare != shown
    assert bare.replace("\n", "").isprintable()
    if name in ("", "leaderboard", "efficiency", "significance"):
        assert "\\x1b[2J" in bare


def test_commands_ask_for_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = cli("run", "--suite", "toy", "--methods", "word_overlap", "--campaign", "c")
    assert code == 0, err
    monkeypatch.setenv("COLUMNS", "45")
    for command in ("run --suite toy --methods word_overlap", "report", "stats --draws 100"):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", terminal)
            cli(*command.split(), "--campaign", "c")
        table = [line for line in terminal.lines() if line.startswith((" word_overlap", f" {RULE}"))]
        assert table, command
        assert max(map(len, table)) <= 45, command
    code, out, _ = cli("report", "--campaign", "c", "--width", "45")
    assert max(map(len, out.splitlines())) <= 45
    assert cli("report", "--campaign", "c", "--width", "45", "--format", "json")[0] == 2


SCORES = (0.701234, 0.712345, 0.707654)
RUNS = (
    *seeds("a", *SCORES),
    *seeds("b", 0.60123, 0.61321, 0.59876),
    *seeds("c", 0.5987, 0.5954, 0.6033),
    *seeds("once", 0.4),
)


@pytest.fixture(scope="module", params=["mini", pytest.param("minilm-lm", marks=pytest.mark.campaigns)])
def committed(request: pytest.FixtureRequest) -> Campaign:
    store = ResultStore(ROOT / "results", request.param)
    return replace(make_campaign(store, store.records()), pairs=True)


def lines_of(grids: list[Grid]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(grids_csv(grids))))


def rows_of(grids: list[Grid]) -> list[tuple[str, int]]:
    """Name and number of cells of every row, as csv has them."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines_of(grids):
        cells = found.setdefault((line["table"], line["line"]), {})
        assert line["column"] not in cells
        cells[line["column"]] = line["row"]
    return [(name, len(cells)) for cells in found.values() for name in set(cells.values())]


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_rows_of_csv_can_be_put_together_again(name: str, committed: Campaign, campaign: Campaign) -> None:
    for source in (committed, replace(campaign, pairs=True)):
        grids = TABLES[name].grids(source)
        rows = [(str(csv_cell(plain_text(row[0]))), len(row) - 1) for grid in grids for row in grid.rows]
        assert rows_of(grids) == rows


def test_the_deviation_is_a_number_beside_the_average(tmp_path: Path) -> None:
    records = [make_record("simcse", seed, {"STS12": score}) for seed, score in enumerate(SCORES, start=1)]
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    (grid,) = json.loads(render_report(source, "json", "leaderboard"))
    row = dict(zip(grid["header"], grid["rows"][0], strict=True))
    assert (row["avg"]["n"], row["avg"]["sd"]) == (3, stdev(SCORES))
    assert row["sd"] == {"text": "0.56", "value": stdev(SCORES)}
    lines = {line["column"]: line for line in lines_of(table_grids(source, "leaderboard"))}
    assert lines["avg"]["sd"] == lines["sd"]["value"] == str(stdev(SCORES))
    sign = "\N{PLUS-MINUS SIGN}"
    for form, shown in (("text", sign), ("markdown", sign), ("html", sign)):
        assert render_report(source, form, "leaderboard").count(shown) == 1  # that of STS12
    cells = (hide_deviation(ScoreCell(0.5, 0.01, 3)), Printed("1.00", 0.01))
    shown = render_text([Grid("t", ("method", "avg", "sd"), ((30 * "m", *cells),), ())], Screen(20))
    assert "left out" not in shown
    assert {"50.00", "1.00"} <= set(shown.split())


def numbers(line: dict[str, Any], *names: str) -> list[float]:
    return [line[name]["value"] for name in names]


def test_differences_are_in_the_metrics_unit_with_all_digits(tmp_path: Path) -> None:
    source = replace(campaign_of(tmp_path, *RUNS), pairs=True)
    found = run_pairwise_tests(source, source.records)
    matrix, listed = json.loads(render_report(source, "json", "significance"))
    names = {method: place for place, method in enumerate(row[0].split(" ")[1] for row in matrix["rows"])}
    tested = 0
    for pair, row in zip(found.of().pairs, listed["rows"], strict=True):
        line = dict(zip(listed["header"], row, strict=True))
        a, b = names[pair.first], names[pair.second]
        assert numbers(line, "A - B") == [matrix["rows"][a][1 + b]["value"]] == [pair.difference]
        assert matrix["rows"][b][1 + a]["value"] == -pair.difference
        if pair.p is None:
            assert line["p"] == line["low"] == "-"
            continue
        tested += 1
        ends = found.interval(pair.first, pair.second)
        assert ends is not None
        assert numbers(line, "low", "high", "level") == [*ends, pair.level]
        assert numbers(line, "p", "p corrected") == [pair.p, pair.adjusted]
        assert line["interval"] == f"{format_interval(*ends)} ({line['level']['text']})"
    assert tested
    lines = lines_of(table_grids(source, "significance")[1:])
    values = {one["column"]: one["value"] for one in lines if one["line"] == "1"}
    assert all(float(values[name]) for name in ("A - B", "low", "high", "level", "p", "p corrected"))


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_texts_show_how_a_number_is_printed(form: str) -> None:
    def shown(cell: Printed | str) -> str:
        return render_grids([Grid("t", ("m", "x"), (("a", cell),), ())], form)

    for printed in ("+1.20*", "-", "0.0000"):
        assert shown(Printed(printed, 0.0123456)) == shown(printed)
