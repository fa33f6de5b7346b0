"""Critical-difference diagrams (Demsar 2006): methods by their rank, the best on the left, groups joined.

Demsar's have one critical difference for all pairs, Nemenyi's. Here each pair has its own test, and a bar is
a group of :attr:`bench.stats.method_ranking.Ranking.groups`. Methods stand at ranks, as outlying scores would
squeeze the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.render.figure import Figure, Series
from bench.render.grid import shorten_names
from bench.render.latex import escape_latex
from bench.render.svg_marks import WIDTH, Axis, line_between, text_at

if TYPE_CHECKING:
    from bench.stats.method_ranking import Ranking

LONGEST = 36  # characters of a name beside the axis
_LETTER, _ROW, _LEVEL, _AXIS, _ROOM = 6.2, 18, 9, 46, 14
_GAP = 8  # between two bars of one level
# In LaTeX, in mm: the axis' length, beyond its ends, between names, between bars, a page's height, a name
_AXIS_MM, _ELBOW, _ROW_MM, _LEVEL_MM, _HIGHEST, _NAME = 66.0, 4.0, 4.2, 1.8, 210.0, 50.0
_TICKS = 6


def ranking_figure(
    ranking: Ranking,
    name: str,
    section: str,
    title: str,
    axis: str,
    provenance: tuple[str, ...],
    *,
    scale: float = 1.0,
    note: str = "",
) -> Figure:
    """Return a critical-difference diagram; ``axis`` names the scores, ``scale`` multiplies them."""
    methods, scores = ranking.methods, tuple(scale * score for score in ranking.scores)
    bars = tuple((group[0], group[-1]) for group in ranking.groups if len(group) > 1)
    series = Series("mean", scores, tuple(map(float, range(len(scores)))))
    order = ", ".join(f"{method} {score:.2f}" for method, score in zip(methods, scores, strict=True))
    joined = "; ".join(", ".join(methods[first : last + 1]) for first, last in bars)
    groups = f"Not shown to differ: {joined}." if joined else "No group of several methods."
    alt = f"{axis}, the best first: {order}. {groups}"
    head = name, section, title
    return Figure(*head, "ranking", axis, "", provenance, (series,), methods, note=note, bars=bars, alt=alt)


def ranking_labels(figure: Figure) -> list[str]:
    """Return each method's label: name and score."""
    names = shorten_names(figure.rows, LONGEST)
    return [f"{names[name]} {score:.2f}" for name, score in zip(figure.rows, figure.series[0].x, strict=True)]


def axis_label(figure: Figure) -> str:
    """Return the label of the axis."""
    return f"rank by {figure.x}"


def rank_ticks(count: int) -> list[int]:
    """Return the labelled ranks.

    >>> rank_ticks(5), rank_ticks(12)
    ([1, 2, 3, 4, 5], [1, 2, 4, 6, 8, 10, 12])
    """
    steps = (size * 10**power for power in range(9) for size in (1, 2, 5))
    step = next(step for step in steps if count <= _TICKS * step)
    return [1, *range(step if step > 1 else 2, count + 1, step)]


def split_sides(count: int) -> tuple[list[int], list[int]]:
    """Return the rows labelled on the left and on the right, from the top, so that lines keep from crossing.

    >>> split_sides(5)
    ([0, 1, 2], [4, 3])
    """
    half = (count + 1) // 2
    return list(range(half)), list(range(count - 1, half - 1, -1))


def rank_axis(figure: Figure, start: float, end: float) -> Axis:
    """Return the axis of ranks; a row has its number plus 1."""
    return Axis((1, max(len(figure.rows), 2)), start, end, margin=0.03)


def stack_bars(spans: Sequence[tuple[float, float]], gap: float) -> list[int]:
    """Return a level for each bar, the first 0; those of one level keep more than ``gap`` between them.

    >>> stack_bars([(0.0, 2.0), (1.0, 3.0), (3.0, 4.0), (3.5, 5.0)], gap=0.5)
    [0, 1, 0, 2]
    """
    taken: list[list[tuple[float, float]]] = []
    levels = []
    for low, high in spans:
        level = 0
        while level < len(taken) and any(
            low <= end + gap and high >= start - gap for start, end in taken[level]
        ):
            level += 1
        if level == len(taken):
            taken.append([])
        taken[level].append((low, high))
        levels.append(level)
    return levels


