"""Text tables as wide as a terminal: first without deviations, then in parts below each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.render.columns import pick
from bench.render.grid import Cell, Grid, Value

_AVERAGE = ("avg", "avg.")


def fitted(grid: Grid, width: int, wide: Callable[[Grid], int]) -> tuple[list[Grid], list[str]]:
    """Return the parts of a table that fit a width, and what must be said of them.

    Every part has the names of the rows and, where the table has one, the average. A part of one column more
    is as wide as it is.

    Args:
        grid: The table.
        width: Characters of a line.
        wide: How many a table takes.
    """
    if wide(grid) <= width:
        return [grid], []
    bare = replace(grid, rows=tuple(tuple(map(_without_deviation, row)) for row in grid.rows))
    said = []
    if bare != grid:
        said.append(f"Standard deviations of the columns are left out: they don't fit {width} characters.")
    return _parts(bare, width, wide), said


def _without_deviation(cell: Value) -> Value:
    return replace(cell, sd=None) if isinstance(cell, Cell) and cell.spread is not None else cell


def _parts(grid: Grid, width: int, wide: Callable[[Grid], int]) -> list[Grid]:
    columns = range(1, len(grid.header))
    always = [place for place in columns if grid.header[place].lower() in _AVERAGE][:1]

    def part(own: list[int]) -> Grid:
        return pick(grid, [0, *sorted({*own, *always})])

    if wide(grid) <= width:
        return [grid]
    parts: list[list[int]] = [[]]
    for place in columns:
        if place in always:
            continue
        if parts[-1] and wide(part([*parts[-1], place])) > width:
            parts.append([])
        parts[-1].append(place)
    return [part(own) for own in parts]
