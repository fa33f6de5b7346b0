r"""Typeset tables as a paper prints them, in LaTeX, with escaped names.

They need \usepackage{booktabs,graphicx}, style acl also natbib, as ACL's own style does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import floor

from bench.comparison.row_lookup import find_row
from bench.config.method_ids import split_outside_brackets
from bench.errors import InputError, printable
from bench.records.record import RunRecord
from bench.render.grid import SCALE, Grid, ScoreCell, Value, plain_text
from bench.render.latex import escape_latex, latex_document, latex_notes, table_row, typeset_columns
from bench.reports.tables.paper_tables import AVERAGE_HEADING, PaperTable

STYLES = ("booktabs", "acl")
_KEY = re.compile(r"[A-Za-z0-9:_.-]+")
_COLUMN = 219.0  # points of a column of ACL's page
_LEAST_GAP, _GAP = 0.16, 4.0  # \tabcolsep: ems, and points where there is room
_SHORT_NAMES = {"STS-B": "SB", "SICK-R": "SR"} | {f"STS{year}": f"S{year}" for year in range(12, 17)}
_TIMES = {  # thousandths of the font size
    180: "'",
    200: "|",
    250: " ,.",
    278: "/:;ijlt\\",
    333: "!()`-frI[]",
    389: "sJ",
    408: '"',
    444: "acez?",
    469: "^",
    480: "{}",
    541: "~",
    556: "FPS",
    564: "+<=>",
    611: "ELTZ",
    667: "BCR",
    722: "ADGHKNOQUVXYw",
    778: "m&",
    833: "%",
    889: "M",
    921: "@",
    944: "W",
}
_OTHERS = 500  # digits and most small letters
_PLUS_MINUS, _SIGN, _CITATION = 1.2, 0.5, 9.0  # ems; the widest of a size
_ACL = r"""\documentclass[11pt,twocolumn]{article}
\usepackage[a4paper,margin=2.5cm]{geometry}
\usepackage{booktabs,graphicx,natbib}
\setlength{\columnsep}{6mm}
\begin{document}
"""


@dataclass(frozen=True)
class PaperStyle:
    r"""How a paper's tables look: LaTeX in place of the caption, a label, papers' keys by method."""

    name: str = STYLES[0]
    caption: str | None = None
    label: str = ""
    cites: Mapping[str, str] = field(default_factory=dict)


def parse_style(
    name: str | None, caption: str | None, label: str | None, cites: str | None, records: Sequence[RunRecord]
) -> PaperStyle | None:
    """Return the style of the options (``cites``: METHOD=KEY,...), None without options.

    Raises InputError for a method without ``records``, and for other characters of a label or key than
    letters, digits and ``:_.-``.
    """
    if (name, caption, label, cites) == (None, None, None, None):
        return None
    if label is not None:
        _check_key(label, "--label")
    keys: dict[str, str] = {}
    rows = list(dict.fromkeys(record.method for record in records))
    for entry in split_outside_brackets(cites) if cites is not None else ():
        method, equals, key = entry.rpartition("=")
        if not equals:
            raise InputError(f"'{entry}' names no key", where="--cite", expected="METHOD=KEY,METHOD=KEY")
        method = find_row(method, rows, records, where="--cite")
        if method in keys:
            raise InputError(f"'{method}' is cited twice", where="--cite")
        keys[method] = _check_key(key, "--cite")
    return PaperStyle(name or STYLES[0], caption, label or "", keys)


def _check_key(key: str, where: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"'{key}' is no key", where=where, expected="letters, digits and : _ . -")
    return key


def render_paper_tables(tables: Sequence[PaperTable], look: PaperStyle, *, standalone: bool = False) -> str:
    """Return a float for each table, or a document; raises InputError for one caption of several tables."""
    if len(tables) > 1 and (look.label or look.caption is not None):
        raise InputError(
            f"{len(tables)} tables, of {', '.join(table.suite for table in tables)}",
            where="--label" if look.label else "--caption",
            hint="choose one with --suite",
        )
    body = "\n".join(_table_float(table, look) for table in tables)
    if not standalone:
        return body
    return latex_document(body, _ACL if look.name == "acl" else None)


@dataclass(frozen=True)
class _FontSize:
    """Commands and points of the text and of the deviations."""

    command: str
    points: float
    small: str
    small_points: float


_SIZES = (
    _FontSize(r"\small", 10, r"\scriptsize", 8),
    _FontSize(r"\footnotesize", 9, r"\tiny", 6),
    _FontSize(r"\scriptsize", 8, r"\tiny", 6),
)
"""Sizes of a paper of 11 points."""


@dataclass(frozen=True)
class _Layout:
    r"""How a table fits the page.

    Args:
        grid: The table with the headings of this layout.
        decimals: Decimals of each column.
        size: Font size.
        gap: Points of \tabcolsep.
        wide: True for both columns of the page.
    """

    grid: Grid
    decimals: tuple[int, ...]
    size: _FontSize = _SIZES[0]
    gap: float = _GAP
    wide: bool = True


def _choose_layout(grid: Grid, cited: Sequence[bool]) -> _Layout:
    """The largest type with which a table fits a column of ACL's page, otherwise both columns.

    Short headings come before one decimal of the tasks, which comes before both columns.
    """
    whole = (2,) * len(grid.header)
    rounded = tuple(2 if name == AVERAGE_HEADING else 1 for name in grid.header)
    digits = (whole, rounded) if AVERAGE_HEADING in grid.header else (whole,)
    headings = (grid.header, tuple(_SHORT_NAMES.get(name, name) for name in grid.header))
    for decimals, header, size in product(digits, headings, _SIZES):
        table = replace(grid, header=header)
        room = _COLUMN - _content_width(table, cited, decimals, size)
        gap = room / (2 * max(1, len(header) - 1))
        if gap >= _LEAST_GAP * size.points:
            return _Layout(table, decimals, size, min(_GAP, floor(10 * gap) / 10), wide=False)
    return _Layout(grid, whole)


def _heading_legend(whole: Grid, short: Grid) -> str:
    """A sentence on shortened headings, or ""."""
    changed = [pair for pair in zip(short.header, whole.header, strict=True) if pair[0] != pair[1]]
    if not changed:
        return ""
    text = ": ".join(map(", ".join, zip(*changed, strict=True)))
    years = r"S(TS)?12, S(TS)?13, S(TS)?14, S(TS)?15, S(TS)?16"
    return re.sub(years, lambda match: f"S{match[1] or ''}12\N{EN DASH}16", text) + "."


def _content_width(grid: Grid, cited: Sequence[bool], decimals: Sequence[int], size: _FontSize) -> float:
    """The points of a table's columns in Times, without the gaps between them."""
    names = [text_width(grid.header[0])]
    for row, cite in zip(grid.rows, cited, strict=True):
        names.append(text_width(plain_text(row[0])) + _CITATION * cite)
    total = size.points * max(names)
    for place, digits in enumerate(decimals[1:], start=1):
        numbers, spreads, signs = zip(*(_cell_width(row[place], digits) for row in grid.rows), strict=True)
        content = size.points * (max(numbers) + max(signs)) + size.small_points * max(spreads)
        total += max(content, size.points * text_width(grid.header[place]))
    return total


