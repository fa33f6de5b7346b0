"""Draw lines over two numbers: in colours, as a grey crowd, or a panel each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.render.figure import (
    MOST_LINES,
    Figure,
    Series,
    clamp_value,
    clip_text,
    farthest_overflows,
    line_extent,
    line_limits,
    overflow_direction,
    robust_limits,
)
from bench.render.svg_marks import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    colour_class,
    dash_attribute,
    draw_axes,
    draw_edge_marker,
    draw_marker,
    escape_markup,
    line_between,
    series_group,
    text_at,
    widest_text,
)

Ends = tuple[float, float]
_MARKED = 12  # points of a line that has a marker at each
_LEAST = 13.0  # distance of the names at the ends of the lines
_PANEL_COLUMNS, _PANEL_LEFT, _PANEL_GAP, _PANEL_HIGH, _PANEL_ROW = 4, 44, 40, 72, 112
_NAMED = 7  # lines of a crowd with a name


def draw_lines(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of lines, and their height."""
    if figure.panels:
        return draw_line_panels(figure)
    bottom = HEIGHT - BOTTOM
    xs, ends = figure.all_x, line_limits(list(map(line_extent, figure.series)))
    y = Axis(ends, bottom, TOP)
    named = figure.crowded or can_label_ends(figure.series, y, ends)
    room = end_name_width(figure.series) if named else 0.0
    x = Axis((min(xs, default=0.0), max(xs, default=1.0)), LEFT, WIDTH - RIGHT - room)
    draw = _draw_crowd if figure.crowded else _draw_coloured
    groups = draw(figure, x, y, ends)
    if named and not figure.crowded:
        names = draw_end_names(figure.series, x, y, ends, bottom)
        groups = {number: [*parts, *names[number]] for number, parts in groups.items()}
    parts = draw_axes(x, y, TOP, bottom, (figure.x, figure.y))
    for number, group in groups.items():
        parts.append(series_group(number, group, axes_attributes(x, y)))
    return parts, HEIGHT


def _draw_coloured(figure: Figure, x: Axis, y: Axis, ends: Ends) -> dict[int, list[str]]:
    """Every line in a colour of its own, the highlighted one thick."""
    groups = {}
    for number, one in enumerate(figure.series):
        main = " main" if figure.highlight == one.name else ""
        groups[number] = draw_line(number, one, x, y, ends, style=main)
    return groups


def _draw_crowd(figure: Figure, x: Axis, y: Axis, ends: Ends) -> dict[int, list[str]]:
    """Thin grey lines, the highlighted one thick and above them, with names at some ends."""
    series = figure.series
    order = sorted(range(len(series)), key=lambda number: series[number].name == figure.highlight)
    groups: dict[int, list[str]] = {}
    for number in order:
        one = series[number]
        if one.name == figure.highlight:
            groups[number] = draw_line(0, one, x, y, ends, style=" main")
            continue
        at = [(x.at(a), y.at(clamp_value(b, ends))) for a, b in zip(one.x, one.y, strict=True)]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
        title = f"<title>{escape_markup(one.name)}</title>"
        groups[number] = [f'<path d="M{path}" class="line faint">{title}</path>']
    for number in _choose_named(figure, y, ends):
        one = series[number]
        a, b = x.at(one.x[-1]), y.at(clamp_value(one.y[-1], ends))
        style = "name own strong c0" if one.name == figure.highlight else "name"
        groups[number].append(line_between(a + 2, b, x.end + 6, b, "leader faint"))
        groups[number].append(
            text_at(x.end + 9, b + 4, clip_text(one.name, 24), "start", style, title=one.name)
        )
    return groups


def _choose_named(figure: Figure, y: Axis, ends: Ends) -> list[int]:
    """Choose the highlighted line, and from the top and the bottom others that end with room for a name."""
    drawn = [number for number, one in enumerate(figure.series) if one.y]
    by_end = sorted(drawn, key=lambda number: (-figure.series[number].y[-1], number))
    inwards = [by_end[-1 - place // 2 if place % 2 else place // 2] for place in range(len(by_end))]
    inwards.sort(key=lambda number: figure.series[number].name != figure.highlight)
    chosen: dict[int, float] = {}
    for number in inwards:
        top = y.at(clamp_value(figure.series[number].y[-1], ends))
        if len(chosen) < _NAMED and all(abs(top - other) >= _LEAST for other in chosen.values()):
            chosen[number] = top
    return list(chosen)


def draw_line(
    number: int, one: Series, x: Axis, y: Axis, ends: Ends, most: int = _MARKED, style: str = ""
) -> list[str]:
    """Return a line, its band, its bars, and a marker at each of its points if they are at most ``most``.

    ``number`` is the series', for colour and dash; beyond ``ends`` of the y axis, a line runs along the edge.
    ``style`` adds a class.
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
    parts.append(f'<path d="M{path}" class="line{style} {colour}"{dash_attribute(number)}>{name}</path>')
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
    return widest_text([one.name for one in series], 24) + 16


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
