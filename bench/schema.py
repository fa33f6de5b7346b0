"""Shapes of what JSON and TOML files hold: which types stand where, and where a file has others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.errors import BenchError

LARGEST = 1e15
"""No count, clock or measured value is larger; sums of such numbers stay finite."""
LONGEST_BYLINE = 100
DEEPEST = 64
"""No value lies in more lists and mappings: what reads or writes one again goes as deep itself."""

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_decimal(text: str) -> float:
    """Read a number as data files write it, none of Python's other forms (``1_0``, other scripts' digits).

    Raises:
        ValueError: not a number, among them "nan" and "inf".
    """
    if not _DECIMAL.fullmatch(text.strip()):
        raise ValueError(f"{text!a} is not a number")
    return float(text)


@dataclass(frozen=True)
class Block:
    """A mapping with these entries; ``required`` ones must be there, and no others where it is ``closed``."""

    required: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True)
class MapOf:
    """A mapping whose values have one shape."""

    shape: Shape


@dataclass(frozen=True)
class ListOf:
    """A list whose entries have one shape, at least so many."""

    shape: Shape
    least: int = 0


@dataclass(frozen=True)
class OneOf:
    """A mapping of one of these shapes."""

    shapes: tuple[Block, ...]


@dataclass(frozen=True)
class Maybe:
    """That shape, or null."""

    shape: Shape


Shape = Callable[[Any], bool] | Block | MapOf | ListOf | OneOf | Maybe


def is_text(value: Any) -> bool:
    """True for a text."""
    return isinstance(value, str)


def is_label(value: Any) -> bool:
    """True for a text that a terminal shows as it is: no control character, none that turns a line."""
    return isinstance(value, str) and value.isprintable()


def is_byline(value: Any) -> bool:
    """True for a label that can name somebody: not empty nor long, and no blank at either end."""
    return is_label(value) and 0 < len(value) <= LONGEST_BYLINE and value == value.strip()


def is_boolean(value: Any) -> bool:
    """True for true or false."""
    return isinstance(value, bool)


def is_whole_number(value: Any) -> bool:
    """True for a whole number; true and false are none."""
    return type(value) is int and abs(value) <= LARGEST


def is_count(value: Any) -> bool:
    """True for a whole number from 0."""
    return is_whole_number(value) and value >= 0


def is_number(value: Any) -> bool:
    """True for a finite number."""
    return is_whole_number(value) or (isinstance(value, float) and abs(value) <= LARGEST)


def accept_any(_: Any) -> bool:
    """True."""
    return True


def is_option_value(value: Any) -> bool:
    """True for an option's value: a text, true or false, a whole number of 64 bits, a finite number."""
    small = isinstance(value, int) and abs(value) < 2**63
    return is_text(value) or small or (isinstance(value, float) and math.isfinite(value))


def find_fault(value: Any, shape: Shape) -> str | None:
    """Return where a value isn't of its shape ("." for the value itself), None where it is."""
    return _format_place(_find_fault(value, shape))


def find_unwritable(value: Any, levels: int = DEEPEST) -> str | None:
    """Return where a value holds what can't be written again: half a character, an endless number, a depth.

    Args:
        value: What JSON holds.
        levels: How many lists and mappings may lie in each other.
    """
    return _format_place(_find_unwritable(value, levels))


def _format_place(place: str | None) -> str | None:
    return place if place is None else place.removeprefix(".") or "."


def _find_fault(value: Any, shape: Shape) -> str | None:
    """Every level puts its own part before the place: a sound value costs no text at all."""
    if callable(shape):
        return None if shape(value) else ""
    if isinstance(shape, Maybe):
        return None if value is None else _find_fault(value, shape.shape)
    if isinstance(shape, ListOf):
        if not isinstance(value, list) or len(value) < shape.least:
            return ""
        for i, entry in enumerate(value):
            if (place := _find_fault(entry, shape.shape)) is not None:
                return f"[{i}]{place}"
        return None
    if not isinstance(value, dict):
        return ""
    if isinstance(shape, OneOf):
        return _find_nearest_fault(value, shape.shapes)
    block = shape if isinstance(shape, Block) else Block(optional=dict.fromkeys(value, shape.shape))
    return _find_block_fault(value, block)


def _find_block_fault(value: Mapping[str, Any], block: Block) -> str | None:
    for name in block.required:
        if name not in value:
            return f".{name}"
    for name, entry in value.items():
        shape = block.required.get(name) or block.optional.get(name)
        if shape is None:
            if block.closed:
                return f".{name}"
        elif (place := _find_fault(entry, shape)) is not None:
            return f".{name}{place}"
    return None


def _find_nearest_fault(value: Mapping[str, Any], blocks: Sequence[Block]) -> str | None:
    """The fault by the shape that has most of the value's names, None where any shape is its own."""
    faults = [_find_block_fault(value, block) for block in blocks]
    shared = [len(value.keys() & {*block.required, *block.optional}) for block in blocks]
    return None if None in faults else faults[shared.index(max(shared))]


def _find_unwritable(value: Any, levels: int) -> str | None:
    if isinstance(value, dict):
        if not levels or not all(map(_is_unicode, value)):
            return ""
        for name, entry in value.items():
            if (place := _find_unwritable(entry, levels - 1)) is not None:
                return f".{name}{place}"
        return None
    if isinstance(value, list):
        if not levels:
            return ""
        for i, entry in enumerate(value):
            if (place := _find_unwritable(entry, levels - 1)) is not None:
                return f"[{i}]{place}"
        return None
    if isinstance(value, str):
        return None if _is_unicode(value) else ""
    wrong = isinstance(value, float) and not math.isfinite(value)
    return "" if wrong or (isinstance(value, int) and abs(value) >= 2**63) else None


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else True


def convert_facts(facts: Any, shape: Block, what: str) -> dict[str, Any]:
    """Facts as a record keeps them: what JSON holds, tuples as lists.

    Args:
        facts: What a method says.
        shape: Of the block that they become.
        what: For messages.

    Raises:
        BenchError: no facts, or something among them that a record can't hold.
    """
    try:
        found = json.loads(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BenchError(f"{what} can't be kept: {error}") from error
    if place := find_fault(found, shape) or find_unwritable(
        found, DEEPEST // 2
    ):  # they stand below others there
        raise BenchError(f"{what} can't be kept: '{place}' isn't what it should be")
    kept: dict[str, Any] = found
    return kept
