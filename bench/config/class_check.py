"""Compare what a class of a session reaches with the module that its text made: nothing may have changed."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cached_property
from types import FunctionType
from typing import Any

_SIGNATURE = ("co_qualname", "co_varnames", "co_argcount", "co_kwonlyargcount")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, set, frozenset)


def find_changed_name(now: dict[str, Any], loaded: dict[str, Any], module: str) -> str:
    """Return a class's attribute, function or constant that differs from its source, as a dotted name, or "".

    Args:
        now: Names of the session.
        loaded: Names of the module that the text made.
        module: Name of that module.
    """
    for name, value in loaded.items():
        own = getattr(value, "__module__", module) == module
        if own and not name.startswith("__") and (changed := _find_change(name, now.get(name), value)):
            return changed
    return ""


def _find_change(name: str, now: Any, loaded: Any) -> str:
    if isinstance(loaded, type) and isinstance(now, type):
        attributes = {**vars(loaded), **vars(now)}
        for attribute in attributes:
            if not attribute.startswith("__") or callable(vars(loaded).get(attribute)):
                mine, theirs = vars(now).get(attribute, _MISSING), vars(loaded).get(attribute, _MISSING)
                if not _is_same(mine, theirs):
                    return f"{name}.{attribute}"
        return ""
    return "" if _is_same(now, loaded) else name


_MISSING = object()


def _is_same(one: Any, other: Any) -> bool:
    mine, theirs = _functions(one), _functions(other)
    if mine or theirs:
        pairs = zip(mine, theirs, strict=False)
        return len(mine) == len(theirs) and all(_is_same_function(a, b) for a, b in pairs)
    if _MISSING in (one, other):
        return one is other
    if isinstance(other, _PLAIN) or dataclasses.is_dataclass(other):
        return repr(one) == repr(other) or bool(one == other)
    return type(one).__qualname__ == type(other).__qualname__


def _is_same_function(one: FunctionType, other: FunctionType) -> bool:
    # A notebook's instructions may differ from a file's. That they are the source's, find_class has checked.
    if any(getattr(one.__code__, name) != getattr(other.__code__, name) for name in _SIGNATURE):
        return False
    mine = [*(one.__defaults__ or ()), *sorted((one.__kwdefaults__ or {}).items())]
    theirs = [*(other.__defaults__ or ()), *sorted((other.__kwdefaults__ or {}).items())]
    return len(mine) == len(theirs) and all(_is_same(a, b) for a, b in zip(mine, theirs, strict=True))


def _functions(value: Any) -> list[FunctionType]:
    """Return the functions of a function, a method's wrapper or a property."""
    parts = [value]
    if isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    elif isinstance(value, cached_property):
        parts = [value.func]
    elif isinstance(value, staticmethod | classmethod):
        parts = [value.__func__]
    functions = [inspect.unwrap(part) if callable(part) else part for part in parts]
    return [function for function in functions if isinstance(function, FunctionType)]
