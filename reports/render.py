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
from bench.reports.table import SCALE, Cell, Row, Table, leaderboards, long_frame

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


def text(tables: Sequence[Table]) -> str:
    """Plain tables for a terminal or a log."""
    output = StringIO()
    console = Console(
        file=output, width=10_000, color_system=None, highlight=False, markup=False, emoji=False
    )
    for table in tables:
        console.print(title(table))
        rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for position, name in enumerate(_header(table)):
            rich_table.add_column(name, justify="right" if position else "left", no_wrap=True)
        for row in table.rows:
            rich_table.add_row(*_cells(row, table, plus_minus))
        console.print(rich_table)
        for note in table.notes:
            console.print(note, soft_wrap=True)
        console.print()
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip().split("\n")) + "\n"


def markdown(tables: Sequence[Table]) -> str:
    """GitHub tables."""
    parts = []
    for table in tables:
        header = _header(table)
        lines = [
            f"### {markdown_escape(title(table))}",
            "",
            "| " + " | ".join(map(markdown_escape, header)) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|",
        ]
        lines += [
            "| " + " | ".join(map(markdown_escape, _cells(row, table, plus_minus))) + " |"
            for row in table.rows
        ]
        lines += ["", *(f"- {markdown_escape(note)}" for note in table.notes), ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def latex(tables: Sequence[Table]) -> str:
    """Tables with booktabs; standard deviations stand as subscripts."""
    parts = []
    for table in tables:
        header = _header(table)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_escape(title(table))}. {latex_escape(' '.join(table.notes))}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            " & ".join(map(latex_escape, header)) + r" \\",
            r"\midrule",
        ]
        for row in table.rows:
            method, *cells = _cells(row, table, _latex_cell)
            lines.append(" & ".join([latex_escape(method), *cells]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def as_json(tables: Sequence[Table]) -> str:
    """The tables' contents, in the metrics' units at full precision."""
    return (
        json.dumps([asdict(table) for table in tables], indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    )


def csv(records: Sequence[RunRecord], campaign: str) -> str:
    """The long form: one line a value, at full precision."""
    return long_frame(records, campaign).to_csv(index=False, lineterminator="\n")


_TABLE_FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "text": text,
    "markdown": markdown,
    "json": as_json,
    "latex": latex,
}
FORMATS = (*_TABLE_FORMATS, "csv")


def render(records: Sequence[RunRecord], campaign: str, form: str) -> str:
    """Render the leaderboards of these records in one of FORMATS."""
    if form == "csv":
        return csv(records, campaign)
    return _TABLE_FORMATS[form](leaderboards(records, campaign))


def title(table: Table) -> str:
    """What a table shows, for its head."""
    return f"{table.suite}, profile {table.profile}, campaign {table.campaign}"


def _header(table: Table) -> list[str]:
    return ["method", "seeds", *table.tasks, "sd", *(("sentences", "cpu s") if _trains(table) else ())]


def _trains(table: Table) -> bool:
    return any(row.sentences is not None for row in table.rows)


def _cells(row: Row, table: Table, form: Callable[[Cell], str]) -> list[str]:
    tasks = [form(row.cells[task]) for task in table.tasks if task != "avg"]
    average = row.cells["avg"]
    cells = [row.method, _seeds(row), *tasks, number(average.mean), number(average.sd)]
    if _trains(table):
        cells.append(DASH if row.sentences is None else f"{row.sentences:,}")
        cells.append(DASH if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}")
    return cells


def _seeds(row: Row) -> str:
    finished = max(cell.n for cell in row.cells.values())
    return f"{finished} of {finished + row.failed}" if row.failed else str(finished)


def _latex_cell(cell: Cell) -> str:
    if cell.sd is None:
        return number(cell.mean)
    return rf"{number(cell.mean)}$_{{\pm {SCALE * cell.sd:.2f}}}$"
