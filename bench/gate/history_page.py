"""The gate's verdicts over builds: tables of the builds and of every cell, and a page with charts."""

from __future__ import annotations

import csv as csv_module
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from markupsafe import Markup

from bench.errors import printable
from bench.gate.history_chart import draw_history_chart
from bench.gate.tables import WORDS
from bench.gate.verdict import BAD, POWER, Status
from bench.gate.verdict_history import AVERAGE_KEY, Build, CellHistory, GatePoint, History
from bench.render.figure import clip_text
from bench.render.formats import csv_cell, render_markdown, render_text
from bench.render.grid import DASH, Grid, format_difference, format_score
from bench.render.template import own_file, page_environment
from bench.version import __version__

_COMMIT = 10
"""Characters of a commit in tables."""
VERDICTS = {0: "PASSED", 1: "FAILED", 3: "NOT COMPARABLE"}
_BAD = (VERDICTS[1], *(WORDS[status] for status in BAD))
_GOOD = (VERDICTS[0], WORDS[Status.IMPROVED])
STEP = "*"
COLUMNS = (
    *("build", "date", "commit", "bench", "profile", "method", "suite", "question", "status", "reference"),
    *("new", "drop", "low", "high", "fails_below", "sees", "stage", "reference_changed"),
)
"""Of the csv; scores in the metric's unit."""


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
    grids = [build_cell_grid(line, history) for line in lines]
    if grids:
        grids[-1] = replace(grids[-1], notes=explain_history_tables(lines))
    return (render_markdown if form == "markdown" else render_text)([list_builds(history), *grids])


def render_history_page(history: History, lines: Sequence[CellHistory]) -> str:
    """Return the history as one HTML file: a chart and a table of every cell."""
    environment = page_environment()
    environment.filters["style"] = choose_style_class
    own = own_file("style", "report.css", "gate.css")
    text = environment.get_template("history.html").render(**collect_history_facts(history, lines), **own)
    return text.strip() + "\n"


def collect_history_facts(history: History, lines: Sequence[CellHistory]) -> dict[str, Any]:
    """Return the facts of a page of the history."""

    def name(point: GatePoint) -> str:
        commit = name_commit(point.build)
        if commit == DASH:
            commit = name_build(point.build, by_date=history.by_date)[:10]
        return clip_text(commit, 12)

    parts = []
    for place, line in enumerate(lines, start=1):
        chart = Markup(draw_history_chart(line, place, name))  # noqa: S704 - it escapes every text
        parts.append(CellSection(build_cell_grid(line, history), chart))
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
    other = {WORDS[Status.UNCLEAR]: "unclear", WORDS[Status.DIFFERENT]: "other"}
    return other.get(verdict, "good" if verdict in _GOOD else "plain")


def name_build(build: Build, *, by_date: bool) -> str:
    """Return its date in UTC if dates order the builds, otherwise its file."""
    if by_date and build.date is not None:
        return build.date.replace(tzinfo=None).isoformat(" ", "minutes")
    return printable(build.file)


def name_commit(build: Build) -> str:
    """Return its commit, cut."""
    return printable(build.commit[:_COMMIT]) or DASH


def list_builds(history: History) -> Grid:
    """Return the table of the builds."""
    header = ("build", "commit", "bench", "verdict", "cells", "failed", "unclear", "file")
    rows = []
    for build in history.builds:
        name, version = name_build(build, by_date=history.by_date), printable(build.bench) or DASH
        statuses = [cell.status for cell in build.cells]
        failed = str(sum(status in (*BAD, Status.DIFFERENT) for status in statuses))
        if build.overall is not None and build.overall.status in BAD:
            failed += " + average"
        counts = (str(len(statuses)), failed, str(statuses.count(Status.UNCLEAR)))
        facts = (name, name_commit(build), version, VERDICTS[build.exit_code])
        rows.append((*facts, *counts, printable(build.file)))
    order = "In the order of their dates (UTC)."
    if not history.by_date:
        without = sum(build.date is None for build in history.builds)
        order = f"In the order of file names: {without} of {len(history.builds)} have no date."
    return Grid("Builds", header, tuple(rows), (order,))


def build_cell_grid(line: CellHistory, history: History) -> Grid:
    """Return the table of a cell over builds."""
    header = ("build", "commit", "verdict", "reference", "new", "drop", "fails below", "sees")
    rows = []
    for point in line.points:
        average, scores = point.cell.average, (DASH, DASH, DASH)
        if average is not None:
            reference = format_score(average.reference) + STEP * point.step
            scores = (reference, format_score(average.new), format_difference(average.drop))
        build = (name_build(point.build, by_date=history.by_date), name_commit(point.build))
        limits = (format_score(point.below), format_score(point.cell.sees))
        rows.append((*build, WORDS[point.cell.status], *scores, *limits))
    return Grid(printable(line.title), header, tuple(rows), ())


def explain_history_tables(lines: Sequence[CellHistory]) -> tuple[str, ...]:
    """Return the notes of the cells' tables."""
    points = [point for line in lines for point in line.points]
    notes = [
        "Scores x 100; drop = reference - new. fails below: the reference less the tolerance, or less what "
        "the seeds or items of that build must show where that is more."
    ]
    if any(point.build.strict for point in points):
        notes.append(
            "A strict gate fails above it too, for any number that changed where equal ones were due."
        )
    if any(point.cell.sees is not None for point in points):
        notes.append(f"sees: the smallest true drop that would fail with a chance of {POWER:.0%}.")
    if any(point.step for point in points):
        notes.append(f"{STEP} The reference's score is another than in the build before.")
    return tuple(notes)


def format_history_csv(lines: Sequence[CellHistory]) -> str:
    """Format a line for each cell and build, in the metric's unit at full precision."""
    output = StringIO()
    writer = csv_module.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        for point in line.points:
            writer.writerow(map(csv_cell, _collect_cell_facts(point).values()))
    return output.getvalue()


def format_history_json(history: History, lines: Sequence[CellHistory]) -> str:
    """Format cells and builds, in the metric's unit at full precision; text as ASCII."""
    names = ("commit", "bench", "exit_code", "sentence", "tolerance", "strict")
    builds: list[dict[str, Any]] = []
    for build in history.builds:
        date = None if build.date is None else build.date.isoformat()
        facts = {name: getattr(build, name) for name in names}
        builds.append({"build": build.file, "date": date, **facts})
    cells: list[dict[str, Any]] = []
    for line in lines:
        key = dict(zip(("profile", "method", "suite"), line.key, strict=True))
        points = [_collect_cell_facts(point) for point in line.points]
        cells.append({**key, "average": line.key == AVERAGE_KEY, "builds": points})
    data = {"ordered_by": "date" if history.by_date else "file name", "builds": builds, "cells": cells}
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _collect_cell_facts(point: GatePoint) -> dict[str, Any]:
    build, cell, average = point.build, point.cell, point.cell.average
    profile, method, suite = cell.key
    figures: tuple[float | None, ...] = (None,) * 5
    if average is not None:
        figures = (average.reference, average.new, average.drop, average.low, average.high)
    date = None if build.date is None else build.date.isoformat()
    facts = (build.file, date, build.commit, build.bench, profile, method, suite, str(cell.question))
    values = (*facts, str(cell.status), *figures, point.below, cell.sees, cell.stage, point.step)
    return dict(zip(COLUMNS, values, strict=True))
