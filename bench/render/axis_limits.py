"""Limits of an axis: all values except outliers that would flatten the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

FAR = 4.0
"""Distance of an outlier, in widths of the middle half of the values, on either side."""
_FEWEST = 5
BEYOND = (
    f"Triangles at an edge are values beyond the axis, by {FAR:g} times the width of the middle half or more."
)
"""A page's note on outliers."""


def robust_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value within ``FAR`` widths of the middle half.

    Few values, and values of which half are equal, have no outliers. ``(0, 1)`` without values.

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
    """Return the limits of an axis of several lines: the robust ends of their least and largest values.

    >>> line_limits([[0.0, 1.0], [0.0, 1.1], [0.1, 1.2], [0.1, 1.3], [0.0, 50.0]])
    (0.0, 1.3)
    """
    drawn = list(filter(None, lines))
    return robust_limits(list(map(min, drawn)))[0], robust_limits(list(map(max, drawn)))[1]


def clamp_value(value: float, ends: tuple[float, float]) -> float:
    """Return the nearest value within the ends."""
    return min(max(value, ends[0]), ends[1])


def overflow_direction(value: float, ends: tuple[float, float]) -> int:
    """Return -1 below the ends, 1 above, 0 within."""
    return int(value > ends[1]) - int(value < ends[0])


def farthest_overflows(values: Sequence[float], ends: tuple[float, float]) -> list[int]:
    """Return the place of the farthest value of every stretch of outliers.

    >>> farthest_overflows([9.0, 8.0, 0.5, 0.6, -7.0, 0.7], (0.0, 1.0))
    [0, 4]
    """
    stretches = groupby(range(len(values)), lambda place: overflow_direction(values[place], ends))
    return [max(stretch, key=lambda place: off * values[place]) for off, stretch in stretches if off]
