"""Lines besides the result: on stderr, or for the caller of the Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import click

Listener = Callable[[str], object]
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def print_stderr(line: str) -> None:
    """Print a line to stderr, or hand it to the listener."""
    listener = _LISTENER.get()
    if listener is None:
        click.echo(line, err=True)
    else:
        listener(line)


def is_quiet() -> bool:
    """Return whether lines go to a listener, so that nothing may be printed."""
    return _LISTENER.get() is not None


@contextmanager
def hand_lines_to(listener: Listener) -> Iterator[None]:
    """Hand every line of the block to a function, and show no progress bar."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
