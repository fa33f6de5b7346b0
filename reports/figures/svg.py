"""Figures as inline SVG: colours come from the style sheet by class, so that both themes have theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.reports.figures.critical_difference import ranking
from bench.reports.figures.figure import Figure, Series, short
from bench.reports.figures.marks import WIDTH, Axis, escape, line_between, text_at

COLOURS = 8
"""Classes c0 to c7 of the style sheet; further series repeat them with another marker or dash."""
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_ROW = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 46
_HEIGHT = 340
_LEGEND_COLUMNS, _LEGEND_ROW = 3, 18
_SCALE = (
    "#440154",
    "#482878",
    "#3e4989",
    "#31688e",
    "#26828e",
    "#1f9e89",
    "#35b779",
    "#6ece58",
    "#b5de2b",
    "#fde725",
)
"""The viridis colours, readable in grey too."""
_WRITTEN_CELLS = 400


def draw(figure: Figure) -> str:
    """Return one ``<svg>`` element; any text in it is escaped."""
    body, height = _KINDS[figure.kind](figure)
    seen = f"{figure.x} against {figure.y}." if figure.y else figure.alt
    label = escape(f"{figure.title}. {seen}" if seen else figure.title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}" '
        f'class="figure-{figure.kind}">{"".join(body)}</svg>'
    )


def _marker(number: int, x: float, y: float, title: str) -> str:
    """A point: its colour and its shape tell the series."""
    style = f"point c{number % COLOURS}"
    path = (
        f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    )[(number + number // COLOURS) % 4]
    return f'<path d="{path}" class="{style}"><title>{escape(title)}</title></path>'


def _axes(figure: Figure, x: Axis, y: Axis | None, bottom: float) -> list[str]:
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
        parts.append(_upright(figure.y, (_TOP + bottom) / 2))
    return parts


def _upright(text: str, middle: float) -> str:
    """The label of the y axis."""
    return text_at(14, middle, text, "middle", "label", f' transform="rotate(-90 14 {middle:.1f})"')


def _legend(series: dict[int, Series], top: float, *, lines: bool) -> tuple[list[str], float]:
    """Names of series, by their number, under the figure; its height. None for the first alone."""
    if list(series) in ([], [0]):
        return [], 0.0
    parts, width = [], WIDTH / _LEGEND_COLUMNS
    for place, (number, one) in enumerate(series.items()):
        left = 8 + (place % _LEGEND_COLUMNS) * width
        y = top + (place // _LEGEND_COLUMNS + 0.5) * _LEGEND_ROW
        if lines:
            parts.append(
                f'<path d="M{left:.1f} {y:.1f}h24" class="line c{number % COLOURS}"{_dash(number)}/>'
            )
        else:
            parts.append(_marker(number, left + 12, y, one.name))
        name = f"{escape(short(one.name, 28))}<title>{escape(one.name)}</title>"
        parts.append(f'<text x="{left + 30:.1f}" y="{y + 4:.1f}" class="tick">{name}</text>')
    return parts, math.ceil(len(series) / _LEGEND_COLUMNS) * _LEGEND_ROW + 8


def _dash(number: int) -> str:
    dash = _DASHES[number // COLOURS % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _reach(values: Sequence[float], spread: Sequence[float]) -> list[float]:
    """The values, and the ends of their bars."""
    return [*values, *(v + end for v, s in zip(values, spread, strict=False) for end in (-s, s))]


def _plane(figure: Figure) -> tuple[list[str], float]:
    """Points or lines over two numbers."""
    bottom = _HEIGHT - _BOTTOM
    x = Axis([v for one in figure.series for v in one.x], _LEFT, WIDTH - _RIGHT)
    y = Axis([v for one in figure.series for v in _reach(one.y, one.spread)], bottom, _TOP)
    parts = _axes(figure, x, y, bottom)
    for number, one in enumerate(figure.series):
        at = [(x.at(a), y.at(b)) for a, b in zip(one.x, one.y, strict=True)]
        if figure.kind == "lines":
            path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
            parts.append(
                f'<path d="{path}" class="line c{number % COLOURS}"{_dash(number)}>'
                f"<title>{escape(one.name)}</title></path>"
            )
        for (a, _), value, spread in zip(at, one.y, one.spread, strict=False):
            style = f"spread c{number % COLOURS}"
            if spread:
                parts.append(line_between(a, y.at(value - spread), a, y.at(value + spread), style))
        if figure.kind == "points" or len(at) <= 12:
            labels = one.labels or (one.name,) * len(at)
            for (a, b), label, u, v in zip(at, labels, one.x, one.y, strict=True):
                parts.append(_marker(number, a, b, f"{label}: {u:.4g}, {v:.4g}"))
    unnamed = dict(enumerate(figure.series))
    if figure.kind == "points":
        names, unnamed = _names(figure, x, y)
        parts += names
    legend, height = _legend(unnamed, _HEIGHT, lines=figure.kind == "lines")
    return parts + legend, _HEIGHT + height


def _names(figure: Figure, x: Axis, y: Axis) -> tuple[list[str], dict[int, Series]]:
    """Labels next to the points, and the series, by number, whose label would cover another."""
    taken: list[tuple[float, float, float]] = []
    parts, unnamed = [], {}
    for number, one in enumerate(figure.series):
        for a, b, label in zip(one.x, one.y, one.labels, strict=False):
            text = short(label, 24)
            wide = 6.2 * len(text)
            left = x.at(a) + 8 if x.at(a) + 8 + wide < WIDTH else x.at(a) - 8 - wide
            top = y.at(b) + 4
            if any(left < to and left + wide > start and abs(top - y0) < 13 for start, to, y0 in taken):
                unnamed[number] = one
                continue
            taken.append((left, left + wide, top))
            parts.append(text_at(left, top, text, "start", "name"))
    return parts, unnamed


def _strip(figure: Figure) -> tuple[list[str], float]:
    """A row a category, points along x."""
    longest = max(map(len, figure.rows), default=0)
    left = min(6.4 * min(longest, 40) + 16, 270)
    bottom = _TOP + _ROW * len(figure.rows) + 6
    x = Axis([v for one in figure.series for v in _reach(one.x, one.spread)], left, WIDTH - _RIGHT)
    parts = _axes(figure, x, None, bottom)
    for row, name in enumerate(figure.rows):
        y = _TOP + _ROW * (row + 0.5)
        parts.append(line_between(left, y, WIDTH - _RIGHT, y, "grid"))
        parts.append(text_at(left - 8, y + 4, short(name, 40), "end", "tick", title=name))
    count = len(figure.series)
    for number, one in enumerate(figure.series):
        shift = (number - (count - 1) / 2) * min(5, 14 / max(count, 1)) if one.spread else 0.0
        for place, (value, at) in enumerate(zip(one.x, one.y, strict=True)):
            y = _TOP + _ROW * (at + 0.5) + shift
            if one.spread and (spread := one.spread[place]):
                style = f"spread c{number % COLOURS}"
                parts.append(line_between(x.at(value - spread), y, x.at(value + spread), y, style))
            name = figure.rows[int(at)]
            label = one.labels[place] if one.labels else f"{name}, {one.name}: {value:.2f}"
            parts.append(_marker(number, x.at(value), y, label))
    legend, height = _legend(dict(enumerate(figure.series)), bottom + 44, lines=False)
    return parts + legend, bottom + 44 + height


def _heat(figure: Figure) -> tuple[list[str], float]:
    """A matrix; cells of one colour are one path, so that a fine grid stays small."""
    rows, columns = len(figure.rows), len(figure.columns)
    left = min(6.4 * max((min(len(name), 34) for name in figure.rows), default=0) + 34, 270)
    wide = (WIDTH - left - _RIGHT) / columns
    high = min(24.0, max(7.0, 420 / rows))
    values = [v for row in figure.cells for v in row if v is not None]
    low, top = (min(values), max(values)) if values else (0.0, 1.0)
    paths: dict[int, list[str]] = {}
    written = []
    for i, row in enumerate(figure.cells):
        for j, value in enumerate(row):
            if value is None:
                continue
            colour = min(int((value - low) / ((top - low) or 1) * len(_SCALE)), len(_SCALE) - 1)
            x, y = left + j * wide, _TOP + i * high
            paths.setdefault(colour, []).append(f"M{x:.1f} {y:.1f}h{wide:.1f}v{high:.1f}h-{wide:.1f}z")
            if rows * columns <= _WRITTEN_CELLS and wide >= 26 and high >= 14:
                ink = "on-dark" if colour < 6 else "on-light"
                written.append(text_at(x + wide / 2, y + high / 2 + 4, f"{value:.2f}", "middle", ink))
    parts = [f'<path d="{"".join(d)}" fill="{_SCALE[colour]}"/>' for colour, d in sorted(paths.items())]
    bottom = _TOP + rows * high
    for i in _every(rows, high, 12):
        name = figure.rows[i]
        parts.append(text_at(left - 6, _TOP + (i + 0.5) * high + 4, short(name, 34), "end", "tick"))
    longest = max((len(name) for name in figure.columns), default=0)
    for j in _every(columns, wide, 7 * longest + 6):
        parts.append(text_at(left + (j + 0.5) * wide, bottom + 16, figure.columns[j], "middle", "tick"))
    parts.append(text_at(left + columns * wide / 2, bottom + 34, figure.x, "middle", "label"))
    if figure.y:
        parts.append(_upright(figure.y, _TOP + rows * high / 2))
    return parts + written + _colour_bar(low, top, left, bottom + 46), bottom + 84


def _every(count: int, size: float, needed: float) -> range:
    """Which names have room, where a name takes ``needed`` and a cell ``size``."""
    return range(0, count, max(1, math.ceil(needed / size)))


def _colour_bar(low: float, top: float, left: float, y: float) -> list[str]:
    wide = 24.0
    parts = [
        f'<rect x="{left + i * wide:.1f}" y="{y:.1f}" width="{wide}" height="10" fill="{colour}"/>'
        for i, colour in enumerate(_SCALE)
    ]
    ends = ((left, low), (left + len(_SCALE) * wide, top))
    return parts + [text_at(x, y + 24, f"{value:.3g}", "middle", "tick") for x, value in ends]


_KINDS = {"heat": _heat, "strip": _strip, "points": _plane, "lines": _plane, "ranking": ranking}
