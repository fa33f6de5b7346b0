"""Whether code of a file that a method doesn't reach may change what the method computes.

In one process all methods of a file share its module. Where code outside a method's own reaches an object
that can change (a list, an instance, a function with a cache), or sets attributes that the method reads, its
identity can't be the code that it reaches. A rule may refuse too much, never too little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from bench.config.plugin_effects import Module, bound_names

_BUILTINS = {
    *("abs", "bool", "bytes", "complex", "divmod", "float", "frozenset", "int", "len", "max", "min", "pow"),
    *("range", "round", "str", "sum", "tuple"),
}
_MAKERS = {
    *("re.compile", "pathlib.Path", "pathlib.PurePath", "fractions.Fraction", "decimal.Decimal"),
    *("torch.device", "numpy.dtype", "dataclasses.field", "operator.itemgetter"),
    *("bench.method_card.MethodCard", "bench.method_card.Option", "bench.method_card.Need"),
}
"""Calls that make what nobody changes, if their arguments are such."""
_CARD = "bench.method_card.MethodCard"
_DECORATORS = {
    *("property", "staticmethod", "classmethod", "setter", "deleter", "getter", "cached_property"),
    *("abstractmethod", "override", "overload", "final", "no_grad", "inference_mode", "enable_grad"),
}
"""Decorators whose functions keep nothing from call to call, besides in an instance."""
_UNBOUND = {"staticmethod", "classmethod"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = {"__name__", "__qualname__"}


def find_shared_state(module: Module, own: Sequence[ast.stmt], outside: Sequence[ast.stmt]) -> str:
    """Return what other code of the file may change of what a method reaches, or "".

    Args:
        module: The file.
        own: Statements that count for the method.
        outside: Statements that code outside of ``own`` reaches, itself and those of ``own`` included.
    """
    shared = [node for node in own if any(node is each for each in outside)]
    for node in shared:
        if not _State(module).is_fixed(node):
            name = min(bound_names(node), default="a statement")
            return f"{name}, which other code of the file may change, line {node.lineno}"
    read = {name for node in own for name in _read_attributes(node)}
    places = [place for node in outside for place in _stores(node, "")]
    escape = next((each for node in outside for each in _escapes(module, node)), None)
    for attribute, is_own in places:
        changes = attribute.attr in read and (not is_own or escape)
        if changes or (escape and not is_own):
            return f"other code's change of {attribute.attr}, line {attribute.lineno}"
    return ""


class _State:
    """Which statements of a file bind what no code can change in place."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._open: set[str] = set()

    def is_fixed(self, node: ast.stmt) -> bool:
        """Return whether all objects that a statement makes stay as they are."""
        if isinstance(node, _FUNCTIONS):
            given = [*node.args.defaults, *node.args.kw_defaults]
            decorated = all(_decorator_name(each) in _DECORATORS for each in node.decorator_list)
            return decorated and all(self._is_constant(value) for value in given if value is not None)
        if isinstance(node, ast.ClassDef):
            return self._module.has_inert_decorators(node) and all(map(self.is_fixed, node.body))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return node.value is None or self._is_constant(node.value)
        if isinstance(node, ast.If):
            return all(map(self.is_fixed, [*node.body, *node.orelse]))
        if isinstance(node, ast.Try):
            parts = [*node.body, *node.orelse, *node.finalbody]
            return all(map(self.is_fixed, parts + [each for hand in node.handlers for each in hand.body]))
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant)
        return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Delete)

    def _is_constant(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return self._is_constant_name(node.id)
        if isinstance(node, ast.Call):
            return self._is_constant_call(node)
        if isinstance(node, ast.Lambda):
            given = [*node.args.defaults, *node.args.kw_defaults]
            return all(self._is_constant(value) for value in given if value is not None)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            return self._is_constant(node.value)
        if isinstance(node, ast.Tuple | ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp):
            return all(map(self._is_constant, _child_expressions(node)))
        return isinstance(node, ast.Constant | ast.JoinedStr)

    def _is_constant_name(self, name: str) -> bool:
        if name in self._open:
            return True
        self._open.add(name)
        return all(map(self.is_fixed, self._module.binding(name)))

    def _is_constant_call(self, call: ast.Call) -> bool:
        made = self._module.dotted_name(call.func)
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(call.func, ast.Name) and made == call.func.id and made in _BUILTINS:
            return all(map(self._is_constant_argument, values))
        if made == _CARD:
            return all(map(self._is_card_entry, values))
        return (made in _MAKERS or made.startswith("math.")) and all(map(self._is_constant, values))

    def _is_constant_argument(self, node: ast.expr) -> bool:
        """Return whether a collection has the argument's entries without the argument itself."""
        if isinstance(node, ast.List | ast.Set):
            return all(map(self._is_constant, node.elts))
        return self._is_constant(node)

    def _is_card_entry(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_card_entry, node.elts))
        if isinstance(node, ast.Starred):
            return self._is_card_entry(node.value)
        call = node.func if isinstance(node, ast.Call) else None
        ours = call is not None and self._module.dotted_name(call).startswith("bench.")
        return ours or self._is_constant(node)


