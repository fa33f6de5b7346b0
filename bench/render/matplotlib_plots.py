"""Points, lines and strips with matplotlib, for files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.render.axis_limits import (
    clamp_value,
    farthest_overflows,
    line_limits,
    overflow_direction,
    robust_limits,
)
from bench.render.figure import Figure, Series, bar_ends, clip_text, line_extent

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")
"""Okabe and Ito's, which people who see colours differently can tell apart; the yellow is darker here."""
PANELS = 4
"""Panels side by side."""
_MARKERS = ("o", "s", "^", "D")
_DASHES = ("-", "--", ":", "-.")
_MARKED = 12  # points of a line that has a marker at each
Ends = tuple[float, float]


def draw_plot(figure: Figure, axes: Any) -> None:
    """Draw points, lines or a strip; what is beyond an axis is a triangle at its edge."""
    strip = figure.kind == "strip"
    xs = [v for one in figure.series for v in (bar_ends(one.x, one.spread) if strip else one.x)]
    ys = [list(one.y) if strip else line_extent(one) for one in figure.series]
    if figure.kind == "lines":
        x_ends, y_ends = (min(xs, default=0.0), max(xs, default=1.0)), line_limits(ys)
    else:
        flat = [v for values in ys for v in values]
        x_ends, y_ends = robust_limits(xs), (-1.0, float(len(figure.rows))) if strip else robust_limits(flat)
    for number, one in enumerate(figure.series):
        shift = (number - (len(figure.series) - 1) / 2) * 0.12 if strip and one.spread else 0.0
        _draw_series(figure, axes, number, one, shift, (x_ends, y_ends))
    if strip:
        axes.set_yticks(range(len(figure.rows)), [clip_text(name) for name in figure.rows], fontsize=7)
        axes.set_ylim(len(figure.rows) - 0.5, -0.5)
    axes.grid(alpha=0.3)


def _draw_series(
    figure: Figure, axes: Any, number: int, one: Series, shift: float, ends: tuple[Ends, Ends]
) -> None:
    """One series."""
    strip, colour = figure.kind == "strip", COLOURS[number % len(COLOURS)]
    style = {
        "color": colour,
        "linestyle": _DASHES[number // len(COLOURS) % 4] if figure.kind == "lines" else "",
        "marker": _MARKERS[(number + number // len(COLOURS)) % 4]
        if len(one.x) <= _MARKED or figure.kind != "lines"
        else "",
        "markersize": 4,
        "label": clip_text(one.name),
    }
    x = [clamp_value(value, ends[0]) for value in one.x]
    y = [clamp_value(value, ends[1]) + shift for value in one.y]
    _draw_band(axes, one, ends[1], colour)
    bars: dict[str, Any] = {}
    if one.spread and any(one.spread):
        values, side = (one.x, ends[0]) if strip else (one.y, ends[1])
        bars = {"xerr" if strip else "yerr": _bar_lengths(values, one.spread, side), "capsize": 2}
    axes.errorbar(x, y, **bars, **style)
    far = farthest_overflows(one.y, ends[1]) if figure.kind == "lines" else range(len(x))
    for place in far:
        u, v = one.x[place], one.y[place]
        way, at = (overflow_direction(u, ends[0]), overflow_direction(v, ends[1])), (x[place], y[place])
        if way != (0, 0):
            axes.plot(*at, marker=_arrow_marker(way), markersize=7, color=colour, linestyle="")
        if way != (0, 0) and figure.kind != "lines":
            said = f"{u:.4g}" if strip else f"({u:.4g}, {v:.4g})"
            align = {"ha": "right" if way[0] > 0 else "left", "va": "center" if strip else "top"}
            offset = {"xytext": (-7 * (way[0] or -1), 0 if strip else -3), "textcoords": "offset points"}
            axes.annotate(said, at, fontsize=6, **align, **offset)
    if figure.kind == "points":
        for a, b, label in zip(x, y, one.labels, strict=True):
            axes.annotate(clip_text(label, 24), (a, b), xytext=(4, 3), textcoords="offset points", fontsize=6)


def _draw_band(axes: Any, one: Series, ends: Ends, colour: str) -> None:
    if one.band:
        low, high = ([clamp_value(pair[side], ends) for pair in one.band] for side in (0, 1))
        axes.fill_between(one.x, low, high, color=colour, alpha=0.2, linewidth=0)


def _bar_lengths(values: Sequence[float], spread: Sequence[float], ends: Ends) -> list[list[float]]:
    """Lengths of bars to both sides, cut at the axis' ends; none where nothing varied."""
    at = [clamp_value(value, ends) for value in values]
    pairs = list(zip(values, at, spread, strict=True))
    low = [a - clamp_value(v - s, ends) if s else math.nan for v, a, s in pairs]
    high = [clamp_value(v + s, ends) - a if s else math.nan for v, a, s in pairs]
    return [low, high]


def _arrow_marker(way: tuple[int, int]) -> str:
    """The triangle that points beyond the axis."""
    if way[0]:
        return ">" if way[0] > 0 else "<"
    return "^" if way[1] > 0 else "v"


def draw_panels(figure: Figure, canvas: Any) -> None:
    """Draw a panel a line, all on the same axes unless each has its own."""
    shared = line_limits([line_extent(one) for one in figure.series])
    rows, same = math.ceil(len(figure.series) / PANELS), not figure.own
    grid = canvas.subplots(rows, PANELS, sharex=same, sharey=same, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(figure.series):
            axes.set_visible(False)
            continue
        one = figure.series[place]
        ends = robust_limits(line_extent(one)) if figure.own else shared
        _draw_series(figure, axes, 0, one, 0.0, ((min(one.x), max(one.x)), ends))
        axes.set_title(clip_text(one.name, 28), fontsize=6, pad=2)
        axes.tick_params(labelsize=5, pad=1, length=2)
        axes.grid(alpha=0.3)
    canvas.supxlabel(figure.x, fontsize=7)
    canvas.supylabel(figure.y, fontsize=7)
