"""Draw strips: a row a category, points along x."""

from __future__ import annotations

from bench.render.figure import (
    Figure,
    Series,
    bar_ends,
    clamp_value,
    clip_text,
    overflow_direction,
    robust_limits,
)
from bench.render.svg_marks import (
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    colour_class,
    draw_axes,
    draw_edge_marker,
    draw_marker,
    line_between,
    series_group,
    text_at,
    widest_text,
)

_ROW = 22
Ends = tuple[float, float]


def draw_strip(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of a strip, and their height."""
    left = min(widest_text(figure.rows, 40) + 16, 270)
    bottom = TOP + _ROW * len(figure.rows) + 6
    ends = robust_limits([value for one in figure.series for value in bar_ends(one.x, one.spread)])
    x = Axis(ends, left, WIDTH - RIGHT)
    parts = draw_axes(x, None, TOP, bottom, (figure.x, ""))
    for row, name in enumerate(figure.rows):
        y = TOP + _ROW * (row + 0.5)
        parts.append(line_between(left, y, WIDTH - RIGHT, y, "grid"))
        parts.append(text_at(left - 8, y + 4, clip_text(name, 40), "end", "tick", title=name))
    count = len(figure.series)
    for number, one in enumerate(figure.series):
        shift = (number - (count - 1) / 2) * min(5, 14 / max(count, 1)) if one.spread else 0.0
        parts.append(series_group(number, _strip_marks(figure, number, one, x, ends, shift)))
    return parts, bottom + 44


def _strip_marks(figure: Figure, number: int, one: Series, x: Axis, ends: Ends, shift: float) -> list[str]:
    """A strip's points of one series."""
    parts = []
    beyond: dict[tuple[float, int], list[float]] = {}
    for place, (value, row) in enumerate(zip(one.x, one.y, strict=True)):
        y = TOP + _ROW * (row + 0.5) + shift
        if one.spread and (spread := one.spread[place]):
            low, high = (x.at(clamp_value(value + side * spread, ends)) for side in (-1, 1))
            parts.append(line_between(low, y, high, y, f"spread {colour_class(number)}"))
        name = figure.rows[int(row)]
        label = one.labels[place] if one.labels else f"{name}, {one.name}: {value:.2f}"
        at = x.at(clamp_value(value, ends))
        if off := overflow_direction(value, ends):
            parts.append(draw_edge_marker(number, at, y, (off, 0), label))
            beyond.setdefault((y, off), []).append(value)
        else:
            parts.append(draw_marker(number, at, y, label))
    for (y, off), values in beyond.items():
        ends_text = dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values)))
        anchor = "end" if off > 0 else "start"
        at = x.at(ends[off > 0]) - 12 * off
        parts.append(text_at(at, y + 4, " to ".join(ends_text), anchor, "tick"))
    return parts
