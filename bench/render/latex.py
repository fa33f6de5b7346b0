r"""Typeset grids in LaTeX with booktabs and escaped texts.

Needs \usepackage{booktabs,graphicx,xcolor}; a whole document has them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from bench.render.grid import BEST, DASH, SCALE, SECOND, Grid, Printed, Quoted, Value

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
    notes = " ".join(grid.notes) if part.stop == len(grid.rows) else ""
    lines: list[str] = []
    for heading, (label, *cells) in _part_lines(grid, part):
        if heading is not None:
            lines += [r"\midrule"] * bool(lines)
            lines.append(rf"\multicolumn{{{len(grid.header)}}}{{l}}{{\textit{{{escape_latex(heading)}}}}} \\")
        first = _row_label(label)
        guard = "{}" if first.startswith("*") else ""  # keeps the star out of the line break before it
        lines.append(" & ".join([guard + first, *map(cell_text, cells)]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}[!htbp]",
            r"\centering",
            rf"\caption{{{escape_latex(grid.title)}{which}. {escape_latex(notes)}}}",
            r"\smallskip",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}",
            r"\toprule",
            " & ".join(map(escape_latex, grid.header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _part_lines(grid: Grid, part: range) -> list[tuple[str | None, tuple[Value, ...]]]:
    """Rows of a part with the headings above them; a group of an earlier part is continued."""
    lines = grid.lines[part.start : part.stop]
    earlier = [name for place, name in sorted(grid.groups) if place < part.start]
    if earlier and lines[0][0] is None:
        lines[0] = (f"{earlier[-1]} (continued)", lines[0][1])
    return lines


def cell_text(cell: Value) -> str:
    """Return a cell: best bold, second underlined, deviations as subscripts, foreign figures grey."""
    if isinstance(cell, Quoted):
        text = f"{escape_latex(cell.text)}{_superscript(cell.sign)}"
        return rf"\textcolor{{gray}}{{{text}}}" if cell.grey else text
    if isinstance(cell, str | Printed):
        return _DASH if str(cell) == DASH else escape_latex(str(cell))
    if cell.mean is None:
        return _DASH
    value = f"{SCALE * cell.mean:.2f}"
    text = rf"$-${value[1:]}" if value.startswith("-") else value
    text = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}"}.get(cell.mark, text)
    spread = "" if cell.spread is None else rf"$_{{\pm {SCALE * cell.spread:.2f}}}$"
    return f"{text}{spread}{_superscript(cell.sign)}"


def _superscript(sign: str) -> str:
    return rf"$^{{\mbox{{\scriptsize {escape_latex(sign)}}}}}$" if sign else ""


def _row_label(label: Value) -> str:
    """A row's name, a long one in several lines."""
    lines = _break_label(label)
    if not isinstance(label, str) or len(lines) == 1:
        return cell_text(label)
    stacked = r" \\ ".join(map(escape_latex, lines))
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
