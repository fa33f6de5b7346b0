"""What a figure shows, free of how it is drawn: inline SVG for the page, matplotlib for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["points", "lines", "strip", "heat", "ranking"]


@dataclass(frozen=True)
class Series:
    """Points or a line.

    Args:
        name: For the legend.
        x: Places along x.
        y: Places along y, as many; in a strip the numbers of the rows.
        spread: Standard deviations: of ``y``, in a strip of ``x``; empty for none, 0 where one has none.
        labels: What each point is; empty for none.
        band: Least and largest value of ``y`` over the seeds, a pair a point; empty for none.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    band: tuple[tuple[float, float], ...] = ()


MOST_LINES = 10
"""Lines in one plot; more of them have a panel each."""


@dataclass(frozen=True)
class Figure:
    """One figure.

    Args:
        name: Short name, of its file.
        section: Name of the section to which it belongs, see :mod:`bench.reports.report`.
        title: What it shows.
        kind: "points" and "lines" over numbers, "strip" (a row a category), "heat" (a matrix), "ranking" (a
            critical-difference diagram: rows by rank, the best first, and bars that join groups of them).
        x: Label of the x axis, of a heat map's columns.
        y: Label of the y axis, of a heat map's rows.
        provenance: From what it was made.
        series: Of all kinds but "heat".
        rows: Names of the rows of all kinds but "points" and "lines", from the top.
        columns: Names of a heat map's columns.
        cells: A heat map's values, a row a row; None where there is none.
        note: What one must know to read it.
        bars: Of a ranking: first and last row of each group.
        alt: What it shows, for those who don't see it; the labels of the axes say enough of other kinds.
        own: True for lines that can't be compared, such as losses: each has a panel with axes of its own.
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

    @property
    def panels(self) -> bool:
        """True if each line has a panel."""
        return self.kind == "lines" and len(self.series) > (1 if self.own else MOST_LINES)


def bar_ends(values: Sequence[float], spread: Sequence[float]) -> list[float]:
    """The values, and the ends of their bars."""
    return [*values, *(v + end for v, s in zip(values, spread, strict=False) for end in (-s, s))]


def line_extent(one: Series) -> list[float]:
    """A line's values, and the ends of its bars and its band."""
    return [*bar_ends(one.y, one.spread), *(end for ends in one.band for end in ends)]


def clip_text(text: str, most: int = 40) -> str:
    """A name cut to what has room in a figure."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
