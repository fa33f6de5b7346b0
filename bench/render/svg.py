"""Draw figures as inline SVG, with colours by class from the style sheet, for both themes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from bench.render.critical_difference import draw_ranking
from bench.render.figure import (
    MOST_LINES,
    Figure,
    Series,
    bar_ends,
    clamp_value,
    clip_text,
    farthest_overflows,
    line_extent,
    line_limits,
    overflow_direction,
    robust_limits,
)
from bench.render.heat_maps import draw_heat_map
from bench.render.svg_marks import (
    WIDTH,
    Axis,
    colour_class,
    dash_attribute,
    draw_edge_marker,
    draw_marker,
    escape_markup,
    legend_mark,
    line_between,
    series_group,
    text_at,
    upright_label,
)

_ROW = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 46
_HEIGHT = 340


def draw_svg(figure: Figure) -> str:
    """Return one ``<svg>`` element of a page, with escaped texts."""
    body, height = draw_body(figure)
    label = escape_markup(describe_figure(figure))
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}" '
        f'class="figure-{figure.kind}">{"".join(body)}</svg>'
    )


def draw_body(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of a figure without its title and its legend, and their height."""
    return _KINDS[figure.kind](figure)


def describe_figure(figure: Figure) -> str:
    """Return a figure's alternative text."""
    content = f"{figure.x} against {figure.y}." if figure.y else figure.alt
    return f"{figure.title}. {content}" if content else figure.title


def legend_marks(figure: Figure) -> list[tuple[str, str]]:
    """Return the mark, 26 wide and 14 high, and the name of each series of a figure that needs a legend."""
    if figure.kind in ("heat", "ranking") or figure.panels or len(figure.series) < 2:
        return []
    line = figure.kind == "lines"
    return [(legend_mark(number, line=line), one.name) for number, one in enumerate(figure.series)]


def legend_entries(figure: Figure) -> list[tuple[str, str]]:
    """Return the marks of a page's legend, each an ``<svg>``, and their names."""
    frame = '<svg viewBox="0 0 26 14" aria-hidden="true">{}</svg>'
    return [(frame.format(mark), name) for mark, name in legend_marks(figure)]


def _draw_axes(figure: Figure, x: Axis, y: Axis | None, bottom: float) -> list[str]:
    """Grid lines, tick labels and axis labels."""
    parts = []
    for tick in x.ticks():
        parts.append(line_between(x.at(tick), _TOP, x.at(tick), bottom, "grid"))
        parts.append(text_at(x.at(tick), bottom + 16, f"{tick:g}", "middle", "tick"))
    parts.append(line_between(x.start, bottom, x.end, bottom, "axis"))
    parts.append(text_at((x.start + x.end) / 2, bottom + 36, figure.x, "middle", "label"))
    if y is not None:
        for tick in y.ticks():
            parts.append(line_between(x.start, y.at(tick), x.end, y.at(tick), "grid"))
            parts.append(text_at(x.start - 6, y.at(tick) + 4, f"{tick:g}", "end", "tick"))
        parts.append(upright_label(figure.y, (_TOP + bottom) / 2))
    return parts


def _draw_plane(figure: Figure) -> tuple[list[str], float]:
    """Points or lines over two numbers."""
    if figure.panels:
        return draw_line_panels(figure)
    bottom = _HEIGHT - _BOTTOM
    xs = figure.all_x
    ys = list(map(line_extent, figure.series))
    right, attributes = WIDTH - _RIGHT, ""
    if figure.kind == "points":
        wide, ends = robust_limits(xs), robust_limits(list(chain.from_iterable(ys)))
        x, y = Axis(wide, _LEFT, right), Axis(ends, bottom, _TOP)
        groups = list(_draw_points(figure, x, y, (wide, ends)))
    else:
        wide, ends = (min(xs, default=0.0), max(xs, default=1.0)), line_limits(ys)
        y = Axis(ends, bottom, _TOP)
        named = can_label_ends(figure.series, y, ends)
        x = Axis(wide, _LEFT, right - named * end_name_width(figure.series))
        groups = [draw_line(number, one, x, y, ends) for number, one in enumerate(figure.series)]
        if named:
            names = draw_end_names(figure.series, x, y, ends, bottom)
            groups = [[*parts, *name] for parts, name in zip(groups, names, strict=True)]
        attributes = axes_attributes(x, y)
    parts = _draw_axes(figure, x, y, bottom)
    for number, group in enumerate(groups):
        parts.append(series_group(number, group, attributes))
    return parts, _HEIGHT


def _draw_points(figure: Figure, x: Axis, y: Axis, ends: tuple[Ends, Ends]) -> Iterator[list[str]]:
    """Each series' points, outliers at the edge, with names as far as there is room."""
    taken: list[tuple[float, float, float]] = []
    for number, one in enumerate(figure.series):
        parts = []
        labels = one.labels or (one.name,) * len(one.x)
        for a, b, label in zip(one.x, one.y, labels, strict=True):
            at = x.at(clamp_value(a, ends[0])), y.at(clamp_value(b, ends[1]))
            right, down = overflow_direction(a, ends[0]), -overflow_direction(b, ends[1])
            title, text = f"{label}: {a:.4g}, {b:.4g}", clip_text(label, 24)
            if right or down:
                parts.append(draw_edge_marker(number, *at, (right, 0 if right else down), title))
                text = f"{text} ({a:.4g}, {b:.4g})"
            else:
                parts.append(draw_marker(number, *at, title))
            if (place := _place_name(text, at, taken)) is not None:
                parts.append(text_at(*place, text, "start", "name", title=label))
        yield parts


