"""Sections of a method's card: whole lines in a pipe, columns that fit a terminal, inert texts."""

from __future__ import annotations

import sys

import pytest

from bench.cli.card_sections import format_card
from bench.cli.sections import Section, format_sections
from bench.method_card import MethodCard, Option, format_value
from bench.registry import discover
from tests.support.cli import Cli

TITLES = ["What it is", "Computes", "Differs from the paper or the released code", "Options"]


def lines_of(cli: Cli, *words: str) -> list[str]:
    code, out, err = cli("show", *words)
    assert (code, err) == (0, "")
    return out.splitlines()


def test_a_card_in_a_pipe_has_a_line_for_each_fact(cli: Cli) -> None:
    card = discover().get("simcse").card
    lines = lines_of(cli, "simcse")
    assert lines[0] == f"simcse ({card.kind}, version {card.version}): {card.summary}"
    assert [line for line in lines[1:] if line and not line.startswith(" ")] == [
        *TITLES,
        "Published as / see also",
    ]
    for text in (*card.equations, *card.deviations):
        assert f"  {text}" in lines
    start = lines.index("Options")
    rows = [line.split() for line in lines[start + 2 : start + 2 + len(card.options)]]
    assert [row[:2] for row in rows] == [[each.name, format_value(each.default)] for each in card.options]
    found = [line for line in lines[start:] if line]
    for option in card.options:  # a script finds an option with its meaning
        assert [line for line in found if line.split()[0] == option.name and line.endswith(option.help)]


def test_options_of_stages_have_sections_of_their_own(cli: Cli) -> None:
    lines = lines_of(cli, "tncse", "--profile", "mini")
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles[1:] == ["What runs", "Stages", "Options", "Options of stage sub1", "Options of stage sub2"]
    part = lines[lines.index("Options of stage sub2") + 2 :]
    assert all(line.startswith("  sub2.") for line in part)
    assert "  sub2.steps         30      profile mini" in part


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize("name", ["simcse", "tncse", "vectors", "hf"])
def test_a_card_fits_a_terminal(name: str, width: int) -> None:
    card = discover().get(name).card
    lines = list(format_card(card, width))
    assert max(map(len, lines)) <= max(width, 76)
    whole, wrapped = (sorted("".join(found).replace(" ", "")) for found in (format_card(card), lines))
    assert whole == wrapped


def test_a_terminal_gets_wrapped_lines(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert max(map(len, lines_of(cli, "simcse"))) <= 80
    monkeypatch.undo()
    assert max(map(len, lines_of(cli, "simcse"))) > 80


def test_no_terminal_obeys_a_card() -> None:
    bad = "a\x1b[2Jb\nc"
    card = MethodCard(
        "one", "test", bad, 1, equations=(bad,), deviations=(bad,), options=(Option("k", bad, bad, (bad,)),)
    )
    for width in (None, 60):
        lines = list(format_card(card, width))
        assert all(line.isprintable() for line in lines)
        assert sum("\\x1b" in line for line in lines) >= 4


def test_columns_are_aligned_and_continued() -> None:
    section = Section("T", (("a", "x", "one two three four five six"), ("long", "", "y")), ("n", "v", "m"))
    lines = list(format_sections("h", [section, Section("empty", ())], 32))
    assert lines[:3] == ["h", "", "T"]
    assert lines[3:5] == ["  n     v  m", "  a     x  one two three four"]
    assert lines[5:] == ["           five six", "  long     y"]
