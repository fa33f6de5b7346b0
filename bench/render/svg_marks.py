"""Marks of inline figures: an axis, lines, and escaped texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as html_escape

from bench.errors import printable
from bench.render.figure import clip_text

WIDTH = 680
HEIGHT = 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 46
"""Of figures over two numbers."""
COLOURS = 8
"""Classes c0 to c7 of the style sheet; more series repeat them with other markers and dashes."""
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


def escape_markup(text: str) -> str:
    """Escape a text for an element or an attribute, with visible control characters."""
    return html_escape(printable(text))


def text_width(text: str, size: float = 11.0) -> float:
    """Return about how wide a text is, not less than it is in common fonts.

    >>> text_width("SimCSE") > text_width("simcse") > 30
    True
    """
    wide = sum(letter.isupper() or not letter.isascii() for letter in text)
    return size * (0.53 * len(text) + 0.19 * wide)


def widest_text(texts: Sequence[str], most: int) -> float:
    """Return the width of the widest of some texts of at most so many characters."""
    return max((text_width(clip_text(text, most)) for text in texts), default=0.0)


class Axis:
    """An axis from values to places, with round ticks, linear or logarithmic; ``at`` extrapolates."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, margin: float = 0.06, *, log: bool = False
    ) -> None:
        self.log, self.start, self.end = log, start, end
        low, high = (min(values), max(values)) if values else (1.0, 10.0) if log else (0.0, 1.0)
        if log:
            low, high = math.log10(low), math.log10(high)
        room = (high - low) * margin or abs(high) * margin or 1.0
        self.low, self.high = low - room, high + room

    def at(self, value: float) -> float:
        """Return the place of a value."""
        place = math.log10(value) if self.log else value
        return self.start + (place - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def said(self) -> str:
        """Its values and places at both ends, for the page's script."""
        return f"{self.low:.6g} {self.high:.6g} {self.start:.1f} {self.end:.1f}"

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values, about ``most``."""
        if self.log:
            return self._log_ticks(most)
        raw = (self.high - self.low) / most
        size = 10 ** math.floor(math.log10(raw))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(i * step, 10) for i in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        decades = [10.0**power for power in range(math.floor(self.low), math.ceil(self.high) + 1)]
        for factors in ((1, 2, 5), (1, 3), (1,)):
            values = (factor * decade for decade in decades for factor in factors)
            ticks = [value for value in values if self.low <= math.log10(value) <= self.high]
            if len(ticks) <= most:
                break
        return ticks


def format_tick(value: float) -> str:
    """Return a tick's text; thousands are short.

    >>> format_tick(0.5), format_tick(20000.0), format_tick(1.5e6)
    ('0.5', '20k', '1.5M')
    """
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def draw_axes(x: Axis, y: Axis | None, top: float, bottom: float, labels: tuple[str, str]) -> list[str]:
    """Return grid lines, tick labels, and the labels of both axes; without ``y``, of the x axis."""
    parts = []
    for tick in x.ticks():
        parts.append(line_between(x.at(tick), top, x.at(tick), bottom, "grid"))
        parts.append(text_at(x.at(tick), bottom + 16, format_tick(tick), "middle", "tick"))
    parts.append(line_between(x.start, bottom, x.end, bottom, "axis"))
    parts.append(text_at((x.start + x.end) / 2, bottom + 36, labels[0], "middle", "label"))
    if y is not None:
        for tick in y.ticks():
            parts.append(line_between(x.start, y.at(tick), x.end, y.at(tick), "grid"))
            parts.append(text_at(x.start - 6, y.at(tick) + 4, format_tick(tick), "end", "tick"))
        parts.append(upright_label(labels[1], (top + bottom) / 2))
    return parts


def text_at(x: float, y: float, text: str, anchor: str, style: str, more: str = "", title: str = "") -> str:
    """Return a text; hovering shows ``title``."""
    whole = f"<title>{escape_markup(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}"{more}'
    return f"<text {place}>{escape_markup(text)}{whole}</text>"


def line_between(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def draw_marker(number: int, x: float, y: float, title: str) -> str:
    """Return a point in its series' colour and shape."""
    path = (
        f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    )[(number + number // COLOURS) % 4]
    return _titled_path(path, f"point {colour_class(number)}", title)


def draw_edge_marker(number: int, x: float, y: float, way: tuple[int, int], title: str) -> str:
    """Return a triangle at the edge, towards an outlier: ``way`` is (1, 0) to the right, (0, -1) upwards."""
    a, b = way
    path = f"M{x + 5 * a:.1f} {y + 5 * b:.1f}l{-9 * a - 5 * b} {-9 * b - 5 * a}l{10 * b} {10 * a}z"
    return _titled_path(path, f"point off {colour_class(number)}", title)


def _titled_path(path: str, style: str, title: str) -> str:
    return f'<path d="{path}" class="{style}"><title>{escape_markup(title)}</title></path>'


def colour_class(number: int) -> str:
    """Return the class of a series' colour."""
    return f"c{number % COLOURS}"


def dash_attribute(number: int) -> str:
    """Return a line's dash attribute, for series of one colour."""
    style = _DASHES[number // COLOURS % len(_DASHES)]
    return f' stroke-dasharray="{style}"' if style else ""


def legend_mark(number: int, *, line: bool) -> str:
    """Return a series' mark for the legend, 26 wide and 14 high."""
    if line:
        return f'<path d="M0 7h26" class="line {colour_class(number)}"{dash_attribute(number)}/>'
    return draw_marker(number, 13, 7, "")


def series_group(number: int, parts: Sequence[str], more: str = "") -> str:
    """Return a series' parts as a group, which the page's script can hide or highlight."""
    return f'<g class="series" data-s="{number}"{more}>{"".join(parts)}</g>'


def upright_label(text: str, middle: float) -> str:
    """Return the label of the y axis."""
    return text_at(14, middle, text, "middle", "label", f' transform="rotate(-90 14 {middle:.1f})"')
