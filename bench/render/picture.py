r"""Critical-difference diagrams as LaTeX in its picture environment: no package but graphicx is needed."""

from __future__ import annotations

from collections.abc import Sequence

from bench.render.critical_difference import (
    axis_label,
    bar_spans,
    labels,
    levels,
    rank_axis,
    sides,
    ticks,
)
from bench.render.figure import Figure
from bench.render.latex import escape

_AXIS, _ELBOW, _ROW, _LEVEL = 66.0, 4.0, 4.2, 1.8  # mm: its length, beyond its ends, between names, bars
_HIGHEST = 210.0  # mm: what fits on a page with its caption
_NAME = 50.0  # mm beside it that a name may take


def critical_difference(figure: Figure) -> str:
    """Return a figure environment with the diagram of a figure of kind "ranking"."""
    (left, right), shown = sides(len(figure.rows)), labels(figure)
    start, end = _NAME + _ELBOW, _NAME + _ELBOW + _AXIS
    x = rank_axis(figure, start, end)
    spans = bar_spans(figure, x)
    of_bars = levels(spans, gap=2.5)
    deep = _LEVEL * (max(of_bars, default=-1) + 1) + 3
    axis = deep + _ROW * len(left)
    lines = [_line(start, axis, _AXIS, 0), _name((start + end) / 2, axis + 8, "", axis_label(figure))]
    for tick in ticks(len(figure.rows)):
        lines += [_line(x.at(tick), axis, 0, 1), _name(x.at(tick), axis + 1.5, "b", str(tick))]
    for rows, edge, side in ((left, start - _ELBOW, "r"), (right, end + _ELBOW, "l")):
        for number, row in enumerate(rows):
            at, y = x.at(row + 1), axis - deep - _ROW * number
            lines += [_line(at, y, 0, axis - y), _line(min(at, edge), y, abs(edge - at), 0)]
            lines.append(_name(edge + (1 if side == "l" else -1), y, side, shown[row]))
    for (low, high), level in zip(spans, of_bars, strict=True):
        y = axis - _LEVEL * (level + 1)
        lines.append(rf"\put({low - 0.5:.2f},{y:.2f}){{\rule{{{high - low + 1:.2f}mm}}{{0.7mm}}}}")
    return "\n".join(_framed(lines, figure, end + start, axis + 10))


def _framed(lines: Sequence[str], figure: Figure, width: float, height: float) -> list[str]:
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
        rf"\caption{{{escape(figure.title)}. {escape(figure.note)}}}",
        r"\end{figure}",
        "",
    ]


def _line(x: float, y: float, right: float, up: float) -> str:
    """A line to the right or upwards."""
    way = "(0,1)" if up else "(1,0)"
    return rf"\put({x:.2f},{y:.2f}){{\line{way}{{{max(right, up):.2f}}}}}"


def _name(x: float, y: float, side: str, text: str) -> str:
    """A text left of a place ("r"), right of it ("l"), above ("b") or about it; a long one shrinks."""
    box = escape(text)
    if side in ("l", "r"):
        shrink = rf"\ifdim\width>{_NAME:g}mm {_NAME:g}mm\else\width\fi"
        box = rf"\resizebox{{{shrink}}}{{\height}}{{\strut {box}}}"
    return rf"\put({x:.2f},{y:.2f}){{\makebox(0,0)[{side or 'c'}]{{{box}}}}}"
