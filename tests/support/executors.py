"""What executors run in tests."""

from __future__ import annotations

import time
from pathlib import Path

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
