"""Cells of a forest plot: a strip of seeds and an interval a row, drawn on shared axes.

A cell is an ``<svg>`` with places in percent, so that a page and a file draw the same cell at any width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.render.critical_difference import rank_ticks
from bench.render.figure import CellAxis, Figure, clip_text, overflow_direction
from bench.render.svg_marks import Axis, escape_markup, text_at

MIDDLE = 11
"""Vertical place of a cell's marks, in pixels of its height of 22."""
SEED = f'<circle id="seed" class="seed" cy="{MIDDLE}" r="2.6"/>'
"""The dot of a seed, which a page or file defines once."""
FENCE = 1.2
"""Widths of the middle half of the estimates; those that lie further beyond it stand at the edge."""
_MOST_TICKS = 5


def make_cell_axis(
    estimates: Sequence[float], ends: Sequence[tuple[float, float]] = (), always: Sequence[float] = ()
) -> CellAxis:
    """Return an axis for estimates, their intervals' ends, and the places that it always shows.

    Estimates far from the others stand at the edge, so that a collapsed row doesn't squeeze the others.

    >>> axis = make_cell_axis([-1.0, 2.0], always=[0.0])
    >>> axis.ends, axis.place(0.0), axis.ticks
    ((-1.0, 2.0), 34.8, (-1.0, 0.0, 1.0, 2.0))
    >>> make_cell_axis([0.0, 0.1, 0.2, 0.3, -30.0]).ends
    (0.0, 0.3)
    """
    lower, upper = (float(end) for end in np.quantile(estimates, (0.25, 0.75))) if estimates else (0.0, 1.0)
    room = FENCE * (upper - lower)
    inside = [value for value in estimates if lower - room <= value <= upper + room] or [0.0, 1.0]
    shown = [*inside, *always]
    for (low, high), value in zip(ends, estimates, strict=bool(ends)):
        if value in inside:
            shown += [max(low, lower - room), min(high, upper + room)]
    axis = Axis(shown, 0.0, 100.0, margin=0.05)
    return CellAxis((min(shown), max(shown)), axis.low, axis.high, tuple(axis.ticks(_MOST_TICKS)))


def make_rank_axis(last: int) -> CellAxis:
    """Return an axis of ranks from 1 to the last, with half a rank beyond each.

    >>> axis = make_rank_axis(3)
    >>> axis.ends, axis.place(2), axis.ticks
    ((0.5, 3.5), 50.0, (1.0, 2.0, 3.0))
    """
    ends = 0.5, last + 0.5
    return CellAxis(ends, *ends, tuple(map(float, rank_ticks(last))))


def draw_grid(axis: CellAxis, name: str, band: tuple[float, float] | None = None) -> str:
    """Return the grid lines of an axis as a group that cells use by its id; ``band`` shades equality."""
    parts = []
    if band is not None:
        left, right = axis.place(band[0]), axis.place(band[1])
        parts.append(
            f'<rect class="axis-band" x="{left}%" y="0" width="{round(right - left, 1)}%" height="100%"/>'
        )
    for tick in axis.ticks:
        style = "axis-zero" if tick == 0 else "axis-line"
        x = axis.place_tick(tick)
        parts.append(f'<line class="{style}" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>')
    return f'<g id="{escape_markup(name)}">{"".join(parts)}</g>'


def draw_ticks(axis: CellAxis, *, sign: bool) -> str:
    """Return the tick labels of an axis; ``sign`` writes a plus before positive values."""
    parts = []
    for tick in axis.ticks:
        text = f"{tick:+g}" if sign and tick else f"{tick:g}"
        parts.append(
            f'<text class="tick" x="{axis.place_tick(tick)}%" y="12" text-anchor="middle">{text}</text>'
        )
    return "".join(parts)


def draw_seeds(values: Sequence[float], axis: CellAxis) -> str:
    """Return a dot a seed (a use of SEED), and an arrow at the edge for all seeds beyond it."""
    ways = [overflow_direction(value, axis.ends) for value in values]
    parts = []
    for value, way in zip(values, ways, strict=True):
        if not way:
            parts.append(f'<use href="#seed" x="{axis.place(value)}%"/>')
    for way, end in zip((-1, 1), axis.ends, strict=True):
        if way in ways:
            parts.append(_draw_arrow(axis.place(end), way))
    return "".join(parts)


