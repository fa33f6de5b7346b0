"""The gate's verdicts over builds: a table of the builds, and one of every cell."""

from __future__ import annotations

import csv as csv_module
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any

from bench.errors import printable
from bench.gate.tables import WORDS
from bench.gate.verdict import BAD, POWER, Status
from bench.gate.verdict_history import AVERAGE_KEY, Build, CellHistory, GatePoint, History
from bench.render.formats import csv_cell
from bench.render.grid import DASH, Grid, format_difference, format_score

_COMMIT = 10
"""Characters of a commit that tables show."""
VERDICTS = {0: "PASSED", 1: "FAILED", 3: "NOT COMPARABLE"}
STEP = "*"
COLUMNS = (
    *("build", "date", "commit", "bench", "profile", "method", "suite", "question", "status", "reference"),
    *("new", "drop", "low", "high", "fails_below", "sees", "stage", "reference_changed"),
)
"""Of the csv; scores in the metric's unit."""


def name_build(build: Build, *, by_date: bool) -> str:
    """Its date in UTC where dates order the builds, else its file."""
    if by_date and build.date is not None:
        return build.date.replace(tzinfo=None).isoformat(" ", "minutes")
    return printable(build.file)


def name_commit(build: Build) -> str:
    """Its commit, cut."""
    return printable(build.commit[:_COMMIT]) or DASH


def list_builds(history: History) -> Grid:
    """Return the table of the builds."""
    header = ("build", "commit", "bench", "verdict", "cells", "failed", "unclear", "file")
    rows = tuple(
        (
            name_build(build, by_date=history.by_date),
            name_commit(build),
            printable(build.bench) or DASH,
            VERDICTS[build.exit_code],
            str(len(build.cells)),
            _count_failed(build),
            str(sum(cell.status is Status.UNCLEAR for cell in build.cells)),
            printable(build.file),
        )
        for build in history.builds
    )
    return Grid("Builds", header, rows, (describe_order(history),))


def _count_failed(build: Build) -> str:
    """How many cells failed, and the average over them."""
    count = sum(cell.status in (*BAD, Status.DIFFERENT) for cell in build.cells)
    average = build.overall is not None and build.overall.status in BAD
    return f"{count} + average" if average else str(count)


def describe_order(history: History) -> str:
    """Say what orders the builds."""
    if history.by_date:
        return "In the order of their dates (UTC)."
    without = sum(build.date is None for build in history.builds)
    return f"In the order of file names: {without} of {len(history.builds)} have no date."


def build_cell_grid(line: CellHistory, history: History) -> Grid:
    """Return the table of a cell over builds."""
    header = ("build", "commit", "verdict", "reference", "new", "drop", "fails below", "sees")
    rows = tuple(
        (
            name_build(point.build, by_date=history.by_date),
            name_commit(point.build),
            WORDS[point.cell.status],
            *_format_scores(point),
            format_score(point.below),
            format_score(point.cell.sees),
        )
        for point in line.points
    )
    return Grid(printable(line.title), header, rows, ())


def _format_scores(point: GatePoint) -> tuple[str, str, str]:
    average = point.cell.average
    if average is None:
        return (DASH, DASH, DASH)
    return (
        format_score(average.reference) + (STEP if point.step else ""),
        format_score(average.new),
        format_difference(average.drop),
    )


def explain_history_tables(lines: Sequence[CellHistory]) -> tuple[str, ...]:
    """Say how to read the cells' tables."""
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


def build_history_grids(history: History, lines: Sequence[CellHistory]) -> list[Grid]:
    """Return all tables; the last says how to read those of cells."""
    made = [build_cell_grid(line, history) for line in lines]
    if made:
        last = made[-1]
        made[-1] = Grid(last.title, last.header, last.rows, explain_history_tables(lines))
    return [list_builds(history), *made]


def format_history_csv(lines: Sequence[CellHistory]) -> str:
    """A line a cell and build, in the metric's unit at full precision."""
    output = StringIO()
    writer = csv_module.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        for point in line.points:
            writer.writerow(map(csv_cell, _collect_cell_facts(point).values()))
    return output.getvalue()


def format_history_json(history: History, lines: Sequence[CellHistory]) -> str:
    """The same and the builds, in the metric's unit at full precision; text as ASCII."""
    builds = [
        {
            "build": build.file,
            "date": None if build.date is None else build.date.isoformat(),
            "commit": build.commit,
            "bench": build.bench,
            "exit_code": build.exit_code,
            "sentence": build.sentence,
            "tolerance": build.tolerance,
            "strict": build.strict,
        }
        for build in history.builds
    ]
    cells = [
        {
            **dict(zip(("profile", "method", "suite"), line.key, strict=True)),
            "average": line.key == AVERAGE_KEY,
            "builds": [_collect_cell_facts(point) for point in line.points],
        }
        for line in lines
    ]
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
