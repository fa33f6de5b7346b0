"""Method classes of a session (a notebook's cell, a script) as plug-ins for the length of a run.

A class with source becomes a file's text that worker processes and reruns load. One without source runs in
this process only, and its records say that nothing repeats them.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.config.class_check import find_difference
from bench.config.class_source import find_class
from bench.config.class_text import write_class_text
from bench.config.plugins import forget_plugin, load_plugin, register_sourceless
from bench.config.run_spec import Plugin
from bench.errors import InputError
from bench.method_card import Method, MethodCard, check_name
from bench.registry import METHODS, discover

Registered = tuple[tuple[Plugin, ...], tuple[str, ...], bool]
SESSION = "<session>"
"""Folder of the texts in messages and tracebacks."""
_EXPECTED = "a class with a card, a MethodCard, and build(context)"


def plugin_of_class(kind: type[Method]) -> Plugin | None:
    """Return a method class of a session as a plug-in's text; None for a class without source.

    Raises InputError for a class that is no method, stands in a function, or reaches what has no source.
    """
    name = _check_class(kind)
    definition = find_class(kind)
    if definition is None:
        return None
    source = write_class_text(kind, definition).encode()
    digest = hashlib.sha256(source).hexdigest()[:8]
    file = f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}-{digest}.py"
    return Plugin(file, f"{SESSION}/{name}.py", source, session=True)


@contextmanager
def register_classes(
    classes: Sequence[type[Method]],
) -> Iterator[tuple[tuple[Plugin, ...], tuple[str, ...], bool]]:
    """Register method classes for the length of a ``with`` block.

    Yields their plug-ins for a run's specification, the names of the methods in the order of ``classes``, and
    True if one has no source: then run with one worker in this process. Classes of bench itself need no
    plug-in. Raises InputError for a class that is no method, or a name that is taken.
    """
    discover()
    names = [_check_class(kind) for kind in classes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two classes have the name '{name}' on their card", where="methods")
    plugins: list[Plugin] = []
    in_process = False
    with ExitStack() as undo:
        for kind, name in zip(classes, names, strict=True):
            if kind.__module__.startswith("bench."):
                continue
            undo.enter_context(_without_own_registration(kind, name))
            plugin = plugin_of_class(kind)
            if plugin is None:
                undo.callback(METHODS.forget, register_sourceless(kind, name))
                in_process = True
                continue
            load_plugin(plugin)
            undo.callback(forget_plugin, plugin)
            _check_loaded(kind, name)
            plugins.append(plugin)
        yield tuple(plugins), tuple(names), in_process


def _check_class(kind: type[Method]) -> str:
    """Return the name on a class's card."""
    if not isinstance(kind, type):
        raise InputError(
            f"{kind!r} is not a class", where="methods", expected="a class with a card and build"
        )
    card = getattr(kind, "card", None)
    if not isinstance(card, MethodCard):
        raise InputError(f"{kind.__name__} is not a method", where="methods", expected=_EXPECTED)
    if "." in kind.__qualname__:
        what = f"{kind.__qualname__} is defined inside a function or a class"
        raise InputError(what, where="methods", hint="define it at the top level of a cell or file")
    check_name(card, kind.__name__)
    return card.name


@contextmanager
def _without_own_registration(kind: type[Method], name: str) -> Iterator[None]:
    """Take away the registration by the class's own decorator, and put it back."""
    own = name in METHODS.names() and METHODS.origin(name) == kind.__module__
    method = METHODS.get(name) if own else None
    if method is not None:
        METHODS.remove(name)
    try:
        yield
    finally:
        if method is not None:
            METHODS.register(name, method, kind.__module__)


def _check_loaded(kind: type[Method], name: str) -> None:
    """Raise InputError where something that the class reaches was changed after its definition."""
    loaded = vars(sys.modules[METHODS.origin(name)])[kind.__name__]
    difference = find_difference(kind, loaded)
    if difference is None:
        return
    where, changed, first = kind.__name__, difference.name, difference.name.partition(".")[0]
    if difference.unknown:
        what = f"nothing can compare {changed}, of type {difference.unknown}, with what its source makes"
        hint = "make it inside build, or inside a function that build calls"
        raise InputError(what, where=where, expected="values whose parts can be read", hint=hint)
    if difference.shared:
        what = f"{changed} and another name are one object, of which its source makes two"
        raise InputError(what, where=where, hint="use one name for it, or a tuple")
    what = f"{changed} isn't what its source makes now: it, or what it uses, changed afterwards"
    names = where if first == where else f"{first} and then {where}"
    raise InputError(what, where=where, hint=f"run the cell with its definition again: {names}")
