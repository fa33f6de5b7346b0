"""The closing print of commands on a terminal of 80 x 24: the answer, tables, at most three notes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bench.comparison.comparison import compare
from bench.comparison.wording import format_answer
from bench.gate.verdict import CellVerdict, Gate, Status
from bench.gate.verdict_tables import build_gate_grid, describe_gate, format_gate_text
from bench.records.store import ResultStore
from bench.render.formats import FILE, Screen
from bench.render.grid import Grid
from bench.render.short_text import (
    MOST_NOTES,
    SYNTHETIC,
    choose_notes,
    format_answers,
    format_short_text,
    merge_synthetic_notes,
)
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.report import TableOptions
from bench.reports.sections import table_grids
from bench.reports.short_report import render_short_report
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.messages import missing_facts
from tests.support.sides import side

SCREEN = Screen(80, styled=True, height=24)
VISIBLE = SCREEN.height - 1 if SCREEN.height else 0  # the last line has the prompt
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MORE = re.compile(r"^(\d+) more notes.*: --details$", re.M)
FAILURES = [
    "Failed: a seed 1: no luck",
    "Unreadable: b seed 2: not JSON",
    "Planned, but missing: c seeds 1,2.",
    "Not the reference data: STS12.",
    "simcse has no STS13, STS14.",
    "Scores not recomputed: no evaluation data.",
]
TOY = ("--suite", "toy")
MADE_UP = "The world is made up: its figures are no benchmark of the methods."


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.cli.terminal.get_screen", lambda width=None: SCREEN)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


def visible(text: str) -> list[str]:
    """The lines that a screen shows after a command."""
    lines = plain(text).splitlines()
    assert max(map(len, lines)) <= 80
    return lines[-VISIBLE:]


def campaign_of(rows: int) -> Campaign:
    records = []
    for row, seed in ((row, seed) for row in range(rows) for seed in range(1, 6)):
        method = "simcse" if row == 0 else f"method_{row}"
        score = 0.7 + 0.02 * ((row + 1) % 3 - 1) + 0.001 * (seed * (row + 2) % 5)
        record = make_record(method, seed, {"STS12": score, "STS13": score, "STS14": score - 0.01})
        records.append(replace(record, notes=(MADE_UP,)))
    return make_campaign(ResultStore(Path("nowhere"), "camp"), records)


@pytest.mark.parametrize("rows", [3, 10, 40])
def test_the_answer_of_a_report_is_visible(rows: int) -> None:
    source = campaign_of(rows)
    text = render_short_report(source, TableOptions(screen=SCREEN))
    lines = visible(text)
    (answer,) = [place for place, line in enumerate(lines) if line.startswith("Against SimCSE: ")]
    assert "equal within 0.5" in " ".join(lines[answer : answer + 2])
    assert text.count("Against SimCSE") == 1 + (rows > 10)
    assert (len(plain(text).splitlines()) <= VISIBLE) is (rows <= 10)
    assert plain(text).startswith("Against SimCSE: ")


def test_details_have_every_note_that_was_left_out() -> None:
    source = campaign_of(4)
    (grid,) = table_grids(source, "leaderboard")
    notes = [note for note in merge_synthetic_notes(grid.notes) if not note.startswith("Bold:")]
    short = render_short_report(source, TableOptions())
    long = render_short_report(source, TableOptions(), details=True)
    shown = [note for note in notes if note in short.splitlines()]
    (more,) = MORE.findall(short)
    assert 0 < len(shown) <= MOST_NOTES < len(notes) == len(shown) + int(more)
    assert all(note in long.splitlines() for note in notes)
    assert [short.count("no benchmark"), short.count(SYNTHETIC), long.count(SYNTHETIC)] == [0, 1, 1]
    assert "--details" not in long


def test_no_failure_is_left_out_however_many_kinds_there_are() -> None:
    useful = ["Collapsed seeds, far below: a.", "Unequal budgets: 1 (a), 2 (b)."]
    assert choose_notes([*useful, "rank: ..."]) == (useful, 1)
    chosen, others = choose_notes([*useful, *FAILURES[:2]])
    assert (chosen, others) == ([*FAILURES[:2], useful[0]], 1)
    chosen, others = choose_notes([*useful, *FAILURES])
    assert (len(chosen), others) == (3, 0)
    assert not missing_facts(chosen[0], *(note[:18] for note in FAILURES))
    repeated = [f"Failed: a seed {seed}: no luck" for seed in range(5)]
    assert not missing_facts(choose_notes(repeated)[0][0], *(f"seed {seed}" for seed in range(5)))
    own = "The text of this profile is a draft."
    assert choose_notes(["rank: ...", f"sts7: {own}"], [own]) == ([f"sts7: {own}"], 1)
    assert choose_notes(["rank: ...", own]) == ([], 2)


def test_a_cut_note_ends_in_dots() -> None:
    text = format_short_text(["answer"], "table\n", ["Failed: " + "long reason " * 40], SCREEN)
    assert text.count("long reason") < 20
    assert "..." in text
    assert text.count("\n") < VISIBLE
    assert format_short_text(["answer"], "table\n", ["Failed: " + "long " * 99]).count("long") == 99


def coloured_words(text: str) -> Iterator[str]:
    for match in re.finditer(r"\x1b\[([0-9;]*)m(.*?)\x1b\[0m", text):
        if {str(code) for code in range(30, 38)} & set(match[1].split(";")):
            yield match[2]


def test_colours_are_beside_words(monkeypatch: pytest.MonkeyPatch, terminal: None) -> None:
    look = TableOptions(screen=SCREEN)
    text = render_short_report(campaign_of(40), look)
    words = {re.sub(r"\d+ ", "", word) for word in coloured_words(text)}
    assert words == {"ahead", "behind"}
    assert "\x1b" not in format_answers(["0 ahead, 0 equal, 0 behind"], SCREEN)
    plain_screen = replace(SCREEN, styled=False)
    assert plain(format_answers(["A is ahead", "FAILED, 1 of 2 cells"], SCREEN)) == format_answers(
        ["A is ahead", "FAILED, 1 of 2 cells"], plain_screen
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert not list(coloured_words(render_short_report(campaign_of(40), look)))
    assert "\x1b" not in render_short_report(campaign_of(40), TableOptions())


def test_a_comparison_answers_in_one_line() -> None:
    a, b = side("simcse", [0.80, 0.81, 0.82, 0.83]), side("tncse", [0.70, 0.71, 0.72, 0.73])
    ahead, behind, equal = compare(a, b), compare(b, a), compare(a, side("b", [0.79, 0.83, 0.8, 0.82]))
    assert format_answer(ahead).startswith("SimCSE - TNCSE  +10.00 [")
    assert not missing_facts(format_answer(ahead), "] 4 seeds each SimCSE is ahead")
    assert not missing_facts(format_answer(behind), "TNCSE - SimCSE -10.00 [", "SimCSE is ahead")
    possible = max(map(abs, equal.headline.possible or ()))
    assert not missing_facts(format_answer(equal), "no difference shown (up to ", " possible)")
    bound = float(format_answer(equal).split("up to ")[1].split()[0])
    assert 0 <= bound - 100 * possible < 0.011


def test_compare_and_stats_fit_a_screen(cli: Cli, terminal: None) -> None:
    assert cli("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "mini-dev")[0] == 0
    code, out, _ = cli("compare", "noise", "word_overlap", "--draws", "100", "--margin", "1")
    lines = visible(out)
    assert (code, len(plain(out).splitlines()) <= VISIBLE) == (0, True)
    assert lines[0].startswith("noise - Word overlap  ")
    assert not missing_facts(" ".join(lines), "more than 1.00 points", "for new seeds, new items")
    assert not [word for word in ("Almost stochastic", "Hedges", "McNemar", "interquartile") if word in out]
    (found,) = json.loads(cli("compare", "noise", "word_overlap", "--draws", "100", "--format", "json")[1])
    whole = cli("compare", "noise", "word_overlap", "--draws", "100", "--details")[1]
    for line in merge_synthetic_notes(found["statements"]):
        assert f"- {line}" in whole.splitlines()
    lines = visible(cli("stats", "--draws", "100")[1])
    assert not missing_facts(" ".join(lines), "4 records of 2 methods", "points wide")
    assert "IQM" in cli("stats", "--draws", "100", "--details")[1]
    assert "IQM" not in " ".join(lines)


def test_stats_names_failed_records(cli: Cli) -> None:
    assert cli("run", "--methods", "broken,noise", "--seeds", "1-3", "--suite", "mini-dev")[0] == 1
    out = cli("stats", "--draws", "100")[1]
    assert "Failed, so without an interval: broken seed 2." in out.splitlines()


def test_the_verdict_of_the_gate_comes_first() -> None:
    cells = []
    for place in range(30):
        cells.append(CellVerdict(("mini", f"m{place}", "toy"), Status.EQUAL, (1,), (1,)))
    cells.append(CellVerdict(("mini", "lost", "toy"), Status.MISSING, (1,), ()))
    gate = Gate(tuple(cells), 0.005, 0.95, rescored=3, strict=True)
    text = plain(format_gate_text(gate, SCREEN))
    assert text.startswith("FAILED, 1 of 31 cells: lost on toy")
    assert any(line.startswith("FAILED, 1 of 31 cells") for line in visible(text))
    long = format_gate_text(gate, details=True)
    assert long.startswith(describe_gate(gate))
    assert not missing_facts(long, *build_gate_grid(gate).notes)
    unverified = replace(gate, cells=(replace(cells[-1], status=Status.UNVERIFIED, versions=("torch",)),))
    assert describe_gate(unverified).startswith("UNVERIFIED, 1 of 1 cell")


def read_terminal(arguments: list[str], folder: Path) -> str:
    """What a command writes to a terminal of 80 x 24."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ran = subprocess.Popen(
        [sys.executable, "-m", "bench", *arguments],
        cwd=folder,
        env={**environment, "TERM": "xterm-256color"},
        stdin=other,
        stdout=other,
        stderr=subprocess.DEVNULL,
    )
    os.close(other)
    parts = []
    with suppress(OSError):  # the end, on Linux
        while part := os.read(main, 65_536):
            parts.append(part)
    os.close(main)
    assert ran.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_a_real_terminal_shows_the_answer(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("run", "--methods", "untrained,word_overlap", *TOY)
    assert code == 0
    assert out.splitlines()[0].startswith("Highest average: ")
    lines = visible(read_terminal(["report"], tmp_path))
    assert lines[0] == out.splitlines()[0]
    assert len(lines) < VISIBLE


def test_nothing_is_left_out_of_a_pipe() -> None:
    grid = Grid("title", ("a", "b"), (("c", "d"),), ())
    assert format_short_text([], "a\n", grid.notes, FILE) == "a\n"
    text = render_short_report(campaign_of(3), TableOptions())
    assert not missing_facts(text, "STS12", "STS14", "sentences", "cpu s", "rank")
    assert "more column" not in text
    narrow = render_short_report(campaign_of(3), TableOptions(screen=Screen(80)))
    assert not missing_facts(narrow, "difference", "interval", "answer")
    assert "more column" in narrow


@pytest.mark.parametrize("place", ["mteb:STSBenchmark", "local:mine", "a" * 120, "MTEB(eng, v2)"])
def test_no_name_of_a_suite_hides_a_failure(place: str) -> None:
    notes = [f"{place}: Failed: a seed 1: no luck", f"{place}: rank: ...", "Set aside: 2 with one seed"]
    chosen, left_out = choose_notes(notes)
    assert chosen[0] == notes[0]
    assert left_out == 1


def test_failures_are_never_cut_by_a_narrow_screen() -> None:
    notes = [f"Failed: method{i} seed 1: a reason of some length" for i in range(3)]
    notes += ["Unreadable: b seed 2: this record was changed", "Not the reference data: STSB."]
    text = format_short_text(["x"], "table", notes, Screen(40, height=24))
    joined = " ".join(text.split())
    assert not missing_facts(joined, "method0 seed 1", "method1 seed 1", "method2 seed 1", "b seed 2", "STSB")


def test_many_failures_are_counted() -> None:
    chosen, _ = choose_notes([f"Failed: a seed {seed}: no luck" for seed in range(1, 31)])
    assert chosen[0].endswith("and 24 more")