def _child_expressions(node: ast.AST) -> list[ast.expr]:
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _decorator_name(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _read_attributes(node: ast.stmt) -> Iterator[str]:
    """Yield names of attributes that a statement reads, and those that its classes have."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
            yield part.attr
        elif isinstance(part, ast.Call) and getattr(part.func, "id", "") in ("getattr", "hasattr"):
            yield from (str(each.value) for each in part.args if isinstance(each, ast.Constant))
        elif isinstance(part, ast.ClassDef):
            for member in part.body:
                yield from bound_names(member)
        elif isinstance(part, ast.MatchClass):
            yield from part.kwd_attrs


def _stores(node: ast.AST, own: str) -> Iterator[tuple[ast.Attribute, bool]]:
    """Yield each attribute that is set or deleted, with whether it is one of the method's instance.

    ``own`` is the name of the instance in the method around, "" outside of methods.
    """
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield node, isinstance(node.value, ast.Name) and node.value.id == own
    if isinstance(node, ast.ClassDef):
        own = ""
    elif isinstance(node, (*_FUNCTIONS, ast.Lambda)):
        own = "" if own in _parameters(node) else own
    for child in ast.iter_child_nodes(node):
        method = isinstance(node, ast.ClassDef) and isinstance(child, _FUNCTIONS)
        if method:
            yield from _stores_of_method(child)  # type: ignore[arg-type]
        else:
            yield from _stores(child, own)


def _stores_of_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.Attribute, bool]]:
    decorators = {_decorator_name(each) for each in node.decorator_list}
    plain = decorators <= _DECORATORS - _UNBOUND and node.name not in ("__new__", "__class_getitem__")
    first = next(iter(_parameters(node)), "")
    bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and _is_stored(each)}
    own = first if plain and first not in bound else ""
    for child in ast.iter_child_nodes(node):
        yield from _stores(child, own)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    given = node.args
    every = (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg)
    return [each.arg for each in every if each is not None]


def _is_stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _escapes(module: Module, node: ast.stmt) -> Iterator[ast.AST]:
    """Yield where a class is a value that code may change, or a method gets its instance by hand."""
    allowed = {id(each) for part in ast.walk(node) for each in _harmless_classes(part)}
    for part in ast.walk(node):
        is_class = isinstance(part, ast.Name) and not _is_stored(part) and module.may_be_class(part.id)
        kind = getattr(part, "func", None)
        is_type = isinstance(kind, ast.Name) and kind.id == "type"
        if (is_class or is_type or _is_class_argument(part)) and id(part) not in allowed:
            yield part


def _is_class_argument(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "cls" and not _is_stored(node)


def _harmless_classes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield expressions whose place in a node leaves a class as it is."""
    if isinstance(node, ast.Call):
        yield from _harmless_in_call(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        plain = isinstance(node.value, ast.Name) and node.attr != "mro"  # what a class has, not the class
        yield from [node.value] if plain or node.attr in _NAMED else []
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Raise) and node.exc is not None:
        yield node.exc
    elif isinstance(node, ast.ClassDef):
        yield from node.bases
        yield from (part for base in node.bases for part in ast.walk(base))
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield from ast.walk(node.type)
    elif isinstance(node, ast.MatchClass):
        yield node.cls
    for name in ("annotation", "returns"):
        if (annotation := getattr(node, name, None)) is not None:
            yield from ast.walk(annotation)


def _harmless_in_call(call: ast.Call) -> Iterator[ast.AST]:
    yield call.func  # an instance is made
    name = getattr(call.func, "id", "")
    if name in ("isinstance", "issubclass") and len(call.args) > 1:
        yield from ast.walk(call.args[1])
    if name == "super":
        yield from call.args
