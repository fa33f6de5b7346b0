"""Texts in titled sections with aligned columns: whole lines in a pipe, wrapped to a terminal's width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from bench.errors import printable

_INDENT, _GAP = "  ", 2
_NARROWEST = 20  # characters of the last column


@dataclass(frozen=True)
class Section:
    """Rows of cells below a title; a section without rows is left out.

    Args:
        title: Its title.
        rows: Cells of equal number; the last of a row may be long.
        header: Names of the columns, or empty.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    header: tuple[str, ...] = ()


def format_sections(heading: str, sections: Sequence[Section], width: int | None = None) -> Iterator[str]:
    """Yield lines, without characters that a terminal would obey.

    Args:
        heading: First line.
        sections: What follows.
        width: Characters of a line, None for lines of any length: a row stays one line.

    >>> options = Section("Options", (("lr", "rate"),), header=("name", "meaning"))
    >>> list(format_sections("a: one", [options]))
    ['a: one', '', 'Options', '  name  meaning', '  lr    rate']
    """
    yield from _wrap(printable(heading), width, _INDENT)
    for section in sections:
        if section.rows:
            yield ""
            yield printable(section.title)
            yield from _format_rows(section, width)


def _format_rows(section: Section, width: int | None) -> Iterator[str]:
    rows = [tuple(map(printable, row)) for row in (section.header, *section.rows) if row]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        most = max(_NARROWEST, width // 4)
        widths = [min(wide, most) for wide in widths]
        room = width - len(_INDENT) - sum(widths[:-1]) - _GAP * (len(widths) - 1)
        widths[-1] = max(_NARROWEST, room)
    for row in rows:
        if width is None:
            cells = [[cell] for cell in row]
        else:
            cells = [
                list(_wrap(cell, wide, "" if len(row) > 1 else _INDENT))
                for cell, wide in zip(row, widths, strict=True)
            ]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [part.ljust(wide) for part, wide in zip(parts[:-1], widths, strict=False)]
            yield (_INDENT + (" " * _GAP).join([*padded, parts[-1]])).rstrip()


def _wrap(text: str, width: int | None, indent: str) -> Sequence[str]:
    """Return the lines of a text, those after the first indented; an empty text has one line."""
    if width is None:
        return [text]
    options = {"break_on_hyphens": False, "subsequent_indent": indent}
    return textwrap.wrap(text, max(width, 1), **options) or [""]  # type: ignore[arg-type]
