"""Draw figures as inline SVG, with colours by class from the style sheet, for both themes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from bench.render import line_plots
from bench.render.axis_limits import clamp_value, line_limits, overflow_direction, robust_limits
from bench.render.critical_difference import draw_ranking
from bench.render.figure import Figure, Series, bar_ends, clip_text, line_extent
from bench.render.svg_marks import (
    WIDTH,
    Axis,
    colour_class,
    draw_edge_marker,
    draw_marker,
    escape_markup,
    legend_swatch,
    line_between,
    series_group,
    text_at,
    upright_label,
)

_ROW = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 46
_HEIGHT = 340
_SCALE = (
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
"""The viridis colours, readable in grey too."""
_WRITTEN_CELLS = 400


def draw_svg(figure: Figure) -> str:
    """Return one ``<svg>`` element with escaped texts."""
    body, height = _KINDS[figure.kind](figure)
    content = f"{figure.x} against {figure.y}." if figure.y else figure.alt
    label = escape_markup(f"{figure.title}. {content}" if content else figure.title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}" '
        f'class="figure-{figure.kind}">{"".join(body)}</svg>'
    )


def legend_entries(figure: Figure) -> list[tuple[str, str]]:
    """Return the mark, an ``<svg>``, and the name of each series of a figure that needs a legend."""
    if figure.kind in ("heat", "ranking") or figure.panels or len(figure.series) < 2:
        return []
    line = figure.kind == "lines"
    return [(legend_swatch(number, line=line), one.name) for number, one in enumerate(figure.series)]


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
        return line_plots.draw_line_panels(figure)
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
        named = line_plots.can_label_ends(figure.series, y, ends)
        x = Axis(wide, _LEFT, right - named * line_plots.end_name_width(figure.series))
        groups = [line_plots.draw_line(number, one, x, y, ends) for number, one in enumerate(figure.series)]
        if named:
            names = line_plots.draw_end_names(figure.series, x, y, ends, bottom)
            groups = [[*parts, *name] for parts, name in zip(groups, names, strict=True)]
        attributes = line_plots.axes_attributes(x, y)
    parts = _draw_axes(figure, x, y, bottom)
    for number, group in enumerate(groups):
        parts.append(series_group(number, group, attributes))
    return parts, _HEIGHT


def _draw_points(
    figure: Figure, x: Axis, y: Axis, ends: tuple[line_plots.Ends, line_plots.Ends]
) -> Iterator[list[str]]:
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


def _strip_marks(
    figure: Figure, number: int, one: Series, x: Axis, ends: line_plots.Ends, shift: float
) -> list[str]:
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


def _draw_heat_map(figure: Figure) -> tuple[list[str], float]:
    """A matrix; cells of one colour are one path, so that a fine grid stays small."""
    rows, columns = len(figure.rows), len(figure.columns)
    left = min(6.4 * min(max(map(len, figure.rows), default=0), 34) + 34, 270)
    wide = (WIDTH - left - _RIGHT) / columns
    high = min(24.0, max(7.0, 420 / rows))
    low, top = min(figure.heat, default=0.0), max(figure.heat, default=1.0)
    paths: dict[int, list[str]] = {}
    written = []
    for i, row in enumerate(figure.cells):
        for j, value in enumerate(row):
            if value is None:
                continue
            colour = min(int((value - low) / ((top - low) or 1) * len(_SCALE)), len(_SCALE) - 1)
            x, y = left + j * wide, _TOP + i * high
            path = f"M{x:.1f} {y:.1f}h{wide:.1f}v{high:.1f}h-{wide:.1f}z"
            paths.setdefault(colour, []).append(path)
            if rows * columns <= _WRITTEN_CELLS and wide >= 26 and high >= 14:
                ink = "on-dark" if colour < 6 else "on-light"
                written.append(text_at(x + wide / 2, y + high / 2 + 4, f"{value:.2f}", "middle", ink))
    parts = [f'<path d="{"".join(d)}" fill="{_SCALE[colour]}"/>' for colour, d in sorted(paths.items())]
    bottom = _TOP + rows * high
    for i in _label_steps(rows, high, 12):
        name = figure.rows[i]
        parts.append(text_at(left - 6, _TOP + (i + 0.5) * high + 4, clip_text(name, 34), "end", "tick"))
    longest = max(map(len, figure.columns), default=0)
    for j in _label_steps(columns, wide, 7 * longest + 6):
        parts.append(text_at(left + (j + 0.5) * wide, bottom + 16, figure.columns[j], "middle", "tick"))
    parts.append(text_at(left + columns * wide / 2, bottom + 34, figure.x, "middle", "label"))
    if figure.y:
        parts.append(upright_label(figure.y, _TOP + rows * high / 2))
    return parts + written + _colour_bar(low, top, left, bottom + 46), bottom + 84


def _label_steps(count: int, size: float, needed: float) -> range:
    """Places of names with room: a name takes ``needed``, a cell ``size``."""
    return range(0, count, max(1, math.ceil(needed / size)))


def _colour_bar(low: float, top: float, left: float, y: float) -> list[str]:
    wide, parts = 24.0, []
    for i, colour in enumerate(_SCALE):
        place = f'x="{left + i * wide:.1f}" y="{y:.1f}" width="{wide}" height="10"'
        parts.append(f'<rect {place} fill="{colour}"/>')
    for x, value in ((left, low), (left + len(_SCALE) * wide, top)):
        parts.append(text_at(x, y + 24, f"{value:.3g}", "middle", "tick"))
    return parts


_KINDS = {
    "heat": _draw_heat_map,
    "strip": _draw_strip,
    "points": _draw_plane,
    "lines": _draw_plane,
    "ranking": draw_ranking,
}
