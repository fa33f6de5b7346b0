"""What executors run in tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.execution.executors.ray import RayTasks, _WorkerStart

Task = tuple[str, str, str]  # a name, what it needs, the log's path


def log_start(task: Task) -> str:
    """Note that it starts, in one log for all processes; last long enough to overlap."""
    name, _, log = task
    with Path(log).open("a") as stream:
        stream.write(f"{name} ")
    time.sleep(0.3)
    return name


def needs(task: Task) -> frozenset[str]:
    return frozenset(task[1])


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class FakeRay:
    """A cluster of one node that notes its tasks and, by default, ends them all at once."""

    def __init__(self, **resources: float) -> None:
        self.node: dict[str, Any] = {"Alive": True, "Resources": resources}
        self.asked: dict[str, Any] = {}
        self.given, self.cancelled = list[int](), list[int]()

    def nodes(self) -> list[dict[str, Any]]:
        return [self.node]

    def remote(self, function: object) -> SimpleNamespace:
        def submit(start: object, index: int) -> int:
            self.given.append(index)
            return index

        def options(**asked: Any) -> SimpleNamespace:
            self.asked = asked
            return SimpleNamespace(remote=submit)

        return SimpleNamespace(options=options)

    def wait(self, running: list[int], timeout: float) -> tuple[list[int], list[int]]:
        assert running
        return running, []

    def cancel(self, reference: int, force: bool) -> None:
        self.cancelled.append(reference)

    def submit(self, executor: RayTasks, count: int, *begins: Any) -> Iterator[Any]:
        """Let an executor submit so many tasks that need nothing."""
        start = _WorkerStart(executor.folder, executor.folder, {}, {}, (), [])
        return executor._submit_tasks(self, start, [frozenset()] * count, *begins)
