"""Draw points over two numbers, with names where there is room, and Pareto fronts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from bench.render.figure import (
    Figure,
    Series,
    clamp_value,
    clip_text,
    line_extent,
    overflow_direction,
    robust_limits,
)
from bench.render.svg_marks import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    draw_axes,
    draw_edge_marker,
    draw_marker,
    series_group,
    text_at,
    text_width,
)

_MARK = 6.0
_BOLD = 1.25  # most width of bold letters, of that of others
Ends = tuple[float, float]
Box = tuple[float, float, float, float]


class NamePlaces:
    """Free places for names in a plot: none covers a point or another name."""

    def __init__(self, points: Sequence[Ends], taken: Sequence[Box] = ()) -> None:
        self._taken = list(taken)
        for x, y in points:
            self._taken.append((x - _MARK, y - _MARK, x + _MARK, y + _MARK))

    def take(self, text: str, at: Ends, *, strong: bool = False) -> tuple[float, float, str] | None:
        """Take a place beside a point, above or below it: x, y and anchor; None without one."""
        wide, (x, y) = text_width(text), at
        bold = (_BOLD - 1) * wide if strong else 0.0
        choices = [
            ("start", x + 8, y + 4, x + 8),
            ("end", x - 8, y + 4, x - 8 - wide),
            ("middle", x, y - 9, x - wide / 2),
            ("middle", x, y + 17, x - wide / 2),
        ]
        if strong and x + (wide + bold) / 2 > WIDTH:  # at the right edge
            choices.append(("end", WIDTH - 4, y - 9, WIDTH - 4 - wide - bold))
        for anchor, start, base, left in choices:
            box = left, base - 9, left + wide, base + 2
            beyond = {"start": bold, "end": 0.0, "middle": bold / 2}[anchor]
            inside = box[0] >= LEFT and box[2] + beyond <= WIDTH and box[1] >= 0 and box[3] <= HEIGHT - BOTTOM
            if inside and not any(_overlap(box, other) for other in self._taken):
                self._taken.append(box)
                return start, base, anchor
        return None


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def draw_points(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of points, and their height."""
    bottom = HEIGHT - BOTTOM
    wide = robust_limits(figure.all_x)
    ends = robust_limits(list(chain.from_iterable(map(line_extent, figure.series))))
    x, y = Axis(wide, LEFT, WIDTH - RIGHT, log=figure.log), Axis(ends, bottom, TOP)
    parts = draw_axes(x, y, TOP, bottom, (figure.x, figure.y))
    return parts + _draw_series(figure, x, y, (wide, ends)), HEIGHT


def draw_front(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of points, of which steps join those of the first series, and their height."""
    bottom = HEIGHT - BOTTOM
    front = figure.series[0]
    wide = min(figure.all_x), max(figure.all_x)
    ends = robust_limits(list(chain.from_iterable(map(line_extent, figure.series))))
    x, y = Axis(wide, LEFT, WIDTH - RIGHT, log=figure.log), Axis(ends, bottom, TOP, margin=0.1)
    parts = draw_axes(x, y, TOP, bottom, (figure.x, figure.y))
    corners = sorted((x.at(a), y.at(clamp_value(b, ends))) for a, b in zip(front.x, front.y, strict=True))
    path, lines = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}", []
    for (left, height), (right, above) in pairwise([*corners, (x.end, corners[-1][1])]):
        path += f"H{right:.1f}V{above:.1f}"
        lines.append((left, height - 2, right, height + 2))
    parts.append(f'<path d="{path}" class="front c0"/>')
    return parts + _draw_series(figure, x, y, (wide, ends), lines), HEIGHT


def _draw_series(
    figure: Figure, x: Axis, y: Axis, ends: tuple[Ends, Ends], taken: Sequence[Box] = ()
) -> list[str]:
    """Each series' points, outliers at the edge, with names as far as there is room; they keep off ``taken``.

    The highlighted point takes its name's place first, then the first series'.
    """
    points = []
    for number, one in enumerate(figure.series):
        labels = one.labels or (one.name,) * len(one.x)
        for a, b, label in zip(one.x, one.y, labels, strict=True):
            at = _edge_place(x, a, ends[0]), _edge_place(y, b, ends[1])
            points.append((number, a, b, label, at))
    places = NamePlaces([at for *_, at in points], taken)
    points.sort(key=lambda point: point[3] != figure.highlight)
    groups: dict[int, list[str]] = {number: [] for number in range(len(figure.series))}
    for number, a, b, label, at in points:
        parts, text = groups[number], clip_text(label, 24)
        right, down = overflow_direction(a, ends[0]), -overflow_direction(b, ends[1])
        title = f"{label}: {a:.4g}, {b:.4g}"
        if right or down:
            parts.append(draw_edge_marker(figure.look(number), *at, (right, 0 if right else down), title))
            text = f"{text} ({a:.4g}, {b:.4g})"
        else:
            parts.append(draw_marker(figure.look(number), *at, title))
        strong = label == figure.highlight or (figure.kind == "front" and number == 0)
        if (place := places.take(text, at, strong=strong)) is not None:
            style = "name strong" if strong else "name"
            left, base, anchor = place
            parts.append(text_at(left, base, text, anchor, style, title=label))
    drawn = [series_group(number, parts) for number, parts in groups.items()]
    return drawn[::-1]  # the first series on top


def _edge_place(axis: Axis, value: float, ends: Ends) -> float:
    """A value's place; beyond the ends, one near the edge of the plot."""
    if direction := overflow_direction(value, ends):
        edge, other = (axis.end, axis.start) if direction > 0 else (axis.start, axis.end)
        return edge + math.copysign(7, other - edge)
    return axis.at(value)


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points better than all that cost as little, from the cheapest on.

    >>> pareto_front({"a": (1.0, 5.0), "b": (2.0, 4.0), "c": (3.0, 7.0)})
    ['a', 'c']
    """
    front: list[str] = []
    best = float("-inf")
    for name in sorted(points, key=lambda name: (points[name][0], -points[name][1], name)):
        if points[name][1] > best:
            front.append(name)
            best = points[name][1]
    return front


def front_series(points: Mapping[str, tuple[float, float]]) -> tuple[Series, ...]:
    """Return the Pareto front and the other points as two labelled series."""
    front = pareto_front(points)
    others = [name for name in points if name not in front]
    series = []
    for title, names in (("Pareto front: no method is better at less cost", front), ("others", others)):
        if names:
            x, y = zip(*(points[name] for name in names), strict=True)
            series.append(Series(title, x, y, labels=tuple(names)))
    return tuple(series)