def _place_name(
    text: str, at: tuple[float, float], taken: list[tuple[float, float, float]]
) -> tuple[float, float] | None:
    """Take a free place for a name, to the right of its point, to the left, above or below."""
    wide = 6.2 * len(text)
    places = ((8.0, 4.0), (-8.0 - wide, 4.0), (-wide / 2, -9.0), (-wide / 2, 17.0))
    for right, down in places:
        left, top = at[0] + right, at[1] + down
        if left < _LEFT or left + wide > WIDTH:
            continue
        if any(left < to and left + wide > start and abs(top - y) < 13 for start, to, y in taken):
            continue
        taken.append((left, left + wide, top))
        return left, top
    return None


def _draw_strip(figure: Figure) -> tuple[list[str], float]:
    """A row a category, points along x."""
    longest = max(map(len, figure.rows), default=0)
    left = min(6.4 * min(longest, 40) + 16, 270)
    bottom = _TOP + _ROW * len(figure.rows) + 6
    ends = robust_limits([value for one in figure.series for value in bar_ends(one.x, one.spread)])
    x = Axis(ends, left, WIDTH - _RIGHT)
    parts = _draw_axes(figure, x, None, bottom)
    for row, name in enumerate(figure.rows):
        y = _TOP + _ROW * (row + 0.5)
        parts.append(line_between(left, y, WIDTH - _RIGHT, y, "grid"))
        parts.append(text_at(left - 8, y + 4, clip_text(name, 40), "end", "tick", title=name))
    count = len(figure.series)
    for number, one in enumerate(figure.series):
        shift = (number - (count - 1) / 2) * min(5, 14 / max(count, 1)) if one.spread else 0.0
        parts.append(series_group(number, _strip_marks(figure, number, one, x, ends, shift)))
    return parts, bottom + 44


def _strip_marks(figure: Figure, number: int, one: Series, x: Axis, ends: Ends, shift: float) -> list[str]:
    """A strip's points of one series."""
    parts = []
    for place, (value, row) in enumerate(zip(one.x, one.y, strict=True)):
        y = _TOP + _ROW * (row + 0.5) + shift
        if one.spread and (spread := one.spread[place]):
            low, high = (x.at(clamp_value(value + side * spread, ends)) for side in (-1, 1))
            parts.append(line_between(low, y, high, y, f"spread {colour_class(number)}"))
        name = figure.rows[int(row)]
        label = one.labels[place] if one.labels else f"{name}, {one.name}: {value:.2f}"
        at = x.at(clamp_value(value, ends))
        if off := overflow_direction(value, ends):
            parts.append(draw_edge_marker(number, at, y, (off, 0), label))
            anchor = "end" if off > 0 else "start"
            parts.append(text_at(at - 12 * off, y + 4, f"{value:.2f}", anchor, "tick"))
        else:
            parts.append(draw_marker(number, at, y, label))
    return parts


_KINDS = {
    "heat": draw_heat_map,
    "strip": _draw_strip,
    "points": _draw_plane,
    "lines": _draw_plane,
    "ranking": draw_ranking,
}


Ends = tuple[float, float]
_MARKED = 12  # points of a line that has a marker at each
_LETTER, _LEAST = 6.2, 13.0  # width of a letter, and distance, of the names at the ends of the lines
_PANEL_COLUMNS, _PANEL_LEFT, _PANEL_GAP, _PANEL_HIGH, _PANEL_ROW = 4, 44, 40, 72, 112


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
    """Return the width of the names at the ends of lines, 0 for a single line."""
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
        text = text_at(x.end + 9, top + 4, clip_text(name, 24), "start", f"name own {colour}", title=name)
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
    count = math.ceil(len(figure.series) / _PANEL_COLUMNS)
    wide = (WIDTH - _PANEL_LEFT - 8 - (_PANEL_COLUMNS - 1) * _PANEL_GAP) / _PANEL_COLUMNS
    all_x = figure.all_x
    shared = line_limits(list(map(line_extent, figure.series)))
    parts = []
    for number, one in enumerate(figure.series):
        row, column = divmod(number, _PANEL_COLUMNS)
        left, top = _PANEL_LEFT + column * (wide + _PANEL_GAP), 20 + row * _PANEL_ROW
        ends = robust_limits(line_extent(one)) if figure.own else shared
        x = Axis(one.x if figure.own else all_x, left, left + wide, margin=0.04)
        y = Axis(ends, top + _PANEL_HIGH, top, margin=0.08)
        parts.append(_draw_panel(number, one, x, y, ends))
    bottom = 20 + count * _PANEL_ROW
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
