"""Ctrl-C and SIGTERM while a process is started, whichever thread takes them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from bench.errors import TerminatedError
from bench.training.child_processes import hold_interrupts

Send = Callable[[int], object]
Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def _to_another_thread(number: int) -> None:
    """As the kernel does where this one holds it: any thread that doesn't, as a library's, may take it."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    other.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    signal.pthread_kill(other.ident or 0, number)
    time.sleep(0.05)
    ended.set()


@contextmanager
def _handled(number: int, handler: Handler) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _terminate(*_: object) -> None:
    raise TerminatedError


@pytest.mark.parametrize("send", [lambda number: os.kill(os.getpid(), number), _to_another_thread])
@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGTERM, _terminate, TerminatedError),
    ],
)
def test_a_signal_waits_for_it(send: Send, number: int, handler: Handler, error: type[BaseException]) -> None:
    through = []

    def held() -> None:
        with hold_interrupts():
            send(number)
            send(number)
            time.sleep(0.05)
            through.append(True)

    with _handled(number, handler):
        with pytest.raises(error):
            held()
        assert through
        assert signal.getsignal(number) is handler
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with pytest.raises(error):  # as before
            signal.raise_signal(number)


def test_an_ignored_one_stays_ignored() -> None:
    with _handled(signal.SIGINT, signal.SIG_IGN):
        with hold_interrupts():
            _to_another_thread(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
