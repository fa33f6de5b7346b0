"""A cell's scores over builds as inline SVG, with the band in which the gate lets them pass."""

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
"""A failed build's score is drawn in place up to so many times the range of the others beyond it."""
_LABEL = 74
"""Width that a build's name takes."""


def draw_history_chart(line: CellHistory, number_of: int, name: Callable[[GatePoint], str]) -> str:
    """Return one ``<svg>`` element; any text in it is escaped.

    Args:
        line: The cell.
        number_of: A number of its own on the page.
        name: The short name of a point's build.
    """
    points, bottom = line.points, _HEIGHT - _BOTTOM
    y = _build_axis(points, bottom)
    wide = (WIDTH - _LEFT - _RIGHT) / len(points)
    middles = [_LEFT + wide * (place + 0.5) for place in range(len(points))]
    parts = [line_between(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis")]
    for tick in y.ticks(5):
        parts.append(line_between(_LEFT, y.at(tick), WIDTH - _RIGHT, y.at(tick), "grid"))
        parts.append(text_at(_LEFT - 6, y.at(tick) + 4, f"{tick:g}", "end", "tick"))
    for place in range(0, len(points), max(1, math.ceil(_LABEL / wide))):
        text, whole = name(points[place]), points[place].build.file
        parts.append(text_at(middles[place], bottom + 16, text, "middle", "tick", title=whole))
    parts += _draw_band(points, middles, wide / 2, y)
    path = [
        (x, _clip_to_axis(p.cell.average.new, y))
        for x, p in zip(middles, points, strict=True)
        if p.cell.average
    ]
    if len(path) > 1:
        parts.append(f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in path)}" class="scores"/>')
    for x, point in zip(middles, points, strict=True):
        parts += _draw_marker(point, x, y, bottom)
    title, about = (
        escape_markup(f"{line.title}: score over builds"),
        escape_markup(_describe_chart(points, name)),
    )
    ids = f"chart-{number_of}-title", f"chart-{number_of}-desc"
    return (
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-labelledby="{ids[0]} {ids[1]}">'
        f'<title id="{ids[0]}">{title}</title><desc id="{ids[1]}">{about}</desc>{"".join(parts)}</svg>'
    )


def _build_axis(points: Sequence[GatePoint], bottom: float) -> Axis:
    """An axis over references, limits and the scores that passed; a failed one stretches it only so far."""
    passed = [point for point in points if not point.failed] or points
    core = [SCALE * p.cell.average.reference for p in points if p.cell.average]
    core += [SCALE * point.below for point in passed if point.below is not None]
    core += [SCALE * p.cell.average.new for p in points if p.cell.average and not p.failed]
    if not core:
        return Axis((), bottom, _TOP)
    low, high = min(core), max(core)
    room = _FAR * max(high - low, 1.0)
    others = [SCALE * p.cell.average.new for p in points if p.cell.average]
    return Axis([*core, *(v for v in others if low - room <= v <= high + room)], bottom, _TOP)


def _clip_to_axis(score: float, y: Axis) -> float:
    """Place of a score, at the edge for one beyond it."""
    return y.at(min(max(SCALE * score, y.low), y.high))


def _draw_band(points: Sequence[GatePoint], middles: Sequence[float], half: float, y: Axis) -> Iterator[str]:
    """From the reference down to the score below which the gate fails, a step a build; a gap without one."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for x, point in zip(middles, points, strict=True):
        if point.cell.average is None or point.below is None:
            runs.append([])
            continue
        runs[-1].append((x, y.at(SCALE * point.cell.average.reference), _clip_to_axis(point.below, y)))
        if point.step:
            yield line_between(x - half, _TOP, x - half, _HEIGHT - _BOTTOM, "step")
    for run in filter(None, runs):
        top, low = (
            [f"{x + side:.1f} {ends[place]:.1f}" for x, *ends in run for side in (-half, half)]
            for place in (0, 1)
        )
        yield f'<path d="M{"L".join([*top, *reversed(low)])}z" class="band"/>'
        yield f'<path d="M{"L".join(top)}" class="reference"/><path d="M{"L".join(low)}" class="fails"/>'


def _draw_marker(point: GatePoint, x: float, y: Axis, bottom: float) -> Iterator[str]:
    """A dot, a triangle where it is unclear, a square where it failed, a cross without a score."""
    average, said = point.cell.average, f"{point.build.file}: {WORDS[point.cell.status]}"
    if average is None:
        path = f"M{x - 4:.1f} {bottom - 10:.1f}l8 8m0 -8l-8 8"
        yield f'<path d="{path}" class="axis"><title>{escape_markup(f"{said}, no score")}</title></path>'
        return
    at = _clip_to_axis(average.new, y)
    said += f", {format_score(average.new)} after {format_score(average.reference)}"
    style, path = "passed", f"M{x - 4:.1f} {at:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    if point.failed:
        style, path = "failed", f"M{x - 4.5:.1f} {at - 4.5:.1f}h9v9h-9z"
    elif point.cell.status is Status.UNCLEAR:
        style, path = "unsure", f"M{x:.1f} {at - 5:.1f}l5 9h-10z"
    if not y.low <= SCALE * average.new <= y.high:  # beyond the axis: an arrow, and the score in figures
        down = 1 if SCALE * average.new < y.low else -1
        path = f"M{x:.1f} {at:.1f}l-6 {-9 * down}h12z"
        yield text_at(x, at - 13 if down > 0 else at + 21, format_score(average.new), "middle", "tick")
    yield f'<path d="{path}" class="{style}"><title>{escape_markup(said)}</title></path>'


def _describe_chart(points: Sequence[GatePoint], name: Callable[[GatePoint], str]) -> str:
    """The chart in words."""
    scores = [(p.cell.average.new, p) for p in points if p.cell.average]
    text = f"{len(points)} build{'s' * (len(points) != 1)}"
    if scores:
        lowest, at = min(scores, key=lambda item: item[0])
        text += (
            f", the last score {format_score(scores[-1][0])}, the lowest {format_score(lowest)} in {name(at)}"
        )
    failed = [name(point) for point in points if point.failed]
    return f"{text}. Failed: {', '.join(failed)}." if failed else f"{text}. None failed."
