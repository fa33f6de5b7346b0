r"""Typeset grids in LaTeX with booktabs and escaped texts.

Needs \usepackage{booktabs,graphicx,xcolor}; a whole document has them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.render.grid import BEST, DASH, SCALE, SECOND, Grid, Quoted, ScoreCell, Value

DEVIATIONS = ("avg", "all", "none")
"""Columns that print standard deviations."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"$\mathdollar$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedblright{}",
    "[": r"{[}",
    "]": r"{]}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{DAGGER}": r"$\dagger$",
    "\N{DOUBLE DAGGER}": r"$\ddagger$",
    "\N{SECTION SIGN}": r"$\mathsection$",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{NOT EQUAL TO}": r"$\neq$",
    "\N{INFINITY}": r"$\infty$",
    "\N{RIGHTWARDS ARROW}": r"$\to$",
    "\N{LEFTWARDS ARROW}": r"$\leftarrow$",
    "\N{MIDDLE DOT}": r"$\cdot$",
    "\N{DEGREE SIGN}": r"$^\circ$",
    "\N{SUPERSCRIPT ONE}": "$^1$",
    "\N{SUPERSCRIPT TWO}": "$^2$",
    "\N{SUPERSCRIPT THREE}": "$^3$",
    **{chr(0x2070 + digit): f"$^{digit}$" for digit in (0, 4, 5, 6, 7, 8, 9)},
    "\N{VULGAR FRACTION ONE QUARTER}": r"$\frac{1}{4}$",
    "\N{VULGAR FRACTION ONE HALF}": r"$\frac{1}{2}$",
    "\N{VULGAR FRACTION THREE QUARTERS}": r"$\frac{3}{4}$",
    "\N{EM DASH}": "---",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
    "\N{LATIN SMALL LETTER O WITH STROKE}": r"\o{}",
    "\N{LATIN CAPITAL LETTER O WITH STROKE}": r"\O{}",
    "\N{LATIN SMALL LETTER AE}": r"\ae{}",
    "\N{LATIN CAPITAL LETTER AE}": r"\AE{}",
    "\N{LATIN SMALL LIGATURE OE}": r"\oe{}",
    "\N{LATIN CAPITAL LIGATURE OE}": r"\OE{}",
    "\N{LATIN SMALL LETTER L WITH STROKE}": r"\l{}",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": r"\L{}",
    "\N{LATIN SMALL LETTER DOTLESS I}": r"\i{}",
    "\N{MICRO SIGN}": r"$\mu$",
}
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": r"\`",
    "\N{COMBINING ACUTE ACCENT}": r"\'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": r"\^",
    "\N{COMBINING TILDE}": r"\~",
    "\N{COMBINING DIAERESIS}": r"\"",
    "\N{COMBINING CARON}": r"\v",
    "\N{COMBINING CEDILLA}": r"\c",
    "\N{COMBINING RING ABOVE}": r"\r",
    "\N{COMBINING BREVE}": r"\u",
    "\N{COMBINING MACRON}": r"\=",
    "\N{COMBINING DOT ABOVE}": r"\.",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": r"\H",
}
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
    *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"),
)  # other capitals look like Latin ones, and LaTeX has no command for them
_LIKE_LATIN = {
    **{"Alpha": "A", "Beta": "B", "Epsilon": "E", "Zeta": "Z", "Eta": "H", "Iota": "I", "Kappa": "K"},
    **{"Mu": "M", "Nu": "N", "Omicron": "O", "omicron": "o", "Rho": "P", "Tau": "T", "Chi": "X"},
}
_DASH = "--"
_MOST_LINES = 38  # of one float: more don't fit on a page
_MOST_CHARACTERS = 36  # of one line of a name
_PREAMBLE = r"""\documentclass{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,graphicx,xcolor}
\begin{document}
"""


def escape_latex(text: str) -> str:
    """Escape special characters, drop control characters, and write unsupported ones as U+XXXX."""
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isascii() and char.isprintable():
        return char
    if char.isascii():
        return " " if char.isspace() else ""
    decomposed = unicodedata.normalize("NFD", char)
    base, accent = decomposed[:1], decomposed[1:]
    if base.isascii() and base.isalpha() and accent in _ACCENTS:
        return rf"{_ACCENTS[accent]}{{{base}}}"
    if greek := _greek_letter(char):
        return greek
    return rf"{{\footnotesize U+{ord(char):04X}}}" if char.isprintable() else ""


def _greek_letter(char: str) -> str:
    """A plain Greek letter as a formula; "" for any other character."""
    match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", unicodedata.name(char, ""))
    if not match:
        return ""
    name = match[2].replace("LAMDA", "LAMBDA").lower()
    name = name if match[1] == "SMALL" else name.capitalize()
    if name in _LIKE_LATIN:
        return rf"$\mathrm{{{_LIKE_LATIN[name]}}}$"
    return rf"$\{name}$" if name in _GREEK else ""


def limit_deviations(grid: Grid, columns: str) -> Grid:
    """Return a table with standard deviations in some columns: one of DEVIATIONS.

    "avg" keeps every deviation of a table without an average.
    """
    averages = {place for place, name in enumerate(grid.header) if name.lower().rstrip(".") == "avg"}
    if columns == "all" or (columns == "avg" and not averages):
        return grid
    rows = []
    for row in grid.rows:
        cells = list(row)
        for place, cell in enumerate(row):
            if isinstance(cell, ScoreCell) and (columns == "none" or place not in averages):
                cells[place] = replace(cell, sd=None)
        rows.append(tuple(cells))
    return replace(grid, rows=tuple(rows))


@dataclass(frozen=True)
class TypesetColumns:
    """The columns of a table in LaTeX.

    Args:
        spec: Argument of tabular.
        header: The headings.
        rows: The cells of each row, without its name.
        count: Number of LaTeX's columns: a column with deviations or signs takes two.
    """

    spec: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int


def typeset_columns(
    grid: Grid, *, size: str = r"\scriptsize", decimals: Sequence[int] = ()
) -> TypesetColumns:
    r"""Typeset all cells but the names, so that the digits of a column align.

    Deviations and signs stand in a column of their own, which begins where the numbers end.

    Args:
        size: Font size of the deviations.
        decimals: Decimals of the scores of each column; empty for two.
    """
    spec, count = "l", 1
    header, columns = [escape_latex(grid.header[0])], []
    for place, name in enumerate(grid.header[1:], start=1):
        digits = decimals[place] if decimals else 2
        pairs = [_split_cell(row[place], size, digits) for row in grid.rows]
        double = any(tail for _, tail in pairs)
        columns.append([_join_cell(pair, double=double) for pair in pairs])
        scored = any(isinstance(row[place], ScoreCell) for row in grid.rows)
        shown = escape_latex(name)
        if scored or double:
            edge = "@{}" * (place + 1 == len(grid.header))
            shown = rf"\multicolumn{{{1 + double}}}{{c{edge}}}{{{shown}}}"
        header.append(shown)
        spec += "r@{}l" if double else "r"
        count += 1 + double
    rows = tuple(zip(*columns, strict=True)) if columns else ((),) * len(grid.rows)
    return TypesetColumns(f"@{{}}{spec}@{{}}", tuple(header), rows, count)


def _split_cell(cell: Value, size: str, decimals: int) -> tuple[str, str]:
    """The text of a cell up to its last digit, and what follows: best bold, second underlined."""
    if isinstance(cell, Quoted):
        text, sign = escape_latex(cell.text), _superscript(cell.sign)
        if not cell.grey:
            return text, sign
        return rf"\textcolor{{gray}}{{{text}}}", rf"\textcolor{{gray}}{{{sign}}}" if sign else ""
    if not isinstance(cell, ScoreCell):
        return _DASH if str(cell) == DASH else escape_latex(str(cell)), ""
    if cell.mean is None:
        return _DASH, ""
    text = f"{SCALE * cell.mean:.{decimals}f}".replace("-", "$-$")
    text = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}"}.get(cell.mark, text)
    spread = "" if cell.spread is None else rf"{{{size}$\pm${SCALE * cell.spread:.2f}}}"
    return text, spread + _superscript(cell.sign)


def _join_cell(pair: tuple[str, str], *, double: bool) -> str:
    number, tail = pair
    if number == _DASH:
        return rf"\multicolumn{{{1 + double}}}{{c}}{{{_DASH}}}"
    return f"{number} & {tail}" if double else number


def latex_tables(grids: Sequence[Grid], *, standalone: bool = False) -> str:
    """Return a table environment a grid, long ones in parts; ``standalone`` makes it a document."""
    body = "\n".join(_table_float(grid, part) for grid in grids for part in _split_rows(grid))
    return latex_document(body) if standalone else body


def latex_document(body: str, preamble: str | None = None) -> str:
    """Return tables and figures as a document."""
    return f"{preamble or _PREAMBLE}{body}\\clearpage\n\\end{{document}}\n"


def _split_rows(grid: Grid) -> list[range]:
    """Rows of each float: as many as fit on a page."""
    parts, start, lines = [], 0, 0
    for number, (label, *_) in enumerate(grid.rows):
        lines += len(_break_label(label))
        if lines > _MOST_LINES and number > start:
            parts.append(range(start, number))
            start, lines = number, len(_break_label(label))
    return [*parts, range(start, len(grid.rows))]


def _table_float(grid: Grid, part: range) -> str:
    which = "" if len(part) == len(grid.rows) else f" (rows {part.start + 1}-{part.stop})"
    columns = typeset_columns(grid)
    lines: list[str] = []
    for number, (heading, (label, *_)) in zip(part, _part_lines(grid, part), strict=True):
        if heading is not None:
            lines += [r"\midrule"] * bool(lines)
            lines.append(rf"\multicolumn{{{columns.count}}}{{l}}{{\textit{{{escape_latex(heading)}}}}} \\")
        lines.append(table_row(_row_label(label), columns.rows[number]))
    notes = []
    if grid.notes and part.stop == len(grid.rows):
        notes = [latex_notes(grid.notes)]
    return "\n".join(
        [
            r"\begin{table}[!htbp]",
            r"\centering",
            rf"\caption{{{escape_latex(grid.title)}{which}.}}",
            r"\smallskip",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns.spec}}}",
            r"\toprule",
            " & ".join(columns.header) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def latex_notes(notes: Sequence[str]) -> str:
    """Return the lines below a table as one paragraph."""
    text = escape_latex(" ".join(notes))
    return rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\footnotesize {text}\end{{minipage}}"


def table_row(name: str, cells: Sequence[str]) -> str:
    """Return a row of a tabular: its typeset name and cells."""
    guard = "{}" if name.startswith("*") else ""  # keeps the star out of the line break before it
    return " & ".join([guard + name, *cells]) + r" \\"


def _part_lines(grid: Grid, part: range) -> list[tuple[str | None, tuple[Value, ...]]]:
    """Rows of a part with the headings above them; a group of an earlier part is continued."""
    lines = grid.lines[part.start : part.stop]
    earlier = [name for place, name in sorted(grid.groups) if place < part.start]
    if earlier and lines[0][0] is None:
        lines[0] = (f"{earlier[-1]} (continued)", lines[0][1])
    return lines


def _superscript(sign: str) -> str:
    text = escape_latex(sign)
    if math := re.fullmatch(r"\$([^$]+)\$", text):
        return rf"$^{{{math[1]}}}$"
    return rf"$^{{\mbox{{\scriptsize {text}}}}}$" if sign else ""


def _row_label(label: Value) -> str:
    """A row's name, a long one in several lines."""
    lines = _break_label(label)
    if not isinstance(label, str) or len(lines) == 1:
        return _split_cell(label, "", 2)[0]
    stacked = r" \\ ".join(escape_latex(line.rstrip()) for line in lines)
    return rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}{stacked}\end{{tabular}}"


def _break_label(label: Value) -> list[str]:
    """A name broken after its punctuation, or anywhere."""
    if not isinstance(label, str) or len(label) <= _MOST_CHARACTERS:
        return [""]
    lines, line = [], ""
    for piece in re.findall(r"[^,+\]\[ ]+[,+\]\[ ]*|[,+\]\[ ]+", label):
        while len(line) + len(piece) > _MOST_CHARACTERS:
            cut = 0 if line else _MOST_CHARACTERS
            lines.append(line + piece[:cut])
            line, piece = "", piece[cut:]
        line += piece
    return [*lines, line] if line else lines
