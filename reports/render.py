"""Tables as text, markdown, csv, json and LaTeX. Only here values are scaled and rounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from bench.record import RunRecord
from bench.reports.sweeps import sweep_grids
from bench.reports.table import SCALE, Cell, Grid, Row, Table, leaderboards, long_frame
from bench.sweeps import Manifest

DASH = "-"
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": r"{[}",
    "]": r"{]}",
}


def number(value: float | None) -> str:
    """Scaled by 100 with two decimals, or a dash."""
    return DASH if value is None else f"{SCALE * value:.2f}"


def plus_minus(cell: Cell) -> str:
    """Mean and standard deviation of a cell, the latter only where there are several seeds."""
    return number(cell.mean) + ("" if cell.sd is None else f"±{SCALE * cell.sd:.2f}")


def latex_escape(text: str) -> str:
    """Make any text inert in LaTeX: every special character escaped, control characters dropped."""
    return "".join(_LATEX.get(char, char) for char in text if char.isprintable())


def markdown_escape(text: str) -> str:
    """Make any text inert in a markdown table cell."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#!])", r"\\\1", flat)


def text(grids: Sequence[Grid]) -> str:
    """Plain tables for a terminal or a log."""
    output = StringIO()
    console = Console(
        file=output, width=10_000, color_system=None, highlight=False, markup=False, emoji=False
    )
    for grid in grids:
        console.print(grid.title)
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for position, name in enumerate(grid.header):
            table.add_column(name, justify="right" if position else "left", no_wrap=True)
        for row in grid.rows:
            table.add_row(*(_plain(cell) for cell in row))
        console.print(table)
        for note in grid.notes:
            console.print(note, soft_wrap=True)
        console.print()
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip().split("\n")) + "\n"


def markdown(grids: Sequence[Grid]) -> str:
    """GitHub tables."""
    parts = []
    for grid in grids:
        lines = [
            f"### {markdown_escape(grid.title)}",
            "",
            "| " + " | ".join(map(markdown_escape, grid.header)) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(grid.header) - 1)) + "|",
        ]
        lines += [
            "| " + " | ".join(markdown_escape(_plain(cell)) for cell in row) + " |" for row in grid.rows
        ]
        lines += ["", *(f"- {markdown_escape(note)}" for note in grid.notes), ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def latex(grids: Sequence[Grid]) -> str:
    """Tables with booktabs; standard deviations stand as subscripts."""
    parts = []
    for grid in grids:
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_escape(grid.title)}. {latex_escape(' '.join(grid.notes))}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}",
            r"\toprule",
            " & ".join(map(latex_escape, grid.header)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex, row)) + r" \\" for row in grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def as_json(tables: Sequence[Table | Grid]) -> str:
    """The contents of leaderboards and sweeps' grids, in the metrics' units at full precision."""
    return (
        json.dumps([asdict(table) for table in tables], indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    )


def csv(records: Sequence[RunRecord], campaign: str) -> str:
    """The long form: one line a value, at full precision."""
    return long_frame(records, campaign).to_csv(index=False, lineterminator="\n")


_GRID_FORMATS: dict[str, Callable[[Sequence[Grid]], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
}
FORMATS = (*_GRID_FORMATS, "json", "csv")


def render(records: Sequence[RunRecord], campaign: str, form: str, sweeps: Sequence[Manifest] = ()) -> str:
    """Render the leaderboards of these records, and the tables of sweeps over them, in one of FORMATS.

    csv is the records' values alone, which the sweeps' tables regenerate from.
    """
    if form == "csv":
        return csv(records, campaign)
    tables = leaderboards(records, campaign)
    grids = sweep_grids(sweeps, records, campaign)
    if form == "json":
        return as_json([*tables, *grids])
    return _GRID_FORMATS[form]([leaderboard_grid(table) for table in tables] + grids)


def leaderboard_grid(table: Table) -> Grid:
    """What a leaderboard prints."""
    header = ["method", "seeds", *table.tasks, "sd"]
    trains = any(row.sentences is not None for row in table.rows)
    if trains:
        header += ["sentences", "cpu s"]
    rows = []
    for row in table.rows:
        average = row.cells["avg"]
        cells: list[Cell | str] = [row.method, _seeds(row)]
        cells += [row.cells[task] for task in table.tasks if task != "avg"]
        cells += [number(average.mean), number(average.sd)]
        if trains:
            cells.append(DASH if row.sentences is None else f"{row.sentences:,}")
            cells.append(DASH if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}")
        rows.append(tuple(cells))
    title = f"{table.suite}, profile {table.profile}, campaign {table.campaign}"
    return Grid(title, tuple(header), tuple(rows), table.notes)


def _seeds(row: Row) -> str:
    finished = max(cell.n for cell in row.cells.values())
    return f"{finished} of {finished + row.failed}" if row.failed else str(finished)


def _plain(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else plus_minus(cell)


def _latex(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return latex_escape(cell)
    if cell.sd is None:
        return number(cell.mean)
    return rf"{number(cell.mean)}$_{{\pm {SCALE * cell.sd:.2f}}}$"
