"""Whether the process of a file of events still runs: what a lock and this machine's processes show.

A lock is seen where the file system shares it. Flock may be missing, do nothing, or hold on one machine only
(NFS with ``local_lock``); there a free lock says nothing about another machine's process.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bench.records.filesystem import (
    READ,
    describe_process,
    is_described_process_alive,
    is_locked,
    is_same_machine,
)

ProcessState = Literal["alive", "gone", "unknown"]
PROCESS, SEEN = "process", "locked"
"""Entry of a file's first line with the writer's process, and its entry of a lock that others see."""
_PART = 2**16  # bytes read from either end of a file
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def describe_holder(path: Path) -> dict[str, Any]:
    """Return the facts of this process for the first line of a file that it has locked, if it could."""
    return {**describe_process(), SEEN: is_locked(path) is True}


def find_process_state(path: Path, first: Mapping[str, Any], news: float = 0.0) -> ProcessState:
    """Return the state of the process that writes a file of events, as far as this machine can tell.

    Args:
        path: The file.
        first: Its first line.
        news: Time of its last line by the clock, 0 if unknown.
    """
    held = is_locked(path)
    process = first.get(PROCESS)
    if held:
        return "alive"
    if not isinstance(process, dict):  # of another bench, or made by hand: the lock is all there is
        return "unknown" if held is None else "gone"
    # the writer's lock was seen once: on its own machine a free one was let go
    released = held is False and process.get(SEEN) is True
    if is_same_machine(process):
        return "alive" if not released and is_described_process_alive(process) else "gone"
    if is_same_machine(process, shared_kernel=True):
        return "gone" if released else "unknown"
    return "gone" if _was_restarted(process, news) else "unknown"


def _was_restarted(process: Mapping[str, Any], news: float) -> bool:
    """Return whether a machine of this name started after the news; a living process would go on writing."""
    if _BOOT_CLOCK is None or not 0 < news < time.time() - time.clock_gettime(_BOOT_CLOCK):
        return False
    return bool(process.get("node") == describe_process()["node"])


def read_first_and_last(path: Path, part: int = _PART) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the first and last whole line of a file of events, if any, from ``part`` bytes of either end."""
    try:
        descriptor = os.open(path, READ)
    except OSError:
        return None
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        head = os.read(descriptor, part)
        os.lseek(descriptor, max(0, state.st_size - part), os.SEEK_SET)
        tail = os.read(descriptor, part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    first = parse_line(head.partition(b"\n")[0]) if b"\n" in head else None
    for line in reversed(tail.split(b"\n")[-4:-1]):  # text after the last line's end is being written
        if first is not None and (last := parse_line(line)) is not None:
            return first, last
    return None


def parse_line(text: bytes) -> dict[str, Any] | None:
    """Return the mapping in a line of JSON, if it is one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
