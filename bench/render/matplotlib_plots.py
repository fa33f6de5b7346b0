"""Draw points, lines and strips with matplotlib, with its own default settings."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import InputError
from bench.render.axis_limits import (
    clamp_value,
    farthest_overflows,
    line_limits,
    overflow_direction,
    robust_limits,
)
from bench.render.figure import Figure, Series, bar_ends, clip_text, line_extent

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")
"""Okabe and Ito's, for all kinds of colour vision, with a darker yellow."""
PANELS = 4
"""Panels side by side."""
_MARKERS = ("o", "s", "^", "D")
_DASHES = ("-", "--", ":", "-.")
_MARKED = 12  # points of a line that has a marker at each
Ends = tuple[float, float]


@contextmanager
def plain_canvas() -> Iterator[None]:
    """Draw with matplotlib's defaults: equal records give equal bytes, and texts stay plain.

    matplotlib reads a ``matplotlibrc`` of the current folder, which may hold untrusted results. Its settings
    could start LaTeX on a method's name; here they are reset.

    Raises:
        InputError: matplotlib fails to import, as with such a file.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would quote that file
    try:
        import matplotlib
    except Exception as error:
        raise InputError(
            f"matplotlib can't be imported: {type(error).__name__}: {error}",
            hint="if there is a file matplotlibrc in this folder, run the command in another",
        ) from error
    matplotlib.use("agg")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "bench"  # ids in the file, random otherwise
        matplotlib.rcParams["text.parse_math"] = False  # a method's name may hold a dollar
        yield


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Draw, then write the file and its folder, so that full disks raise only OSError.

    ``options`` are those of ``Figure.savefig``.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn.getvalue())


def draw_plot(figure: Figure, axes: Any) -> None:
    """Draw points, lines or a strip, with triangles at the edge for outliers."""
    strip = figure.kind == "strip"
    xs: list[float] = []
    ys: list[list[float]] = []
    for series in figure.series:
        xs += bar_ends(series.x, series.spread) if strip else series.x
        ys.append(line_extent(series))
    if figure.kind == "lines":
        ends = (min(xs, default=0.0), max(xs, default=1.0)), line_limits(ys)
    elif strip:
        ends = robust_limits(xs), (-1.0, float(len(figure.rows)))
    else:
        ends = robust_limits(xs), robust_limits(list(chain.from_iterable(ys)))
    for number, series in enumerate(figure.series):
        shift = (number - (len(figure.series) - 1) / 2) * 0.12 if strip and series.spread else 0.0
        _draw_series(figure, axes, number, series, shift, ends)
    if strip:
        axes.set_yticks(range(len(figure.rows)), list(map(clip_text, figure.rows)), fontsize=7)
        axes.set_ylim(len(figure.rows) - 0.5, -0.5)
    axes.grid(alpha=0.3)


def _draw_series(
    figure: Figure, axes: Any, number: int, series: Series, shift: float, ends: tuple[Ends, Ends]
) -> None:
    strip, lines, colour = figure.kind == "strip", figure.kind == "lines", COLOURS[number % len(COLOURS)]
    marked = len(series.x) <= _MARKED or not lines
    style = {
        "color": colour,
        "linestyle": _DASHES[number // len(COLOURS) % 4] * lines,
        "marker": _MARKERS[(number + number // len(COLOURS)) % 4] * marked,
        "markersize": 4,
        "label": clip_text(series.name),
    }
    x = [clamp_value(value, ends[0]) for value in series.x]
    y = [clamp_value(value, ends[1]) + shift for value in series.y]
    if series.band:
        low, high = np.clip(np.array(series.band).T, *ends[1])
        axes.fill_between(series.x, low, high, color=colour, alpha=0.2, linewidth=0)
    bars: dict[str, Any] = {}
    if any(series.spread):
        values, side = (series.x, ends[0]) if strip else (series.y, ends[1])
        bars = {"xerr" if strip else "yerr": _bar_lengths(values, series.spread, side), "capsize": 2}
    axes.errorbar(x, y, **bars, **style)
    for place in farthest_overflows(series.y, ends[1]) if lines else range(len(x)):
        u, v, at = series.x[place], series.y[place], (x[place], y[place])
        right, up = overflow_direction(u, ends[0]), overflow_direction(v, ends[1])
        if right or up:
            arrow = {-1: "<", 1: ">"}.get(right) or {-1: "v", 1: "^"}[up]
            axes.plot(*at, marker=arrow, markersize=7, color=colour, linestyle="")
        if (right or up) and not lines:
            text, down = (f"{u:.4g}", 0) if strip else (f"({u:.4g}, {v:.4g})", -3)
            align = {"ha": "right" if right > 0 else "left", "va": "center" if strip else "top"}
            offset = {"xytext": (-7 * (right or -1), down), "textcoords": "offset points"}
            axes.annotate(text, at, fontsize=6, **align, **offset)
    if figure.kind == "points":
        for a, b, label in zip(x, y, series.labels, strict=True):
            axes.annotate(clip_text(label, 24), (a, b), xytext=(4, 3), textcoords="offset points", fontsize=6)


def _bar_lengths(values: Sequence[float], spread: Sequence[float], ends: Ends) -> NDArray[np.float64]:
    """(2, n) lengths of bars to both sides, cut at the axis' ends; NaN for a spread of 0."""
    lengths = np.where(np.equal(spread, 0), np.nan, spread)
    places = np.clip(values, *ends)
    low, high = np.clip(values - lengths, *ends), np.clip(values + lengths, *ends)
    return np.stack([places - low, high - places])


def draw_panels(figure: Figure, canvas: Any) -> None:
    """Draw a panel a line, all on the same axes unless each has its own."""
    shared = line_limits(list(map(line_extent, figure.series)))
    rows, same = math.ceil(len(figure.series) / PANELS), not figure.own
    grid = canvas.subplots(rows, PANELS, sharex=same, sharey=same, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(figure.series):
            axes.set_visible(False)
            continue
        series = figure.series[place]
        ends = robust_limits(line_extent(series)) if figure.own else shared
        _draw_series(figure, axes, 0, series, 0.0, ((min(series.x), max(series.x)), ends))
        axes.set_title(clip_text(series.name, 28), fontsize=6, pad=2)
        axes.tick_params(labelsize=5, pad=1, length=2)
        axes.grid(alpha=0.3)
    canvas.supxlabel(figure.x, fontsize=7)
    canvas.supylabel(figure.y, fontsize=7)
