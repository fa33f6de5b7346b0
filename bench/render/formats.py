"""Render tables as text, markdown, CSV, JSON and LaTeX, with chosen columns and for a screen's width."""

from __future__ import annotations

import csv as csv_module
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bench.errors import InputError, not_one_of, printable
from bench.render import latex
from bench.render.grid import (
    BEST,
    SECOND,
    Grid,
    Printed,
    Quoted,
    ScoreCell,
    Value,
    format_score,
    plain_text,
    plus_minus,
    shorten_names,
)

if TYPE_CHECKING:
    from pandas import DataFrame

_WHERE = "--columns"


def parse_columns(text: str | None) -> tuple[str, ...]:
    """Return the names of ``--columns``; raises InputError for an empty or repeated one."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    keys = list(map(_column_key, names))
    for name, key in zip(names, keys, strict=True):
        if not key or keys.count(key) > 1:
            what = f"'{name}' is listed twice" if key else "a column without a name"
            raise InputError(what, where=_WHERE, expected="names with commas between them: avg,STS-B,seeds")
    return names


def _column_key(name: str) -> str:
    """Lower-case letters and digits, so that STS-B is STSB and avg is Avg."""
    return "".join(filter(str.isalnum, name.lower()))


def column_positions(header: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the places of columns with these names, in their order; unknown names are skipped."""
    keys = list(map(_column_key, header))
    return [keys.index(key) for key in map(_column_key, names) if key in keys]


def pick_columns(grid: Grid, columns: Sequence[int]) -> Grid:
    """Return a table of only these columns, numbered from 0."""
    header = tuple(grid.header[place] for place in columns)
    rows = tuple(tuple(row[place] for place in columns) for row in grid.rows)
    return replace(grid, header=header, rows=rows)


def select_columns(grids: Sequence[Grid], names: Sequence[str]) -> list[Grid]:
    """Return the tables that have some of these columns (all for an empty list), with their rows' names.

    Raises InputError for a column that all tables lack.
    """
    if not names:
        return list(grids)
    check_columns(names, list(chain.from_iterable(grid.header for grid in grids)))
    selected = []
    for grid in grids:
        if columns := column_positions(grid.header, names):
            selected.append(pick_columns(grid, [0, *filter(None, columns)]))
    return selected


