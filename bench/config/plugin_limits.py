"""What in a plug-in's file hides the code that it runs, so that the file counts as a whole.

A reader of the source can't follow code that is made or looked up by name while it runs, that reads files
(its own among them), or that changes names of the file or of other modules. Only imports of a list are
accepted, since other modules do such things for their callers. A rule may refuse too much, never too little.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from bench.config.plugin_effects import bound_names

_STANDARD = {
    *("__future__", "abc", "base64", "binascii", "bisect", "cmath", "collections", "contextlib", "copy"),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq"),
    *("itertools", "json", "logging", "math", "numbers", "operator", "pathlib", "random", "re", "statistics"),
    *("string", "struct", "textwrap", "time", "typing", "unicodedata", "uuid", "warnings", "zlib"),
}
_PACKAGES = {
    *("numpy", "torch", "scipy", "sklearn", "transformers", "sentence_transformers", "tokenizers"),
    *("safetensors", "tqdm", "einops"),
}
_ROOMS = {
    *("baselines", "encoder", "errors", "lazy", "losses", "method_card", "methods", "nn", "stages"),
    "training",
}
_REGISTRY = "bench.registry"
_EVERYWHERE = {
    *("exec", "eval", "globals", "locals", "vars", "setattr", "delattr", "open", "breakpoint", "jit"),
    *("attrgetter", "methodcaller", "get_type_hints", "ForwardRef", "METHODS", "discover", "own_methods"),
}
_NAMES = _EVERYWHERE | {"compile", "dir", "input", "help", "getattr", "hasattr"}
_ATTRIBUTES = _EVERYWHERE | {
    *("sys", "os", "builtins", "importlib", "inspect", "io", "gc", "ctypes", "pickle", "linecache"),
    *("subprocess", "_sys", "_os", "pkgutil", "runpy", "traceback", "types", "marshal"),
    *("read_text", "read_bytes", "fromfile", "from_file", "loadtxt", "genfromtxt", "memmap", "getline"),
    *("f_globals", "f_locals", "f_back", "gi_frame", "cr_frame", "ag_frame", "tb_frame", "tb_next"),
    *("tb_lineno", "getlines", "load_inline", "load_library", "cpp_extension", "hub", "f2py", "format_map"),
}
_DUNDERS = {
    *("__init__", "__call__", "__len__", "__getitem__", "__iter__", "__next__", "__enter__", "__exit__"),
    *("__repr__", "__str__", "__eq__", "__hash__", "__contains__", "__post_init__", "__add__", "__mul__"),
}
_VARIABLES = {"__all__", "__version__", "__author__"}
_DUNDER = re.compile(r"__\w*__")


def find_limit(tree: ast.Module) -> str:
    """Return the first thing in a file that hides code, with its line, or ""."""
    top: set[str] = set().union(*map(bound_names, tree.body))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    literal = {id(call.func) for call in calls if _is_literal_lookup(call)}
    imported = set().union(*(bound_names(node) for node in tree.body if _is_import(node)))
    for node in ast.walk(tree):
        if id(node) in literal:
            continue
        reason = next(_reasons(node), "") or next(_reasons_of_place(node, top, imported), "")
        if reason:
            line = getattr(node, "lineno", None)
            return f"{reason}, line {line}" if line else reason
    return ""


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_literal_lookup(call: ast.Call) -> bool:
    """Return whether a call is ``getattr`` or ``hasattr`` with an attribute's name as a text."""
    named = isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
    if not named or len(call.args) < 2 or not isinstance(call.args[1], ast.Constant):
        return False
    text = call.args[1].value
    return isinstance(text, str) and not next(_attribute_reasons(text), "")


def _reasons(node: ast.AST) -> Iterator[str]:
    """Yield what a node does, wherever it is, that hides code."""
    if isinstance(node, ast.Name):
        yield from [node.id] if node.id in _NAMES else _variable_reasons(node.id)
    elif isinstance(node, ast.Attribute):
        yield from _attribute_reasons(node.attr)
    elif isinstance(node, ast.alias):
        yield from _attribute_reasons(node.name.rpartition(".")[2])
        yield from _variable_reasons(node.asname or "")
    elif isinstance(node, ast.Call):
        yield from _call_reasons(node)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _import_reasons(node)
    elif isinstance(node, ast.Constant):
        found = _DUNDER.search(str(node.value))
        yield from [f"'{found.group()}' in a text"] if found else []
    else:
        yield from _definition_reasons(node)


def _definition_reasons(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Global):
        yield "a global statement"
    if isinstance(node, ast.ClassDef) and node.keywords:
        yield "arguments of a class"
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield from [] if node.name in _DUNDERS else _variable_reasons(node.name)


def _variable_reasons(name: str) -> Iterator[str]:
    if name.startswith("__") and name not in _VARIABLES:  # in a class it is another name's
        yield name


def _attribute_reasons(name: str) -> Iterator[str]:
    special = name.startswith("__") and name not in _DUNDERS | {"__name__", "__future__"}
    if special or name in _ATTRIBUTES or name.startswith("co_"):
        yield name


def _call_reasons(call: ast.Call) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Name) and function.id == "type" and len(call.args) + len(call.keywords) > 1:
        yield "type with several arguments"
    if isinstance(function, ast.Attribute) and function.attr == "format":
        literal = isinstance(function.value, ast.Constant) and isinstance(function.value.value, str)
        yield from [] if literal else ["format of a text that isn't literal"]


def _import_reasons(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
        if own := [name for name in modules if name.split(".")[0] == "bench"]:
            yield f"import {own[0]}"
    else:
        modules = [node.module or ""]
        names = {alias.name for alias in node.names}
        if node.level or "*" in names:
            yield "a relative import" if node.level else "import *"
        if private := sorted(name for name in names if name.startswith("_")):
            yield f"import of {private[0]}"
        if modules == [_REGISTRY] and names == {"add_method"}:
            return
        if modules == ["bench"]:
            modules = [f"bench.{name}" for name in names]
    for module in modules:
        first, _, rest = module.partition(".")
        ours = first == "bench" and rest.split(".")[0] in _ROOMS
        if not ours and first not in _STANDARD | _PACKAGES:
            yield f"import of {module}"


def _reasons_of_place(node: ast.AST, top: set[str], imported: set[str]) -> Iterator[str]:
    """Yield what hides code depending on where a node is, or on whose attribute it is."""
    if isinstance(node, ast.Attribute) and node.attr.startswith("_") and _root(node) in imported:
        yield f"{_root(node)}'s {node.attr}"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for part in ast.walk(node):
        if _is_import(part):
            yield "an import in a function or class"
        changes = isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)
        if isinstance(part, ast.Attribute | ast.Subscript) and changes and _root(part) in top:
            yield f"a change of {_root(part)}"


def _root(node: ast.AST) -> str:
    """Return the variable at the beginning of an attribute or item, "" for another expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
