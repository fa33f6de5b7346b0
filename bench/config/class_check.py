"""Compare a class of a session with the class that its text made: nothing that it reaches may differ."""

from __future__ import annotations

import abc
import builtins
import dataclasses
import enum
import functools
import re
import sys
import types
from collections.abc import Iterable
from types import CellType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Generic, Protocol, TypeVar

from bench.config.code_check import attribute_names, global_names, is_same_code, is_same_constant

_MISSING = object()
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_CONTENT = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset)
_REDUCED = {"collections", "datetime", "decimal", "fractions", "operator", "pathlib", "random", "uuid"}
"""Modules whose values are their parts as ``__reduce_ex__`` gives them."""
_BY_IDENTITY = (
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType),
)
_BY_ATTRIBUTES = {"torch.autograd.grad_mode", "torch.amp.autocast_mode"}
"""Modules whose instances have no state besides their attributes."""
_STATELESS = (object, Generic, Protocol, abc.ABC)
_LAYOUT = {
    *("__module__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "_abc_impl"),
    *("__annotations_cache__", "__doc__"),
}
"""Attributes of a class that say where it stands, or that Python adds."""
_PARTS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (property, ("fget", "fset", "fdel")),
    (functools.cached_property, ("func", "attrname")),
    (staticmethod, ("__func__",)),
    (classmethod, ("__func__",)),
    (functools.partial, ("func", "args", "keywords", "__dict__")),
    (functools.partialmethod, ("func", "args", "keywords")),
    (types.MethodType, ("__func__", "__self__")),
    (re.Pattern, ("pattern", "flags")),
    (types.MemberDescriptorType, ("__name__",)),
    (types.GenericAlias, ("__origin__", "__args__")),
    (types.UnionType, ("__args__",)),
    (TypeVar, ("__name__", "__bound__", "__constraints__")),
    (range, ("start", "stop", "step")),
    (slice, ("start", "stop", "step")),
    (dataclasses.Field, tuple(dataclasses.Field.__slots__)),
)


class Difference(Exception):  # noqa: N818 - no error by itself
    """A class's attribute, function or constant that differs from what its source makes.

    Args:
        name: Its dotted name.
        unknown: Type of a value that can't be compared, "" where it differs.
        shared: True for one object under two names where the source makes two.
    """

    def __init__(self, name: str, unknown: str = "", shared: bool = False) -> None:
        super().__init__(name)
        self.name, self.unknown, self.shared = name, unknown, shared


def find_difference(kind: type, loaded: type) -> Difference | None:
    """Return the first difference between a session's class and the one that its text made.

    Functions are compared by their instructions, defaults, closures and all globals that they use; classes
    by their bases and attributes; values by their parts. None where all is the same.
    """
    try:
        _Comparison(kind.__module__, loaded.__module__).check(kind.__name__, kind, loaded)
    except Difference as difference:
        return difference
    return None


