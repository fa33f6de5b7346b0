"""Watch trainings from outside of the loop: an objective, its encoder and its rows, before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import nn

    from bench.nn.backbone import IndexedRows
    from bench.training.two_phase_step import Objective

Watcher: TypeAlias = "Callable[[Objective, nn.Module, IndexedRows], None]"
"""Gets the objective, its part that is evaluated and kept, and the input of each sentence."""
_watchers: list[Watcher] = []


@contextmanager
def watch_trainings(watcher: Watcher) -> Iterator[None]:
    """Call a watcher before the first step of each training within the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def announce_training(objective: Objective, encoder: nn.Module, rows: IndexedRows) -> None:
    """Call the watchers."""
    for watcher in _watchers:
        watcher(objective, encoder, rows)
