"""What ``bench gradient`` measures for an item: its figures, and their numbers as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bench.gradient.figures import JOINT, select_gradient_figures
from bench.gradient.run import MEASURED
from bench.papers.item_layout import item_remarks, item_title
from bench.papers.paper_items import Item
from bench.render.figure import Figure, Series
from bench.render.grid import DASH, Grid

T = TypeVar("T")
_MOST = 9
"""Lines and columns of a table; a figure has more points."""


def item_figures(item: Item, folder: Path, files: Sequence[Path]) -> list[Figure]:
    """Return the figures that draw an item, of its files in a folder: of the first run, and of all.

    Raises:
        DataError: a damaged file.
    """
    runs = [file for file in files if file.name == MEASURED]
    alone = select_gradient_figures(folder, [file for file in files if file not in runs[1:]])
    own = {figure.name for figure in alone}
    found = [f for f in select_gradient_figures(folder, files) if f.name in own or f.name.startswith(JOINT)]
    return [figure for figure in found if item.draws_it(figure.section, figure.name)]


def item_tables(item: Item, figures: Sequence[Figure]) -> list[Grid]:
    """Return the numbers behind an item's figures, a table each, the first with the item's notes."""
    grids, short = [_figure_table(figure) for figure in figures], item_title(item).partition(":")[0]
    return [
        replace(
            grid, title=f"{short}; {grid.title}", notes=(*(() if place else item_remarks(item)), *grid.notes)
        )
        for place, grid in enumerate(grids)
    ]


def _figure_table(figure: Figure) -> Grid:
    """A figure's points, thinned."""
    if figure.kind == "heat":
        rows, columns = (_thin_values(range(len(labels))) for labels in (figure.rows, figure.columns))
        header = (f"{figure.y}, by {figure.x}", *(figure.columns[j] for j in columns))
        body = [(figure.rows[i], *(f"{figure.cells[i][j]:.3f}" for j in columns)) for i in rows]
        return Grid(figure.title, header, tuple(body), ())
    points = _thin_values(sorted({x for series in figure.series for x in series.x}))
    at = [dict(zip(series.x, _value_texts(series), strict=True)) for series in figure.series]
    body = [(f"{x:g}", *(line.get(x, DASH) for line in at)) for x in points]
    header = (figure.x, *(series.name for series in figure.series))
    return Grid(figure.title, header, tuple(body), tuple(filter(None, [figure.note])))


def _value_texts(series: Series) -> list[str]:
    """Points, with deviations where the series has them."""
    spread = [f"±{each:.2g}" for each in series.spread] or [""] * len(series.y)
    return [f"{y:.4g}{deviation}" for y, deviation in zip(series.y, spread, strict=True)]


def _thin_values(values: Sequence[T]) -> list[T]:
    step = (len(values) - 1) / (_MOST - 1)
    return list(values) if len(values) <= _MOST else [values[round(step * i)] for i in range(_MOST)]
