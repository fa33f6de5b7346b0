"""Draw confidence sets of ranks: a bar a row from its first to its last rank."""

from __future__ import annotations

from bench.render.critical_difference import rank_ticks
from bench.render.figure import Figure, clip_text
from bench.render.svg_marks import (
    RIGHT,
    WIDTH,
    Axis,
    draw_marker,
    escape_markup,
    line_between,
    series_group,
    text_at,
    widest_text,
)

_ROW, _TOP, _TWO_AXES = 18, 30, 20


def draw_rank_bars(figure: Figure) -> tuple[list[str], float]:
    """Return the parts of a figure of ranks, and their height."""
    left = min(widest_text(figure.rows, 36) + 20, 260)
    bottom = _TOP + _ROW * len(figure.rows) + 4
    last = max((last for _, last in figure.bars), default=1)
    x = Axis((0.5, max(last, 2) + 0.5), left, WIDTH - RIGHT, margin=0.01)
    parts = []
    for tick in rank_ticks(last):
        parts.append(line_between(x.at(tick), _TOP, x.at(tick), bottom, "grid"))
        parts.append(text_at(x.at(tick), bottom + 15, str(tick), "middle", "tick"))
        if len(figure.rows) > _TWO_AXES:
            parts.append(text_at(x.at(tick), _TOP - 6, str(tick), "middle", "tick"))
    parts.append(line_between(left, bottom, x.end, bottom, "axis"))
    parts.append(text_at((left + x.end) / 2, bottom + 34, figure.x, "middle", "label"))
    marks = []
    for row, (name, (first, last), place) in enumerate(
        zip(figure.rows, figure.bars, figure.series[0].x, strict=True)
    ):
        y, strong = _TOP + _ROW * (row + 0.5), name == figure.highlight
        style = "tick strong" if strong else "tick"
        parts.append(text_at(left - 8, y + 4, clip_text(name, 36), "end", style, title=name))
        title = f"{name}: rank {place:g}, {first} to {last}"
        low, wide = x.at(first - 0.4), x.at(last + 0.4) - x.at(first - 0.4)
        box = f'x="{low:.1f}" y="{y - 5:.1f}" width="{wide:.1f}" height="10" rx="2"'
        hover = f"<title>{escape_markup(title)}</title>"
        parts.append(f'<rect {box} class="set {"c1" if strong else "c0"}">{hover}</rect>')
        marks.append(draw_marker(1 if strong else 0, x.at(place), y, title))
    return [*parts, series_group(0, marks)], bottom + 42
