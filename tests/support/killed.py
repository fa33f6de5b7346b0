"""Trainings that a signal ends, and what they leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bench.training import checkpoint as checkpoints
from tests.support.training import Trained

TIMES = ("cpu_seconds", "step_seconds", "dev_seconds")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a checkpoint after every step."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)


def kill_at(number: int) -> Callable[[int], None]:
    """Return a progress function that ends the process's work in so many calls."""
    calls = itertools.count(1)

    def progress(_: int) -> None:
        if next(calls) == number:
            raise KeyboardInterrupt

    return progress


def contents(trained: Trained) -> dict[str, Any]:
    """Everything that a stage left, without times."""
    files = {path.relative_to(trained.folder): path for path in trained.folder.rglob("*") if path.is_file()}
    facts = {name: value for name, value in trained.facts.items() if name not in TIMES}
    return {str(name): path.read_bytes() for name, path in files.items()} | {"facts": facts}
