"""Compare the instructions of two functions that were compiled in different surroundings."""

from __future__ import annotations
import __future__

import dis
from bisect import bisect_left
from collections.abc import Iterator
from types import CodeType
from typing import Any

_FUTURE = __future__.annotations.compiler_flag
_DROPPED = {"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "PRECALL"}
_HEAD = ("co_name", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_freevars", "co_cellvars")
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_Row = tuple[str, Any]


def is_same_code(one: CodeType, other: CodeType) -> bool:
    """Return whether two functions compute the same, whatever else was compiled with each of them.

    Positions don't count, nor the form of a call of an imported module's function: a compiler that sees the
    import writes it differently.

    >>> first, second = (compile(text, "", "eval") for text in ("f(1)", "f(1.0)"))
    >>> is_same_code(first, first), is_same_code(first, second)
    (True, False)
    """
    if one is other:
        return True
    if any(getattr(one, name) != getattr(other, name) for name in _HEAD):
        return False
    if (one.co_flags ^ other.co_flags) & ~_FUTURE or _arguments(one) != _arguments(other):
        return False
    mine, theirs = _instructions(one), _instructions(other)
    if len(mine) != len(theirs) or _handlers(one) != _handlers(other):
        return False
    return all(_is_same_row(a, b) for a, b in zip(mine, theirs, strict=True))


def global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function or those inside it use."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBALS:
            yield str(instruction.argval)
        elif isinstance(instruction.argval, CodeType):
            yield from global_names(instruction.argval)


def attribute_names(code: CodeType) -> frozenset[str]:
    """Return all names of attributes and globals that a function or those inside it use."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*map(attribute_names, inner))


def _arguments(code: CodeType) -> tuple[str, ...]:
    stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def _kept(code: CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in _DROPPED]


def _instructions(code: CodeType) -> list[_Row]:
    """Return each instruction with its argument; jumps by the number of their target."""
    kept = _kept(code)
    offsets = [each.offset for each in kept]
    rows: list[_Row] = []
    for each in kept:
        name = "LOAD_ATTR" if each.opname == "LOAD_METHOD" else each.opname
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        rows.append((name, bisect_left(offsets, each.argval) if jumps else each.argval))
    return rows


def _handlers(code: CodeType) -> list[tuple[int, ...]]:
    """Return which instructions each exception handler covers."""
    offsets = [each.offset for each in _kept(code)]
    rows = []
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        places = (bisect_left(offsets, place) for place in (entry.start, entry.end, entry.target))
        rows.append((*places, entry.depth, entry.lasti))
    return rows


def _is_same_row(one: _Row, other: _Row) -> bool:
    return one[0] == other[0] and is_same_constant(one[1], other[1])


def is_same_constant(one: Any, other: Any) -> bool:
    """Return whether two constants of a function are equal to the last digit, with equal types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, CodeType):
        return is_same_code(one, other)
    if isinstance(one, tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(is_same_constant(a, b) for a, b in pairs)
    if isinstance(one, frozenset):
        mine, theirs = (sorted(map(repr, value)) for value in (one, other))
        return mine == theirs
    return bool(one == other) if isinstance(one, int) else repr(one) == repr(other)
