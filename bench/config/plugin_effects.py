"""Which top-level statements of a plug-in's file only bind names, so that they count where these are used."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

STANDARD = {
    *("__future__", "abc", "base64", "binascii", "bisect", "cmath", "collections", "contextlib", "copy"),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq"),
    *("itertools", "json", "math", "numbers", "operator", "pathlib", "random", "re", "statistics"),
    *("string", "struct", "textwrap", "time", "typing", "unicodedata", "uuid", "zlib"),
}
"""Modules of Python that do nothing when they are imported, and give no way to hidden code."""
_LOADED = {"bench", "numpy", "torch"}
_DATACLASSES, _CARD = "dataclasses", "bench.method_card"
_ADD_METHOD = "bench.registry", "add_method"
_CARD_CALLS = {(_CARD, "MethodCard"), (_CARD, "Option"), (_CARD, "Need")}
_METHOD_DECORATORS = {
    *(("functools", "cached_property"), ("abc", "abstractmethod")),
    *(("typing", "override"), ("typing", "overload"), ("typing", "final")),
}
_BASES = {"abc", "bench", "torch", "typing"}
"""Packages whose classes do nothing when a class is derived from them."""
_METHOD_BASES = {"abc", "bench", "typing"}
"""Those whose classes do nothing either when an instance is made without arguments."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds or deletes in its own scope."""
    return set(_bound(node))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.split(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, _SCOPES):
        yield from [] if isinstance(node, ast.Lambda) else [node.name]
    in_scope = isinstance(node, _SCOPES)
    for child in ast.iter_child_nodes(node):
        if in_scope or isinstance(node, _COMPREHENSIONS):
            yield from _walrus_names(child)
        else:
            yield from _bound(child)


def _walrus_names(node: ast.AST) -> Iterator[str]:
    """Yield names of assignment expressions, which may belong to the scope around."""
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            yield part.target.id


