"""Methods from outside: a file or an importable package that the user names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from bench.config.plugin_code import explain_whole_file, hash_method_code
from bench.config.run_spec import Plugin
from bench.errors import BenchError, InputError, suggest_name
from bench.method_card import Method, check_card
from bench.registry import METHODS, discover, entry_points

_WHERE = "--plugin"
_PLUGIN_FORMS = "FILE.py, or the import name of an installed package"
_FILES: dict[str, Plugin] = {}
"""Loaded files by the name of their module."""
_SOURCELESS = "session_class_"
"""Beginning of the origin of classes without source; the definition's own mark follows."""
_MARKS: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def read_plugin(text: str, results: Path) -> Plugin:
    """Find a plug-in by FILE.py (outside ``results``), import name or entry point; raises InputError."""
    path = Path(text).expanduser()
    if (module := _entry_point_modules().get(text)) is not None:
        return Plugin(module)
    if path.suffix != ".py" and all(part.isidentifier() for part in text.split(".")):
        return Plugin(text)
    if path.is_dir():
        hint = "a package is installed first: pip install"
        raise InputError(f"'{text}' is a folder", where=_WHERE, expected=_PLUGIN_FORMS, hint=hint)
    if path.suffix != ".py":
        raise InputError(f"'{text}' is not a Python file", where=_WHERE, expected=_PLUGIN_FORMS)
    if path.resolve().is_relative_to(results.resolve()):
        what = f"'{text}' lies in the results folder: bench never runs code that came with records"
        raise InputError(what, where=_WHERE, hint="read it, and copy it elsewhere")
    try:
        source = path.read_bytes()
    except OSError as error:
        near = suggest_name(path.name, (file.name for file in path.parent.glob("*.py")))
        what = f"'{text}' can't be read: {error.strerror}"
        raise InputError(what, where=_WHERE, expected=_PLUGIN_FORMS, hint=near) from error
    return Plugin(path.name, str(path.resolve()), source)


def load_plugin(plugin: Plugin, names: Iterable[str] = ()) -> tuple[str, ...]:
    """Run a plug-in once, as a module named after its file; return its methods; raises InputError."""
    discover()
    if plugin.path:
        return _load_file(plugin)
    name = plugin.name
    top = name.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        files = (file.name for file in Path().glob("*.py"))
        near = suggest_name(name, {*names, *_entry_point_modules(), *files})
        what = f"the package '{name}' is not installed"
        raise InputError(what, where=_WHERE, expected=_PLUGIN_FORMS, hint=near)
    _run_plugin_code(name, name, partial(importlib.import_module, name))
    return _check_methods(METHODS.names_from(name), name)


def load_plugins(plugins: Sequence[Plugin]) -> None:
    """Load plug-ins in their order, see :func:`load_plugin`."""
    for plugin in plugins:
        load_plugin(plugin)


def loaded_files() -> tuple[str, ...]:
    """Return the modules of the loaded files."""
    return tuple(_FILES)


def forget_plugins(modules: Iterable[str]) -> None:
    """Drop the methods of loaded files, by the names of their modules."""
    for module in modules:
        _forget_module(module)


def file_hash(method: str) -> str:
    """Return the sha256 of the file that a registered method was loaded from, "" for one from a package."""
    plugin = _FILES.get(METHODS.origin(method))
    return _hash_content(plugin.source) if plugin else ""


def forget_plugin(plugin: Plugin) -> None:
    """Undo :func:`load_plugin` for a file."""
    for module in [name for name, loaded in _FILES.items() if loaded == plugin]:
        _forget_module(module)


def register_sourceless(kind: type[Method], name: str) -> str:
    """Register a class without source, which only this process has; return its origin; raises InputError."""
    where = kind.__name__
    if name in METHODS.names():
        what = f"method '{name}' is defined twice: in {METHODS.origin(name)} and in {where}"
        raise InputError(what, where=where, hint="rename one of them")
    origin = _SOURCELESS + _MARKS.setdefault(kind, uuid4().hex)  # no one can compare two definitions

    def register() -> None:
        method = kind()
        check_card(method)
        METHODS.register(name, method, origin)

    _run_plugin_code(where, origin, register, "made")
    return origin


