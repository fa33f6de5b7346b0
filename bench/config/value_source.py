"""Write values as Python source that gives them back exactly: literals, dataclasses, names of modules."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

Imports = dict[str, tuple[str, object]]
"""Statements that import something, with what they give, by the name that they bind."""
_BRACKETS: dict[type[Any], tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}

_DECIMAL_BITS = 2000
"""Longest number in decimal digits; Python writes and reads longer ones in hexadecimal digits only."""


class _InexpressibleError(Exception):
    """A value without source."""


def express_value(value: object, module: str) -> tuple[str, Imports] | None:
    """Return the source of a value and the imports that it needs by name, None where no source gives it back.

    Values are plain ones, collections, instances of dataclasses of other modules than ``module``, and names
    of modules such as ``torch.float32``.

    >>> express_value((1, {"a": -0.0}), "__main__"), express_value(object(), "__main__")
    (("(1, {'a': -0.0})", {}), None)
    """
    imports: Imports = {}
    try:
        return _express(value, module, imports), imports
    except (_InexpressibleError, RecursionError):
        return None


def import_of(name: str, value: Any, module: str) -> str:
    """Return the import that gives a value of another module than ``module`` this name, or ""."""
    if isinstance(value, ModuleType):
        origin = sys.modules.get(type(value).__module__)
        if origin is not None and getattr(origin, name, None) is value:  # bench.lazy's
            return f"from {origin.__name__} import {name}"
        if sys.modules.get(value.__name__) is not value or value.__name__ in (module, "__main__"):
            return ""
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    origin, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(origin, str) or not isinstance(path, str):
        return ""
    if origin in (module, "__main__", "builtins") or not _is_at(value, origin, path) or "." in path:
        return ""
    return f"from {origin} import {path}" + ("" if path == name else f" as {name}")


def _express(value: Any, module: str, imports: Imports) -> str:
    kind = type(value)
    if kind is int and value.bit_length() > _DECIMAL_BITS:
        return hex(value)
    if value is None or kind in (bool, int, str, bytes):
        return repr(value)
    if kind in (float, complex):
        if math.isfinite(value.real) and math.isfinite(value.imag) and kind is float:
            return repr(value)
        raise _InexpressibleError
    if kind is dict:
        pairs = [f"{_express(k, module, imports)}: {_express(v, module, imports)}" for k, v in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if kind in _BRACKETS:
        return _express_collection(value, module, imports)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _express_dataclass(value, module, imports)
    return _express_attribute(value, module, imports)


def _express_collection(value: Any, module: str, imports: Imports) -> str:
    if not value:
        return "()" if value == () else f"{type(value).__name__}()"
    texts = [_express(entry, module, imports) for entry in value]
    if isinstance(value, set | frozenset):
        texts.sort()  # their own order changes from process to process
    first, last = _BRACKETS[type(value)]
    end = "," if first == "(" and len(texts) == 1 else ""
    return f"{first}{', '.join(texts)}{end}{last}"


def _express_dataclass(value: Any, module: str, imports: Imports) -> str:
    kind, fields = type(value), dataclasses.fields(value)
    if kind.__module__ in (module, "__main__") or not _is_at(kind, kind.__module__, kind.__name__):
        raise _InexpressibleError
    if not all(entry.init for entry in fields):
        raise _InexpressibleError
    texts = [f"{entry.name}={_express(getattr(value, entry.name), module, imports)}" for entry in fields]
    _add_import(imports, kind.__name__, f"from {kind.__module__} import {kind.__name__}", kind)
    return f"{kind.__name__}({', '.join(texts)})"


def _add_import(imports: Imports, name: str, line: str, value: object) -> None:
    if imports.setdefault(name, (line, value))[1] is not value:
        raise _InexpressibleError


def _express_attribute(value: object, module: str, imports: Imports) -> str:
    text = repr(value)
    origin, _, name = text.rpartition(".")
    named = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text) and origin not in (module, "__main__")
    if not named or not _is_at(value, origin, name):
        raise _InexpressibleError
    top = origin.partition(".")[0]
    _add_import(imports, top, f"import {origin}", sys.modules[top])
    return text


def _is_at(value: object, module: str, path: str) -> bool:
    """Return whether a module that other processes can import has this value there."""
    found: Any = sys.modules.get(module)
    if found is None or module.startswith("bench_plugin_"):
        return False
    with suppress(ImportError, ValueError, AttributeError):
        if importlib.util.find_spec(module) is None:
            return False
        for name in path.split("."):
            found = getattr(found, name)
        return found is value
    return False
