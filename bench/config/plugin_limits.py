"""What in a plug-in's file hides the code that it runs, so that the file counts as a whole.

A reader of the source can't follow code that is made or looked up by name while it runs, that reads files
(its own among them), or that changes names of the file or of other modules. Only imports of a list are
accepted, since other modules do such things for their callers. A rule may refuse too much, never too little.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

from bench.config.plugin_effects import STANDARD, bound_names

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
    *("gi_code", "cr_code", "ag_code", "f_code", "f_lineno", "f_lasti", "f_builtins", "f_trace", "tb_lasti"),
    *("gi_yieldfrom", "cr_await", "cr_origin", "ag_await"),
    *("tb_lineno", "lineno", "getlines", "load_inline", "load_library", "cpp_extension", "hub", "f2py"),
    *("format_map", "vformat", "logging", "warnings", "redirect_stdout", "redirect_stderr", "stat", "lstat"),
    *("threading", "multiprocessing", "signal", "atexit", "weakref", "cProfile"),
}
_READERS = {"info", "source", "lookfor"}
"""Functions of numpy that print docstrings and sources."""
_DUNDERS = {
    *("__init__", "__call__", "__len__", "__getitem__", "__iter__", "__next__", "__enter__", "__exit__"),
    *("__repr__", "__str__", "__eq__", "__hash__", "__contains__", "__post_init__", "__add__", "__mul__"),
}
_VARIABLES = {"__all__", "__version__", "__author__"}
_HIDING_TEXT = re.compile(r"__\w*__|lineno")


def find_limit(tree: ast.Module) -> str:
    """Return the first thing in a file that hides code, with its line, or ""."""
    literal = _literal_lookups(tree)
    names = _Names.of(tree)
    for node in ast.walk(tree):
        if id(node) in literal:
            continue
        reason = next(_reasons(node), "") or next(_reasons_of_place(node, names), "")
        if reason:
            line = getattr(node, "lineno", None)
            return f"{reason}, line {line}" if line else reason
    return ""


@dataclass(frozen=True)
class _Names:
    """Names of a file's top level: all, those of imports, classes, and what statements use when they run."""

    top: frozenset[str]
    imported: frozenset[str]
    classes: frozenset[str]
    used: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> _Names:
        top: set[str] = set()
        imported: set[str] = set()
        others: set[str] = set()
        used: set[str] = set()
        for node in tree.body:
            bound = bound_names(node)
            top |= bound
            if _is_import(node):
                imported |= bound
                used |= {alias.name for alias in node.names}  # type: ignore[attr-defined]
            elif not isinstance(node, ast.ClassDef):
                others |= bound
        for part in ast.walk(tree):
            for expression in _definition_time_expressions(part):
                used |= {each.attr for each in ast.walk(expression) if isinstance(each, ast.Attribute)}
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} - others
        return cls(frozenset(top), frozenset(imported), frozenset(classes), frozenset(used))


def _definition_time_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield bases, decorators and annotations, which run where something is defined."""
    if isinstance(node, ast.ClassDef):
        yield from node.bases
    yield from getattr(node, "decorator_list", [])
    yield from (each for each in (getattr(node, "annotation", None), getattr(node, "returns", None)) if each)


def _literal_lookups(tree: ast.Module) -> set[int]:
    """Return the nodes ``getattr``, ``hasattr`` and ``format`` of calls with a text that is literal."""
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr") and len(call.args) > 1:
            text = getattr(call.args[1], "value", None)
            if isinstance(text, str) and not next(_attribute_reasons(text), ""):
                found.add(id(function))
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Constant):
            text = function.value.value
            if isinstance(text, str) and not _looks_up(text):
                found.add(id(function))  # of a literal text, whose only such attribute is format
    return found


def _looks_up(text: str) -> bool:
    """Return whether a format's fields read attributes or items, or can't be read."""
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return True
    lookups = (set(name or "") & set(".[") for _, name, _, _ in fields)
    return any(lookups) or any(map(_looks_up, (spec for _, _, spec, _ in fields if spec)))


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


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
        found = _HIDING_TEXT.search("" if isinstance(node.value, int) else str(node.value))
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
    if special or name in _ATTRIBUTES or name.startswith("co_") or name == "format":
        yield name


def _call_reasons(call: ast.Call) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Name) and function.id == "type" and len(call.args) + len(call.keywords) > 1:
        yield "type with several arguments"


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
        if private := sorted(filter(_is_private, names)):
            yield f"import of {private[0]}"
        if modules == [_REGISTRY] and names == {"add_method"}:
            return
        if modules == ["bench"]:
            modules = [f"bench.{name}" for name in names]
    for module in modules:
        yield from _module_reasons(module)
        first, _, rest = module.partition(".")
        ours = first == "bench" and rest.split(".")[0] in _ROOMS
        if not ours and first not in STANDARD | _PACKAGES:
            yield f"import of {module}"


def _module_reasons(module: str) -> Iterator[str]:
    for part in module.split("."):
        yield from _attribute_reasons(part)
        if part.startswith("_") and part != "__future__":
            yield f"import of {module}"


def _is_private(name: str) -> bool:
    """Return whether a module's name is its own, or reads docstrings and sources."""
    return name.startswith("_") or name in _READERS


def _reasons_of_place(node: ast.AST, names: _Names) -> Iterator[str]:
    """Yield what hides code depending on where a node is, or on whose attribute it is."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        yield from _change_reasons(node, names)
    if isinstance(node, ast.Attribute) and _is_private(node.attr) and _root(node) in names.imported:
        yield f"{_root(node)}'s {node.attr}"
    if isinstance(node, ast.ClassDef):
        yield from (f"the base {ast.unparse(b)}" for b in node.bases if not _is_known_base(b, names))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for part in ast.walk(node):
            if _is_import(part):
                yield "an import in a function or class"
            changed = isinstance(part, ast.Attribute | ast.Subscript) and _is_changed(part)
            if changed and _root(part) in names.top:
                yield f"a change of {_root(part)}"


def _is_changed(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _change_reasons(node: ast.Attribute | ast.Subscript, names: _Names) -> Iterator[str]:
    """Yield a change of another module, or of a name that acts where something is defined."""
    if not _is_changed(node):
        return
    if _root(node) in names.imported:
        yield f"a change of {_root(node)}"
    if isinstance(node, ast.Attribute) and (node.attr in names.used or node.attr.startswith("__")):
        yield f"a change of {node.attr}"


def _is_known_base(base: ast.expr, names: _Names) -> bool:
    """Return whether a base is a class of the file, of another module or of Python, and makes no classes."""
    root, last = _root(base), ast.unparse(base).partition("[")[0].rpartition(".")[2]
    known = root in names.imported | names.classes or (root not in names.top and hasattr(builtins, root))
    return known and last != "type" and not last.endswith(("Meta", "EnumType"))


def _root(node: ast.AST) -> str:
    """Return the variable at the beginning of an attribute or item, "" for another expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
