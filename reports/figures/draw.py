"""Figures as files: PDF, PNG, SVG, and LaTeX of a ranking; the same records give the same bytes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import InputError
from bench.reports.figures.canvas import plain_canvas, save
from bench.reports.figures.critical_difference import (
    axis_label,
    bar_spans,
    labels,
    levels,
    rank_axis,
    sides,
    ticks,
)
from bench.reports.figures.figure import Figure, short
from bench.reports.formats.picture import critical_difference

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")
"""Okabe and Ito's, which people who see colours differently can tell apart; the yellow is darker here."""
_MARKERS = ("o", "s", "^", "D")
_DASHES = ("-", "--", ":", "-.")
_FORMATS = {"pdf": {"CreationDate": None}, "png": {"Software": None}, "svg": {"Date": None}}


def draw(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw figures into a folder.

    Returns:
        The files, ``NAME.pdf``, ``NAME.png`` and ``NAME.svg``; of a ranking ``NAME.tex`` too.

    Raises:
        InputError: there is no figure, or the folder can't be written.
    """
    if not figures:
        raise InputError("nothing to draw", where="--figures", hint="bench run makes records")
    with plain_canvas():
        return [path for figure in figures for path in _save(figure, folder)]


def _save(figure: Figure, folder: Path) -> list[Path]:
    """Write one figure's files."""
    drawn, paths = _drawn(figure), []
    try:
        for ending, metadata in _FORMATS.items():
            paths.append(folder / f"{figure.name}.{ending}")
            with warnings.catch_warnings():  # a letter that the font lacks is a box
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                save(drawn, paths[-1], format=ending, metadata=metadata, dpi=150)
        if figure.kind == "ranking":
            paths.append(folder / f"{figure.name}.tex")
            paths[-1].write_text(critical_difference(figure), encoding="utf-8")
    except OSError as error:
        raise InputError(f"a figure can't be written: {error.strerror}", where=str(folder)) from error
    return paths


def _drawn(figure: Figure) -> Any:
    from matplotlib.figure import Figure as Canvas

    rows = len(figure.rows)
    heights = {
        "strip": min(1.2 + 0.24 * rows, 16),
        "heat": min(1.6 + 0.22 * rows, 5),
        "ranking": 1.6 + 0.1 * rows,
    }
    height = heights.get(figure.kind, 3.4)
    legend = figure.kind != "heat" and len(figure.series) > 1
    below = math.ceil(len(figure.series) / 3) * 0.2 if legend else 0.0
    canvas = Canvas(figsize=(6.4, height + below), layout="constrained")
    axes = canvas.add_subplot()
    if figure.kind == "heat":
        _heat(figure, canvas, axes)
    elif figure.kind == "ranking":
        _ranking(figure, axes)
    else:
        _plot(figure, axes)
    axes.set_xlabel(axis_label(figure) if figure.kind == "ranking" else figure.x)
    axes.set_ylabel(figure.y)
    axes.set_title(short(figure.title, 110), fontsize=9, wrap=True)
    if legend:
        canvas.legend(loc="outside lower center", ncols=3, fontsize=7)
    return canvas


def _plot(figure: Figure, axes: Any) -> None:
    """Points, lines and strips."""
    strip = figure.kind == "strip"
    for number, one in enumerate(figure.series):
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": _DASHES[number // len(COLOURS) % 4] if figure.kind == "lines" else "",
            "marker": _MARKERS[(number + number // len(COLOURS)) % 4] if len(one.x) <= 12 or strip else "",
            "markersize": 4,
            "label": short(one.name),
        }
        shift = (number - (len(figure.series) - 1) / 2) * 0.12 if strip and one.spread else 0.0
        y = [value + shift for value in one.y]
        bars = [value or math.nan for value in one.spread]  # none where nothing varied
        spread = {"xerr" if strip else "yerr": bars, "capsize": 2} if one.spread else {}
        axes.errorbar(one.x, y, **spread, **style)
        if figure.kind == "points":
            for a, b, label in zip(one.x, one.y, one.labels, strict=True):
                axes.annotate(short(label, 24), (a, b), xytext=(4, 3), textcoords="offset points", fontsize=6)
    if strip:
        axes.set_yticks(range(len(figure.rows)), [short(name) for name in figure.rows], fontsize=7)
        axes.set_ylim(len(figure.rows) - 0.5, -0.5)
    axes.grid(alpha=0.3)


def _heat(figure: Figure, canvas: Any, axes: Any) -> None:
    """A matrix with its scale."""
    cells = np.array([[np.nan if v is None else v for v in row] for row in figure.cells])
    image = axes.imshow(cells, cmap="viridis", aspect="auto")
    for names, put in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        shown = range(0, len(names), max(1, len(names) // 12))
        put(list(shown), [short(names[i]) for i in shown], fontsize=7)
    canvas.colorbar(image)


def _ranking(figure: Figure, axes: Any) -> None:
    """A critical-difference diagram; places run from 0 to 1."""
    x = rank_axis(figure, 0.0, 1.0)
    spans = bar_spans(figure, x)
    of_bars = levels(spans, gap=0.03)
    deep = 0.5 * (max(of_bars, default=-1) + 2)
    left, right = sides(len(figure.rows))
    shown = labels(figure)
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
    shown_ranks = ticks(len(figure.rows))
    axes.set_xticks([x.at(rank) for rank in shown_ranks], [str(rank) for rank in shown_ranks])
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
