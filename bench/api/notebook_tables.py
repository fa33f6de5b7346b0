"""Tables of a notebook, with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.errors import printable
from bench.render.grid import BEST, Grid, ScoreCell, Value, plain_text


def render_html(grids: Sequence[Grid], lines: Sequence[str] = ()) -> str:
    """Return lines and tables, the best of a column in bold.

    >>> render_html([Grid("scores", ("method", "avg"), (("a<b", "1.00"),), ())])[:46]
    '<table><caption>scores</caption><tr><th>method'
    """
    return "".join([*(f"<p>{escape(printable(line))}</p>" for line in lines), *map(_render_table, grids)])


def _render_table(grid: Grid) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in grid.header)
    rows = "".join(f"<tr>{''.join(map(_render_cell, row))}</tr>" for row in grid.rows)
    caption = f"<caption>{escape(printable(grid.title))}</caption>" * bool(grid.title)
    return f"<table>{caption}<tr>{header}</tr>{rows}</table>"


def _render_cell(cell: Value) -> str:
    text = escape(printable(plain_text(cell)))
    if isinstance(cell, ScoreCell) and cell.mark == BEST:
        text = f"<b>{text}</b>"
    return f"<td>{text}</td>"
