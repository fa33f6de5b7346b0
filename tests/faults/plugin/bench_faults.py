"""Faults at the changes that a process makes below BENCH_FAULT_BELOW, each counted just before it happens.

A change is a file that is opened to be written, a folder that is made, a rename, a removal, an fsync; and
``write``, which comes when the first half of what a file gets is in it. A fault named in BENCH_FAULT:

- ``kill:N`` ends the process by SIGKILL at its N-th change, ``kill_all:N`` its whole process group;
- ``stop:N`` stops it there until it gets SIGCONT;
- ``full:N`` has no space left from the N-th change on, for anything but removing and renaming;
- ``read_only`` refuses every change;
- ``list:FILE`` appends a line a change to a file: process, kind, path;
- ``waits:FILE`` makes a file as soon as the process waits for a lock;
- ``clock`` turns the clock back an hour whenever it is read.
"""

from __future__ import annotations

import builtins
import errno
import io
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[str, str], None]
"""Called with kind and path of a change."""
_KINDS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _changed(event: str, arguments: tuple[Any, ...], below: tuple[str, ...]) -> str | None:
    """Path that an audit event changes, None if it changes none of ours."""
    if event not in _KINDS or (event == "open" and not arguments[2] & _WRITING):
        return None
    if event in ("os.remove", "os.rmdir") and arguments[1] != -1:
        return str(arguments[0])  # a folder that is being removed: names alone, beside an open folder
    path = os.path.abspath(arguments[0]) if isinstance(arguments[0], str) else ""
    return path if path.startswith(below) else None


def _path(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _watch(change: Change) -> None:
    below = tuple(os.environ["BENCH_FAULT_BELOW"].split(os.pathsep))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        path = _changed(event, arguments, below)
        if path is not None:
            change(event, path)

    fsync, usual = os.fsync, io.open

    def watched_fsync(descriptor: int) -> None:
        if _path(descriptor).startswith(below):
            change("fsync", _path(descriptor))
        fsync(descriptor)

    def watched_open(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        stream: Any = usual(file, mode, *rest, **named)
        path = "" if isinstance(file, int) else os.path.abspath(os.fsdecode(file))
        if set(mode) & set("wax+") and path.startswith(below):
            stream.write = _in_halves(stream, lambda: change("write", path))
            stream.writelines = lambda parts: [stream.write(part) for part in parts]
        return stream

    os.fsync = watched_fsync  # type: ignore[assignment]
    io.open = builtins.open = watched_open
    sys.addaudithook(hook)


def _in_halves(stream: Any, between: Callable[[], None]) -> Callable[[Any], int]:
    write = stream.write

    def halves(content: Any) -> int:
        middle = len(content) // 2
        write(content[:middle])
        stream.flush()
        between()
        write(content[middle:])
        return len(content)

    return halves


def _at(wanted: str, do: Callable[[], None]) -> Change:
    numbers = itertools.count(1)

    def change(kind: str, path: str) -> None:
        if next(numbers) == int(wanted):
            do()

    return change


def _full(first: str) -> Change:
    numbers = itertools.count(1)

    def change(kind: str, path: str) -> None:
        if next(numbers) >= int(first) and kind in ("open", "os.mkdir", "fsync", "write"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return change


def _read_only(kind: str, path: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _list(file: str) -> Change:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def change(kind: str, path: str) -> None:
        os.write(descriptor, f"{os.getpid()} {kind} {path}\n".encode())

    return change


def _waits(file: str) -> Change:
    before = ""

    def change(kind: str, path: str) -> None:
        nonlocal before
        if kind == "open":
            if path == before and path.endswith(".lock"):
                Path(file).touch()  # it tries again what it couldn't have
            before = path

    return change


_FAULTS: dict[str, Callable[[str], Change]] = {
    "kill": lambda n: _at(n, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "kill_all": lambda n: _at(n, lambda: os.killpg(0, signal.SIGKILL)),
    "stop": lambda n: _at(n, lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "full": _full,
    "read_only": lambda _: _read_only,
    "list": _list,
    "waits": _waits,
}


def begin() -> None:
    """Start the fault that the environment names."""
    name, _, argument = os.environ.get("BENCH_FAULT", "").partition(":")
    if name == "clock":
        now, reads = time.time(), itertools.count(1)
        time.time = lambda: now - 3600.0 * next(reads)
    elif name:
        _watch(_FAULTS[name](argument))
