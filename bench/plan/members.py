"""Cells of the methods that another builds on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bench.errors import InputError
from bench.plan.cell import Cell
from bench.registry import METHODS
from bench.request.parse import parse_method, split_outside_brackets
from bench.request.spec import MethodRequest
from bench.stages import ComposedMethod, TrainedMethod


def with_members(
    cell: Cell, make: Callable[[MethodRequest], list[Cell]], above: tuple[str, ...] = ()
) -> Cell:
    """Return the cell with the cells of the methods that it builds on, of the same seed.

    Args:
        cell: The cell.
        make: From a request to its cells, stages included where they have no members.
        above: Names of the methods that build on this one.

    Raises:
        InputError: a method that builds on itself.
    """
    method = METHODS.get(cell.card.name)
    if not isinstance(method, ComposedMethod):
        return cell
    members: list[tuple[str, Cell]] = []
    named: dict[str, Cell] = {}
    for role, text in method.members(dict(cell.options)).items():
        request = parse_method(text, f"{cell.card.name}: {role}")
        if request.name in (*above, cell.card.name):
            raise InputError(f"{cell.card.name} builds on itself", where=f"{role}={text}")
        found = [member for member in make(request) if member.seed in (cell.seed, None)]
        number = 1 + sum(member.card.name == request.name for _, member in members)
        copy = ".".join(filter(None, (cell.copy, str(number) if number > 1 else "")))
        members.append((role, with_members(replace(found[0], copy=copy), make, (*above, cell.card.name))))
        named[text] = members[-1][1]
    return _without_paths(replace(cell, members=tuple(members)), named)


def _without_paths(cell: Cell, named: Mapping[str, Cell]) -> Cell:
    """Name members from this machine by their ids, so that no path enters an id, an option or a key."""
    for text in sorted(named, key=len, reverse=True):  # one path may begin another
        member = named[text]
        if member.card.takes_path or any(METHODS.get(name).card.takes_path for name in member.member_names):
            row = member.method
            if len(cell.members) > 1:  # a "+" stands between the members of a sum
                row = "_".join(split_outside_brackets(row, "+"))
            options = [
                (name, value.replace(text, row) if isinstance(value, str) else value)
                for name, value in cell.options
            ]
            cell = replace(cell, method=cell.method.replace(text, row), options=tuple(options))
    return cell


def without_idle_seeds(cells: list[Cell]) -> list[Cell]:
    """Return one cell without seed in place of cells that no seed enters.

    Those are sums of deterministic methods, and what is made of one without drawing anything.
    """
    kept: dict[tuple[str, int | None], Cell] = {}
    for cell in cells:
        method = METHODS.get(cell.card.name)
        own = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
        draws = any(stage.seeded for stage in own)
        idle = cell.members and not draws and all(member.seed is None for _, member in cell.members)
        cell = replace(cell, seed=None) if idle else cell
        kept[cell.method, cell.seed] = cell
    return list(kept.values())


def refuse_twins(requested: Iterable[Sequence[Cell]]) -> None:
    """Raise InputError if the cells of two requests have one name: no table could tell them apart."""
    names = Counter(name for cells in requested for name in {cell.method for cell in cells})
    for method, count in names.items():
        if count > 1:
            raise InputError(
                f"'{method}' is asked for twice",
                where="--methods",
                expected="each name once",
                hint="give one of them another name: NAME=METHOD",
            )
