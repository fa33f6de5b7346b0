"""The gate's verdicts over builds as one page, or in the formats of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from bench.gate.figures import chart
from bench.gate.history import History, Line, Point
from bench.gate.history_table import (
    VERDICTS,
    as_csv,
    as_json,
    build_name,
    builds_grid,
    commit_name,
    grids,
    line_grid,
    reading,
)
from bench.gate.tables import WORDS
from bench.gate.verdict import BAD, Status
from bench.render.figure import short
from bench.render.formats import markdown, text
from bench.render.grid import DASH, Grid
from bench.render.template import own_file, page_environment
from bench.version import __version__

_BAD = (VERDICTS[1], *(WORDS[status] for status in BAD))
_GOOD = (VERDICTS[0], WORDS[Status.IMPROVED])


@dataclass(frozen=True)
class Part:
    """A cell on the page."""

    grid: Grid
    chart: Markup


def rendered(history: History, lines: Sequence[Line], form: str) -> str:
    """Return the history in a format: text, markdown, html, csv or json."""
    if form == "csv":
        return as_csv(lines)
    if form == "json":
        return as_json(history, lines)
    if form == "html":
        return page(history, lines)
    return (markdown if form == "markdown" else text)(grids(history, lines))


def page(history: History, lines: Sequence[Line]) -> str:
    """Return the history as one HTML file: a chart and a table of every cell."""
    environment = page_environment()
    environment.filters["style"] = style
    own = own_file("style", "report.css", "gate.css")
    text = environment.get_template("history.html").render(**page_facts(history, lines), **own)
    return text.strip() + "\n"


def page_facts(history: History, lines: Sequence[Line]) -> dict[str, Any]:
    """Return what a page of the history says."""

    def name(point: Point) -> str:
        commit = commit_name(point.build)
        return short(build_name(point.build, by_date=history.by_date)[:10] if commit == DASH else commit, 12)

    parts = [
        Part(line_grid(line, history), Markup(chart(line, place, name)))  # noqa: S704 - it escapes every text
        for place, line in enumerate(lines, start=1)
    ]
    last = history.builds[-1]
    return {
        "parts": parts,
        "builds": builds_grid(history),
        "count": len(history.builds),
        "failed": sum(build.exit_code != 0 for build in history.builds),
        "last": last,
        "last_name": build_name(last, by_date=history.by_date),
        "verdict": VERDICTS[last.exit_code],
        "notes": reading(lines),
        "version": __version__,
    }


def style(verdict: str) -> str:
    """Return the class of a verdict's colour, of a build or of a cell."""
    if verdict in _BAD:
        return "bad"
    if verdict == WORDS[Status.UNCLEAR]:
        return "unclear"
    return "other" if verdict == WORDS[Status.DIFFERENT] else "good" if verdict in _GOOD else "plain"
