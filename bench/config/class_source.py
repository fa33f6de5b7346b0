"""Find the source of a class or function of a notebook or script, and check that it is still its own."""

from __future__ import annotations
import __future__

import ast
import enum
import inspect
import linecache
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from bench.config.plugin_effects import bound_names

_FUTURE = __future__.annotations.compiler_flag
_Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign
_MADE_NAMES = {"_fields", "_field_defaults", "_make", "_replace", "_asdict"}
"""Attributes that ``NamedTuple`` adds to a class."""
_BLOCKS = (ast.Module, ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)


@dataclass(frozen=True)
class Definition:
    """The statement that defined a class or function.

    Args:
        node: The statement.
        text: Its source lines, with decorators.
        future: True if its annotations aren't evaluated (``from __future__ import annotations``).
    """

    node: _Node
    text: str
    future: bool = False


def find_class(kind: type) -> Definition | None:
    """Return the statement that defined a class, None without source or where the source changed since."""
    codes = [function.__code__ for function in own_functions(kind)]
    future = any(code.co_flags & _FUTURE for code in codes)
    for file in _candidate_files(kind, codes):
        whole = "".join(linecache.getlines(file))
        found = []
        for node, text in _top_statements(whole):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                its_own = codes or _has_names(node, kind)
                if its_own and _covers(node, codes) and _compiles_to([text, whole], future, codes):
                    found.append(Definition(node, text, future))
        if found:  # the last, of those with the class's values if any has them
            return max(enumerate(found), key=lambda each: (_has_values(each[1].node, kind), each[0]))[1]
    return None


def find_function(function: FunctionType) -> Definition | None:
    """Return the statement that defined a function or named a lambda; see :func:`find_class`."""
    code = function.__code__
    whole = "".join(linecache.getlines(code.co_filename))
    for node, text in reversed(list(_top_statements(whole))):
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.__name__
        lambdas = isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
        future = bool(code.co_flags & _FUTURE)
        if (named or lambdas) and _covers(node, [code]) and _compiles_to([text, whole], future, [code]):
            return Definition(node, text, future)
    return None


def own_functions(kind: type) -> list[FunctionType]:
    """Return the functions that the statement of a class defined."""
    functions = []
    for value in vars(kind).values():
        parts: Iterable[Any] = (value,)
        if isinstance(value, property):
            parts = (value.fget, value.fset, value.fdel)
        elif isinstance(value, cached_property):
            parts = (value.func,)
        elif isinstance(value, staticmethod | classmethod):
            parts = (value.__func__,)
        for part in parts:
            function = inspect.unwrap(part) if callable(part) else part
            if isinstance(function, FunctionType) and function.__module__ == kind.__module__:
                functions.append(function)
    return [f for f in functions if f.__code__.co_qualname == f"{kind.__qualname__}.{f.__code__.co_name}"]


def _candidate_files(kind: type, codes: list[CodeType]) -> list[str]:
    """The file of the class's functions; without any those of the session, the latest first."""
    if codes:
        return list(dict.fromkeys(code.co_filename for code in codes))
    module = inspect.getmodule(kind)
    file = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
    if file is not None:
        return [file]
    return [name for name in reversed(linecache.cache) if not name.endswith(".py") or "ipykernel" in name]


def _top_statements(source: str) -> Iterator[tuple[_Node, str]]:
    """Yield classes, functions and plain assignments of a source outside functions, with their text."""
    lines = source.splitlines(keepends=True)
    try:
        waiting: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    while waiting:
        block = waiting.pop(0)
        for node in ast.iter_child_nodes(block):
            if isinstance(node, _Node):
                yield node, _text_of(node, lines)
            elif isinstance(node, _BLOCKS):
                waiting.append(node)


def _text_of(node: _Node, lines: list[str]) -> str:
    if node.col_offset:  # in a block: lines of its texts must keep their indentation
        return ast.unparse(node) + "\n"
    return dedent("".join(lines[_first_line(node) - 1 : node.end_lineno])).rstrip("\n") + "\n"


def _first_line(node: _Node) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _covers(node: _Node, codes: list[CodeType]) -> bool:
    """Return whether all of these functions begin in the statement."""
    lines = range(_first_line(node), (node.end_lineno or 0) + 1)
    return all(code.co_firstlineno in lines for code in codes)


def _compiles_to(sources: list[str], future: bool, codes: list[CodeType]) -> bool:
    """Return whether one of the sources has these functions, to the last instruction."""
    # A notebook compiles each statement, a script all at once, where imports change instructions.
    for source in sources:
        with suppress(SyntaxError, ValueError):
            flags = _FUTURE if future else 0
            known = list(_nested_codes(compile(source, "", "exec", flags, dont_inherit=True)))
            if all(any(_is_same_code(code, other) for other in known) for code in codes):
                return True
    return False


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_codes(constant)


def _is_same_code(one: CodeType, other: CodeType) -> bool:
    """Return whether two functions have the same instructions, names and constants."""
    names = ("co_qualname", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags")
    if any(getattr(one, name) != getattr(other, name) for name in names):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for mine, theirs in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(mine, CodeType) and isinstance(theirs, CodeType):
            if not _is_same_code(mine, theirs):
                return False
        elif type(mine) is not type(theirs) or repr(mine) != repr(theirs):
            return False
    return True


def _has_names(node: ast.ClassDef, kind: type) -> bool:
    """Return whether a class's statement binds the attributes that the class has."""
    bound = {name for statement in node.body for name in bound_names(statement)}
    made = _MADE_NAMES.union(*(vars(base) for base in kind.__mro__[1:] if base is not object))
    own = {name for name in vars(kind) if not re.fullmatch(r"__\w+__|_\w+_", name)}
    return own - made <= bound


def _has_values(node: _Node, kind: type) -> bool:
    """Return whether a class has the literal values that its statement assigns."""
    return all(_is_value_of(kind, statement) for statement in getattr(node, "body", []))


def _is_value_of(kind: type, node: ast.stmt) -> bool:
    """Return whether a class has the value that a statement of its body assigns, as far as it is literal."""
    given = getattr(node, "value", None)
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    if not isinstance(given, ast.Constant) or not all(isinstance(target, ast.Name) for target in targets):
        return True
    for target in targets:
        value = vars(kind).get(target.id)
        if issubclass(kind, enum.Enum):
            value = getattr(kind._member_map_.get(target.id), "_value_", value)
        if isinstance(value, str | int | float | bytes | None) and repr(value) != repr(given.value):
            return False
    return True
