"""Ctrl-C and child processes: the terminal sends it to them too, and they exit without printing anything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess

INTERRUPTED = 130


@contextmanager
def interrupt_held() -> Iterator[None]:
    """Let Ctrl-C wait: a process that starts here holds it too, until it can exit quietly."""
    resource_tracker.ensure_running()  # which starting it would end the wait
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_on_interrupt() -> None:
    """In a process that was started so: leave at Ctrl-C, and with the process that started this one."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: BaseProcess) -> None:
    """A killed parent leaves no process behind."""
    parent.join()
    os._exit(1)
