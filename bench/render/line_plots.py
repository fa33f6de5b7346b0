"""Draw lines as parts of an ``<svg>``: in one plot with names at their ends, or a panel each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.render.axis_limits import (
    clamp_value,
    farthest_overflows,
    line_limits,
    overflow_direction,
    robust_limits,
)
from bench.render.figure import MOST_LINES, Figure, Series, clip_text, line_extent
from bench.render.svg_marks import (
    WIDTH,
    Axis,
    colour_class,
    dash_attribute,
    draw_edge_marker,
    draw_marker,
    escape_markup,
    line_between,
    series_group,
    text_at,
)

Ends = tuple[float, float]
_MARKED = 12  # points of a line that has a marker at each
_LETTER, _LEAST = 6.2, 13.0  # width of a letter, and distance, of the names at the ends of the lines
_COLUMNS, _LEFT, _GAP, _HIGH, _ROW = 4, 44, 40, 72, 112


def draw_line(number: int, one: Series, x: Axis, y: Axis, ends: Ends, most: int = _MARKED) -> list[str]:
    """Return a line, its band, its bars, and a marker at each of its points if they are at most ``most``.

    ``number`` is the series', for colour and dash; beyond ``ends`` of the y axis, a line runs along the edge.
    """
    at = [(x.at(a), y.at(clamp_value(b, ends))) for a, b in zip(one.x, one.y, strict=True)]
    parts, colour = [], colour_class(number)
    if any(low < high for low, high in one.band):
        corners: list[list[str]] = [[], []]
        for (a, _), band in zip(at, one.band, strict=True):
            for side, value in zip(corners, band, strict=True):
                side.append(f"{a:.1f} {y.at(clamp_value(value, ends)):.1f}")
        outline = "L".join([*corners[1], *reversed(corners[0])])
        parts.append(f'<path d="M{outline}z" class="range {colour}"/>')
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
    name = f"<title>{escape_markup(one.name)}</title>"
    parts.append(f'<path d="M{path}" class="line {colour}"{dash_attribute(number)}>{name}</path>')
    for (a, _), value, spread in zip(at, one.y, one.spread, strict=False):
        if spread:
            low, high = (y.at(clamp_value(value + side * spread, ends)) for side in (-1, 1))
            parts.append(line_between(a, low, a, high, f"spread {colour}"))
    return [*parts, *_line_markers(number, one, at, ends, marked=len(at) <= most)]


def _line_markers(number: int, one: Series, at: Sequence[Ends], ends: Ends, *, marked: bool) -> Iterator[str]:
    """The points of a line, and a triangle at the farthest point of every stretch beyond the axis."""
    labels, far = one.labels or (one.name,) * len(at), farthest_overflows(one.y, ends)
    for place, ((a, b), label) in enumerate(zip(at, labels, strict=True)):
        direction = overflow_direction(one.y[place], ends)
        title = f"{label}: {one.x[place]:.4g}, {one.y[place]:.4g}"
        if place in far:
            yield draw_edge_marker(number, a, b, (0, -direction), title)
        elif marked and not direction:
            yield draw_marker(number, a, b, title)


def axes_attributes(x: Axis, y: Axis) -> str:
    """Return attributes by which the page's script reads values under the pointer."""
    return f' data-x="{x.said}" data-y="{y.said}"'


def end_name_width(series: Sequence[Series]) -> float:
    """Return the width of the names at the ends of lines; a single line has none."""
    if len(series) < 2:
        return 0.0
    return _LETTER * max(len(clip_text(one.name, 24)) for one in series) + 16


def can_label_ends(series: Sequence[Series], y: Axis, ends: Ends) -> bool:
    """Return True if the lines end far enough apart for names beside their ends."""
    if not 1 < len(series) <= MOST_LINES or not all(one.y for one in series):
        return False
    tops = [y.at(clamp_value(one.y[-1], ends)) for one in series]
    return max(tops) - min(tops) >= _LEAST * (len(series) - 1) / 2


def draw_end_names(series: Sequence[Series], x: Axis, y: Axis, ends: Ends, bottom: float) -> list[list[str]]:
    """Return each line's name to the right of the plot, near its end's height, as its series' parts."""
    last = [(x.at(one.x[-1]), y.at(clamp_value(one.y[-1], ends))) for one in series]
    order = sorted(range(len(series)), key=lambda i: (last[i][1], i))
    tops = space_labels([last[i][1] for i in order], _LEAST, y.end, bottom)
    parts: list[list[str]] = [[] for _ in series]
    for i, top in zip(order, tops, strict=True):
        (a, b), name, colour = last[i], series[i].name, colour_class(i)
        text = text_at(x.end + 9, top + 4, clip_text(name, 24), "start", f"name {colour}", title=name)
        parts[i] = [line_between(a + 3, b, x.end + 6, top, f"leader {colour}"), text]
    return parts


def space_labels(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Return places from ``low`` to ``high`` near the rising wanted ones, ``least`` apart as far as possible.

    >>> space_labels([10, 11, 50], 5, 0, 100)
    [10, 15, 50]
    >>> space_labels([98, 99], 5, 0, 100)
    [95, 100]
    """
    least = min(least, (high - low) / max(len(wanted) - 1, 1))
    places: list[float] = []
    lowest = low
    for place in wanted:
        places.append(max(place, lowest))
        lowest = places[-1] + least
    highest = high
    for i in reversed(range(len(places))):
        places[i] = min(places[i], highest)
        highest = places[i] - least
    return places


def draw_line_panels(figure: Figure) -> tuple[list[str], float]:
    """Return a panel a line, on shared axes unless each has its own, and the height."""
    count = math.ceil(len(figure.series) / _COLUMNS)
    wide = (WIDTH - _LEFT - 8 - (_COLUMNS - 1) * _GAP) / _COLUMNS
    all_x = figure.all_x
    shared = line_limits(list(map(line_extent, figure.series)))
    parts = []
    for number, one in enumerate(figure.series):
        row, column = divmod(number, _COLUMNS)
        left, top = _LEFT + column * (wide + _GAP), 20 + row * _ROW
        ends = robust_limits(line_extent(one)) if figure.own else shared
        x = Axis(one.x if figure.own else all_x, left, left + wide, margin=0.04)
        y = Axis(ends, top + _HIGH, top, margin=0.08)
        parts.append(_draw_panel(number, one, x, y, ends))
    bottom = 20 + count * _ROW
    parts.append(text_at(WIDTH / 2, bottom + 8, f"{figure.x}; up: {figure.y}", "middle", "label"))
    return parts, bottom + 18


def _draw_panel(number: int, one: Series, x: Axis, y: Axis, ends: Ends) -> str:
    bottom = y.start
    parts = [text_at(x.start, y.end - 5, clip_text(one.name, 22), "start", "name", title=one.name)]
    for tick in y.ticks(3):
        parts.append(line_between(x.start, y.at(tick), x.end, y.at(tick), "grid"))
        parts.append(text_at(x.start - 4, y.at(tick) + 4, f"{tick:g}", "end", "tick"))
    parts.append(line_between(x.start, bottom, x.end, bottom, "axis"))
    for tick in (t for t in x.ticks(3) if x.start <= x.at(t) <= x.end):
        parts.append(line_between(x.at(tick), bottom, x.at(tick), bottom + 3, "axis"))
        parts.append(text_at(x.at(tick), bottom + 14, f"{tick:g}", "middle", "tick"))
    return series_group(number, [*parts, *draw_line(0, one, x, y, ends, most=1)], axes_attributes(x, y))
