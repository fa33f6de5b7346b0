"""Write a method class of a session as a file of its own, with all names that it reaches there."""

from __future__ import annotations

import ast
import inspect
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from bench.config.class_source import Definition, find_class, find_function
from bench.config.plugin_effects import bound_names
from bench.config.value_source import Imports, express_value, import_of
from bench.errors import InputError
from bench.registry import add_method

_COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}
_EXPECTED = "a number, a text, a list or dict of these, an import, or a function or class with source"
_REGISTER = "add_method"


@dataclass(frozen=True)
class _Part:
    """A statement, with the global names that it needs when it runs and those that its functions need."""

    text: str
    eager: frozenset[str] = frozenset()
    lazy: frozenset[str] = frozenset()


def write_class_text(kind: type, definition: Definition) -> str:
    """Return a plug-in's source with a method class and what it reaches; raises InputError for the rest."""
    session = _Session(kind)
    session.add_definition(kind.__name__, kind, definition)
    imports = sorted(line for line, _ in session.imports.values())
    if session.future:
        imports.insert(0, "from __future__ import annotations")
    head = [f"# {kind.__name__}: a class of a session, with the names that it reaches there", *imports]
    return "\n\n".join(["\n".join(head) + "\n", *session.ordered_statements()])


@dataclass
class _Session:
    """What a class reaches in the module that defined it."""

    kind: type
    imports: Imports = field(default_factory=dict)
    parts: dict[str, _Part] = field(default_factory=dict)
    future: bool = False

    @property
    def names(self) -> dict[str, Any]:
        return vars(sys.modules[self.kind.__module__])

    def add(self, name: str, value: object) -> None:
        """Add a global name; raises InputError for a value that no source expresses."""
        if name in self.parts:
            return
        if line := import_of(name, value, self.kind.__module__):
            self.add_import(name, line, value)
        elif definition := _find_definition(value):
            self.add_definition(name, value, definition)
        elif expressed := express_value(value, self.kind.__module__):
            self.parts[name] = _Part(f"{name} = {expressed[0]}\n")
            for needed, (line, origin) in expressed[1].items():
                self.add_import(needed, line, origin)
        else:
            what = f"it uses '{name}', {_describe(value)} without source"
            hint = f"make '{name}' inside the class or a function of it"
            if isinstance(value, type):
                hint = f"define '{name}' in a cell or in the file, or make it inside the class"
            raise InputError(what, where=self.kind.__name__, expected=_EXPECTED, hint=hint)

    def add_import(self, name: str, line: str, value: object) -> None:
        """Add an import; raises InputError where the session has something else under its name."""
        known = self.imports.setdefault(name, (line, value))[1]
        present = self.names.get(name, value)
        if not (_is_same_import(known, value) and _is_same_import(present, value)):
            what = f"its source needs {line!r}, and '{name}' is something else in the session"
            raise InputError(what, where=self.kind.__name__, hint=f"give '{name}' another name")

    def add_definition(self, name: str, value: object, definition: Definition) -> None:
        """Add a class or function with all that it reaches."""
        node, text = definition.node, definition.text
        original = name
        if isinstance(node, ast.Assign):
            original = ast.unparse(node.targets[0])
        else:
            original = node.name
            text = self._drop_registration(text)
        if original != name and self.names.get(original) is not value:
            what = f"it uses '{name}', which is another '{original}' than the present one"
            raise InputError(what, where=self.kind.__name__, hint=f"define '{name}' under its own name")
        if value is self.kind:
            text = f"@{_REGISTER}\n{text}"
            line = f"from {add_method.__module__} import {_REGISTER}"
            self.add_import(_REGISTER, line, add_method)
        self.future = self.future or definition.future
        eager, lazy = find_global_names(text)
        self.parts[original] = _Part(text, frozenset(eager), frozenset(lazy))
        if original != name:
            self.parts[name] = _Part(f"{name} = {original}\n", frozenset({original}))
        for reached in sorted((eager | lazy) - {_REGISTER}):
            if reached in self.names and not reached.startswith("__"):
                self.add(reached, self.names[reached])

    def _drop_registration(self, text: str) -> str:
        """Remove decorators that are ``add_method``, under any name; the text's own is put back later."""
        node = ast.parse(text).body[0]
        lines = text.splitlines(keepends=True)
        for decorator in reversed(getattr(node, "decorator_list", [])):
            named = isinstance(decorator, ast.Name) and self.names.get(decorator.id) is add_method
            if named or ast.unparse(decorator).endswith(f".{_REGISTER}"):
                del lines[decorator.lineno - 1 : decorator.end_lineno]
        return "".join(lines)

    def ordered_statements(self) -> Iterator[str]:
        """Yield the statements by name, each after those that it needs when it runs; the class last."""
        done: set[str] = set()

        def visit(name: str, needed: bool) -> Iterator[str]:
            if name in done or name not in self.parts:
                return
            done.add(name)
            part = self.parts[name]
            called = part.lazy if needed else ()  # another statement may call it
            for other in sorted({*part.eager, *called}):
                yield from visit(other, needed=True)
            yield part.text

        own = self.kind.__name__
        for name in sorted(self.parts, key=lambda name: (name == own, name)):
            yield from visit(name, needed=False)


def _find_definition(value: object) -> Definition | None:
    if isinstance(value, type):
        return find_class(value)
    function = inspect.unwrap(value) if callable(value) else None
    if isinstance(function, FunctionType) and not function.__closure__:
        return find_function(function)
    return None


def _is_same_import(one: object, other: object) -> bool:
    if isinstance(one, ModuleType) and isinstance(other, ModuleType):
        return one.__name__ == other.__name__  # bench.lazy's is another object
    return one is other


def _describe(value: object) -> str:
    kind = type(value)
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, FunctionType):
        return "a function"
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"a value of type {name},"


def find_global_names(text: str) -> tuple[set[str], set[str]]:
    """Return the global names that statements use when they run, and those that only their functions use.

    >>> eager, lazy = find_global_names("class A(Base): x = f; g = lambda self, y=z: h(self, y)")
    >>> sorted(eager), sorted(lazy)
    (['Base', 'f', 'z'], ['h'])
    """
    eager: set[str] = set()
    lazy: set[str] = set()

    def walk(table: symtable.SymbolTable, names: set[str]) -> None:
        top = str(table.get_type()).endswith("module")
        for symbol in table.get_symbols():
            bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if symbol.is_referenced() and (not bound if top else symbol.is_global()):
                names.add(symbol.get_name())
        for child in table.get_children():
            in_function = str(child.get_type()).endswith("function")
            walk(child, lazy if in_function and child.get_name() not in _COMPREHENSIONS else names)

    walk(symtable.symtable(text, "class", "exec"), eager)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            eager |= set(_names_before_binding(node))
    return eager, lazy - eager


def _names_before_binding(node: ast.ClassDef) -> Iterator[str]:
    """Yield names that a class's body reads before it binds them, such as K of ``K = K``: global ones."""
    every = {name for statement in node.body for name in bound_names(statement)}
    bound: set[str] = set()
    for statement in node.body:
        for part in _parts_in_scope(statement):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in every - bound:
                yield part.id
        bound |= bound_names(statement)


def _parts_in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of a statement runs in its own scope: all but the bodies of functions and classes."""
    yield node
    inner: list[ast.AST] = []
    if isinstance(node, ast.Lambda):
        inner = [node.body]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inner = [*node.body]
    for child in ast.iter_child_nodes(node):
        if child not in inner:
            yield from _parts_in_scope(child)
