"""What the host would wait for, and where in the project's code it happens."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[3]
READ, PAGEABLE = "read", "pageable"
"""A value that the host waits for; a copy to the device from memory that isn't pinned."""
ENCODING = "encoding"
"""A read that encoding may do."""
_OURS = tuple(str(ROOT / folder) + "/" for folder in ("bench", "baselines", "methods"))
_SKIPPED = (
    *(str(Path(__file__).with_name(f"{name}.py")) for name in ("tally", "device", "patches")),
    "/torch/",
)


class Tally:
    """Counts by kind, what was done, and place."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self._off = threading.local()

    def note(self, kind: str, what: str) -> None:
        """Count one, unless within :meth:`paused`."""
        if not getattr(self._off, "depth", 0):
            with self._lock:
                self._counts[kind, what, place()] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that this thread does in the block: it is no part of a step."""
        before = getattr(self._off, "depth", 0)
        self._off.depth = before + 1
        try:
            yield
        finally:
            self._off.depth = before

    def lap(self) -> list[tuple[str, str, str, int]]:
        """(kind, what, place, times) since the last call."""
        with self._lock:
            found, self._counts = self._counts, Counter()
        return [(*key, times) for key, times in sorted(found.items())]


def place() -> str:
    """The innermost line of the project's that led here, and that of a library below it."""
    frame: FrameType | None = sys._getframe(1)
    foreign = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OURS):
            here = f"{name.removeprefix(str(ROOT) + '/')}:{frame.f_lineno}"
            return f"{here} ({foreign})" if foreign else here
        if not foreign and not any(part in name for part in _SKIPPED):
            foreign = f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return foreign or "backward"
