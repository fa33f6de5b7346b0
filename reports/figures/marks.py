"""What inline figures are made of: an axis, lines, and texts that are inert."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as html_escape

from bench.errors import printable

WIDTH = 680


def escape(text: str) -> str:
    """Make any text inert in an element or an attribute; what turns a line is written as its escape."""
    return html_escape(printable(text))


class Axis:
    """A linear axis from values to places, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, margin: float = 0.06) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = (high - low) * margin or abs(high) * margin or 1.0
        self.low, self.high, self.start, self.end = low - room, high + room, start, end

    def at(self, value: float) -> float:
        """Place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values, about ``most``."""
        raw = (self.high - self.low) / most
        size = 10 ** math.floor(math.log10(raw))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(i * step, 10) for i in range(first, last + 1)]


def text_at(x: float, y: float, text: str, anchor: str, style: str, more: str = "", title: str = "") -> str:
    """A text; ``title`` is what hovering shows."""
    whole = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}"{more}'
    return f"<text {place}>{escape(text)}{whole}</text>"


def line_between(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
