"""How far an axis reaches: over all values but those so far off that the others would be one line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

FAR = 4.0
"""Widths of the middle half of the values beyond which, on either side, a value stands at the edge."""
_FEWEST = 5
BEYOND = (
    f"Triangles at an edge are values beyond the axis, by {FAR:g} times the width of the middle half or more."
)
"""What a page says where there are some."""


def robust_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value that an axis shows.

    Args:
        values: All values along it.

    Returns:
        The ends of the values within ``FAR`` widths of the middle half of them, on both sides; of all of them
        if they are few, or if half of them are equal. ``(0, 1)`` for none.

    >>> robust_limits([1.0, 2.0, 3.0, 4.0, 5.0])
    (1.0, 5.0)
    >>> robust_limits([1.0, 2.0, 3.0, 4.0, 5.0, 900.0])
    (1.0, 5.0)
    """
    if not values:
        return 0.0, 1.0
    low, high = (float(end) for end in np.quantile(values, (0.25, 0.75)))
    room = FAR * (high - low)
    inside = [value for value in values if low - room <= value <= high + room]
    shown = inside if len(values) >= _FEWEST and room else values
    return min(shown), max(shown)


def line_limits(lines: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return what an axis of several lines shows: their own ends, but for lines whose ends are far off.

    >>> line_limits([[0.0, 1.0], [0.0, 1.1], [0.1, 1.2], [0.1, 1.3], [0.0, 50.0]])
    (0.0, 1.3)
    """
    there = [values for values in lines if values]
    return robust_limits([min(values) for values in there])[0], robust_limits(
        [max(values) for values in there]
    )[1]


def clamp_value(value: float, ends: tuple[float, float]) -> float:
    """Return the value, or the end that is nearest to one beyond."""
    return min(max(value, ends[0]), ends[1])


def overflow_direction(value: float, ends: tuple[float, float]) -> int:
    """Return -1 for a value below the axis, 1 for one above, else 0."""
    return int(value > ends[1]) - int(value < ends[0])


def farthest_overflows(values: Sequence[float], ends: tuple[float, float]) -> list[int]:
    """Return the place of the farthest value of every stretch of values beyond the axis.

    >>> farthest_overflows([9.0, 8.0, 0.5, 0.6, -7.0, 0.7], (0.0, 1.0))
    [0, 4]
    """
    stretches = groupby(range(len(values)), lambda place: overflow_direction(values[place], ends))
    return [max(stretch, key=lambda place: off * values[place]) for off, stretch in stretches if off]