def check_columns(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for an unknown name, with the known ones."""
    for name in names:
        if _column_key(name) not in map(_column_key, known):
            raise not_one_of(f"no column '{name}'", name, dict.fromkeys(known), where=_WHERE)


_AVERAGE = ("avg", "avg.")


def fit_width(grid: Grid, width: int, wide: Callable[[Grid], int]) -> tuple[list[Grid], list[str]]:
    """Return the parts of a table that fit a width, and the notes on them.

    Every part has the names of the rows, the average if there is one, and at least one column more, however
    wide. ``wide`` measures the characters of a table's lines.
    """
    if wide(grid) <= width:
        return [grid], []
    notes, rows = [], list[tuple[Value, ...]]()
    for row in grid.rows:
        cells = list(row)
        for place, cell in enumerate(row):
            if isinstance(cell, ScoreCell) and cell.spread is not None:
                cells[place] = replace(cell, sd=None)
        rows.append(tuple(cells))
    bare = replace(grid, rows=tuple(rows))
    if bare != grid:
        notes.append(f"Standard deviations of the columns are left out: they don't fit {width} characters.")
    return _split_columns(bare, width, wide), notes


def _split_columns(grid: Grid, width: int, wide: Callable[[Grid], int]) -> list[Grid]:
    columns = list(range(1, len(grid.header)))
    average = [place for place in columns if grid.header[place].lower() in _AVERAGE][:1]
    if wide(grid) <= width:
        return [grid]
    parts: list[Grid] = []
    current: list[int] = []
    for place in columns:
        if place in average:
            continue
        extended = pick_columns(grid, [0, *sorted([*current, place, *average])])
        if not current or wide(extended) > width:
            current = []
            extended = pick_columns(grid, [0, *sorted([place, *average])])
            parts.append(extended)
        current.append(place)
        parts[-1] = extended
    return parts or [grid]


def markdown_escape(text: str) -> str:
    """Escape a text for a markdown table cell, so that an address stays text."""
    flat = printable(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#!~$]|(?<=:)/(?=/)|(?<=www)\.)", r"\\\1", flat)


@dataclass(frozen=True)
class Screen:
    """The screen of text tables: its width and height, if limited, and True for styles (see NO_COLOR)."""

    width: int | None = None
    styled: bool = False
    height: int | None = None


FILE = Screen()
"""A file, a pipe or a log: whole, unstyled tables."""


def render_text(grids: Sequence[Grid], screen: Screen = FILE) -> str:
    """Return tables for a terminal, a file or a log, with inert texts; long names lose their middle."""
    output = StringIO()
    console = _open_console(output, screen)
    for grid in grids:
        parts: Sequence[Grid] = [grid]
        notes: Sequence[str] = ()
        if screen.width is not None:
            parts, notes = fit_width(grid, screen.width, partial(_table_width, console, _name_width(screen)))
        console.print(_single_line(grid.title), width=screen.width)
        for part in parts:
            console.print(_rich_table(part, _name_width(screen)))
        for note in (*grid.notes, *notes):
            if screen.styled or not note.startswith("Bold:"):  # files have no bold text
                console.print(_single_line(note), width=screen.width, soft_wrap=screen.width is None)
        console.print()
    lines = map(str.rstrip, output.getvalue().rstrip().split("\n"))
    return "\n".join(_COMMAND.sub(r"\1\\x3a:", line) for line in lines) + "\n"


def _open_console(output: StringIO, screen: Screen) -> Console:
    """Return a console that writes texts as they are."""
    inert: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    colours: dict[str, Any] = {"force_terminal": True} if screen.styled else {"color_system": None}
    elsewhere: dict[str, Any] = {
        "legacy_windows": False,
        "force_jupyter": False,
    }  # else a notebook's cell gets the text
    return Console(file=output, width=_ENDLESS, **elsewhere, **inert, **colours)


_COLOURS = {"ahead": "green", "behind": "red"}
"""Words of answers that a terminal colours."""
_COLOURED = (
    (r"\b[1-9]\d* ahead\b|\bis ahead\b|^PASSED\b|^UPDATED\b", "green"),
    (r"\b[1-9]\d* behind\b|^(FAILED|NOT COMPARABLE|UNVERIFIED)\b", "red"),
)


def style_words(line: str, screen: Screen) -> str:
    """Return a line of an answer, on a terminal with its verdict's words in colour."""
    if not screen.styled:
        return line
    text, output = Text(line), StringIO()
    for pattern, colour in _COLOURED:
        text.highlight_regex(pattern, colour)
    _open_console(output, screen).print(text, soft_wrap=True, end="")
    return output.getvalue()


def fit_columns(grid: Grid, screen: Screen, order: Sequence[Sequence[str]]) -> Grid:
    """Return the columns of a table that fit a screen's width, in the table's order.

    Args:
        order: Groups of columns, the most needed first. The first is kept in any case, and the next ones as
            far as they fit, each as a whole. Other columns are left out.
    """
    console, chosen = _open_console(StringIO(), screen), set[str]()
    for place, names in enumerate(order):
        tried = pick_columns(grid, [n for n, name in enumerate(grid.header) if name in {*chosen, *names}])
        wide = _table_width(console, _name_width(screen), tried)
        if place == 0 or screen.width is None or wide <= screen.width:
            chosen.update(names)
    return pick_columns(grid, [n for n, name in enumerate(grid.header) if name in chosen])


def _name_width(screen: Screen) -> int:
    """Characters of a name: at most half of a screen."""
    return WIDEST if screen.width is None else max(_SHORTEST, min(WIDEST, screen.width // 2))


def _table_width(console: Console, longest: int, grid: Grid) -> int:
    """Characters of a table's lines, up to the blank at their end."""
    return console.measure(_rich_table(grid, longest)).maximum - 1


def _rich_table(grid: Grid, longest: int) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    headings = (heading for heading, _ in grid.lines if heading is not None)
    texts = map(plain_text, chain.from_iterable(grid.rows))
    short = shorten_names([*grid.header, *headings, *texts], longest)
    for position, name in enumerate(grid.header):
        table.add_column(short[name], justify="right" if position else "left", no_wrap=True)
    for heading, row in grid.lines:
        if heading is not None:
            table.add_row(Text(short[heading], "italic"))
        table.add_row(*(_style_cell(cell, short[plain_text(cell)]) for cell in row))
    return table


def _style_cell(cell: Value, shown: str) -> Text:
    """A styled cell: best bold, second underlined, foreign figures dim, answers coloured."""
    text = Text(shown)
    if isinstance(cell, str) and cell in _COLOURS:
        text.stylize(_COLOURS[cell])
    if isinstance(cell, Quoted) and cell.grey:
        text.stylize("dim")
    if isinstance(cell, ScoreCell) and cell.mark:
        text.stylize({BEST: "bold", SECOND: "underline"}[cell.mark], 0, len(format_score(cell.mean)))
    return text


_ENDLESS, _SHORTEST = 10_000, 12
WIDEST = 80
"""Characters of a name in a text table."""


def _single_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))


_COMMAND = re.compile(r"^(\s*)::")
"""Beginning of a log line that GitHub's runner takes for a command."""


def render_markdown(grids: Sequence[Grid]) -> str:
    """Return GitHub tables."""
    parts = []
    for grid in grids:
        lines = [
            f"### {markdown_escape(grid.title)}",
            "",
            "| " + " | ".join(map(markdown_escape, grid.header)) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(grid.header) - 1)) + "|",
        ]
        for heading, row in grid.lines:
            if heading is not None:
                lines.append(f"| *{markdown_escape(heading)}* |{' |' * (len(grid.header) - 1)}")
            lines.append("| " + " | ".join(map(_markdown_cell, row)) + " |")
        lines += ["", *(f"- {markdown_escape(note)}" for note in grid.notes), ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def render_json(tables: Sequence[Any]) -> str:
    """Return grids, or other tables of data classes, as JSON: in the metrics' units at full precision."""
    text = json.dumps(list(map(asdict, tables)), indent=2, allow_nan=False, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda char: json.dumps(char[0])[1:-1], text) + "\n"


_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that JSON leaves unescaped and terminals obey."""


def frame_csv(frame: DataFrame) -> str:
    """Return a frame as csv, its texts through :func:`csv_cell`."""
    texts = frame.select_dtypes(["object", "string"])
    inert = {str(name): texts[name].map(csv_cell, na_action="ignore") for name in texts}
    return frame.assign(**inert).to_csv(index=False, lineterminator="\n")


def csv_cell(value: object) -> object:
    """Return a csv cell that terminals and spreadsheets take as text."""
    return quote_formula(printable(value)) if isinstance(value, str) else value


def quote_formula(value: object) -> object:
    """Return a csv cell with an apostrophe before a text that spreadsheets take for a formula.

    Signed numbers and their printed forms, such as ``-0.05``, ``+1.20*`` or ``-``, stay as they are.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(_FORMULA) or _NUMERIC.fullmatch(value):
        return value
    return f"'{value}"


_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of formulas, also in full width."""
_NUMBER = r"[+-]\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?"
_NUMERIC = re.compile(
    rf"-|{_NUMBER}(?:\N{{PLUS-MINUS SIGN}}\d+\.\d+)?[*?%\N{{DAGGER}}\N{{DOUBLE DAGGER}}]*"
    rf"(?: \[{_NUMBER}, {_NUMBER}\])?"
)


def grids_csv(grids: Sequence[Grid]) -> str:
    """Return grids in long form: one line a cell; numbers in the metric's unit at full precision.

    ``line`` is the row's number in its table, as several rows may have one name.
    """
    output = StringIO()
    writer = csv_module.writer(output, lineterminator="\n")
    writer.writerow(GRID_COLUMNS)
    for grid in grids:
        group = ""
        for line, (heading, (label, *cells)) in enumerate(grid.lines, start=1):
            group = heading or group
            for name, cell in zip(grid.header[1:], cells, strict=True):
                facts = (grid.title, group, line, plain_text(label), name, *_cell_facts(cell))
                writer.writerow(map(csv_cell, facts))
    return output.getvalue()


def _cell_facts(cell: Value) -> tuple[object, ...]:
    """A cell's columns from its value on."""
    if isinstance(cell, ScoreCell):
        return cell.mean, cell.sd, cell.n, cell.mark, cell.sign
    return cell.value if isinstance(cell, Printed) else "", "", "", "", plain_text(cell)


GRID_COLUMNS = ("table", "group", "line", "row", "column", "value", "sd", "n", "mark", "text")
_GRID_FORMATS: dict[str, Callable[[Sequence[Grid]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "latex": latex.latex_tables,
    "csv": grids_csv,
    "json": render_json,
}
FORMATS = tuple(_GRID_FORMATS)


def render_grids(grids: Sequence[Grid], form: str, *, standalone: bool = False, screen: Screen = FILE) -> str:
    """Render grids in one of FORMATS; ``standalone`` makes LaTeX a document, ``screen`` is for text."""
    if form == "text":
        return render_text(grids, screen)
    return latex.latex_tables(grids, standalone=True) if standalone else _GRID_FORMATS[form](grids)


def _markdown_cell(cell: Value) -> str:
    """A cell: best bold, second underlined, foreign figures in parentheses."""
    if not isinstance(cell, ScoreCell) or not cell.mark:
        return markdown_escape(plain_text(cell))
    value = format_score(cell.mean)
    text = f"**{value}**" if cell.mark == BEST else f"<u>{value}</u>"
    return text + markdown_escape(plus_minus(cell).removeprefix(value))
