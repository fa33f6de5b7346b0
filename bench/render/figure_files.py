"""Draw figures with matplotlib's defaults, as PDF, PNG, SVG, and rankings as LaTeX."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import InputError
from bench.render.critical_difference import (
    axis_label,
    place_bars,
    rank_axis,
    rank_ticks,
    ranking_labels,
    ranking_picture,
    split_sides,
)
from bench.render.figure import (
    SCORES,
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

_FORMATS: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}


def draw_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw figures into a folder, and return the files: NAME.pdf, .png and .svg, of a ranking also .tex.

    Raises InputError for an empty list, or an unwritable folder.
    """
    if not figures:
        raise InputError("nothing to draw", where="--figures", hint="bench run makes records")
    with plain_canvas():
        return [path for figure in figures for path in _save_formats(figure, folder)]


def _save_formats(figure: Figure, folder: Path) -> list[Path]:
    drawn, paths = _draw_canvas(figure), []
    text = "; ".join(line for line in figure.provenance if line.startswith(SCORES))
    try:
        for ending, metadata in _FORMATS.items():
            doubts: dict[str, str | None] = {}
            if text:
                doubts["Subject" if ending == "pdf" else "Description"] = text
            paths.append(folder / f"{figure.name}.{ending}")
            with warnings.catch_warnings():  # a letter missing from the font is a box
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                save_figure(drawn, paths[-1], format=ending, metadata=metadata | doubts, dpi=150)
        if figure.kind == "ranking":
            paths.append(folder / f"{figure.name}.tex")
            paths[-1].write_text(ranking_picture(figure), encoding="utf-8")
    except OSError as error:
        raise InputError(f"a figure can't be written: {error.strerror}", where=str(folder)) from error
    return paths


def _draw_canvas(figure: Figure) -> Any:
    from matplotlib.figure import Figure as Canvas

    rows, title = len(figure.rows), clip_text(figure.title, 110)
    if figure.panels:
        height = 0.7 + 0.95 * math.ceil(len(figure.series) / PANELS)
        canvas = Canvas(figsize=(6.4, height), layout="constrained")
        draw_panels(figure, canvas)
        canvas.suptitle(title, fontsize=9)
        return canvas
    heights = {
        "strip": min(1.2 + 0.24 * rows, 16),
        "heat": min(1.6 + 0.22 * rows, 5),
        "ranking": 1.6 + 0.1 * rows,
    }
    legend = figure.kind != "heat" and len(figure.series) > 1
    longest = max((len(clip_text(series.name)) for series in figure.series), default=0)
    columns = 2 + (longest <= 28)
    below = math.ceil(len(figure.series) / columns) * 0.2 * legend
    canvas = Canvas(figsize=(6.4, heights.get(figure.kind, 3.4) + below), layout="constrained")
    axes = canvas.add_subplot()
    {"heat": _draw_heat_map, "ranking": _draw_ranking}.get(figure.kind, draw_plot)(figure, axes)
    axes.set_xlabel(axis_label(figure) if figure.kind == "ranking" else figure.x)
    axes.set_ylabel(figure.y)
    axes.set_title(title, fontsize=9, wrap=True)
    if legend:
        canvas.legend(loc="outside lower center", ncols=columns, fontsize=7)
    return canvas


def _draw_heat_map(figure: Figure, axes: Any) -> None:
    """A matrix with its scale."""
    image = axes.imshow(np.array(figure.cells, dtype=float), cmap="viridis", aspect="auto")
    for names, set_ticks in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        places = range(0, len(names), max(1, len(names) // 12))
        set_ticks(list(places), [clip_text(names[i]) for i in places], fontsize=7)
    axes.figure.colorbar(image)


def _draw_ranking(figure: Figure, axes: Any) -> None:
    """A critical-difference diagram; places run from 0 to 1."""
    x = rank_axis(figure, 0.0, 1.0)
    bars, levels = place_bars(figure, x, gap=0.03)
    depth = 0.5 * (levels + 1)
    left, right = split_sides(len(figure.rows))
    labels = ranking_labels(figure)
    for rows, edge, side, shift in ((left, -0.04, "right", -3), (right, 1.04, "left", 3)):
        for line, row in enumerate(rows):
            at, y = x.at(row + 1), depth + line
            axes.plot([at, at, edge], [0, y, y], color="0.5", linewidth=0.7, clip_on=False)
            style = {"ha": side, "va": "center", "fontsize": 7, "annotation_clip": False}
            offset = {"xytext": (shift, 0), "textcoords": "offset points"}
            axes.annotate(labels[row], (edge, y), **offset, **style)
    for low, high, level in bars:
        y = 0.5 * (level + 1)
        axes.plot([low - 0.005, high + 0.005], [y, y], color=COLOURS[0], linewidth=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(depth + len(left) - 0.5, 0)
    ranks = rank_ticks(len(figure.rows))
    axes.set_xticks(list(map(x.at, ranks)), list(map(str, ranks)))
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)


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


def draw_heatmaps(
    tokens: Sequence[str], layers: Sequence[Sequence[Sequence[float]]], title: str, path: Path
) -> None:
    """Draw the maps of one tower; rows are queries, columns keys, all layers on one scale from 0 to 1.

    ``layers``: (layers, T, T) attention weights, mean over heads. Raises InputError for an unwritable file.
    """
    with plain_canvas():
        from matplotlib.figure import Figure

        rows = -(-len(layers) // PANELS)
        figure = Figure(figsize=(2.8 * PANELS, 2.8 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, PANELS, squeeze=False)
        for number, (panel, weights) in enumerate(zip(panels.flat, layers, strict=False), start=1):
            image = panel.imshow(weights, vmin=0, vmax=1, cmap="viridis")
            panel.set_title(f"layer {number}", fontsize=8)
            panel.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=5)
            panel.set_yticks(range(len(tokens)), tokens, fontsize=5)
        for panel in panels.flat[len(layers) :]:
            panel.set_axis_off()
        figure.colorbar(image, ax=panels, label="attention, mean over heads", shrink=0.6)
        figure.suptitle(title, fontsize=9)
        try:
            save_figure(figure, path, format="svg", metadata={"Date": None})
        except OSError as error:
            raise InputError(f"a heatmap can't be written: {error.strerror}", where=str(path)) from error
