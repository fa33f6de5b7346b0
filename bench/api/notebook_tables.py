"""Tables of a notebook, with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.errors import printable
from bench.render.grid import BEST, Grid, ScoreCell, Value, plain_text
from bench.render.short_text import SYNTHETIC, is_required, merge_synthetic_notes

_MARKS = ("¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹")
"""Beginnings of footnotes on names."""


def render_html(grids: Sequence[Grid], lines: Sequence[str] = ()) -> str:
    """Return lines and tables, the best of a column in bold; notes fold, but for what a reader must know.

    >>> render_html([Grid("scores", ("method", "avg"), (("a<b", "1.00"),), ())])[:46]
    '<table><caption>scores</caption><tr><th>method'
    """
    return "".join([*(f"<p>{escape(printable(line))}</p>" for line in lines), *map(_render_table, grids)])


def _render_table(grid: Grid) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in grid.header)
    rows = "".join(f"<tr>{''.join(map(_render_cell, row))}</tr>" for row in grid.rows)
    caption = f"<caption>{escape(printable(grid.title))}</caption>" * bool(grid.title)
    return f"<table>{caption}<tr>{header}</tr>{rows}</table>{_render_notes(grid.notes)}"


def _render_notes(notes: Sequence[str]) -> str:
    """Return the notes that stay visible, and a fold with the others."""
    notes = merge_synthetic_notes(notes)
    shown = [note for note in notes if note == SYNTHETIC or note[:1] in _MARKS or is_required(note)]
    folded = [note for note in notes if note not in shown]
    lines = "".join(f"<p>{escape(printable(note))}</p>" for note in shown)
    if folded:
        inner = "".join(f"<p>{escape(printable(note))}</p>" for note in folded)
        lines += f"<details><summary>{len(folded)} more notes</summary>{inner}</details>"
    return lines


def _render_cell(cell: Value) -> str:
    text = escape(printable(plain_text(cell)))
    if isinstance(cell, ScoreCell) and cell.mark == BEST:
        text = f"<b>{text}</b>"
    return f"<td>{text}</td>"
