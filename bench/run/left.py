"""How much time something still takes, by what its work took so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST = 1e9  # seconds that are a time
Paces = Mapping[tuple[str, str], float]
"""Seconds that a unit of a method's work takes, see :func:`bench.run.events.all_work`."""


@dataclass(frozen=True)
class Left:
    """Time to come.

    Args:
        seconds: What is known of it.
        whole: That is all.
    """

    seconds: float = 0.0
    whole: bool = True

    def __add__(self, other: Left) -> Left:
        """Both together."""
        return Left(self.seconds + other.seconds, self.whole and other.whole)

    def __str__(self) -> str:
        """For a line of the terminal."""
        if not 0 <= self.seconds < _LONGEST or (self.seconds < 1 and not self.whole):
            return "?"
        return span(self.seconds) if self.whole else f"more than {span(self.seconds)}"


UNKNOWN = Left(whole=False)
"""Nothing is known."""


def needed(method: str, work: Mapping[str, float] | None, paces: Paces) -> Left:
    """What a method's work takes; None is work that nobody knows.

    >>> str(needed("tncse", {"train joint": 30, "evaluate toy": 1}, {("tncse", "train joint"): 2.0}))
    'more than 60 s'
    """
    if work is None:
        return UNKNOWN
    known = [n * paces[method, name] for name, n in work.items() if (method, name) in paces]
    return Left(sum(known), len(known) == len(work))


def units_of(value: Any) -> dict[str, float] | None:
    """Units of work by its name, None for anything else."""
    if not isinstance(value, dict):
        return None
    return {name: units for name, each in value.items() if (units := number(each)) and units > 0}


def less(planned: Mapping[str, float], begun: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    """What of planned work isn't begun; None where no work is left for the cells to come."""
    rest = {name: units - sum(each.get(name, 0.0) for each in begun) for name, units in planned.items()}
    return {name: units for name, units in rest.items() if units > 0} or None


def number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def span(seconds: float) -> str:
    """A time as one reads it: seconds below 100 of them, minutes below 100, else hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"
