"""``python -m bench`` and the command ``bench``: Ctrl-C is one line and exit code 130 from the start."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

INTERRUPTED = "interrupted; finished cells are kept, the same command goes on from them"
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
_PATIENCE = 3.0  # seconds in which a second Ctrl-C doesn't disturb the way out


def start_command_line() -> None:
    """Run the command line; a Ctrl-C that doesn't end it can be repeated, which ends it at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores it
        signal.signal(signal.SIGINT, _handle_interrupt)
        sys.unraisablehook = _handle_unraisable
    _drop_current_folder()
    _start_torchrun_leader()
    try:
        from bench.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # while the command line was being imported
        _exit_interrupted()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt


def _drop_current_folder() -> None:
    """Take the current folder, which ``python -m`` puts first, off the path: it may be somebody's results."""
    with suppress(OSError):  # the folder is gone
        if sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


def _start_torchrun_leader() -> None:
    """Under torchrun the first process runs the command, with as many --ranks, and the others have no part.

    Training starts its own processes, anew for every stage: so one that fails costs a cell, not the run.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" not in os.environ or size == "1":
        return
    if os.environ.get("RANK") != "0":
        sys.exit(0)
    if os.environ.get("LOCAL_WORLD_SIZE", size) != size:
        sys.stderr.write(
            f"error: torchrun started {size} processes on several machines; expected all on one; a cluster "
            "runs cells side by side: bench run --executor ray\n"
        )
        sys.exit(2)
    os.environ["BENCH_RANKS"] = size
    for name in [name for name in os.environ if name.startswith(_TORCHRUN)]:
        del os.environ[name]


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    first = time.monotonic()

    def again(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - first > _PATIENCE:
            _exit_interrupted()

    signal.signal(signal.SIGINT, again)
    raise KeyboardInterrupt


def _exit_interrupted() -> None:
    os.write(2, f"\n{INTERRUPTED}\n".encode())
    os._exit(130)


def _handle_unraisable(unraisable: Any) -> None:
    """Leave where the interrupt came while Python couldn't pass it on, as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _exit_interrupted()
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    start_command_line()
