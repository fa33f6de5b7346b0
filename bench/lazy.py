"""What loads at first use, so that a method's file can be read without torch.

A method writes ``from bench.lazy import torch`` and ``from bench import losses, nn, training``, and names
what it needs as ``torch.cat`` or ``losses.info_nce``. Listing methods loads none of these.
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
"""Of each package, the module below it that has each of its public names."""


class _LazyModule(ModuleType):
    """A module that is imported at the first look at it; from then on it has what that has."""

    def __getattr__(self, name: str) -> Any:
        real = importlib.import_module(self.__name__)
        self.__dict__.update(vars(real))  # so that later looks, torch.compile's too, come to the thing itself
        return getattr(real, name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _LazyModule("torch")


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for the ``__init__.py`` of a package.

    Args:
        package: Its ``__name__``. The ``__init__.pyi`` beside that file says from which module each public
            name comes, for this function and for type checkers.
    """
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
    """Load all that is attached: torch.compile can't follow an import."""
    torch.Tensor  # noqa: B018 - the look imports it
    for package, names in _ATTACHED.items():
        for name in names:
            getattr(sys.modules[package], name)
