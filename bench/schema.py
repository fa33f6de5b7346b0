"""Shapes of what JSON and TOML files hold: which types stand where, and where a file has others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LARGEST = 1e15
"""No count, clock or measured value is larger; sums of such numbers stay finite."""
LONGEST_BYLINE = 100


@dataclass(frozen=True)
class Block:
    """A mapping with these entries; ``required`` ones must be there, and no others where it is ``closed``."""

    required: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True)
class Each:
    """A mapping whose values have one shape."""

    shape: Shape


@dataclass(frozen=True)
class Rows:
    """A list whose entries have one shape, at least so many."""

    shape: Shape
    least: int = 0


@dataclass(frozen=True)
class Maybe:
    """That shape, or null."""

    shape: Shape


Shape = Callable[[Any], bool] | Block | Each | Rows | Maybe


def text(value: Any) -> bool:
    """True for a text."""
    return isinstance(value, str)


def label(value: Any) -> bool:
    """True for a text that a terminal shows as it is: no control character, none that turns a line."""
    return isinstance(value, str) and value.isprintable()


def byline(value: Any) -> bool:
    """True for a label that can name somebody: not empty nor long, and no blank at either end."""
    return label(value) and 0 < len(value) <= LONGEST_BYLINE and value == value.strip()


def flag(value: Any) -> bool:
    """True for true or false."""
    return isinstance(value, bool)


def whole(value: Any) -> bool:
    """True for a whole number; true and false are none."""
    return type(value) is int and abs(value) <= LARGEST


def count(value: Any) -> bool:
    """True for a whole number from 0."""
    return whole(value) and value >= 0


def number(value: Any) -> bool:
    """True for a finite number."""
    return whole(value) or (isinstance(value, float) and abs(value) <= LARGEST)


def anything(_: Any) -> bool:
    """True."""
    return True


def setting(value: Any) -> bool:
    """True for an option's value: a text, true or false, a whole number of 64 bits, a finite number."""
    small = isinstance(value, int) and abs(value) < 2**63
    return text(value) or small or (isinstance(value, float) and math.isfinite(value))


def fault(value: Any, shape: Shape, place: str = "") -> str | None:
    """Return where a value isn't of its shape, None where it is."""
    if isinstance(shape, Maybe):
        return None if value is None else fault(value, shape.shape, place)
    if isinstance(shape, Rows):
        if not isinstance(value, list) or len(value) < shape.least:
            return place or "."
        return _first(fault(entry, shape.shape, f"{place}[{i}]") for i, entry in enumerate(value))
    if isinstance(shape, Each | Block):
        if not isinstance(value, dict):
            return place or "."
        inner = f"{place}." if place else ""
        if isinstance(shape, Each):
            return _first(fault(entry, shape.shape, f"{inner}{name}") for name, entry in value.items())
        shapes = {**shape.optional, **shape.required}
        others = [name for name in value if name not in shapes] if shape.closed else []
        missing = (
            f"{inner}{name}" for name in (*others, *shape.required) if name in others or name not in value
        )
        wrong = (fault(value[name], shapes[name], f"{inner}{name}") for name in shapes if name in value)
        return next(missing, None) or _first(wrong)
    return None if shape(value) else place or "."


def _first(found: Iterable[str | None]) -> str | None:
    return next((place for place in found if place is not None), None)


def unwritable(value: Any, place: str = "") -> str | None:
    """Return where a value holds what can't be written again: half a character, an endless number."""
    if isinstance(value, dict):
        keys = next((place for name in value if not _is_unicode(name)), None)
        return keys or _first(unwritable(entry, f"{place}.{name}") for name, entry in value.items())
    if isinstance(value, list):
        return _first(unwritable(entry, f"{place}[{i}]") for i, entry in enumerate(value))
    if isinstance(value, str):
        return None if _is_unicode(value) else place
    wrong = isinstance(value, float) and not math.isfinite(value)
    return place if wrong or (isinstance(value, int) and abs(value) >= 2**63) else None


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else True
