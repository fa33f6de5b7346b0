"""Columns of tables, chosen by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.errors import InputError, not_one_of
from bench.render.grid import Grid

_WHERE = "--columns"


def wanted(text: str | None) -> tuple[str, ...]:
    """Return the names that an option lists; raises InputError for one that is listed twice, or is empty."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    keys = list(map(_key, names))
    for name, key in zip(names, keys, strict=True):
        if not key or keys.count(key) > 1:
            what = f"'{name}' is listed twice" if key else "a column without a name"
            raise InputError(what, where=_WHERE, expected="names with commas between them: avg,STS-B,seeds")
    return names


def _key(name: str) -> str:
    """Small letters and digits alone, so that STS-B is STSB and avg is Avg."""
    return "".join(filter(str.isalnum, name.lower()))


def places(header: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return where columns of these names are, in their order; those that aren't there are left out."""
    at = {_key(name): place for place, name in reversed(list(enumerate(header)))}
    return [at[_key(name)] for name in names if _key(name) in at]


def pick(grid: Grid, columns: Sequence[int]) -> Grid:
    """Return a table of these columns, numbered from 0, and of no other."""
    return replace(
        grid,
        header=tuple(grid.header[place] for place in columns),
        rows=tuple(tuple(row[place] for place in columns) for row in grid.rows),
    )


def select(grids: Sequence[Grid], names: Sequence[str]) -> list[Grid]:
    """Return the tables with their rows' names and these columns, without tables that have none of them.

    Args:
        grids: The tables.
        names: Names of columns; empty for all.

    Raises:
        InputError: a column that no table has.
    """
    if not names:
        return list(grids)
    check(names, [name for grid in grids for name in grid.header])
    found = [(grid, places(grid.header, names)) for grid in grids]
    return [pick(grid, [0, *filter(None, columns)]) for grid, columns in found if columns]


def check(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for a name that isn't known, with those that are."""
    for name in names:
        if _key(name) not in map(_key, known):
            raise not_one_of(f"no column '{name}'", name, dict.fromkeys(known), where=_WHERE)
