"""Draw matrices as cells in colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from bench.render.figure import Figure, clip_text
from bench.render.svg_marks import WIDTH, text_at, upright_label, widest_text

_VIRIDIS = (
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
"""Readable in grey too."""
_SIGNED = (
    *("#c05600", "#da7b2a", "#eba468", "#f6cba6", "#fbe5d3"),
    "#ffffff",
    *("#d6e8f5", "#add2ec", "#74b1db", "#3a8cc3", "#0067a5"),
)
"""From orange below zero through white to blue above, for all kinds of colour vision."""
_LETTER, _RIGHT, _TOP = 6.4, 16, 12
_WRITTEN_CELLS = 200
_PANEL_COLUMNS, _PANEL_GAP, _PANEL_HEAD = 3, 14.0, 22.0

Matrix = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class ColourScale:
    """Colours of equal steps from ``low`` to ``top``; ``dark`` lists those that need white letters."""

    colours: tuple[str, ...]
    dark: tuple[int, ...]
    low: float
    top: float

    def step(self, value: float) -> int:
        """Return the number of a value's colour; values beyond an end have the last."""
        place = int((value - self.low) / ((self.top - self.low) or 1) * len(self.colours))
        return min(max(place, 0), len(self.colours) - 1)


def draw_heat_map(figure: Figure) -> tuple[list[str], float]:
    """Return a matrix's parts, and their height."""
    rows, columns = len(figure.rows), len(figure.columns)
    left = min(widest_text(figure.rows, 34) + (34 if figure.y else 16), 270)
    wide = (WIDTH - left - _RIGHT) / columns
    high = 20.0 if figure.signed else min(24.0, max(12.0, 420 / rows))
    scale = _choose_scale(figure)
    parts = _draw_cells(figure.cells, scale, (left, _TOP), (wide, high))
    if (figure.signed or rows * columns <= _WRITTEN_CELLS) and wide >= 26 and high >= 14:
        parts += _write_values(figure, scale, (left, _TOP), (wide, high))
    bottom = _TOP + rows * high
    for i in _label_steps(rows, high, 12):
        name, middle = figure.rows[i], _TOP + (i + 0.5) * high + 4
        parts.append(text_at(left - 6, middle, clip_text(name, 34), "end", "tick", title=name))
    longest = max(map(len, figure.columns), default=0)
    for j in _label_steps(columns, wide, _LETTER * longest + 4):
        parts.append(text_at(left + (j + 0.5) * wide, bottom + 16, figure.columns[j], "middle", "tick"))
    parts.append(text_at(left + columns * wide / 2, bottom + 34, figure.x, "middle", "label"))
    if figure.y:
        parts.append(upright_label(figure.y, _TOP + rows * high / 2))
    return parts + _colour_bar(scale, left, bottom + 46), bottom + 84


def draw_heat_panels(
    names: Sequence[str], panels: Sequence[tuple[str, Matrix]], label: str
) -> tuple[list[str], float]:
    """Return square matrices with titles, on one scale from 0 to 1, and their height.

    ``names`` are those of the rows and the columns of each; ``label`` names the values.
    """
    scale = ColourScale(_VIRIDIS, (), 0.0, 1.0)
    longest = max(map(len, names), default=0)
    share = WIDTH / _PANEL_COLUMNS
    # letters as high as a cell, as far as their names leave room for the cells
    cell = (share - _PANEL_GAP) / (len(names) + 0.55 * longest + 1)
    letters = min(9.0, cell)
    room = 0.6 * letters * longest + 6
    cell = (share - _PANEL_GAP - room) / len(names)
    row = _PANEL_HEAD + cell * len(names) + room + _PANEL_GAP
    parts = []
    for number, (title, cells) in enumerate(panels):
        below, beside = divmod(number, _PANEL_COLUMNS)
        left, top = beside * share + room, below * row + _PANEL_HEAD
        parts.append(text_at(left, top - 6, title, "start", "tick"))
        parts += _draw_cells(cells, scale, (left, top), (cell, cell))
        size = f' style="font-size:{letters:.1f}px"'
        for i, name in enumerate(names):
            middle = (i + 0.5) * cell + letters / 3
            parts.append(text_at(left - 3, top + middle, name, "end", "tick", size))
            x, y = left + middle, top + cell * len(names) + 3
            turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"{size}'
            parts.append(text_at(x, y, name, "end", "tick", turned))
    bottom = math.ceil(len(panels) / _PANEL_COLUMNS) * row
    parts.append(text_at(room, bottom + 12, label, "start", "tick"))
    return parts + _colour_bar(scale, room, bottom + 20), bottom + 52


