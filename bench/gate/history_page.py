"""The gate's verdicts over builds: tables of the builds and of every cell, and a page with charts."""

from __future__ import annotations

import csv as csv_module
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from markupsafe import Markup

from bench.errors import printable
from bench.gate.verdict import BAD, POWER, Status
from bench.gate.verdict_history import AVERAGE_KEY, Build, CellHistory, GatePoint, History
from bench.gate.verdict_tables import WORDS
from bench.render.figure import clip_text
from bench.render.formats import csv_cell, render_markdown, render_text
from bench.render.grid import DASH, SCALE, Grid, format_difference, format_score
from bench.render.svg_marks import WIDTH, Axis, escape_markup, line_between, text_at
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


def render_history(history: History, lines: Sequence[CellHistory], form: str) -> str:
    """Return the history in a format: text, markdown, html, csv or json."""
    if form == "csv":
        return format_history_csv(lines)
    if form == "json":
        return format_history_json(history, lines)
    if form == "html":
        environment = page_environment()
        environment.filters["style"] = choose_style_class
        style = own_file("style", "report.css", "figure.css", "gate.css")
        facts = collect_history_facts(history, lines) | style
        return environment.get_template("history.html").render(**facts).strip() + "\n"
    grids = [build_cell_grid(line, history) for line in lines]
    if grids:
        grids[-1] = replace(grids[-1], notes=explain_history_tables(lines))
    return (render_markdown if form == "markdown" else render_text)([list_builds(history), *grids])


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
        parts.append({"grid": build_cell_grid(line, history), "chart": chart})
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
        due = "any number that changed where equal ones were due"
        notes.append(f"A strict gate fails above it too, for {due}.")
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


_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 56, 16, 16, 40, 230
_FAR = 2.0
"""Distance beyond the other scores, in their range, up to which a failed score is drawn in place."""
_LABEL = 74
"""Width of a build's name."""