class _Comparison:
    """One walk through what two classes reach."""

    def __init__(self, session: str, module: str) -> None:
        self.session, self.module = session, module
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # it keeps them, so that ids stay theirs
        self._partners: dict[int, int] = {}

    def check(self, name: str, one: Any, other: Any) -> None:
        """Raise Difference unless two values are the same."""
        if one is other or (id(one), id(other)) in self._seen:
            return
        self._seen[id(one), id(other)] = one, other
        self._require(name, one is not _MISSING and other is not _MISSING)
        if isinstance(one, _SCALARS) and type(one) in _SCALARS:
            self._require(name, is_same_constant(one, other))
        elif isinstance(one, ModuleType) and isinstance(other, ModuleType):
            self._require(name, one.__name__ == other.__name__)  # bench.lazy's is another object
        elif isinstance(one, type) and isinstance(other, type):
            self._check_class(name, one, other)
        elif self._is_pair(type(one), type(other)):
            self._check_instance(name, one, other)
        else:
            self._require(name, type(one) is type(other))
            self._check_value(name, one, other)

    def _require(self, name: str, same: bool) -> None:
        if not same:
            raise Difference(name)

    def _is_pair(self, one: type, other: type) -> bool:
        """Return whether these are classes of the session and of the module that the text made."""
        return one.__module__ == self.session and other.__module__ == self.module

    def _check_all(self, name: str, one: Iterable[Any], other: Iterable[Any]) -> None:
        mine, theirs = list(one), list(other)
        self._require(name, len(mine) == len(theirs))
        for first, second in zip(mine, theirs, strict=True):
            self.check(name, first, second)

    def _check_class(self, name: str, one: type, other: type) -> None:
        self._require(name, self._is_pair(one, other) and one.__qualname__ == other.__qualname__)
        name = one.__qualname__
        self.check(name, type(one), type(other))
        if not dataclasses.is_dataclass(one):  # whose text may name the module
            self.check(f"{name}.__doc__", one.__doc__, other.__doc__)
        self._require(name, len(one.__bases__) == len(other.__bases__))
        for mine, theirs in zip(one.__bases__, other.__bases__, strict=True):
            self.check(mine.__name__, mine, theirs)
        members = {*getattr(one, "_member_map_", ())} if issubclass(one, enum.Enum) else set()
        for attribute in sorted({*vars(one), *vars(other)} - _LAYOUT - members):
            absent: Any = (
                {} if attribute == "__annotations__" else _MISSING
            )  # Python makes it where it is read
            values = (vars(kind).get(attribute, absent) for kind in (one, other))
            self.check(f"{name}.{attribute}", *values)

    def _check_instance(self, name: str, one: Any, other: Any) -> None:
        """Compare instances of the session's classes by their attributes."""
        kind = type(one)
        self.check(kind.__name__, kind, type(other))
        own = [base for base in kind.__mro__ if base.__module__ != self.session]
        if isinstance(one, tuple):
            self._check_all(name, tuple.__iter__(one), tuple.__iter__(other))
        elif not isinstance(one, enum.Enum) and not set(own) <= set(_STATELESS):
            raise Difference(name, _type_name(kind))
        self._check_attributes(name, one, other)

    def _check_attributes(self, name: str, one: Any, other: Any) -> None:
        self._check_partner(name, one, other)
        mine, theirs = getattr(one, "__dict__", {}), getattr(other, "__dict__", {})
        for attribute in sorted({*mine, *theirs}):
            values = (state.get(attribute, _MISSING) for state in (mine, theirs))
            self.check(f"{name}.{attribute}", *values)
        for base in type(one).__mro__:
            for attribute, slot in vars(base).items():
                if isinstance(slot, types.MemberDescriptorType):
                    values = (getattr(each, attribute, _MISSING) for each in (one, other))
                    self.check(f"{name}.{attribute}", *values)

    def _check_partner(self, name: str, one: Any, other: Any) -> None:
        """Require that a value that may change is one object here where it is one there."""
        for mine, theirs in ((one, other), (other, one)):
            if self._partners.setdefault(id(mine), id(theirs)) != id(theirs):
                raise Difference(name, shared=True)

    def _check_function(self, name: str, one: FunctionType, other: FunctionType) -> None:
        self._require(name, is_same_code(one.__code__, other.__code__))
        annotations = "__annotate__" if sys.version_info >= (3, 14) else "__annotations__"
        for part in ("__defaults__", "__kwdefaults__", "__closure__", "__dict__", annotations):
            self.check(name, getattr(one, part), getattr(other, part))
        if one.__globals__ is other.__globals__:
            return
        for used in sorted(set(global_names(one.__code__))):
            if not used.startswith("__"):
                mine, theirs = (_find_global(function, used) for function in (one, other))
                self.check(used, mine, theirs)
                self._check_module(mine, attribute_names(one.__code__))

    def _check_module(self, value: Any, names: frozenset[str]) -> None:
        """Raise Difference where the session put something of its own into a module that a function uses."""
        if not isinstance(value, ModuleType):
            return
        for name in names & set(vars(value)):
            found = vars(value)[name]
            if getattr(found, "__module__", "") == self.session:
                raise Difference(f"{value.__name__}.{name}")
            self._check_module(found, names - {name})

    def _check_value(self, name: str, one: Any, other: Any) -> None:
        kind = type(one)
        if kind is FunctionType:
            self._check_function(name, one, other)
        elif kind is CellType:
            self.check(name, *(_content(cell) for cell in (one, other)))
        elif kind in (list, tuple):
            if kind is list:
                self._check_partner(name, one, other)
            self._check_all(name, one, other)
        elif kind in (dict, MappingProxyType):
            if kind is dict:
                self._check_partner(name, one, other)
            self._check_all(name, one.keys(), other.keys())
            self._check_all(name, one.values(), other.values())
        elif kind in (set, frozenset):
            self._check_set(name, one, other)
        else:
            self._check_object(name, one, other)

    def _check_set(self, name: str, one: Any, other: Any) -> None:
        if isinstance(one, set):
            self._check_partner(name, one, other)
        mine, theirs = (
            sorted(value, key=lambda entry: (type(entry).__name__, repr(entry))) for value in (one, other)
        )
        self._check_all(name, mine, theirs)

    def _check_object(self, name: str, one: Any, other: Any) -> None:
        kind = type(one)
        for known, parts in _PARTS:
            if kind is known:
                for part in parts:
                    self.check(name, getattr(one, part), getattr(other, part))
                return
        if kind is object:  # a mark that code compares by identity
            self._check_partner(name, one, other)
        elif (
            dataclasses.is_dataclass(one) and not isinstance(one, _CONTENT)
        ) or kind.__module__ in _BY_ATTRIBUTES:
            self._check_attributes(name, one, other)
        elif kind.__module__ == "typing" and hasattr(one, "__args__"):
            self.check(name, one.__origin__, other.__origin__)
            self.check(name, one.__args__, other.__args__)
        elif kind.__module__.removeprefix("_") in _REDUCED:
            self._check_partner(name, one, other)
            self._check_all(name, *(_reduce(value) for value in (one, other)))
        elif hasattr(one, "cache_parameters"):
            self.check(name, one.cache_parameters(), other.cache_parameters())
            self.check(name, one.__wrapped__, other.__wrapped__)
        elif kind is types.BuiltinFunctionType:
            self.check(name, (one.__name__, one.__self__), (other.__name__, other.__self__))
        else:
            self._check_array(name, one, other)

    def _check_array(self, name: str, one: Any, other: Any) -> None:
        self._require(name, not isinstance(one, _BY_IDENTITY) and type(one).__name__ != "ufunc")
        contents = [_content_of_array(value) for value in (one, other)]
        if None in contents:
            raise Difference(name, _type_name(type(one)))
        if getattr(one, "shape", ()):
            self._check_partner(name, one, other)
        self._require(name, contents[0] == contents[1])


