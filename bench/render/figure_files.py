"""Figures as files: PDF, PNG, SVG, and LaTeX of a ranking; the same records give the same bytes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import InputError
from bench.render.canvas import plain_canvas, save_figure
from bench.render.critical_difference import (
    axis_label,
    bar_spans,
    rank_axis,
    rank_ticks,
    ranking_labels,
    split_sides,
    stack_bars,
)
from bench.render.figure import Figure, clip_text
from bench.render.latex_picture import ranking_picture
from bench.render.matplotlib_plots import COLOURS, PANELS, draw_panels, draw_plot

_FORMATS = {"pdf": {"CreationDate": None}, "png": {"Software": None}, "svg": {"Date": None}}


def draw_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw figures into a folder.

    Returns:
        The files, ``NAME.pdf``, ``NAME.png`` and ``NAME.svg``; of a ranking ``NAME.tex`` too.

    Raises:
        InputError: there is no figure, or the folder can't be written.
    """
    if not figures:
        raise InputError("nothing to draw", where="--figures", hint="bench run makes records")
    with plain_canvas():
        return [path for figure in figures for path in _save_formats(figure, folder)]


def _save_formats(figure: Figure, folder: Path) -> list[Path]:
    """Write one figure's files."""
    drawn, paths = _draw_canvas(figure), []
    try:
        for ending, metadata in _FORMATS.items():
            paths.append(folder / f"{figure.name}.{ending}")
            with warnings.catch_warnings():  # a letter that the font lacks is a box
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

    rows = len(figure.rows)
    heights = {
        "strip": min(1.2 + 0.24 * rows, 16),
        "heat": min(1.6 + 0.22 * rows, 5),
        "ranking": 1.6 + 0.1 * rows,
    }
    height = heights.get(figure.kind, 3.4)
    legend = figure.kind != "heat" and len(figure.series) > 1 and not figure.panels
    columns = 3 if max((len(clip_text(one.name)) for one in figure.series), default=0) <= 28 else 2
    below = math.ceil(len(figure.series) / columns) * 0.2 if legend else 0.0
    if figure.panels:
        height = 0.7 + 0.95 * math.ceil(len(figure.series) / PANELS)
    canvas = Canvas(figsize=(6.4, height + below), layout="constrained")
    if figure.panels:
        draw_panels(figure, canvas)
        canvas.suptitle(clip_text(figure.title, 110), fontsize=9)
        return canvas
    axes = canvas.add_subplot()
    kinds = {
        "heat": _draw_heat_map,
        "ranking": _draw_ranking,
        "strip": draw_plot,
        "points": draw_plot,
        "lines": draw_plot,
    }
    kinds[figure.kind](figure, axes)
    axes.set_xlabel(axis_label(figure) if figure.kind == "ranking" else figure.x)
    axes.set_ylabel(figure.y)
    axes.set_title(clip_text(figure.title, 110), fontsize=9, wrap=True)
    if legend:
        canvas.legend(loc="outside lower center", ncols=columns, fontsize=7)
    return canvas


def _draw_heat_map(figure: Figure, axes: Any) -> None:
    """A matrix with its scale."""
    cells = np.array([[np.nan if v is None else v for v in row] for row in figure.cells])
    image = axes.imshow(cells, cmap="viridis", aspect="auto")
    for names, put in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        shown = range(0, len(names), max(1, len(names) // 12))
        put(list(shown), [clip_text(names[i]) for i in shown], fontsize=7)
    axes.figure.colorbar(image)


def _draw_ranking(figure: Figure, axes: Any) -> None:
    """A critical-difference diagram; places run from 0 to 1."""
    x = rank_axis(figure, 0.0, 1.0)
    spans = bar_spans(figure, x)
    of_bars = stack_bars(spans, gap=0.03)
    deep = 0.5 * (max(of_bars, default=-1) + 2)
    left, right = split_sides(len(figure.rows))
    shown = ranking_labels(figure)
    for rows, edge, side, shift in ((left, -0.04, "right", -3), (right, 1.04, "left", 3)):
        for line, row in enumerate(rows):
            at, y = x.at(row + 1), deep + line
            axes.plot([at, at, edge], [0, y, y], color="0.5", linewidth=0.7, clip_on=False)
            style = {"ha": side, "va": "center", "fontsize": 7, "annotation_clip": False}
            offset = {"xytext": (shift, 0), "textcoords": "offset points"}
            axes.annotate(shown[row], (edge, y), **offset, **style)
    for (low, high), level in zip(spans, of_bars, strict=True):
        y = 0.5 * (level + 1)
        axes.plot([low - 0.005, high + 0.005], [y, y], color=COLOURS[0], linewidth=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(deep + len(left) - 0.5, 0)
    shown_ranks = rank_ticks(len(figure.rows))
    axes.set_xticks([x.at(rank) for rank in shown_ranks], [str(rank) for rank in shown_ranks])
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