def draw_history_chart(line: CellHistory, number_of: int, name: Callable[[GatePoint], str]) -> str:
    """Return one ``<svg>`` element with a unique number on the page; ``name`` shortens a point's build."""
    points, bottom = line.points, _HEIGHT - _BOTTOM
    y = _build_axis(points, bottom)
    width = (WIDTH - _LEFT - _RIGHT) / len(points)
    middles = [_LEFT + width * (place + 0.5) for place in range(len(points))]
    parts = [line_between(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis")]
    for tick in y.ticks(5):
        parts.append(line_between(_LEFT, y.at(tick), WIDTH - _RIGHT, y.at(tick), "grid"))
        parts.append(text_at(_LEFT - 6, y.at(tick) + 4, f"{tick:g}", "end", "tick"))
    for place in range(0, len(points), max(1, math.ceil(_LABEL / width))):
        text, whole = name(points[place]), points[place].build.file
        parts.append(text_at(middles[place], bottom + 16, text, "middle", "tick", title=whole))
    parts += _draw_band(points, middles, width / 2, y)
    path: list[str] = []
    markers: list[str] = []
    for x, point in zip(middles, points, strict=True):
        if average := point.cell.average:
            path.append(f"{x:.1f} {_clip_to_axis(average.new, y):.1f}")
        markers += _draw_marker(point, x, y, bottom)
    if len(path) > 1:
        parts.append(f'<path d="M{"L".join(path)}" class="scores"/>')
    parts += markers
    title = escape_markup(f"{line.title}: score over builds")
    description = escape_markup(_describe_chart(points, name))
    ids = f"chart-{number_of}-title", f"chart-{number_of}-desc"
    return (
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-labelledby="{ids[0]} {ids[1]}">'
        f'<title id="{ids[0]}">{title}</title><desc id="{ids[1]}">{description}</desc>{"".join(parts)}</svg>'
    )


def _build_axis(points: Sequence[GatePoint], bottom: float) -> Axis:
    """Return an axis over references, limits and passing scores; a failed score stretches it only so far."""
    passing = [point for point in points if not point.failed]
    averages = [point.cell.average for point in points if point.cell.average]
    core = [SCALE * average.reference for average in averages]
    core += [SCALE * point.below for point in passing or points if point.below is not None]
    core += [SCALE * point.cell.average.new for point in passing if point.cell.average]
    if not core:
        return Axis((), bottom, _TOP)
    low, high = min(core), max(core)
    room = _FAR * max(high - low, 1.0)
    scores = [SCALE * average.new for average in averages]
    return Axis([*core, *(score for score in scores if low - room <= score <= high + room)], bottom, _TOP)


def _clip_to_axis(score: float, y: Axis) -> float:
    """Return the place of a score, at the edge for one beyond the axis."""
    return y.at(min(max(SCALE * score, y.low), y.high))


def _draw_band(points: Sequence[GatePoint], middles: Sequence[float], half: float, y: Axis) -> Iterator[str]:
    """Draw from the reference down to the failing score, a step a build; a gap without one."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for x, point in zip(middles, points, strict=True):
        if point.cell.average is None or point.below is None:
            runs.append([])
            continue
        runs[-1].append((x, y.at(SCALE * point.cell.average.reference), _clip_to_axis(point.below, y)))
        if point.step:
            yield line_between(x - half, _TOP, x - half, _HEIGHT - _BOTTOM, "step")
    for run in filter(None, runs):
        top, low = [], []
        for x, reference, below in run:
            top += [f"{x - half:.1f} {reference:.1f}", f"{x + half:.1f} {reference:.1f}"]
            low += [f"{x - half:.1f} {below:.1f}", f"{x + half:.1f} {below:.1f}"]
        yield f'<path d="M{"L".join([*top, *reversed(low)])}z" class="band"/>'
        yield f'<path d="M{"L".join(top)}" class="reference"/><path d="M{"L".join(low)}" class="fails"/>'


def _draw_marker(point: GatePoint, x: float, y: Axis, bottom: float) -> Iterator[str]:
    """Draw a dot, a triangle for unclear, a square for failed, a cross without a score."""
    average, title = point.cell.average, f"{point.build.file}: {WORDS[point.cell.status]}"
    if average is None:
        path = f"M{x - 4:.1f} {bottom - 10:.1f}l8 8m0 -8l-8 8"
        yield f'<path d="{path}" class="axis"><title>{escape_markup(f"{title}, no score")}</title></path>'
        return
    at = _clip_to_axis(average.new, y)
    title += f", {format_score(average.new)} after {format_score(average.reference)}"
    style, path = "passed", f"M{x - 4:.1f} {at:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    if point.failed:
        style, path = "failed", f"M{x - 4.5:.1f} {at - 4.5:.1f}h9v9h-9z"
    elif point.cell.status is Status.UNCLEAR:
        style, path = "unsure", f"M{x:.1f} {at - 5:.1f}l5 9h-10z"
    if not y.low <= SCALE * average.new <= y.high:  # beyond the axis: an arrow, and the score in figures
        is_below = SCALE * average.new < y.low
        path = f"M{x:.1f} {at:.1f}l-6 {-9 if is_below else 9}h12z"
        yield text_at(x, at - 13 if is_below else at + 21, format_score(average.new), "middle", "tick")
    yield f'<path d="{path}" class="{style}"><title>{escape_markup(title)}</title></path>'


def _describe_chart(points: Sequence[GatePoint], name: Callable[[GatePoint], str]) -> str:
    scores = [(point.cell.average.new, name(point)) for point in points if point.cell.average]
    text = f"{len(points)} build{'s' * (len(points) != 1)}"
    if scores:
        lowest, build = min(scores, key=lambda score: score[0])
        last = format_score(scores[-1][0])
        text += f", the last score {last}, the lowest {format_score(lowest)} in {build}"
    failed = ", ".join(name(point) for point in points if point.failed)
    return f"{text}. {f'Failed: {failed}' if failed else 'None failed'}."
