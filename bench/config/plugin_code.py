"""The identity of a plug-in's method: the code that it reaches in its file, without comments and docstrings.

It is read from the source, nothing runs. It holds a method's class, other classes, functions, constants and
imports that these name, and all statements that may act while the file is imported. A file whose code a
reader can't follow (:mod:`bench.config.plugin_limits`) has no such identity: there the whole file counts.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache

from bench.config.plugin_effects import Module
from bench.config.plugin_limits import find_limit
from bench.config.plugin_state import find_shared_state

_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_IGNORED = {"ctx", "type_comment", "kind", "type_ignores"}


@lru_cache(maxsize=64)
def hash_method_code(source: bytes, kind: str) -> str:
    r"""Return the sha256 of the code that a top-level class reaches in a file, "" if the whole file counts.

    Equal in all Python versions. Comments, docstrings, layout and other methods of the file leave it alone.

    >>> one, two = b"class A: x = 1  # comment", b"class A: x=1; y: int\n"
    >>> hash_method_code(one, "A") == hash_method_code(one + b"\nclass B: pass", "A")
    True
    >>> hash_method_code(one, "A") == hash_method_code(two, "A"), hash_method_code(b"exec('')", "A")
    (False, '')
    """
    try:
        tree = _read_tree(source)
        if _explain_tree(tree, kind):
            return ""
        lines = [_format_node(node) for node in _reached_statements(Module(tree), kind)]
    except _UNREADABLE:
        return ""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def explain_whole_file(source: bytes, kind: str) -> str:
    r"""Return why a method's identity is its whole file, "" if it is the code that its class reaches.

    >>> explain_whole_file(b"class A:\n    x = eval('1')", "A")
    'eval, line 2'
    """
    try:
        return _explain_tree(_read_tree(source), kind)
    except _UNREADABLE as error:
        return f"{type(error).__name__} in reading it"


def _explain_tree(tree: ast.Module, kind: str) -> str:
    if limit := find_limit(tree):
        return limit
    module = Module(tree)
    if not module.has_class(kind):
        return f"no class {kind} at the top level"
    own = _reached_statements(module, kind)
    return find_shared_state(module, own, _outside_statements(module, own))


def _read_tree(source: bytes) -> ast.Module:
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_script_part(node)]
    for node in ast.walk(tree):
        _drop_docstring(node)
    return tree


def _is_script_part(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__"``, which no plug-in runs."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def _drop_docstring(node: ast.AST) -> None:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = node.body[0] if node.body else None
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            del node.body[0]


def _reached_statements(module: Module, kind: str) -> list[ast.stmt]:
    """Return the top-level statements that count for a class, in the order of the file."""
    acting = [node for node in module.statements if not module.is_inert(node)]
    return _follow(module, [kind], acting)


def _outside_statements(module: Module, own: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that don't count for a class, with all that these reach."""
    counted = {id(node) for node in own}
    others = [node for node in module.statements if id(node) not in counted]
    return _follow(module, [], [node for node in others if not isinstance(node, ast.Import | ast.ImportFrom)])


def _follow(module: Module, names: list[str], start: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements and all that they or some names reach, in the order of the file."""
    counted = {id(node) for node in start}
    names = [*names, *(name for node in start for name in _used_names(node))]
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in module.binding(name):
            if id(node) not in counted:
                names += _used_names(node)
            counted.add(id(node))
    return [node for node in module.statements if id(node) in counted]


def _used_names(node: ast.AST) -> Iterator[str]:
    """Yield all names in a statement, those of its functions and of quoted annotations too."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.AnnAssign | ast.arg | ast.FunctionDef | ast.AsyncFunctionDef):
            annotation = part.returns if hasattr(part, "returns") else part.annotation
            for constant in ast.walk(annotation) if annotation else ():
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield from re.findall(r"\w+", constant.value)


def _format_node(value: object) -> str:
    """Return a node without positions, in a form that Python versions share."""
    if isinstance(value, ast.JoinedStr):
        return f"JoinedStr[{','.join(map(_format_node, _merged_texts(value.values)))}]"
    if isinstance(value, ast.AST):
        fields = []
        for name, entry in ast.iter_fields(value):
            if name not in _IGNORED and entry is not None and entry != []:
                fields.append(f"{name}={_format_node(entry)}")
        if isinstance(value, ast.Constant) and value.value is None:
            fields = ["value=None"]
        return f"{type(value).__name__}({','.join(sorted(fields))})"
    if isinstance(value, list):
        return f"[{','.join(map(_format_node, value))}]"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"int:{value:x}"
    return f"{type(value).__name__}:{value!a}"


def _merged_texts(values: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield the parts of an f-string; adjoining texts as one, which some versions split."""
    text = ""
    for value in values:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield value
    if text:
        yield ast.Constant(text)
