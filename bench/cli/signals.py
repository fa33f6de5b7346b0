"""Ctrl-C and SIGTERM of the command line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bench.errors import TerminatedError


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """Let a scheduler's SIGTERM end the block like Ctrl-C; further ones are ignored."""
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    default = threading.current_thread() is threading.main_thread()
    default = default and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if default:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        kept = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN and not ended
        if default and not kept:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def finish_command() -> None:
    """Ignore Ctrl-C and SIGTERM until the process ends: the result is complete, so the command succeeds."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
