"""Which values of a column are best and second: judged as printed, so that a tie is never a win."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

BEST, SECOND = "best", "second"
CAPTION = "Bold: best; underlined: second, or best where several are equal as printed."
K = TypeVar("K", bound=Hashable)


def ranks(values: Mapping[K, float | None], digits: int = 4) -> dict[K, str]:
    """Mark a column's best and second, larger being better.

    Args:
        values: By row, None where there is none.
        digits: Decimals that tell values apart; 4 for scores that are printed x 100 with two.

    Returns:
        By row BEST, SECOND or "". Where several are best they are SECOND and no other is; a column with one
        value has no mark.
    """
    printed = {key: round(value, digits) for key, value in values.items() if value is not None}
    found = dict.fromkeys(values, "")
    steps = sorted(set(printed.values()), reverse=True)
    if len(printed) < 2:
        return found
    leaders = [key for key, value in printed.items() if value == steps[0]]
    followers = [key for key, value in printed.items() if len(steps) > 1 and value == steps[1]]
    if len(leaders) > 1:
        return found | dict.fromkeys(leaders, SECOND)
    return found | {leaders[0]: BEST} | dict.fromkeys(followers, SECOND)
