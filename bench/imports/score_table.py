"""Scores from a table: a row a score (method, seed, task, score), or a column a task as in papers.

A table prints scores in the metric's unit, or x 100. Which one is the user's word where a value is beyond 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bench.data.imported_names import find_name_fault, name_imported_suite
from bench.errors import DataError, InputError, not_one_of
from bench.eval.imported_suite import identify_score_task
from bench.imports.published import PublishedResults, PublishedRun
from bench.imports.source_table import (
    METHOD,
    METRIC,
    SEED,
    TASK,
    MetricColumn,
    NameList,
    Run,
    TableRow,
    check_columns,
    check_seeds,
    count_left_out,
    describe_source,
    leave_out_incomplete,
    read_number,
    read_rows,
    read_seed,
)
from bench.records.record import ALL, AVERAGE, Score

SCORE = "score"
POINTS, UNIT = "points", "unit"
SCALES = (POINTS, UNIT)
"""Values of ``--scale``: scores x 100, and scores from -1 to 1."""
_AVERAGE_NAME = re.compile(
    r"(?:(?:overall|total|grand|task|macro|unweighted)[\s_-]+)?"
    r"(?:avg|average|mean)\.?\s*\d*"
    r"(?:[\s_-]+(?:scores?|results?|performance|(?:over|of|across)[\s_-]+(?:all[\s_-]+)?(?:tasks|datasets)))?"
    r"\s*(?:\([^()]*\)|\[[^\[\]]*\])?"
)
"""Names of an average in papers: "Avg.", "Average score", "Mean (Task)", "avg_7"."""
_NO_SCORE = ("", "-", "--", "\u2013", "\u2014", "n/a")
"""Cells of a wide table without a score, as papers print them."""


@dataclass(frozen=True)
class _Cell:
    value: float  # as written
    text: str
    line: int
    column: str = ""  # of a table with a column a task

    @property
    def rounding(self) -> float:
        """Half a unit of its last digit."""
        mantissa, _, exponent = self.text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        return float(f"5e{int(exponent or 0) - decimals - 1}")


@dataclass
class _Scores:
    """The cells of a table by run, and by task with "avg"."""

    file: Path
    metric: MetricColumn
    cells: dict[Run, dict[str, _Cell]] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    methods: NameList = field(default_factory=lambda: NameList("method"))
    task_names: NameList = field(default_factory=lambda: NameList("task"))
    lines: dict[Run, int] = field(default_factory=dict)

    def open_run(self, row: TableRow) -> Run:
        """Return the run of a row, listed even if all its cells are empty."""
        run = Run(self.methods.check(row.cells[METHOD], row.where, row.line), read_seed(row))
        self.cells.setdefault(run, {})
        self.lines.setdefault(run, row.line)
        return run

    def add(self, run: Run, task: str, text: str, row: TableRow, column: str = "") -> None:
        """Take one score; raises DataError for a second one of the same run and task."""
        name = AVERAGE if is_average(task) else self.task_names.check(task, row.where, row.line)
        cell = _Cell(read_number(text, f"score of {run.label} on {name}", row.where), text, row.line, column)
        other = self.cells[run].setdefault(name, cell)
        if other is not cell:
            same = "the same score again" if other.value == cell.value else f"another score ({other.text})"
            what = f"{run.label} on {name}: {same} in line {other.line}"
            raise DataError(what, where=row.where, expected="one row", hint="delete one of both rows")
        if name != AVERAGE and name not in self.tasks:
            self.tasks.append(name)


def is_average(name: str) -> bool:
    """Check whether a name is that of an average and not of a task.

    >>> [is_average(name) for name in ("Avg. (7)", "Average score", "Mean (Task)", "mean_reversal")]
    [True, True, True, False]
    """
    return _AVERAGE_NAME.fullmatch(name.lower()) is not None


def read_score_table(file: Path, *, suite: str = "", metric: str = "", scale: str = "") -> PublishedResults:
    """Read scores from a table with commas, tabs or ``;``, or from JSON lines.

    Args:
        file: With columns method, task and score, or method and a column a task; seed may be missing.
        suite: Name of the suite, ``imported:NAME``; by default the file's name.
        metric: Metric of all scores; by default that of a column "metric", then "score".
        scale: "points" for scores x 100, "unit" for scores from -1 to 1; "" refuses scores beyond 1.

    Raises InputError for a file, or a line of it, that can't be read without a guess.
    """
    if scale and scale not in SCALES:
        raise not_one_of(f"'{scale}' is no scale", scale, SCALES, where="--scale")
    name = name_imported_suite(suite, file)
    source, notes = describe_source("csv", file), list[str]()
    table = _read_table(file, MetricColumn(metric), notes)
    check_seeds(table.lines, file)
    if not table.tasks:
        raise DataError("the table has no score of a task", where=str(file), expected="a score a row")
    divisor, unit_notes = _choose_divisor(table, scale)
    notes += unit_notes
    by_task = {run: cells.keys() for run, cells in table.cells.items()}
    left_out = leave_out_incomplete(by_task, table.tasks, file)
    metric = table.metric.name or metric or SCORE
    fault = f"'{metric}' ends with _last" if metric.endswith("_last") else find_name_fault(metric)
    if fault:  # scores of a last checkpoint are called METRIC_last in records
        raise InputError(fault, where="--metric", expected="a metric's name, such as spearman")
    runs = []
    for run, cells in table.cells.items():
        if run not in left_out:
            runs.append(_publish_run(run, cells, table.tasks, name, metric, divisor))
            notes += runs[-1].notes
    by_label = {run.label: reason for run, reason in left_out.items()}
    table_notes = count_left_out(left_out, len(table.cells))
    return PublishedResults(name, tuple(runs), source, tuple(notes), by_label, table_notes)


def _read_table(file: Path, metric: MetricColumn, notes: list[str]) -> _Scores:
    rows = read_rows(file, notes)
    first = next(rows)
    table = _Scores(file, metric)
    if TASK in first.cells or SCORE in first.cells:
        others = check_columns(first, (METHOD, TASK, SCORE), (SEED, METRIC))
        notes += _name_ignored(others)
        for row in chain([first], rows):
            metric.read(row)
            table.add(table.open_run(row), row.cells[TASK], row.cells.get(SCORE, ""), row)
        return table
    tasks = check_columns(first, (METHOD,), (SEED, METRIC))
    averages = [task for task in tasks if is_average(task)]
    if len(averages) > 1:
        what, hint = f"two averages: '{averages[0]}' and '{averages[1]}'", f"delete '{averages[1]}'"
        raise DataError(what, where=f"{file}:1", expected="one column of an average", hint=hint)
    if not tasks:
        what = "the header has neither task and score nor a task's name"
        raise DataError(what, where=f"{file}:1", expected="columns method, seed, task, score")
    for row in chain([first], rows):
        metric.read(row)
        run = table.open_run(row)
        if table.cells[run]:
            what, at = f"a second row of {run.label}", table.lines[run]
            hint = f"delete this row or line {at}, or give each row a seed"
            raise DataError(what, where=row.where, expected="one row", hint=hint)
        _add_wide_row(table, run, tasks, row)
    if empty := [task for task in tasks if not is_average(task) and task not in table.tasks]:
        notes.append(f"columns without any score: {', '.join(empty)}")
    return table


def _add_wide_row(table: _Scores, run: Run, tasks: list[str], row: TableRow) -> None:
    for task in tasks:
        text = row.cells.get(task, "")
        if text.lower() in _NO_SCORE:
            continue
        try:
            table.add(run, task, text, row, column=task)
        except DataError as error:
            error.hint = error.hint or _hint_column(task)
            raise


def _hint_column(column: str) -> str:
    return f"delete the column '{column}' if it is no task"


def _name_ignored(columns: list[str]) -> Iterator[str]:
    if columns:
        yield f"columns without a meaning here: {', '.join(columns)}"


def _choose_divisor(table: _Scores, scale: str) -> tuple[float, list[str]]:
    """Return the table's value of 1 in the metric's unit, with notes; raises DataError for a doubt."""
    cells = [cell for of_run in table.cells.values() for cell in of_run.values()]
    beyond = next((cell for cell in cells if abs(cell.value) > 1), None)
    within = [cell for cell in cells if 0 < abs(cell.value) <= 1]
    if scale == POINTS:
        _check_points(table, cells, beyond)
        notes = []
        if within:
            few = f"{len(within)} of {len(cells)} scores are at most 1 point"
            notes.append(f"{few}, such as {within[0].text} in line {within[0].line}")
        return 100.0, notes
    if beyond is None:
        return 1.0, []
    where = f"{table.file}:{beyond.line}"
    if scale == UNIT:
        raise _refuse_cell(_describe_cell(beyond), beyond, where, "-1 to 1 with --scale unit")
    if within:
        one = within[0]
        what = f"{_describe_cell(beyond)} here, and {one.text} in line {one.line}: some may be x 100"
        hint = f"write all in one unit; --scale points takes {one.text} as {one.text} points"
        raise _refuse_cell(what, beyond, where, "-1 to 1, or x 100", hint)
    hint = "if the scores are x 100, type --scale points"
    raise DataError(_describe_cell(beyond), where=where, expected="-1 to 1", hint=hint)


def _describe_cell(cell: _Cell) -> str:
    return f"score {cell.text} of {cell.column}" if cell.column else f"score {cell.text}"


def _refuse_cell(what: str, cell: _Cell, where: str, expected: str, hint: str = "") -> DataError:
    """Build the error for a score beyond the scale; a column of other numbers may be its cause."""
    hints = [hint] if hint else []
    if cell.column:
        hints.append(_hint_column(cell.column))
    return DataError(what, where=where, expected=expected, hint="; ".join(hints) or None)


def _check_points(table: _Scores, cells: list[_Cell], beyond: _Cell | None) -> None:
    """Raise DataError for scores beyond 100, and for a table whose scores are all in the metric's unit."""
    if beyond is None:
        largest = max(cells, key=lambda cell: abs(cell.value))
        what = f"no score is beyond 1; the largest is {largest.text}"
        where, hint = f"{table.file}:{largest.line}", "leave --scale points out"
        raise DataError(what, where=where, expected="scores x 100 with --scale points", hint=hint)
    for cell in cells:
        if abs(cell.value) > 100:
            where = f"{table.file}:{cell.line}"
            raise _refuse_cell(_describe_cell(cell), cell, where, "-100 to 100 with --scale points")


def _publish_run(
    run: Run, cells: Mapping[str, _Cell], tasks: list[str], suite: str, metric: str, divisor: float
) -> PublishedRun:
    """Return a run with the mean of its tasks; a printed average that differs is noted."""
    values = [cells[task].value / divisor for task in tasks]
    mean = sum(values) / len(values)
    scores = [Score(task, ALL, metric, value, 0) for task, value in zip(tasks, values, strict=True)]
    notes: tuple[str, ...] = ()
    if (stated := cells.get(AVERAGE)) is not None:
        slack = stated.rounding + sum(cells[task].rounding for task in tasks) / len(tasks)
        exact = sum(cells[task].value for task in tasks) / len(tasks)
        if abs(stated.value - exact) > slack + 1e-9:
            notes = (
                f"{run.label}: the source prints {stated.text} as average; the mean of its {len(tasks)} "
                f"tasks is {exact:.6g}, which stands here.",
            )
    facts = {}
    for task in tasks:
        sha256 = identify_score_task(suite, task, metric)
        facts[task] = {"name": task, "sha256": sha256, "reference": False, "metric": metric}
    average = Score(AVERAGE, ALL, metric, mean, len(tasks))
    return PublishedRun(run.method, run.seed, (*scores, average), facts, notes=notes)
