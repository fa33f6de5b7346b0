"""Short names of rows: what tells the rows of a method apart; the options that they share are footnotes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bench.render.grid import Grid

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NUMBERED = re.compile(r"(\d+ )?(.+)", re.DOTALL)
"""A row's name, with its number in a matrix."""


@dataclass(frozen=True)
class RowParts:
    """What a row's name is made of.

    Args:
        method: Registered name; rows of one method are told apart.
        head: Printed name of the method.
        options: Options of the row's id, such as ``("steps=20",)``.
        whole: A name that says its options itself, or "".
    """

    method: str
    head: str
    options: tuple[str, ...] = ()
    whole: str = ""


@dataclass(frozen=True)
class RowNames:
    """Names of rows by id, all distinct, and the footnote of a name that leaves out options."""

    names: Mapping[str, str] = field(default_factory=dict)
    footnotes: Mapping[str, str] = field(default_factory=dict)


def name_rows(rows: Mapping[str, RowParts], form: str = "{}, {}", comma: str = ", ") -> RowNames:
    """Name the rows of tables by what distinguishes them.

    An option that all rows of a method share stands in a footnote. Rows that would share a name keep their
    ids.

    Args:
        rows: Parts of each name, by the row's id.
        form: How a name is written with the options that distinguish it.
        comma: What stands between these options.

    >>> rows = {f"simcse[lr=1,steps={n}]": RowParts("simcse", "SimCSE", ("lr=1", f"steps={n}")) for n in "23"}
    >>> named = name_rows(rows)
    >>> list(named.names.values()), named.footnotes["SimCSE, steps=2"]
    (['SimCSE, steps=2', 'SimCSE, steps=3'], 'SimCSE: lr=1')
    """
    shared: dict[str, set[str]] = {}
    for parts in rows.values():
        own = set(parts.options)
        shared[parts.method] = shared.get(parts.method, own) & own
    names, footnotes = {}, {}
    for row, parts in rows.items():
        common = [option for option in parts.options if option in shared[parts.method]]
        rest = [option for option in parts.options if option not in common]
        name = form.format(parts.head, comma.join(rest)) if rest else parts.head
        names[row] = parts.whole or name
        if common and not parts.whole:
            footnotes[names[row]] = f"{parts.head}: {', '.join(common)}"
    while shared_names := {name for name, count in Counter(names.values()).items() if count > 1}:
        names = {row: row if name in shared_names else name for row, name in names.items()}
    used = set(names.values())
    return RowNames(names, {name: note for name, note in footnotes.items() if name in used})


def join_names(names: Iterable[str]) -> str:
    """Return names as a list in a sentence, with semicolons where a name has a comma.

    >>> join_names(["SimCSE", "TNCSE"]), join_names(["SimCSE", "SimCSE, steps=20", "TNCSE"])
    ('SimCSE, TNCSE', 'SimCSE; SimCSE, steps=20; TNCSE')
    """
    listed = list(names)
    return ("; " if any(", " in name for name in listed) else ", ").join(listed)


def number_footnotes(
    names: Iterable[str], footnotes: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the mark of each name that has a footnote, and the footnotes with their marks.

    >>> number_footnotes(["TNCSE", "SimCSE"], {"SimCSE": "SimCSE: steps=20"})
    ({'SimCSE': '¹'}, ('¹ SimCSE: steps=20.',))
    """
    numbers: dict[str, str] = {}
    marks = {}
    for name in names:
        if note := footnotes.get(name):
            mark = str(len(numbers) + 1).translate(_SUPERSCRIPTS)
            marks[name] = numbers.setdefault(note, mark)
    return marks, tuple(f"{mark} {note}." for note, mark in numbers.items())


def mark_rows(grid: Grid, footnotes: Mapping[str, str]) -> Grid:
    """Return a table with a mark on every name that has a footnote, and the footnotes as its last notes."""
    texts = [cell for row in grid.rows for cell in row if isinstance(cell, str)]
    texts += [heading for _, heading in grid.groups]
    bare = [_NUMBERED.sub(r"\2", text) for text in texts]
    marks, notes = number_footnotes(bare, footnotes)
    if not marks:
        return grid

    def mark(text: str) -> str:
        return text + marks.get(_NUMBERED.sub(r"\2", text), "")

    rows = [tuple(mark(cell) if isinstance(cell, str) else cell for cell in row) for row in grid.rows]
    groups = tuple((place, mark(heading)) for place, heading in grid.groups)
    return replace(grid, rows=tuple(rows), groups=groups, notes=(*grid.notes, *notes))
