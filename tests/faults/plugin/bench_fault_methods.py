"""What the fault scripts put into a run through bench's own entry point for plug-ins: cheap methods, faults.

``fault_plain`` only encodes, ``fault_trained`` trains two stages whose files determine its vectors. A fault
named in BENCH_FAULT starts in every process of the run, its workers too:

- ``kill:N`` ends the process by SIGKILL just before its N-th change below BENCH_FAULT_BELOW;
- ``count:FILE`` keeps the number of changes in a file;
- ``full:N`` has no space left from the N-th change on, for anything but removing and renaming;
- ``read_only`` refuses every change;
- ``clock`` turns the clock back an hour whenever it is read.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import FloatArray, Progress
from bench.registry import add_method
from bench.stages import StageContext, StageSpec

_FILES = 3
_BLOCK = 20_000  # bytes a file of a stage


class Dice:
    """Random vectors from a text; equal sentences get equal vectors."""

    dim = 8

    def __init__(self, text: str) -> None:
        self.text = text
        self.facts: dict[str, str | int] = {}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        rows = [np.frombuffer(_digest(f"{self.text} {s}".encode())[:8], dtype=np.uint8) for s in sentences]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dim) - 127.5


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _log(*words: object) -> None:
    """Append a line to FAULT_LOG, so that what was done can be counted over all processes."""
    if "FAULT_LOG" in os.environ:
        with open(os.environ["FAULT_LOG"], "a", encoding="utf-8") as stream:
            stream.write(" ".join(map(str, words)) + "\n")


@add_method
class PlainMethod:
    card = MethodCard(
        name="fault_plain",
        kind="test",
        summary="random vectors",
        version=1,
        needs_backbone=False,
        options=(Option("wait", 0.0, "seconds before encoding"),),
    )

    def build(self, context: BuildContext) -> Dice:
        _log("build", context.seed)
        time.sleep(float(context.options["wait"]))
        return Dice(f"plain {context.seed}")


def _train(context: StageContext) -> dict[str, Any]:
    """Write files that follow from the stage's inputs, slowly."""
    _log("train", context.role, context.seed)
    text = f"{context.role} {context.seed} {sorted(context.config.items())}".encode()
    for folder in context.inputs.values():
        text += _content(folder)
    for number in range(_FILES):
        time.sleep(float(os.environ.get("FAULT_WAIT", "0")))
        block = _digest(text + bytes([number]))
        (context.out / f"part-{number}").write_bytes(block * (_BLOCK // len(block)))
    return {
        "steps": _FILES,
        "sentences_seen": _FILES * len(context.sentences),
        "dev_curve": [],
        "selected_step": _FILES,
        "selected_dev": None,
        "last_loss": 0.0,
        "cpu_seconds": 0.0,
    }


def _content(folder: Path) -> bytes:
    return _digest(b"".join((folder / f"part-{number}").read_bytes() for number in range(_FILES)))


@add_method
class TrainedMethod:
    card = MethodCard(
        name="fault_trained",
        kind="test",
        summary="a stage of its own on one that all share",
        version=1,
        options=(
            Option("scale", 1, "what the own stage differs in"),
            Option("steps", _FILES, "no effect", minimum=0),
            Option("batch_size", 8, "no effect", minimum=1),
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        own = tuple(sorted(options.items()))
        shared = tuple((name, value) for name, value in own if name != "scale")
        return (
            StageSpec("base", "fault_base", 1, shared, _train),
            StageSpec("top", "fault_top", 1, own, _train, inputs=("base",)),
        )

    def build(self, context: BuildContext) -> Dice:
        _log("build", context.options["scale"], context.seed)
        return Dice(_content(context.stages["top"]).hex())


_CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _is_change(event: str, arguments: tuple[Any, ...], below: str) -> bool:
    if event not in _CHANGES or (event == "open" and not arguments[2] & _WRITING):
        return False
    if event in ("os.remove", "os.rmdir") and arguments[1] != -1:
        return True  # a folder that is being removed: names alone, beside an open folder
    return isinstance(arguments[0], str) and os.path.abspath(arguments[0]).startswith(below)


def _path(descriptor: int) -> str:
    """Path of an open file, "" where the system doesn't say."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _on_change(do: Callable[[str, int, str], None], argument: str) -> None:
    """Call ``do`` with number and kind of each change just before it happens; fsync counts as one."""
    below = os.environ["BENCH_FAULT_BELOW"]
    count = 0

    def change(event: str) -> None:
        nonlocal count
        count += 1
        do(argument, count, event)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if _is_change(event, arguments, below):
            change(event)

    fsync = os.fsync

    def counted_fsync(descriptor: int) -> None:
        if _path(descriptor).startswith(below):
            change("fsync")
        fsync(descriptor)

    os.fsync = counted_fsync  # type: ignore[assignment]
    sys.addaudithook(hook)


def _kill(last: str, number: int, event: str) -> None:
    if number == int(last):
        os.kill(os.getpid(), signal.SIGKILL)


def _count(file: str, number: int, event: str) -> None:
    Path(file).write_text(str(number))


def _full(first: str, number: int, event: str) -> None:
    if number >= int(first) and event in ("open", "os.mkdir", "fsync"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_only(argument: str, number: int, event: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


_FAULTS = {"kill": _kill, "count": _count, "full": _full, "read_only": _read_only}


def begin() -> None:
    """Start the fault that the environment names."""
    name, _, argument = os.environ.get("BENCH_FAULT", "").partition(":")
    if name == "clock":
        now, reads = time.time(), itertools.count(1)
        time.time = lambda: now - 3600.0 * next(reads)
    elif name:
        _on_change(_FAULTS[name], argument)


begin()