class Module:
    """The top-level statements of a file, with what its names are."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements = tree.body
        self._binding: dict[str, list[ast.stmt]] = {}
        for node in tree.body:
            for name in bound_names(node):
                self._binding.setdefault(name, []).append(node)
        self._imports: dict[str, tuple[str, str]] = {}
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._add_imports(node)
        self._lazy_annotations = self._imports.get("annotations") == ("__future__", "annotations")

    def _add_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            if len(self._binding[name]) > 1:  # one thing or another
                continue
            if isinstance(node, ast.ImportFrom):
                self._imports[name] = node.module or "", alias.name
            else:
                self._imports[name] = alias.name, ""

    def has_class(self, name: str) -> bool:
        """Return whether a top-level statement of the file is a class of that name."""
        return any(isinstance(node, ast.ClassDef) and node.name == name for node in self.statements)

    def binding(self, name: str) -> list[ast.stmt]:
        """Return the top-level statements that bind a name."""
        return self._binding.get(name, [])

    def may_be_class(self, name: str) -> bool:
        """Return whether a name of the file may be one of its classes."""
        parts = (part for node in self.binding(name) for part in ast.walk(node))
        return any(isinstance(part, ast.ClassDef) and part.name == name for part in parts)

    def dotted_name(self, node: ast.expr) -> str:
        """Return the module and name of what was imported, a builtin's name, "" for others."""
        if isinstance(node, ast.Attribute):
            first = self.dotted_name(node.value)
            return first and f"{first}.{node.attr}"
        if not isinstance(node, ast.Name):
            return ""
        if (origin := self._imports.get(node.id)) is None:
            return "" if node.id in self._binding else node.id
        module, name = origin
        if not name:
            return node.id if module.split(".")[0] == node.id else module
        return f"{module}.{name}".removeprefix("bench.lazy.")

    def is_inert(self, node: ast.stmt) -> bool:
        """Return whether a statement does nothing but bind its names, so that others can't notice it."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._is_inert_import(node)
        if isinstance(node, _FUNCTIONS):
            return not node.decorator_list and self._has_inert_signature(node)
        if isinstance(node, ast.ClassDef):
            return self._is_inert_class(node)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            return self._is_inert_assignment(node, _is_inert_value)
        return isinstance(node, ast.Pass)

    def _is_inert_import(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Return whether the modules are loaded anyway, or do nothing when they are."""
        names = [alias.name for alias in node.names]
        modules = names if isinstance(node, ast.Import) else [node.module or ""]
        packages = {module.split(".")[0] for module in modules}
        return packages <= (STANDARD | _LOADED) - {"__future__"}

    def _is_inert_assignment(
        self, node: ast.Assign | ast.AnnAssign, is_inert_value: Callable[[ast.expr], bool]
    ) -> bool:
        if isinstance(node, ast.Assign):
            return all(isinstance(target, ast.Name) for target in node.targets) and is_inert_value(node.value)
        inert = node.value is None or is_inert_value(node.value)
        return isinstance(node.target, ast.Name) and inert and self._is_inert_annotation(node.annotation)

    def _is_inert_class(self, node: ast.ClassDef) -> bool:
        if not self.has_inert_decorators(node):
            return False
        registered = any(self._origin(decorator) == _ADD_METHOD for decorator in node.decorator_list)
        if registered and not self._makes_inert_instances(node, ()):
            return False
        bases = all(self._is_inert_base(base, (node.name,)) for base in node.bases)
        return bases and all(map(self._is_inert_member, node.body))

    def has_inert_decorators(self, node: ast.ClassDef) -> bool:
        """Return whether decorators of a class only register it, or make a dataclass of it."""
        decorators = node.decorator_list
        return all(self._origin(each) == _ADD_METHOD or self._is_dataclass(each) for each in decorators)

    def _makes_inert_instances(self, node: ast.ClassDef, seen: tuple[str, ...]) -> bool:
        """Return whether ``add_method`` makes an instance and reads its card without the file's code."""
        for part in node.body:
            if isinstance(part, _FUNCTIONS):
                computed = part.name in ("card", "build") and part.decorator_list
                if computed or part.name.startswith("__"):
                    return False
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""
            classes = self._classes(name)
            if classes and name not in seen:
                if not all(self._makes_inert_instances(each, (*seen, name)) for each in classes):
                    return False
            elif self._package(base) not in _METHOD_BASES and not self._is_builtin(base):
                return False
        return True

    def _is_inert_base(self, base: ast.expr, seen: tuple[str, ...]) -> bool:
        """Return whether deriving from a class runs nothing; ``seen`` are classes that derive from it."""
        if isinstance(base, ast.Subscript):  # Generic[T]
            return self._package(base) == "typing" and self._is_inert_annotation(base)
        if isinstance(base, ast.Name) and (classes := self._classes(base.id)):
            if base.id in seen or not all(map(self.has_inert_decorators, classes)):
                return False
            inner = [each for node in classes for each in node.bases]
            return all(self._is_inert_base(each, (*seen, base.id)) for each in inner)
        return self._package(base) in _BASES or self._is_builtin(base)

    def _is_inert_member(self, node: ast.stmt) -> bool:
        """Return whether a statement of a class's body only binds a name in it."""
        if isinstance(node, _FUNCTIONS):
            return all(map(self._is_inert_decorator, node.decorator_list)) and self._has_inert_signature(node)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            return self._is_inert_assignment(node, self._is_inert_field)
        return isinstance(node, ast.Pass)

    def _is_inert_decorator(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in ("setter", "deleter"):
            return isinstance(node.value, ast.Name) and node.value.id not in self._binding
        plain = isinstance(node, ast.Name) and node.id in ("property", "staticmethod", "classmethod")
        return (plain and self._is_builtin(node)) or self._origin(node) in _METHOD_DECORATORS

    def _is_inert_field(self, node: ast.expr) -> bool:
        """Return whether a value in a class's body is literal, a card, or a dataclass's field."""
        if isinstance(node, ast.Call):
            origin = self._origin(node.func)
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            if origin in _CARD_CALLS:
                return all(map(self._is_inert_entry, values))
            builtin = (isinstance(value, ast.Constant) or self._is_builtin(value) for value in values)
            return origin == (_DATACLASSES, "field") and all(builtin)
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_inert_field, node.elts))
        return not isinstance(node, ast.Name) and _is_inert_value(node)

    def _is_inert_entry(self, node: ast.expr) -> bool:
        """Return whether an entry of a card is literal, or names a literal or what another module has."""
        if isinstance(node, ast.Name):
            return all(map(_is_literal_or_import, self._binding.get(node.id, [])))
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_inert_entry, node.elts))
        return self._is_inert_field(node)

    def _has_inert_signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Return whether defaults and annotations of a function run nothing where it is defined."""
        given = node.args
        defaults = [value for value in (*given.defaults, *given.kw_defaults) if value is not None]
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        annotations = [node.returns, *(argument.annotation for argument in arguments if argument)]
        if getattr(node, "type_params", None):
            return False
        inert = all(self._is_inert_annotation(annotation) for annotation in annotations if annotation)
        return inert and all(map(_is_inert_value, defaults))

    def _is_inert_annotation(self, node: ast.expr) -> bool:
        if self._lazy_annotations or isinstance(node, ast.Constant | ast.Name):
            return True
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_inert_annotation, node.elts))
        if isinstance(node, ast.BinOp):
            classes = (self._is_class(side) for side in (node.left, node.right))
            return isinstance(node.op, ast.BitOr) and all(classes)
        if isinstance(node, ast.Subscript):
            return self._is_class(node.value) and self._is_inert_annotation(node.slice)
        return self._is_class(node)

    def _is_class(self, node: ast.expr) -> bool:
        """Return whether an annotation is made of classes of other modules, builtins or None."""
        if isinstance(node, ast.BinOp | ast.Subscript):
            return self._is_inert_annotation(node)
        is_none = isinstance(node, ast.Constant) and node.value is None
        known = isinstance(node, ast.Name) and bool(self._classes(node.id))
        return is_none or known or bool(self._package(node)) or self._is_builtin(node)

    def _is_dataclass(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            return self._is_dataclass(node.func) and all(isinstance(value, ast.Constant) for value in values)
        return self._origin(node) == (_DATACLASSES, "dataclass")

    def _classes(self, name: str) -> list[ast.ClassDef]:
        """Return the classes that a name is bound to in the file, [] if it is bound to anything besides."""
        bound = self._binding.get(name, [])
        classes = [node for node in bound if isinstance(node, ast.ClassDef) and node.name == name]
        return classes if len(classes) == len(bound) else []

    def _origin(self, node: ast.expr) -> tuple[str, str] | None:
        return self._imports.get(node.id) if isinstance(node, ast.Name) else None

    def _package(self, node: ast.expr) -> str:
        """Return the package of an imported name, or of an attribute of one, "" for others."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        origin = self._origin(node)
        return origin[0].split(".")[0] if origin else ""

    def _is_builtin(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id not in self._binding and hasattr(builtins, node.id)


def _is_inert_value(node: ast.expr) -> bool:
    """Return whether making a value runs no code: literals, names, lambdas, collections of them."""
    if isinstance(node, ast.Constant | ast.Name):
        return True
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_is_inert_value, node.elts))
    if isinstance(node, ast.Set):
        return all(map(_is_constant, node.elts))
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        whole = len(keys) == len(node.keys)
        return whole and all(map(_is_constant, keys)) and all(map(_is_inert_value, node.values))
    if isinstance(node, ast.Lambda):
        defaults = [value for value in (*node.args.defaults, *node.args.kw_defaults) if value is not None]
        return all(map(_is_inert_value, defaults))
    return _is_constant(node)


def _is_literal_or_import(node: ast.stmt) -> bool:
    literal = isinstance(node, ast.Assign) and _is_constant(node.value)
    return literal or isinstance(node, ast.Import | ast.ImportFrom)


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.Tuple):
        return all(map(_is_constant, node.elts))
    return isinstance(node, ast.Constant)
