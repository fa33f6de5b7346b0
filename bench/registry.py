"""The registry of methods, suites and probes, and the discovery of plug-ins."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache
from typing import Generic, TypeVar

from bench.errors import BenchError, InputError, unknown_name
from bench.method_card import Method, check_card

T = TypeVar("T")
ENTRY_POINTS = "bench.methods"
_PACKAGES = ("bench.baselines", "bench.methods")


class Registry(Generic[T]):
    """A dictionary that rejects duplicates and suggests close names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, tuple[T, str]] = {}

    def register(self, name: str, item: T, origin: str) -> T:
        """Add an item; raises BenchError if the name is taken by another origin."""
        if name in self._items and self._items[name][1] != origin:
            raise BenchError(
                f"{self.kind} '{name}' is defined twice: in {self._items[name][1]} and in {origin}",
                hint="rename one of them",
            )
        self._items[name] = (item, origin)
        return item

    def get(self, name: str, *, where: str | None = None) -> T:
        """Return the item; raises InputError with a suggestion."""
        if name not in self._items:
            raise unknown_name(self.kind, name, self._items, where=where)
        return self._items[name][0]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._items)

    def origin(self, name: str) -> str:
        """Return the module that added an item."""
        return self._items[name][1]

    def names_from(self, module: str) -> list[str]:
        """Return the sorted names of the items that a module, or one below it, added."""
        return [name for name in self.names() if f"{self.origin(name)}.".startswith(f"{module}.")]

    def forget(self, module: str) -> None:
        """Drop the items that a module added."""
        for name in self.names_from(module):
            self.remove(name)

    def remove(self, name: str) -> None:
        """Drop one item."""
        del self._items[name]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Yield (name, item) in the order of the names."""
        return ((name, self._items[name][0]) for name in self.names())


class MethodRegistry(Registry[Method]):
    """The registry of methods, with their other names in the field."""

    def get(self, name: str, *, where: str | None = None) -> Method:
        """Return the method; raises InputError with a suggestion."""
        if name in self._items:
            return self._items[name][0]
        known = {other: form for aliases in self.list_aliases().values() for other, form in aliases}
        if form := known.get(name.lower()):
            raise InputError(f"no method is called '{name}'", where=where, expected=form)
        error = unknown_name(self.kind, name, self._items, where=where)
        hint = "plug-in methods need --plugin FILE.py|PACKAGE"
        raise InputError(error.what, where=where, expected=error.expected, hint=hint)

    def list_aliases(self) -> dict[str, list[tuple[str, str]]]:
        """Return the other names of each method, with their forms: bench's own methods take theirs first.

        A later card with a name of an earlier one, such as a copy of its card, doesn't get it.
        """
        taken: set[str] = set()
        aliases = {}
        for method in sorted(self._items, key=lambda name: not self.is_own(name)):
            known = [pair for pair in self._items[method][0].card.known_as if pair[0] not in taken]
            taken |= {other for other, _ in known}
            aliases[method] = known
        return aliases

    def is_own(self, name: str) -> bool:
        """Return whether the method is in bench's own packages."""
        return self.origin(name).startswith("bench.")

    def called(self, name: str) -> str | None:
        """Return the method of that name in any case ("SimCSE"), or None."""
        return next((own for own in self._items if own.casefold() == name.casefold()), None)


METHODS = MethodRegistry("method")


def add_method(kind: type[Method]) -> type[Method]:
    """Class decorator: register one instance under its card's name; raises InputError if invalid."""
    method = kind()
    check_card(method)
    METHODS.register(method.card.name, method, kind.__module__)
    return kind


def entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return the entry points of group ``bench.methods``."""
    return _entry_points(tuple(sys.path))


@cache
def _entry_points(search: tuple[str, ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Read entry points once a search path: that takes as long as building an encoder."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINTS))


@cache
def _import_own_packages() -> None:
    """Import bench's own methods, which register themselves."""
    for package_name in _PACKAGES:
        package = importlib.import_module(package_name)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{package_name}.{module.name}")


def own_methods() -> dict[str, Method]:
    """Import bench's own methods and return them by name."""
    _import_own_packages()
    return {name: method for name, method in METHODS if METHODS.is_own(name)}


def discover() -> Registry[Method]:
    """Import bench's own methods and those of entry points; return all methods."""
    own_methods()
    for entry in entry_points():
        try:
            entry.load()
        except BenchError:
            raise
        except (Exception, SystemExit) as error:
            raise BenchError(
                f"the plug-in '{entry.name}' ({entry.value}) can't be imported: {error}",
                hint="fix or uninstall it",
            ) from error
    return METHODS
