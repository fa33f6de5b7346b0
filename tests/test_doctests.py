"""Examples in docstrings print what they say, and every statistic, loss and probe has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from types import FunctionType

import pytest

import bench
from bench.api.comparisons import Comparison
from bench.api.leaderboards import Leaderboard
from bench.api.plots import Plot, Plots
from bench.api.results import Results
from bench.api.runs import Tuning
from bench.probes import PROBES
from tests.support.house import module_files

SOURCES = {
    f"bench.{name.removesuffix('.__init__')}": path.read_text(encoding="utf-8")
    for name, path in module_files().items()
    if not name.endswith("__main__") and name != "__init__" and not name.startswith("cli.starter.")
}
"""Every module by the name under which it is imported."""
PLUMBING = ("describe_family", "zero_loss")
"""Public functions of statistics and losses that compute none, besides the checks."""


def test_every_module_is_looked_through() -> None:
    assert len(SOURCES) > 200
    assert {"bench.stats.seeds", "bench.methods.tncse", "bench.baselines.simcse"} <= SOURCES.keys()


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if ">>> " in source])
def test_examples_print_what_they_say(name: str) -> None:
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted
    assert not tried.failed


@pytest.mark.parametrize(
    "name", [name for name in SOURCES if name.startswith("bench.stats.") or name.endswith("_losses")]
)
def test_every_statistic_and_loss_has_an_example(name: str) -> None:
    public = [
        value
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, FunctionType) and value.__module__ == name and not value.__name__.startswith("_")
    ]
    without = [one.__name__ for one in public if ">>> " not in (inspect.getdoc(one) or "")]
    assert public
    assert [label for label in without if label not in PLUMBING and not label.startswith("check_")] == []


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_has_an_example(name: str) -> None:
    assert ">>> " in SOURCES[f"bench.probes.{name}"]


def public_names() -> Iterator[tuple[str, object]]:
    """What `import bench` offers, and the public methods and properties of what its functions return."""
    for name in bench.__all__:
        if callable(getattr(bench, name)) and not isinstance(getattr(bench, name), type):
            yield name, getattr(bench, name)
    for kind in (Results, Leaderboard, Comparison, Plots, Plot, Tuning):
        yield kind.__name__, kind
        for name, value in vars(kind).items():
            if not name.startswith("_") and isinstance(value, FunctionType | property):
                yield f"{kind.__name__}.{name}", value


def test_every_public_name_has_an_example() -> None:
    names = dict(public_names())
    assert len(names) > 30
    assert [name for name, value in names.items() if ">>> " not in (inspect.getdoc(value) or "")] == []
