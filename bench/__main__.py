"""``python -m bench`` and the command ``bench``: Ctrl-C prints one line and exits with 130 at any time."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from bench.cli.interrupts import describe_interrupt

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
_PATIENCE = 3.0  # seconds in which a second Ctrl-C is ignored


def start_command_line() -> None:
    """Run the command line; Ctrl-C ends it, a second one after some seconds at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not so in a background job
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
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _drop_current_folder() -> None:
    """Remove the current folder, which ``python -m`` adds, from the path: it may hold downloaded results."""
    with suppress(OSError):  # the folder is gone
        if sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


def _start_torchrun_leader() -> None:
    """Under torchrun, run the command in the first process with as many --ranks, and end the others.

    Training starts its own processes for every stage, so a failed process costs one cell only.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" not in os.environ or size == "1":
        return
    if os.environ.get("RANK") != "0":
        sys.exit(0)
    if os.environ.get("LOCAL_WORLD_SIZE", size) != size:
        sys.stderr.write(
            f"error: torchrun started {size} processes on several machines; expected all on one; "
            "for a cluster use bench run --executor ray\n"
        )
        sys.exit(2)
    os.environ["BENCH_RANKS"] = size
    for name in [name for name in os.environ if name.startswith(_TORCHRUN)]:
        del os.environ[name]


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    first = time.monotonic()

    def handle_second(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - first > _PATIENCE:
            _exit_interrupted()

    signal.signal(signal.SIGINT, handle_second)
    raise KeyboardInterrupt


def _exit_interrupted() -> None:
    os.write(2, f"\n{describe_interrupt(sys.argv[1:])}\n".encode())
    os._exit(130)


def _handle_unraisable(unraisable: Any) -> None:
    """Exit after an interrupt that Python can't raise, such as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _exit_interrupted()
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    start_command_line()
