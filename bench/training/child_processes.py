"""Ctrl-C, SIGTERM and child processes, which get them too and exit without printing anything."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from types import FrameType

INTERRUPTED = 130
_ENDING = {signal.SIGINT, signal.SIGTERM}
_MASKS = hasattr(signal, "pthread_sigmask")  # not on Windows
_FOLLOWS = 1.0  # seconds in which a scheduler's SIGTERM has reached all processes of a job


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: a process that starts here holds them too, until it can exit quietly.

    One that another thread takes, as a library's that computes, waits as well: its handler runs in this one.
    """
    with ExitStack() as ends:
        if _MASKS:
            resource_tracker.ensure_running()  # which starting it would end the wait
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            ends.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler, taken = signal.getsignal(number), list[int]()
                if callable(handler):
                    ends.callback(_restore_handler, number, handler, taken)
                    signal.signal(number, partial(_note_signal, taken))
        yield


def _note_signal(taken: list[int], number: int, _: FrameType | None) -> None:
    taken.append(number)


def _restore_handler(
    number: int, handler: Callable[[int, FrameType | None], object], taken: list[int]
) -> None:
    signal.signal(number, handler)
    if taken:
        signal.raise_signal(number)  # which this thread holds until the wait ends


def exit_on_interrupt() -> None:
    """In a process that was started so: leave at Ctrl-C, and with the process that started this one.

    SIGTERM ends it as it ends any process.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    if _MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def wait_for_sigterm() -> None:
    """Wait a moment for the SIGTERM that may have ended a child process to reach this one as well.

    A scheduler sends it to all processes of a job, one after the other; else we would call it a failure.
    """
    time.sleep(_FOLLOWS)  # which the signal ends


def _exit_with_parent(parent: BaseProcess) -> None:
    """A killed parent leaves no process behind."""
    parent.join()
    os._exit(1)
