"""Figures as data, and limits of their axes; pages and files draw them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Literal

import numpy as np

Kind = Literal["forest", "front", "heat", "lines", "points", "ranking", "ranks", "strip"]


@dataclass(frozen=True)
class Series:
    """Points or a line.

    Args:
        y: Places along y, as many; in a strip the numbers of the rows.
        spread: Standard deviations of ``y``, in a strip of ``x``, 0 for an unknown one; may be empty.
        labels: Of points; may be empty.
        band: Least and largest value of ``y`` over the seeds, a pair a point; may be empty.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    band: tuple[tuple[float, float], ...] = ()


MOST_LINES = 10
"""Lines in one plot; more lines have a panel each."""
MOST_ROWS = 15
"""Rows of a legend, of panels and of a critical-difference diagram; more lines are one grey crowd."""


@dataclass(frozen=True)
class CellAxis:
    """An axis of cells from 0 to 100 percent; values beyond ``ends`` are drawn at the edge."""

    ends: tuple[float, float]
    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return the place of a value in percent of a cell's width."""
        return self.place_tick(clamp_value(value, self.ends))

    def place_tick(self, value: float) -> float:
        """Return the place of a tick, which may lie beyond the ends of the values."""
        return round(100 * (value - self.low) / (self.high - self.low), 1)


@dataclass(frozen=True)
class ForestLine:
    """A row of a forest plot: texts, seeds, an estimate with its interval, and the class of its colour."""

    name: str
    average: str
    seeds: tuple[float, ...]
    estimate: float | None
    interval: tuple[float, float] | None
    answer: str
    style: str


@dataclass(frozen=True)
class ForestPlot:
    """A forest plot: its lines, the axes of both columns, and the headings of the second and the first."""

    lines: tuple[ForestLine, ...]
    seeds: CellAxis
    differences: CellAxis
    heading: str
    band: tuple[float, float]
    dots: str = "each seed"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Args:
        section: Name of its section, see :mod:`bench.reports.sections`.
        kind: "points" and "lines" over numbers, "front" (points, the first series joined by steps as the
            Pareto front), "strip" (a row a category), "heat" (a matrix), "ranks" (a bar a row), "ranking" (a
            critical-difference diagram: rows by rank, the best first, and bars that join groups of them).
        x: Label of the x axis, of a heat map's columns.
        y: Label of the y axis, of a heat map's rows.
        series: Of all kinds but "heat".
        rows: Names of the rows of all kinds but "points" and "lines", from the top.
        cells: A heat map's values by row, where known.
        bars: Of a ranking: first and last row of each group; of ranks: first and last rank of each row.
        alt: Alternative text of a ranking; other kinds have their axes' labels.
        highlight: Name of the series, row or point that stands out.
        log: True for a logarithmic x axis.
        forest: The rows and axes of a forest plot.
        own: True for incomparable lines, such as losses: each has a panel with its own axes.
        signed: True for a heat map of differences, with two colours about zero.
    """

    name: str
    section: str
    title: str
    kind: Kind
    x: str
    y: str
    provenance: tuple[str, ...]
    series: tuple[Series, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[float | None, ...], ...] = ()
    note: str = ""
    bars: tuple[tuple[int, int], ...] = ()
    alt: str = ""
    own: bool = False
    signed: bool = False
    highlight: str = ""
    log: bool = False
    forest: ForestPlot | None = None

    @property
    def panels(self) -> bool:
        """True if each line has a panel."""
        if self.kind != "lines" or self.own:
            return self.kind == "lines" and len(self.series) > 1
        return not self.highlight and MOST_LINES < len(self.series) <= MOST_ROWS

    @property
    def crowded(self) -> bool:
        """True if lines are too many for colours."""
        return self.kind == "lines" and not self.own and len(self.series) > MOST_ROWS

    def look(self, number: int) -> int:
        """Return the number whose colour and shape a series has: beside a front others are pale."""
        return 5 if self.kind == "front" and number else number

    @property
    def all_x(self) -> list[float]:
        """Places of all series along x."""
        return [value for series in self.series for value in series.x]

    @property
    def heat(self) -> list[float]:
        """The numbers of a heat map."""
        return [value for row in self.cells for value in row if value is not None]


def bar_ends(values: Sequence[float], spread: Sequence[float]) -> list[float]:
    """Return the values, and the ends of their bars."""
    ends = ((value - length, value + length) for value, length in zip(values, spread, strict=False))
    return [*values, *chain.from_iterable(ends)]


def line_extent(series: Series) -> list[float]:
    """Return a line's values, and the ends of its bars and its band."""
    return [*bar_ends(series.y, series.spread), *chain.from_iterable(series.band)]


def clip_text(text: str, most: int = 40) -> str:
    """Return a text of at most so many characters, with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


FAR = 4.0
"""Distance of an outlier, in widths of the middle half of the values, on either side."""
_FEWEST = 5
BEYOND = (
    f"Triangles at an edge are values beyond the axis, by {FAR:g} times the width of the middle half or more."
)
"""A page's note on outliers."""
SCORES = "scores: "
"""How the line of a figure's sources on unchecked scores begins; saved files quote it."""


def robust_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value within ``FAR`` widths of the middle half.

    Few values, and values half of which are equal, all count as inside. ``(0, 1)`` for an empty list.

    >>> robust_limits([1.0, 2.0, 3.0, 4.0, 5.0])
    (1.0, 5.0)
    >>> robust_limits([1.0, 2.0, 3.0, 4.0, 5.0, 900.0])
    (1.0, 5.0)
    """
    if not values:
        return 0.0, 1.0
    low, high = (float(end) for end in np.quantile(values, (0.25, 0.75)))
    room = FAR * (high - low)
    inside = [value for value in values if low - room <= value <= high + room]
    shown = inside if len(values) >= _FEWEST and room else values
    return min(shown), max(shown)


def line_limits(lines: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the limits of an axis of lines: the robust ends of their least and largest values.

    >>> line_limits([[0.0, 1.0], [0.0, 1.1], [0.1, 1.2], [0.1, 1.3], [0.0, 50.0]])
    (0.0, 1.3)
    """
    drawn = list(filter(None, lines))
    return robust_limits(list(map(min, drawn)))[0], robust_limits(list(map(max, drawn)))[1]


def clamp_value(value: float, ends: tuple[float, float]) -> float:
    """Return the nearest value within the ends."""
    return min(max(value, ends[0]), ends[1])


def overflow_direction(value: float, ends: tuple[float, float]) -> int:
    """Return -1 below the ends, 1 above, 0 within."""
    return int(value > ends[1]) - int(value < ends[0])


def farthest_overflows(values: Sequence[float], ends: tuple[float, float]) -> list[int]:
    """Return the place of the farthest value of every stretch of outliers.

    >>> farthest_overflows([9.0, 8.0, 0.5, 0.6, -7.0, 0.7], (0.0, 1.0))
    [0, 4]
    """
    stretches = groupby(range(len(values)), lambda place: overflow_direction(values[place], ends))
    return [max(stretch, key=lambda place: off * values[place]) for off, stretch in stretches if off]
