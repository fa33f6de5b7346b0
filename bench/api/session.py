"""The frame of one call: silence, offline libraries, and no registration that outlives it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.cli.environment import set_environment
from bench.cli.messages import hand_lines_to
from bench.config.plugins import forget_plugins, loaded_files

_OFFLINE = ("huggingface_hub.constants", "datasets.config")
"""Modules that read HF_HUB_OFFLINE once, at their import."""
_ONE_CALL = threading.RLock()
"""Environment and registry are the process's, so calls of several threads run one after the other."""


@contextmanager
def open_session(*, progress: bool) -> Iterator[list[str]]:
    """Yield the list that gets the lines of a call; with ``progress`` they go to stderr instead.

    Environment variables, the hub's switch and the registry of methods are put back at the end. A call of
    another thread waits.
    """
    messages: list[str] = []
    with _ONE_CALL, ExitStack() as stack:
        stack.enter_context(_stay_offline())
        stack.enter_context(set_environment())
        stack.enter_context(_forget_new_plugins())
        if not progress:
            stack.enter_context(hand_lines_to(messages.append))
        yield messages


@contextmanager
def _stay_offline() -> Iterator[None]:
    """Keep the hub's libraries offline, and put them back: their imports would read the variable for good."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for name in _OFFLINE:
            if name in sys.modules:
                vars(sys.modules[name])["HF_HUB_OFFLINE"] = before


@contextmanager
def _forget_new_plugins() -> Iterator[None]:
    """Drop the methods of files that the block loads."""
    before: Sequence[str] = loaded_files()
    try:
        yield
    finally:
        forget_plugins(name for name in loaded_files() if name not in before)
