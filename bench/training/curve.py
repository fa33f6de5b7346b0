"""The losses of a training as a record keeps them: few enough to read, enough to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

POINTS = 50


def loss_curve(losses: Sequence[float], most: int = POINTS) -> list[list[float]]:
    """Thin a training's losses: each point is the mean over the steps since the point before.

    Args:
        losses: One a step.
        most: Largest number of points.

    Returns:
        Rows (last step, mean loss), steps from 1; a row a step where there are no more than ``most``.

    >>> loss_curve([4.0, 2.0, 1.0, 1.0, 0.5], most=3)
    [[2, 3.0], [4, 1.0], [5, 0.5]]
    """
    size = math.ceil(len(losses) / most)
    starts = range(0, len(losses), size or 1)
    return [[min(at + size, len(losses)), fmean(losses[at : at + size])] for at in starts]
