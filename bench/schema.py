"""Schemas of JSON and TOML files, and the place of a value with another type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bench.errors import BenchError

LARGEST = 1e15
"""Largest count, clock or measured value; sums of such numbers stay finite."""
LONGEST_BYLINE = 100
DEEPEST = 64
"""Deepest nesting of lists and mappings."""

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_decimal(text: str) -> float:
    """Parse a decimal number; raises ValueError for "nan", "inf" and forms such as ``1_0``."""
    if not _DECIMAL.fullmatch(text.strip()):
        raise ValueError(f"{text!a} is not a number")
    return float(text)


@dataclass(frozen=True)
class Block:
    """A mapping with required and optional entries; a ``closed`` one has no others."""

    required: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True)
class MapOf:
    """A mapping whose values have one shape."""

    shape: Shape


@dataclass(frozen=True)
class ListOf:
    """A list of at least ``least`` entries of one shape."""

    shape: Shape
    least: int = 0


@dataclass(frozen=True)
class OneOf:
    """A mapping of one of these shapes."""

    shapes: tuple[Block, ...]


@dataclass(frozen=True)
class Maybe:
    """A shape, or null."""

    shape: Shape


Shape = Callable[[Any], bool] | Block | MapOf | ListOf | OneOf | Maybe


def is_text(value: Any) -> bool:
    """True for a text."""
    return isinstance(value, str)


def is_label(value: Any) -> bool:
    """True for a text of printable characters."""
    return isinstance(value, str) and value.isprintable()


def is_byline(value: Any) -> bool:
    """True for a short label without blanks at its ends, which can name a person."""
    return is_label(value) and 0 < len(value) <= LONGEST_BYLINE and value == value.strip()


def is_boolean(value: Any) -> bool:
    """True for true or false."""
    return isinstance(value, bool)


def is_whole_number(value: Any) -> bool:
    """True for a whole number, except true and false."""
    return type(value) is int and abs(value) <= LARGEST


def is_count(value: Any) -> bool:
    """True for a whole number from 0."""
    return is_whole_number(value) and value >= 0


def is_number(value: Any) -> bool:
    """True for a finite number."""
    return abs(value) <= LARGEST if isinstance(value, float) else is_whole_number(value)


def is_amount(value: Any) -> bool:
    """True for a finite number from 0, such as seconds."""
    return is_number(value) and value >= 0


def is_moment(value: Any) -> bool:
    """True for a date and time in ISO form with its time zone."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def accept_any(_: Any) -> bool:
    """True."""
    return True


def is_option_value(value: Any) -> bool:
    """True for an option's value: a text, true or false, a whole number of 64 bits, a finite number."""
    small = isinstance(value, int) and abs(value) < 2**63
    return is_text(value) or small or (isinstance(value, float) and math.isfinite(value))


def find_fault(value: Any, shape: Shape) -> str | None:
    """Return the place of a value of another shape ("." for the value itself), None without one."""
    return _format_place(_find_fault(value, shape))


def find_unwritable(value: Any, levels: int = DEEPEST) -> str | None:
    """Return the place of a surrogate, a number out of range or too deep nesting, None without one."""
    return None if _is_writable(value, levels) else _format_place(_find_unwritable(value, levels))


def _format_place(place: str | None) -> str | None:
    return place if place is None else place.removeprefix(".") or "."


def _find_fault(value: Any, shape: Shape) -> str | None:
    """Return the place of a fault; every level adds its part."""
    if callable(shape):
        return None if shape(value) else ""
    if isinstance(shape, Maybe):
        return None if value is None else _find_fault(value, shape.shape)
    if isinstance(shape, ListOf):
        if not isinstance(value, list) or len(value) < shape.least:
            return ""
        if callable(shape.shape) and all(map(shape.shape, value)):  # most lists are sound numbers
            return None
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
        elif callable(shape) and shape(entry):
            continue
        elif (place := _find_fault(entry, shape)) is not None:
            return f".{name}{place}"
    return None


def _find_nearest_fault(value: Mapping[str, Any], blocks: Sequence[Block]) -> str | None:
    """Return the fault by the shape with most of the value's names, None if one shape fits."""
    faults = [_find_block_fault(value, block) for block in blocks]
    shared = [len(value.keys() & {*block.required, *block.optional}) for block in blocks]
    return None if None in faults else faults[shared.index(max(shared))]


def _is_writable(value: Any, levels: int) -> bool:
    """True for JSON's own types without a fault, level by level: the fast way for whole files."""
    entries = [value]
    for _ in range(levels):
        deeper: list[Any] = []
        for entry in entries:
            kind = type(entry)
            if kind is dict:
                deeper += entry
                deeper += entry.values()
            elif kind is list:
                deeper += entry
            elif not (
                (kind is float and math.isfinite(entry))
                or (kind is str and entry.isascii())
                or (kind is int and abs(entry) < 2**63)
                or kind is bool
                or entry is None
            ):
                return False  # of another kind, or a text to look at
        if not deeper:
            return True
        entries = deeper
    return False


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
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def convert_facts(facts: Any, shape: Block, what: str) -> dict[str, Any]:
    """Return a method's facts as JSON holds them; raises BenchError for others, with ``what`` they are."""
    try:
        converted: dict[str, Any] = json.loads(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BenchError(f"{what} can't be kept: {error}") from error
    levels = DEEPEST // 2  # a record nests them further
    if place := find_fault(converted, shape) or find_unwritable(converted, levels):
        raise BenchError(f"{what} can't be kept: '{place}' isn't what it should be")
    return converted