def _draw_arrow(place: float, way: int) -> str:
    arrow = "◂" if way < 0 else "▸"
    return f'<text class="far" x="{place}%" y="15" text-anchor="middle">{arrow}</text>'


def draw_interval(difference: float, interval: tuple[float, float] | None, axis: CellAxis) -> str:
    """Return an interval with its estimate; what lies beyond the axis ends in an arrow at the edge."""
    parts = []
    if interval is not None:
        low, high = map(axis.place, interval)
        parts.append(f'<line class="ci" x1="{low}%" x2="{high}%" y1="{MIDDLE}" y2="{MIDDLE}"/>')
        ways = {overflow_direction(end, axis.ends) for end in interval} - {0}
        parts += [_draw_arrow(axis.place(axis.ends[way > 0]), way) for way in sorted(ways)]
    x = axis.place(difference)
    if way := overflow_direction(difference, axis.ends):
        parts += [_draw_arrow(x, way)] * (interval is None)
    else:
        parts.append(f'<circle class="estimate" cx="{x}%" cy="{MIDDLE}" r="3.6"/>')
    return "".join(parts)


def draw_ranks(ranks: tuple[int, int], axis: CellAxis) -> str:
    """Return a bar from the first to the last rank of a confidence set."""
    first, last = axis.place(ranks[0] - 0.4), axis.place(ranks[1] + 0.4)
    return f'<line class="ci" x1="{first}%" x2="{last}%" y1="{MIDDLE}" y2="{MIDDLE}"/>'


_ROW, _HEAD = 17, 34
_COLUMNS: Mapping[str, tuple[float, float]] = {"seeds": (190.0, 150.0), "differences": (352.0, 220.0)}
"""Left end and width of the columns that have an axis."""
_AVERAGE, _ANSWER = 182.0, 582.0
_LONGEST_NAME = 24


def draw_forest(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of a forest plot and its height, from the cells that a page has."""
    plot = figure.forest
    if plot is None:
        raise ValueError(f"{figure.name} is of kind forest and lacks its plot")
    height = _HEAD + _ROW * len(plot.lines) + 6
    parts = [f"<defs>{SEED}</defs>"]
    axes = {"seeds": plot.seeds, "differences": plot.differences}
    headings = {"seeds": plot.dots, "differences": plot.heading}
    for name, (left, width) in _COLUMNS.items():
        sign = name == "differences"
        grid = draw_grid(axes[name], f"{figure.name}-{name}", plot.band if sign else None)
        parts.append(text_at(left + width / 2, 12, headings[name], "middle", "name"))
        parts.append(_nest(left, 16, width, 16, draw_ticks(axes[name], sign=sign)))
        parts.append(_nest(left, _HEAD, width, height - _HEAD, grid))
    parts.append(text_at(_AVERAGE, 12, "avg", "end", "name"))
    for number, line in enumerate(plot.lines):
        top = _HEAD + _ROW * number
        base = top + 12
        name = clip_text(line.name, _LONGEST_NAME)
        parts.append(text_at(4, base, name, "start", "name", title=line.name))
        parts.append(text_at(_AVERAGE, base, line.average, "end", "name"))
        cells = [_nest(*_place("seeds", top), draw_seeds(line.seeds, plot.seeds))]
        if line.estimate is not None:
            bar = draw_interval(line.estimate, line.interval, plot.differences)
            cells.append(_nest(*_place("differences", top), bar))
        words = text_at(_ANSWER, base, line.answer, "start", "name own")
        parts.append(f'<g class="{line.style}">{"".join(cells)}{words}</g>')
    return parts, height


def _place(column: str, top: float) -> tuple[float, float, float, float]:
    left, width = _COLUMNS[column]
    return left, top - (MIDDLE - _ROW / 2), width, 2 * MIDDLE


def _nest(x: float, y: float, width: float, height: float, content: str) -> str:
    """An inner drawing, whose percentages are of its own size."""
    return (
        f'<svg x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" overflow="visible">{content}</svg>'
    )
