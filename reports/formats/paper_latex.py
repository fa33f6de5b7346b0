r"""Typeset tables as a paper prints them, in LaTeX, with escaped names.

They need \usepackage{booktabs,graphicx}, style acl also natbib, as ACL's own style does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.config.method_ids import split_outside_brackets
from bench.errors import InputError, not_one_of, printable
from bench.render.grid import BEST, SECOND, ScoreCell, Value, column_widths, format_score, plain_text
from bench.render.latex import escape_latex, latex_document
from bench.reports.tables.paper_tables import PaperTable

STYLES = ("booktabs", "acl")
_KEY = re.compile(r"[A-Za-z0-9:_.-]+")
_ONE_COLUMN = 46  # characters of ACL's column in \small
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
    name: str | None, caption: str | None, label: str | None, cites: str | None, methods: Sequence[str]
) -> PaperStyle | None:
    """Return the style of the options (``cites``: METHOD=KEY,...), None without options.

    Raises InputError for other characters of a label or key than letters, digits and ``:_.-``.
    """
    if (name, caption, label, cites) == (None, None, None, None):
        return None
    if label is not None:
        _check_key(label, "--label")
    keys: dict[str, str] = {}
    for entry in split_outside_brackets(cites) if cites is not None else ():
        method, equals, key = entry.rpartition("=")
        if not equals:
            raise InputError(f"'{entry}' names no key", where="--cite", expected="METHOD=KEY,METHOD=KEY")
        if method not in methods:
            raise not_one_of(f"no row of '{method}'", method, methods, where="--cite")
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


def _table_float(table: PaperTable, look: PaperStyle) -> str:
    acl = look.name == "acl"
    widths = column_widths(table.grid)
    place = "table*" if acl and sum(widths) + len(widths) > _ONE_COLUMN else "table"
    text = look.caption if look.caption is not None else _typeset_p(escape_latex(table.caption))
    caption = [rf"\caption{{{text}}}"]
    if look.label:
        caption.append(rf"\label{{{look.label}}}")
    tabular = [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        "\n".join(_tabular_lines(table, look)) + "}",
    ]
    if acl:
        body = [r"\centering\small", r"\setlength{\tabcolsep}{4pt}", *tabular, *caption]
    else:
        body = [r"\centering", *caption, r"\medskip", *tabular]
    remarks = [f"% {printable(remark)}" for remark in table.remarks]
    return "\n".join([*remarks, rf"\begin{{{place}}}[t]", *body, rf"\end{{{place}}}", ""])


def _typeset_p(text: str) -> str:
    r"""Return p and its bound as mathematics.

    >>> print(_typeset_p(r"at p $\leq$ 0.05, p \textgreater{} 0.05"))
    at $p \leq 0.05$, $p > 0.05$
    """
    text = re.sub(r"\bp \$\\leq\$ (\d\.\d+)", r"$p \\leq \1$", text)
    return re.sub(r"\bp \\textgreater\{\} (\d\.\d+)", r"$p > \1$", text)


def _tabular_lines(table: PaperTable, look: PaperStyle) -> list[str]:
    grid = table.grid
    first, *names = map(escape_latex, grid.header)
    header = [first, *(rf"\multicolumn{{1}}{{c}}{{{name}}}" for name in names)]
    columns, alignment = [], "l"
    for place in range(1, len(grid.header)):
        cells = [row[place] for row in grid.rows]
        columns.append(_column_cells(cells))
        scored = any(isinstance(cell, ScoreCell) for cell in cells)
        alignment += "r" if scored else "c"
    cite = r"\citep" if look.name == "acl" else r"\cite"
    lines: list[str] = []
    for number, (heading, row) in enumerate(grid.lines):
        if heading is not None:
            title = rf"\multicolumn{{{len(row)}}}{{c}}{{\textit{{{escape_latex(heading)}}}}} \\"
            lines += [*[r"\midrule"] * bool(lines), title, r"\midrule"]
        key = look.cites.get(table.methods[number])
        name = escape_latex(plain_text(row[0])) + (f"~{cite}{{{key}}}" if key else "")
        guard = "{}" if name.startswith("*") else ""  # keeps the star out of the line break before it
        lines.append(" & ".join([guard + name, *(column[number] for column in columns)]) + r" \\")
    return [
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _column_cells(cells: Sequence[Value]) -> list[str]:
    """Cells of one column, with room for missing signs and deviations, so that digits align."""
    scores = [cell for cell in cells if isinstance(cell, ScoreCell)]
    sign = max((cell.sign for cell in scores), key=len, default="")
    spread = max((format_score(cell.sd) for cell in scores if cell.sd is not None), key=len, default="")
    return [_latex_cell(cell, sign, spread) for cell in cells]


def _latex_cell(cell: Value, sign: str, spread: str) -> str:
    if not isinstance(cell, ScoreCell) or cell.mean is None:
        shown = plain_text(cell)
        return r"\multicolumn{1}{c}{--}" if shown == "-" else escape_latex(shown.replace("-", "\N{EN DASH}"))
    shown = format_score(cell.mean).replace("-", "$-$")
    text = {BEST: rf"\textbf{{{shown}}}", SECOND: rf"\underline{{{shown}}}"}.get(cell.mark, shown)
    if sign:
        text += _superscript(cell.sign) if cell.sign else rf"\phantom{{{_superscript(sign)}}}"
    if spread and cell.sd is None:
        text += rf"\phantom{{{_deviation_text('', spread)}}}"
    elif spread:
        own = format_score(cell.sd)
        text += _deviation_text("0" * (len(spread) - len(own)), own)
    return text


def _superscript(sign: str) -> str:
    return rf"$^{{{escape_latex(sign).strip('$')}}}$"


def _deviation_text(room: str, deviation: str) -> str:
    return r"{\scriptsize$\pm$" + (rf"\phantom{{{room}}}" if room else "") + f"{deviation}}}"
