"""Examples in docstrings print what they say, and every statistic and loss has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import pytest

import bench

SOURCES = {
    found.name: Path(str(spec.origin)).read_text(encoding="utf-8")
    for found in pkgutil.walk_packages(bench.__path__, "bench.")
    if not found.name.endswith(".__main__") and (spec := find_spec(found.name))
}
"""Every module by the name under which it is imported."""
PLUMBING = {"bench.stats.checks", "bench.stats.correction.caption"}
"""Public functions of ``stats``, or modules of them, that compute no statistic."""


def test_every_module_is_looked_through() -> None:
    assert len(SOURCES) > 200
    assert {"bench.stats.seeds", "bench.methods.tncse", "bench.baselines.simcse"} <= SOURCES.keys()


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if ">>> " in source])
def test_examples_print_what_they_say(name: str) -> None:
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted
    assert not tried.failed


@pytest.mark.parametrize(
    "name",
    [name for name in SOURCES if name.startswith("bench.stats.") or name.endswith("_losses")],
)
def test_every_statistic_and_loss_has_an_example(name: str) -> None:
    functions = [
        f"{name}.{label}"
        for label, value in vars(importlib.import_module(name)).items()
        if isinstance(value, FunctionType) and value.__module__ == name and not label.startswith("_")
        if ">>> " not in (inspect.getdoc(value) or "")
    ]
    assert {name, *functions} & PLUMBING or functions == []