def text_width(text: str) -> float:
    """Return the ems of a text in Times.

    >>> text_width("SimCSE")
    3.446
    """
    widths = {char: width for width, chars in _TIMES.items() for char in chars}
    return sum(widths.get(char, _OTHERS) for char in text) / 1000


def _cell_width(cell: Value, decimals: int) -> tuple[float, float, float]:
    """The ems of a cell's number, of its deviation and of its sign."""
    if not isinstance(cell, ScoreCell) or cell.mean is None:
        return text_width(plain_text(cell)), 0.0, 0.0
    number = text_width(f"{SCALE * cell.mean:.{decimals}f}")
    spread = 0.0 if cell.spread is None else _PLUS_MINUS + text_width(f"{SCALE * cell.spread:.2f}")
    return number, spread, _SIGN * bool(cell.sign)


def _table_float(table: PaperTable, look: PaperStyle) -> str:
    acl = look.name == "acl"
    cited = [method in look.cites for method in table.methods]
    layout = _choose_layout(table.grid, cited) if acl else _Layout(table.grid, ())
    caption, omitted = table.fit_caption(_heading_legend(table.grid, layout.grid))
    text = look.caption if look.caption is not None else escape_latex(caption)
    captions = [rf"\caption{{{text}}}"]
    if look.label:
        captions.append(rf"\label{{{look.label}}}")
    tabular = [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        "\n".join(_tabular_lines(table, look, layout)) + "}",
        *[latex_notes(table.grid.notes)] * bool(table.grid.notes),
    ]
    if acl:
        gap = rf"\setlength{{\tabcolsep}}{{{layout.gap:g}pt}}"
        body = [rf"\centering{layout.size.command}", gap, *tabular, *captions]
    else:
        body = [r"\centering", *captions, r"\medskip", *tabular]
    remarks = [f"Not in the caption: {sentence}" for sentence in omitted] + list(table.remarks)
    place = "table*" if acl and layout.wide else "table"
    comments = [f"% {printable(remark)}" for remark in remarks]
    return "\n".join([*comments, rf"\begin{{{place}}}[t]", *body, rf"\end{{{place}}}", ""])


def _tabular_lines(table: PaperTable, look: PaperStyle, layout: _Layout) -> list[str]:
    columns = typeset_columns(layout.grid, size=layout.size.small, decimals=layout.decimals)
    cite = r"\citep" if look.name == "acl" else r"\cite"
    lines: list[str] = []
    for number, (heading, row) in enumerate(layout.grid.lines):
        if heading is not None:
            title = (
                rf"\multicolumn{{{columns.count}}}{{@{{}}c@{{}}}}{{\textit{{{escape_latex(heading)}}}}} \\"
            )
            lines += [*[r"\midrule"] * bool(lines), title, r"\midrule"]
        elif number in table.rules:
            lines.append(r"\midrule")
        key = look.cites.get(table.methods[number])
        name = escape_latex(plain_text(row[0])) + (f"~{cite}{{{key}}}" if key else "")
        lines.append(table_row(name, columns.rows[number]))
    return [
        rf"\begin{{tabular}}{{{columns.spec}}}",
        r"\toprule",
        " & ".join(columns.header) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
