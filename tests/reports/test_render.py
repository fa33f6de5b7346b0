"""What formats do to texts: long names in text tables, characters that steer a terminal in csv."""

from __future__ import annotations

import csv
import io
import json
from itertools import product

import pytest

from bench.render.formats import (
    WIDEST,
    csv_cell,
    frame_csv,
    grids_csv,
    quote_formula,
    render_grids,
    render_text,
)
from bench.render.grid import Grid, Quoted, ScoreCell, format_interval
from tests.support.campaigns import HOSTILE


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


def test_figures_that_tables_print_are_numbers() -> None:
    numbers = [f"{sign}{value}" for sign, value in product("+-", ("0.05", "1,234.5", "12", "1.5e-07"))]
    ends = ("", "*", "?", "\N{DAGGER}", "\N{PLUS-MINUS SIGN}0.30", " [-1.21, +1.66]")
    for figure in (*(n + end for n, end in product(numbers, ends)), "-"):
        assert quote_formula(figure) == figure


def test_an_interval_says_on_which_side_of_0_it_ends() -> None:
    assert format_interval(0.01234, 0.05) == "[+1.23, +5.00]"
    assert format_interval(0.00004, 0.05) == "[+0.004, +5.00]"
    assert format_interval(-0.05, -0.0000123) == "[-5.00, -0.001]"
    assert format_interval(-0.05, 0.0) == "[-5.00, +0.00]"
    for ends in ((None, None), (0.1, 0.1), (0.3, 0.1 + 0.2)):
        assert format_interval(*ends) == "-"