def _choose_scale(figure: Figure) -> ColourScale:
    """Colours from the least to the greatest value, or as far below zero as above."""
    if not figure.signed:
        low, top = min(figure.heat, default=0.0), max(figure.heat, default=1.0)
        return ColourScale(_VIRIDIS, (0, 1, 2, 3, 4, 5), low, top)
    sizes = sorted(map(abs, figure.heat))
    reach = sizes[3 * len(sizes) // 4] if sizes else 0.0  # not the few largest
    reach = reach or 1.0
    return ColourScale(_SIGNED, (0, 10), -reach, reach)


def _draw_cells(
    cells: Matrix, scale: ColourScale, corner: tuple[float, float], size: tuple[float, float]
) -> list[str]:
    """The cells; those of one colour are one path, and neighbours in a column one part of it."""
    paths: dict[int, list[str]] = {}
    wide, high = size
    for j, column in enumerate(zip(*cells, strict=True)):
        steps = [None if value is None else scale.step(value) for value in column]
        first = 0
        for step, run in groupby(steps):
            last = first + len(list(run))
            if step is not None:
                x, y, end = corner[0] + j * wide, corner[1] + first * high, corner[1] + last * high
                path = f"M{x:.1f} {y:.1f}H{x + wide:.1f}V{end:.1f}H{x:.1f}z"
                paths.setdefault(step, []).append(path)
            first = last
    drawn = []
    for step, corners in sorted(paths.items()):
        fill = f'fill="{scale.colours[step]}" shape-rendering="crispEdges"'
        drawn.append(f'<path d="{"".join(corners)}" {fill}/>')
    return drawn


def _write_values(
    figure: Figure, scale: ColourScale, corner: tuple[float, float], size: tuple[float, float]
) -> list[str]:
    """Every cell's number."""
    texts = []
    for i, row in enumerate(figure.cells):
        for j, value in enumerate(row):
            if value is None:
                continue
            ink = "on-dark" if scale.step(value) in scale.dark else "on-light"
            x, y = corner[0] + (j + 0.5) * size[0], corner[1] + (i + 0.5) * size[1] + 4
            text = f"{value:+.2f}" if figure.signed else f"{value:.2f}"
            texts.append(text_at(x, y, text, "middle", ink))
    return texts


def _label_steps(count: int, size: float, needed: float) -> range:
    """Places of names with room: a name takes ``needed``, a cell ``size``."""
    return range(0, count, max(1, math.ceil(needed / size)))


def _colour_bar(scale: ColourScale, left: float, y: float) -> list[str]:
    wide, parts = 24.0, []
    for i, colour in enumerate(scale.colours):
        place = f'x="{left + i * wide:.1f}" y="{y:.1f}" width="{wide}" height="10"'
        parts.append(f'<rect {place} fill="{colour}"/>')
    signed = scale.colours == _SIGNED
    for x, value in ((left, scale.low), (left + len(scale.colours) * wide, scale.top)):
        text = f"{value:+.2f} and {'more' if value > 0 else 'less'}" if signed else f"{value:.3g}"
        parts.append(text_at(x, y + 24, text, "middle", "tick"))
    return parts
