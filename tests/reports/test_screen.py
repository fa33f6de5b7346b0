"""Text tables in a terminal: they fit its width, and nothing but our own styles reaches it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.cli.terminal import get_screen
from bench.render.formats import FILE, Screen, render_text
from bench.render.grid import BEST, SECOND, Grid, Quoted, ScoreCell, Value
from bench.reports.campaign import Campaign
from bench.reports.report import TableOptions, render_report
from bench.reports.sections import TABLES
from tests.support.campaigns import HOSTILE
from tests.support.cli import Cli
from tests.support.messages import missing_facts
from tests.support.terminal import Terminal

TASKS = tuple(f"STS{n}" for n in range(12, 19))
RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
HEADER = ("method", "seeds", *TASKS, "avg", "sd", "rank")


def grid_of(*names: str, sd: float | None = 0.01) -> Grid:
    scores = [ScoreCell(0.5 + n / 100, sd, 2) for n in range(len(TASKS))]
    rows: list[tuple[Value, ...]] = [
        (name, "2", *scores, ScoreCell(0.53, None, 2), "1.00", "1-2") for name in names
    ]
    return Grid("title", HEADER, tuple(rows), ("a note",))


def heads(shown: str) -> list[list[str]]:
    """Headings of each part of a table."""
    return [line.split() for line in shown.splitlines() if line.startswith(" method")]


def test_a_table_that_fits_is_that_of_a_file() -> None:
    grids = [grid_of("simcse", "tncse")]
    whole = render_text(grids)
    widest = max(map(len, whole.splitlines()))
    assert render_text(grids, Screen(widest)) == whole
    assert render_text(grids, Screen(widest - 1)) != whole


def test_deviations_go_first_then_columns_stand_below() -> None:
    grids = [grid_of("simcse", "tncse")]
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
    assert "left out" not in render_text([grid_of("simcse", sd=None)], Screen(60))


@pytest.mark.parametrize("width", [40, 61, 80, 133])
def test_names_lose_their_middle_last_and_stay_apart(width: int) -> None:
    names = [f"simcse[{'option=value,' * 4}last={n}]" for n in range(3)]
    shown = render_text([grid_of(*names, "tncse")], Screen(width))
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
    assert "\x1b[1;32m50.00\x1b[0m\N{PLUS-MINUS SIGN}10.00*" in shown
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
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert get_screen() == FILE
    assert get_screen(70) == Screen(70)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert get_screen() == Screen(50, styled=True)
    assert get_screen(70) == Screen(70, styled=True)


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
    """The leaderboard after a run, a report and the other text tables have one way to the screen."""
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