def _has_only_attributes(value: Any) -> bool:
    """Return whether the attributes of another module's object are all of it."""
    plain = dataclasses.is_dataclass(value) and not isinstance(value, _CONTENT)
    return plain or type(value).__module__ in _BY_ATTRIBUTES


def _sort_key(entry: Any) -> tuple[str, str]:
    return type(entry).__name__, repr(entry)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _find_global(function: FunctionType, name: str) -> Any:
    found = function.__globals__.get(name, _MISSING)
    return getattr(builtins, name, _MISSING) if found is _MISSING else found


def _reduce(value: Any) -> list[Any]:
    """Return the parts of which a value of Python's own modules is made."""
    parts = value.__reduce_ex__(4)
    return [list(part) if hasattr(part, "__next__") else part for part in parts]


def _content_of_array(value: Any) -> tuple[Any, ...] | None:
    """Return what an array, a tensor or a number of numpy holds, None for other values."""
    kind = type(value)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
        return value.dtype, value.shape, value.strides, value.flags.writeable, value.tobytes()
    if numpy is not None and isinstance(value, numpy.generic) and not isinstance(value, numpy.object_):
        return value.dtype, value.tobytes()
    if numpy is not None and isinstance(value, numpy.dtype):
        return (value,)
    if torch is not None and kind in (torch.device, torch.Size):
        return (value,)
    if torch is not None and kind is torch.Tensor and value.layout is torch.strided and value.grad_fn is None:
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return value.dtype, value.device, value.shape, value.stride(), value.requires_grad, content
    return (repr(value),) if kind.__name__ == "_DataclassParams" else None


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
