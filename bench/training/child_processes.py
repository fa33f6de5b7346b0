"""Ctrl-C and SIGTERM in child processes, which exit silently."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType, ModuleType
from typing import Any

INTERRUPTED = 130
_ENDING = {signal.SIGINT, signal.SIGTERM}
_MASKS = hasattr(signal, "pthread_sigmask")  # not on Windows
_FOLLOWS = 1.0  # seconds for a scheduler's SIGTERM to reach all processes of a job


class FreshProcess(SpawnProcess):
    """A spawned process that leaves the program's main file alone.

    Python would import that file in the child, so a script that calls bench would need a ``__main__`` guard.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class FreshContext(SpawnContext):
    """Starts a :class:`FreshProcess` for each child; functions and arguments must pickle."""

    Process = FreshProcess


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM, also in processes that start here, until they can exit quietly.

    A signal that another thread receives waits as well: its handler runs in this one.
    """
    with ExitStack() as ends:
        if _MASKS:
            resource_tracker.ensure_running()  # starting it later would end the wait
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
    """Make a child process exit at Ctrl-C, at SIGTERM, and with its parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    if _MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def wait_for_sigterm() -> None:
    """Wait for a scheduler's SIGTERM, which ended a child process first, to reach this one as well."""
    time.sleep(_FOLLOWS)  # which the signal ends


def _exit_with_parent(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
