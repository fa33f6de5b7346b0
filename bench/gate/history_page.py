"""The gate's verdicts over builds as one page, or in the formats of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from bench.gate.history_chart import draw_history_chart
from bench.gate.history_table import (
    VERDICTS,
    build_cell_grid,
    build_history_grids,
    explain_history_tables,
    format_history_csv,
    format_history_json,
    list_builds,
    name_build,
    name_commit,
)
from bench.gate.tables import WORDS
from bench.gate.verdict import BAD, Status
from bench.gate.verdict_history import CellHistory, GatePoint, History
from bench.render.figure import clip_text
from bench.render.formats import render_markdown, render_text
from bench.render.grid import DASH, Grid
from bench.render.template import own_file, page_environment
from bench.version import __version__

_BAD = (VERDICTS[1], *(WORDS[status] for status in BAD))
_GOOD = (VERDICTS[0], WORDS[Status.IMPROVED])


@dataclass(frozen=True)
class CellSection:
    """A cell on the page."""

    grid: Grid
    chart: Markup


def render_history(history: History, lines: Sequence[CellHistory], form: str) -> str:
    """Return the history in a format: text, markdown, html, csv or json."""
    if form == "csv":
        return format_history_csv(lines)
    if form == "json":
        return format_history_json(history, lines)
    if form == "html":
        return render_history_page(history, lines)
    return (render_markdown if form == "markdown" else render_text)(build_history_grids(history, lines))


def render_history_page(history: History, lines: Sequence[CellHistory]) -> str:
    """Return the history as one HTML file: a chart and a table of every cell."""
    environment = page_environment()
    environment.filters["style"] = choose_style_class
    own = own_file("style", "report.css", "gate.css")
    text = environment.get_template("history.html").render(**collect_history_facts(history, lines), **own)
    return text.strip() + "\n"


def collect_history_facts(history: History, lines: Sequence[CellHistory]) -> dict[str, Any]:
    """Return what a page of the history says."""

    def name(point: GatePoint) -> str:
        commit = name_commit(point.build)
        return clip_text(
            name_build(point.build, by_date=history.by_date)[:10] if commit == DASH else commit, 12
        )

    parts = [
        CellSection(build_cell_grid(line, history), Markup(draw_history_chart(line, place, name)))  # noqa: S704 - it escapes every text
        for place, line in enumerate(lines, start=1)
    ]
    last = history.builds[-1]
    return {
        "parts": parts,
        "builds": list_builds(history),
        "count": len(history.builds),
        "failed": sum(build.exit_code != 0 for build in history.builds),
        "last": last,
        "last_name": name_build(last, by_date=history.by_date),
        "verdict": VERDICTS[last.exit_code],
        "notes": explain_history_tables(lines),
        "version": __version__,
    }


def choose_style_class(verdict: str) -> str:
    """Return the class of a verdict's colour, of a build or of a cell."""
    if verdict in _BAD:
        return "bad"
    if verdict == WORDS[Status.UNCLEAR]:
        return "unclear"
    return "other" if verdict == WORDS[Status.DIFFERENT] else "good" if verdict in _GOOD else "plain"
