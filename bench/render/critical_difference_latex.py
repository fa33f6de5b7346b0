"""Critical-difference diagrams in LaTeX's picture environment, which need only graphicx."""

from __future__ import annotations

from collections.abc import Sequence

from bench.render.critical_difference import (
    axis_label,
    place_bars,
    rank_axis,
    rank_ticks,
    ranking_labels,
    split_sides,
)
from bench.render.figure import Figure
from bench.render.latex import escape_latex

_AXIS, _ELBOW, _ROW, _LEVEL = 66.0, 4.0, 4.2, 1.8  # mm: its length, beyond its ends, between names, bars
_HIGHEST = 210.0  # mm: what fits on a page with its caption
_NAME = 50.0  # mm beside it that a name may take


def ranking_picture(figure: Figure) -> str:
    """Return a figure environment with the diagram of a figure of kind "ranking"."""
    (left, right), labels = split_sides(len(figure.rows)), ranking_labels(figure)
    start, end = _NAME + _ELBOW, _NAME + _ELBOW + _AXIS
    x = rank_axis(figure, start, end)
    bars, levels = place_bars(figure, x, gap=2.5)
    depth = _LEVEL * levels + 3
    axis = depth + _ROW * len(left)
    lines = [
        _picture_line(start, axis, _AXIS, 0),
        _picture_text((start + end) / 2, axis + 8, "", axis_label(figure)),
    ]
    for tick in rank_ticks(len(figure.rows)):
        lines.append(_picture_line(x.at(tick), axis, 0, 1))
        lines.append(_picture_text(x.at(tick), axis + 1.5, "b", str(tick)))
    for rows, edge, side, shift in ((left, start - _ELBOW, "r", -1), (right, end + _ELBOW, "l", 1)):
        for number, row in enumerate(rows):
            at, y = x.at(row + 1), axis - depth - _ROW * number
            lines += [_picture_line(at, y, 0, axis - y), _picture_line(min(at, edge), y, abs(edge - at), 0)]
            lines.append(_picture_text(edge + shift, y, side, labels[row]))
    for low, high, level in bars:
        y = axis - _LEVEL * (level + 1)
        lines.append(rf"\put({low - 0.5:.2f},{y:.2f}){{\rule{{{high - low + 1:.2f}mm}}{{0.7mm}}}}")
    return "\n".join(_frame_picture(lines, figure, end + start, axis + 10))


def _frame_picture(lines: Sequence[str], figure: Figure, width: float, height: float) -> list[str]:
    size = r"\ifdim\width>\linewidth\linewidth\else\width\fi}{!"
    if height > _HIGHEST:
        size = rf"!}}{{{_HIGHEST:g}mm"
    return [
        r"\begin{figure}[!htbp]",
        r"\centering",
        rf"\resizebox{{{size}}}{{%",
        r"\setlength{\unitlength}{1mm}\footnotesize",
        rf"\begin{{picture}}({width:.2f},{height:.2f})",
        *lines,
        r"\end{picture}}",
        rf"\caption{{{escape_latex(figure.title)}. {escape_latex(figure.note)}}}",
        r"\end{figure}",
        "",
    ]


def _picture_line(x: float, y: float, right: float, up: float) -> str:
    """A line to the right or upwards."""
    direction = "(0,1)" if up else "(1,0)"
    return rf"\put({x:.2f},{y:.2f}){{\line{direction}{{{max(right, up):.2f}}}}}"


def _picture_text(x: float, y: float, side: str, text: str) -> str:
    """A text left of a place ("r"), right of it ("l"), above ("b") or about it; a long one shrinks."""
    box = escape_latex(text)
    if side in ("l", "r"):
        shrink = rf"\ifdim\width>{_NAME:g}mm {_NAME:g}mm\else\width\fi"
        box = rf"\resizebox{{{shrink}}}{{\height}}{{\strut {box}}}"
    return rf"\put({x:.2f},{y:.2f}){{\makebox(0,0)[{side or 'c'}]{{{box}}}}}"
