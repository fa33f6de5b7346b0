"""Modules that load at first use, so that a method's file can be imported without torch.

A method writes ``from bench.lazy import torch`` and ``from bench import losses, nn, training``, and uses
``torch.cat`` or ``losses.info_nce``.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

_ATTACHED: dict[str, dict[str, str]] = {}
"""The module of each public name, by package."""


class _LazyModule(ModuleType):
    """A module that is imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        real = importlib.import_module(self.__name__)
        self.__dict__.update(vars(real))  # later uses, torch.compile's too, find it directly
        return getattr(real, name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _LazyModule("torch")


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, for the names in its ``__init__.pyi``."""
    file = sys.modules[package].__file__
    tree = ast.parse(Path(str(file)).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    _ATTACHED[package] = names

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if names[name] == package:
            value: Any = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(names[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *names})


def load_lazy_modules() -> None:
    """Load all attached names: torch.compile can't follow an import."""
    torch.Tensor  # noqa: B018 - imports torch
    for package, names in _ATTACHED.items():
        for name in names:
            getattr(sys.modules[package], name)
