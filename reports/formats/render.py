"""Tables as text, markdown, csv, json and LaTeX. Only renderers scale and round values."""

from __future__ import annotations

import csv as csv_module
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from io import StringIO

from pandas import DataFrame
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from bench.errors import printable
from bench.records.record import RunRecord
from bench.reports.formats import latex
from bench.reports.records import SCALE, long_frame
from bench.reports.tables.marks import BEST, CAPTION
from bench.reports.tables.sweeps import sweep_grids
from bench.reports.tables.table import Cell, Grid, Quoted, Row, Table, leaderboards
from bench.sweeps.manifest import Manifest

DASH = "-"


def number(value: float | None) -> str:
    """Scaled by 100 with two decimals, or a dash."""
    return DASH if value is None else f"{SCALE * value:.2f}"


def plus_minus(cell: Cell) -> str:
    """Mean and standard deviation of a cell, the latter only where there are several seeds, and its sign."""
    return number(cell.mean) + ("" if cell.sd is None else f"±{SCALE * cell.sd:.2f}") + cell.sign


def plain(cell: Cell | Quoted | str) -> str:
    """A cell as plain text; foreign figures in parentheses."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Quoted):
        text = f"{cell.text}{cell.sign}"
        return f"({text})" if cell.grey and cell.text != DASH else text
    return plus_minus(cell)


def markdown_escape(text: str) -> str:
    """Make any text inert in a markdown table cell; an address is no link."""
    flat = printable(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#!~$]|(?<=:)/(?=/)|(?<=www)\.)", r"\\\1", flat)


def text(grids: Sequence[Grid]) -> str:
    """Plain tables for a terminal or a log, which obeys no text in them."""
    output = StringIO()
    console = Console(
        file=output, width=10_000, color_system=None, highlight=False, markup=False, emoji=False
    )
    for grid in grids:
        console.print(_line(grid.title))
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for position, name in enumerate(grid.header):
            table.add_column(_line(name), justify="right" if position else "left", no_wrap=True)
        headings = dict(grid.groups)
        for place, row in enumerate(grid.rows):
            if place in headings:
                table.add_row(_line(headings[place]))
            table.add_row(*(_line(plain(cell)) for cell in row))
        console.print(table)
        for note in grid.notes:
            if note != CAPTION:  # nothing is bold here
                console.print(_line(note), soft_wrap=True)
        console.print()
    lines = (line.rstrip() for line in output.getvalue().rstrip().split("\n"))
    return "\n".join(_COMMAND.sub(r"\1\\x3a:", line) for line in lines) + "\n"


def _line(text: str) -> str:
    return printable(" ".join(text.split("\n")))


_COMMAND = re.compile(r"^(\s*)::")
"""How a line of a log begins that GitHub's runner takes for a command."""


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
        headings = dict(grid.groups)
        for place, row in enumerate(grid.rows):
            if place in headings:
                blank = " |" * (len(grid.header) - 1)
                lines.append(f"| *{markdown_escape(headings[place])}* |{blank}")
            lines.append("| " + " | ".join(map(_markdown, row)) + " |")
        lines += ["", *(f"- {markdown_escape(note)}" for note in grid.notes), ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def as_json(tables: Sequence[Table | Grid]) -> str:
    """The contents of leaderboards and grids, in the metrics' units at full precision."""
    found = json.dumps([asdict(table) for table in tables], indent=2, allow_nan=False, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda char: json.dumps(char[0])[1:-1], found) + "\n"


_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What JSON may hold unescaped though a terminal or a line shown would obey it."""


def csv(records: Sequence[RunRecord], campaign: str) -> str:
    """The long form: one line a value, at full precision; numbers are numbers, and no text is a formula."""
    return frame_csv(long_frame(records, campaign))


def frame_csv(frame: DataFrame) -> str:
    """A frame as csv, its texts through :func:`no_formula`."""
    texts = frame.select_dtypes(["object", "string"])
    inert = {str(name): texts[name].map(no_formula, na_action="ignore") for name in texts}
    return frame.assign(**inert).to_csv(index=False, lineterminator="\n")


def no_formula(value: object) -> object:
    """A csv cell that no spreadsheet computes: a text that would be a formula gets an apostrophe before it.

    Signed numbers and what tables print of them, such as ``-0.05``, ``+1.20*`` or ``-``, stay as they are.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(_FORMULA) or _NUMERIC.fullmatch(value):
        return value
    return f"'{value}"


_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a formula begins, in full width too."""
_NUMERIC = re.compile(r"[+-][\d.,\s\[\]\N{PLUS-MINUS SIGN}\N{DAGGER}\N{DOUBLE DAGGER}*%+-]*")


def grids_csv(grids: Sequence[Grid]) -> str:
    """Grids in long form: one line a cell; numbers in the metric's unit at full precision."""
    output = StringIO()
    writer = csv_module.writer(output, lineterminator="\n")
    writer.writerow(GRID_COLUMNS)
    for grid in grids:
        group, headings = "", dict(grid.groups)
        for place, (label, *cells) in enumerate(grid.rows):
            group = headings.get(place, group)
            for name, cell in zip(grid.header[1:], cells, strict=True):
                facts: tuple[object, ...] = ("", "", "", "", plain(cell))
                if isinstance(cell, Cell):
                    facts = (cell.mean, cell.sd, cell.n, cell.mark, cell.sign)
                writer.writerow(map(no_formula, (grid.title, group, plain(label), name, *facts)))
    return output.getvalue()


GRID_COLUMNS = ("table", "group", "row", "column", "value", "sd", "n", "mark", "text")
_GRID_FORMATS: dict[str, Callable[[Sequence[Grid]], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex.tables,
    "csv": grids_csv,
    "json": as_json,
}
FORMATS = tuple(_GRID_FORMATS)


def render_grids(grids: Sequence[Grid], form: str, *, standalone: bool = False) -> str:
    """Render grids in one of FORMATS; ``standalone`` makes LaTeX a document."""
    return latex.tables(grids, standalone=True) if standalone else _GRID_FORMATS[form](grids)


def render(
    records: Sequence[RunRecord],
    campaign: str,
    form: str,
    sweeps: Sequence[Manifest] = (),
    *,
    baseline: str | None = None,
    rounded: bool = False,
    standalone: bool = False,
) -> str:
    """Render the leaderboards of these records, and the tables of sweeps over them, in one of FORMATS.

    csv is the records' values alone, which the sweeps' tables regenerate from. ``rounded`` says that averages
    are those of rounded scores.
    """
    if form == "csv":
        return csv(records, campaign)
    tables = leaderboards(records, campaign, baseline, rounded=rounded)
    grids = sweep_grids(sweeps, records, campaign)
    if form == "json":
        return as_json([*tables, *grids])
    return render_grids([leaderboard_grid(table) for table in tables] + grids, form, standalone=standalone)


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
        cells += [replace(average, sd=None), number(average.sd)]
        if trains:
            cells.append(DASH if row.sentences is None else f"{row.sentences:,}")
            cells.append(DASH if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}")
        rows.append(tuple(cells))
    title = f"{table.suite}, profile {table.profile}, campaign {table.campaign}"
    marked = any(cell.mark for row in table.rows for cell in row.cells.values())
    notes = (*table.notes[:1], CAPTION, *table.notes[1:]) if marked else table.notes
    return Grid(title, tuple(header), tuple(rows), notes)


def _seeds(row: Row) -> str:
    finished = max(cell.n for cell in row.cells.values())
    return f"{finished} of {finished + row.failed}" if row.failed else str(finished)


def _markdown(cell: Cell | Quoted | str) -> str:
    """A cell: best bold, second underlined, foreign figures in parentheses."""
    if not isinstance(cell, Cell) or not cell.mark:
        return markdown_escape(plain(cell))
    value = number(cell.mean)
    text = f"**{value}**" if cell.mark == BEST else f"<u>{value}</u>"
    return text + markdown_escape(plus_minus(cell).removeprefix(value))