def plugin_facts(method: str, whole_file: bool = False) -> dict[str, Any] | None:
    """Return what a record stores about a method's origin; None for one of bench's own.

    A file's method has the hash of its code too, unless ``whole_file`` or the code hides what it runs.
    """
    origin = METHODS.origin(method)
    if origin.startswith("bench."):
        return None
    if origin in _FILES:
        plugin = _FILES[origin]
        kind = type(METHODS.get(method)).__qualname__
        code = "" if whole_file else hash_method_code(plugin.source, kind)
        identity = {"class": kind, "code": code} if code else {}
        return {"file": plugin.name, "sha256": file_hash(method), **identity}
    if origin.startswith(_SOURCELESS):
        return {"class": type(METHODS.get(method)).__name__, "session": origin.removeprefix(_SOURCELESS)}
    file = getattr(sys.modules.get(origin), "__file__", None)
    facts = {"module": origin, "sha256": _hash_content(Path(file).read_bytes()) if file else None}
    for entry in entry_points():
        if entry.module.partition(".")[0] == origin.partition(".")[0] and entry.dist is not None:
            facts |= {"package": entry.dist.name, "version": entry.dist.version}
    return facts


def explain_whole_files(methods: Iterable[str]) -> str:
    """Return which files of registered methods count as a whole, and why, or ""."""
    reasons = {}
    for name in sorted(set(methods) & set(METHODS.names())):
        if plugin := _FILES.get(METHODS.origin(name)):
            reasons[plugin.name] = explain_whole_file(plugin.source, type(METHODS.get(name)).__qualname__)
    return "; ".join(f"all of {file} counts, because of {why}" for file, why in reasons.items() if why)


def plugins_for_methods(methods: Iterable[str]) -> tuple[Plugin, ...]:
    """Return the plug-ins that another process must load to run these registered methods."""
    check_other_process(methods)
    origins = dict.fromkeys(METHODS.origin(name) for name in sorted(methods))
    return tuple(_FILES.get(origin, Plugin(origin)) for origin in origins if not origin.startswith("bench."))


def check_other_process(methods: Iterable[str]) -> None:
    """Raise InputError for a registered method that only this process has: a class without source."""
    for name in sorted(methods):
        if name in METHODS.names() and METHODS.origin(name).startswith(_SOURCELESS):
            what = f"the class of '{name}' has no source, so that no other process can run it"
            raise InputError(what, where=name, expected="one worker, one rank, no cluster")


def _load_file(plugin: Plugin) -> tuple[str, ...]:
    # The name of the module, which classes show, leaves the content alone: comments change no result.
    stem = re.sub(r"\W", "_", Path(plugin.path).stem)
    name = f"bench_plugin_{stem}_{_hash_content(plugin.path.encode())[:8]}"
    loaded = _FILES.get(name)
    if loaded is None or loaded.source != plugin.source:
        copies = [other for other, plugin_of in _FILES.items() if plugin_of.source == plugin.source]
        for other in {*copies, *([name] if loaded else [])}:
            _forget_module(other)
        module = ModuleType(name)
        module.__file__ = plugin.path
        module.__spec__ = ModuleSpec(name, None, origin=plugin.path)
        sys.modules[name] = module  # pickles and dataclasses look their module up there
        _FILES[name] = plugin
        if plugin.session:  # no file has it, and tracebacks quote it
            lines = plugin.source.decode().splitlines(keepends=True)
            linecache.cache[plugin.path] = len(plugin.source), None, lines, plugin.path
        try:
            _run_plugin_code(plugin.name, name, partial(_execute_source, plugin, module))
            _check_methods(METHODS.names_from(name), plugin.name)
        except InputError:
            _forget_module(name)
            raise
    return tuple(METHODS.names_from(name))


def _execute_source(plugin: Plugin, module: ModuleType) -> None:
    code = compile(plugin.source, plugin.path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - what the user asked for


def _run_plugin_code(where: str, module: str, run: Callable[[], object], verb: str = "imported") -> None:
    """Run a plug-in's code; an error becomes one line with the plug-in's line number."""
    try:
        run()
    except BenchError as error:
        what = error.what
        for name, plugin in _FILES.items():
            what = what.replace(name, plugin.name)
        raise InputError(what, where=where, expected=error.expected, hint=error.hint) from error
    except SyntaxError as error:
        place = f"{where}:{error.lineno}" if error.lineno else where
        raise InputError(f"this is not Python: {error.msg}", where=place) from error
    except (Exception, SystemExit) as error:
        file = getattr(sys.modules.get(module), "__file__", None)
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        reason = traceback.TracebackException.from_exception(error)  # str(error) may fail itself
        what = f"it can't be {verb}: {type(error).__name__}: {reason}"
        raise InputError(what, where=f"{where}:{lines[-1]}" if lines else where) from error


def _check_methods(methods: list[str], where: str) -> tuple[str, ...]:
    if not methods:
        expected = "a class with a card and build, under @add_method"
        raise InputError("it has no method", where=where, expected=expected)
    return tuple(methods)


def _forget_module(module: str) -> None:
    METHODS.forget(module)
    del sys.modules[module], _FILES[module]


def _entry_point_modules() -> dict[str, str]:
    return {entry.name: entry.module for entry in entry_points()}


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