def place_bars(figure: Figure, x: Axis, gap: float) -> tuple[list[tuple[float, float, int]], int]:
    """Return each bar's ends along the axis and its level (:func:`stack_bars`), and the number of levels."""
    spans = [(x.at(first + 1), x.at(last + 1)) for first, last in figure.bars]
    levels = stack_bars(spans, gap)
    bars = [(low, high, level) for (low, high), level in zip(spans, levels, strict=True)]
    return bars, max(levels, default=-1) + 1


def draw_ranking(figure: Figure) -> tuple[list[str], float]:
    """Return a diagram's parts of an ``<svg>``, and its height."""
    sides, labels = split_sides(len(figure.rows)), ranking_labels(figure)
    edges = []
    for rows in sides:
        edges.append(_LETTER * max((len(labels[row]) for row in rows), default=0) + _ROOM)
    ends = (edges[0] + _ROOM, WIDTH - edges[1] - _ROOM)
    x = rank_axis(figure, *ends)
    parts = [
        line_between(ends[0], _AXIS, ends[1], _AXIS, "axis"),
        text_at(sum(ends) / 2, 14, axis_label(figure), "middle", "label"),
    ]
    for tick in rank_ticks(len(figure.rows)):
        parts.append(line_between(x.at(tick), _AXIS - 5, x.at(tick), _AXIS, "axis"))
        parts.append(text_at(x.at(tick), _AXIS - 9, str(tick), "middle", "tick"))
    bars, levels = place_bars(figure, x, _GAP)
    top = _AXIS + _LEVEL * levels + _ROOM
    places = ((edges[0], "end", -5), (WIDTH - edges[1], "start", 5))
    for rows, (end, anchor, shift) in zip(sides, places, strict=True):
        for line, row in enumerate(rows):
            y, at = top + _ROW * line, x.at(row + 1)
            parts.append(f'<path d="M{at:.1f} {_AXIS}V{y:.1f}H{end:.1f}" class="elbow"/>')
            title = f"{figure.rows[row]}: {figure.series[0].x[row]:.2f}"
            parts.append(text_at(end + shift, y + 4, labels[row], anchor, "name", title=title))
    for low, high, level in bars:
        y = _AXIS + _LEVEL * (level + 1)
        parts.append(line_between(low - 2, y, high + 2, y, "bar"))
    return parts, top + _ROW * len(sides[0])


def ranking_picture(figure: Figure) -> str:
    """Return a figure environment with the diagram of a figure of kind "ranking"."""
    (left, right), labels = split_sides(len(figure.rows)), ranking_labels(figure)
    start, end = _NAME + _ELBOW, _NAME + _ELBOW + _AXIS_MM
    x = rank_axis(figure, start, end)
    bars, levels = place_bars(figure, x, gap=2.5)
    depth = _LEVEL_MM * levels + 3
    axis = depth + _ROW_MM * len(left)
    lines = [
        _picture_line(start, axis, _AXIS_MM, 0),
        _picture_text((start + end) / 2, axis + 8, "", axis_label(figure)),
    ]
    for tick in rank_ticks(len(figure.rows)):
        lines.append(_picture_line(x.at(tick), axis, 0, 1))
        lines.append(_picture_text(x.at(tick), axis + 1.5, "b", str(tick)))
    for rows, edge, side, shift in ((left, start - _ELBOW, "r", -1), (right, end + _ELBOW, "l", 1)):
        for number, row in enumerate(rows):
            at, y = x.at(row + 1), axis - depth - _ROW_MM * number
            lines += [_picture_line(at, y, 0, axis - y), _picture_line(min(at, edge), y, abs(edge - at), 0)]
            lines.append(_picture_text(edge + shift, y, side, labels[row]))
    for low, high, level in bars:
        y = axis - _LEVEL_MM * (level + 1)
        lines.append(rf"\put({low - 0.5:.2f},{y:.2f}){{\rule{{{high - low + 1:.2f}mm}}{{0.7mm}}}}")
    width, height = start + end, axis + 10
    size = r"\ifdim\width>\linewidth\linewidth\else\width\fi}{!"
    if height > _HIGHEST:
        size = rf"!}}{{{_HIGHEST:g}mm"
    frame = [
        "\\begin{figure}[!htbp]\n\\centering",
        rf"\resizebox{{{size}}}{{%",
        r"\setlength{\unitlength}{1mm}\footnotesize",
        rf"\begin{{picture}}({width:.2f},{height:.2f})",
    ]
    caption = rf"\caption{{{escape_latex(figure.title)}. {escape_latex(figure.note)}}}"
    return "\n".join([*frame, *lines, r"\end{picture}}", caption, "\\end{figure}\n"])


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
