"""Write figures as PDF, PNG, SVG, and rankings as LaTeX; equal records give equal bytes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import InputError
from bench.render.critical_difference import (
    axis_label,
    place_bars,
    rank_axis,
    rank_ticks,
    ranking_labels,
    split_sides,
)
from bench.render.critical_difference_latex import ranking_picture
from bench.render.figure import Figure, clip_text
from bench.render.matplotlib_plots import COLOURS, PANELS, draw_panels, draw_plot, plain_canvas, save_figure

_FORMATS = {"pdf": {"CreationDate": None}, "png": {"Software": None}, "svg": {"Date": None}}


def draw_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw figures into a folder, and return the files: NAME.pdf, .png and .svg, of a ranking also .tex.

    Raises:
        InputError: no figure, or an unwritable folder.
    """
    if not figures:
        raise InputError("nothing to draw", where="--figures", hint="bench run makes records")
    with plain_canvas():
        return [path for figure in figures for path in _save_formats(figure, folder)]


def _save_formats(figure: Figure, folder: Path) -> list[Path]:
    drawn, paths = _draw_canvas(figure), []
    try:
        for ending, metadata in _FORMATS.items():
            paths.append(folder / f"{figure.name}.{ending}")
            with warnings.catch_warnings():  # a letter missing from the font is a box
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                save_figure(drawn, paths[-1], format=ending, metadata=metadata, dpi=150)
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
