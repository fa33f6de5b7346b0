"""A cell's scores over builds as inline SVG, with the band of passing scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from bench.gate.tables import WORDS
from bench.gate.verdict import Status
from bench.gate.verdict_history import CellHistory, GatePoint
from bench.render.grid import SCALE, format_score
from bench.render.svg_marks import WIDTH, Axis, escape_markup, line_between, text_at

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 56, 16, 16, 40, 230
_FAR = 2.0
"""Distance beyond the other scores, in their range, up to which a failed score is drawn in place."""
_LABEL = 74
"""Width of a build's name."""


def draw_history_chart(line: CellHistory, number_of: int, name: Callable[[GatePoint], str]) -> str:
    """Return one ``<svg>`` element with a unique number on the page; any text in it is escaped.

    ``name`` returns the short name of a point's build.
    """
    points, bottom = line.points, _HEIGHT - _BOTTOM
    y = _build_axis(points, bottom)
    width = (WIDTH - _LEFT - _RIGHT) / len(points)
    middles = [_LEFT + width * (place + 0.5) for place in range(len(points))]
    parts = [line_between(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis")]
    for tick in y.ticks(5):
        parts.append(line_between(_LEFT, y.at(tick), WIDTH - _RIGHT, y.at(tick), "grid"))
        parts.append(text_at(_LEFT - 6, y.at(tick) + 4, f"{tick:g}", "end", "tick"))
    for place in range(0, len(points), max(1, math.ceil(_LABEL / width))):
        text, whole = name(points[place]), points[place].build.file
        parts.append(text_at(middles[place], bottom + 16, text, "middle", "tick", title=whole))
    parts += _draw_band(points, middles, width / 2, y)
    path: list[str] = []
    markers: list[str] = []
    for x, point in zip(middles, points, strict=True):
        if average := point.cell.average:
            path.append(f"{x:.1f} {_clip_to_axis(average.new, y):.1f}")
        markers += _draw_marker(point, x, y, bottom)
    if len(path) > 1:
        parts.append(f'<path d="M{"L".join(path)}" class="scores"/>')
    parts += markers
    title = escape_markup(f"{line.title}: score over builds")
    description = escape_markup(_describe_chart(points, name))
    ids = f"chart-{number_of}-title", f"chart-{number_of}-desc"
    return (
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-labelledby="{ids[0]} {ids[1]}">'
        f'<title id="{ids[0]}">{title}</title><desc id="{ids[1]}">{description}</desc>{"".join(parts)}</svg>'
    )


def _build_axis(points: Sequence[GatePoint], bottom: float) -> Axis:
    """Return an axis over references, limits and passing scores; a failed score stretches it only so far."""
    passing = [point for point in points if not point.failed]
    averages = [point.cell.average for point in points if point.cell.average]
    core = [SCALE * average.reference for average in averages]
    core += [SCALE * point.below for point in passing or points if point.below is not None]
    core += [SCALE * point.cell.average.new for point in passing if point.cell.average]
    if not core:
        return Axis((), bottom, _TOP)
    low, high = min(core), max(core)
    room = _FAR * max(high - low, 1.0)
    scores = [SCALE * average.new for average in averages]
    return Axis([*core, *(score for score in scores if low - room <= score <= high + room)], bottom, _TOP)


def _clip_to_axis(score: float, y: Axis) -> float:
    """Return the place of a score, at the edge for one beyond the axis."""
    return y.at(min(max(SCALE * score, y.low), y.high))


def _draw_band(points: Sequence[GatePoint], middles: Sequence[float], half: float, y: Axis) -> Iterator[str]:
    """Draw from the reference down to the failing score, a step a build; a gap without one."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for x, point in zip(middles, points, strict=True):
        if point.cell.average is None or point.below is None:
            runs.append([])
            continue
        runs[-1].append((x, y.at(SCALE * point.cell.average.reference), _clip_to_axis(point.below, y)))
        if point.step:
            yield line_between(x - half, _TOP, x - half, _HEIGHT - _BOTTOM, "step")
    for run in filter(None, runs):
        top, low = [], []
        for x, reference, below in run:
            top += [f"{x - half:.1f} {reference:.1f}", f"{x + half:.1f} {reference:.1f}"]
            low += [f"{x - half:.1f} {below:.1f}", f"{x + half:.1f} {below:.1f}"]
        yield f'<path d="M{"L".join([*top, *reversed(low)])}z" class="band"/>'
        yield f'<path d="M{"L".join(top)}" class="reference"/><path d="M{"L".join(low)}" class="fails"/>'


def _draw_marker(point: GatePoint, x: float, y: Axis, bottom: float) -> Iterator[str]:
    """Draw a dot, a triangle for unclear, a square for failed, a cross without a score."""
    average, title = point.cell.average, f"{point.build.file}: {WORDS[point.cell.status]}"
    if average is None:
        path = f"M{x - 4:.1f} {bottom - 10:.1f}l8 8m0 -8l-8 8"
        yield f'<path d="{path}" class="axis"><title>{escape_markup(f"{title}, no score")}</title></path>'
        return
    at = _clip_to_axis(average.new, y)
    title += f", {format_score(average.new)} after {format_score(average.reference)}"
    style, path = "passed", f"M{x - 4:.1f} {at:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    if point.failed:
        style, path = "failed", f"M{x - 4.5:.1f} {at - 4.5:.1f}h9v9h-9z"
    elif point.cell.status is Status.UNCLEAR:
        style, path = "unsure", f"M{x:.1f} {at - 5:.1f}l5 9h-10z"
    if not y.low <= SCALE * average.new <= y.high:  # beyond the axis: an arrow, and the score in figures
        is_below = SCALE * average.new < y.low
        path = f"M{x:.1f} {at:.1f}l-6 {-9 if is_below else 9}h12z"
        yield text_at(x, at - 13 if is_below else at + 21, format_score(average.new), "middle", "tick")
    yield f'<path d="{path}" class="{style}"><title>{escape_markup(title)}</title></path>'


def _describe_chart(points: Sequence[GatePoint], name: Callable[[GatePoint], str]) -> str:
    scores = [(point.cell.average.new, name(point)) for point in points if point.cell.average]
    text = f"{len(points)} build{'s' * (len(points) != 1)}"
    if scores:
        lowest, build = min(scores, key=lambda score: score[0])
        last = format_score(scores[-1][0])
        text += f", the last score {last}, the lowest {format_score(lowest)} in {build}"
    failed = ", ".join(name(point) for point in points if point.failed)
    return f"{text}. {f'Failed: {failed}' if failed else 'None failed'}."
