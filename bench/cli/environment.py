"""Environment variables of a command and its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def set_environment(*, offline: bool = True) -> Iterator[None]:
    """Set defaults of this process and its workers within the block; the user's environment wins.

    ``offline``: the hub's libraries stay offline. Workers skip imports from the current folder, which may
    hold downloaded results.
    """
    ours = {"PYTHONSAFEPATH": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if offline:
        ours["HF_HUB_OFFLINE"] = "1"
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update({name: value for name, value in ours.items() if not before.get(name)})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
        os.environ.update(before)
