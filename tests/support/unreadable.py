"""Files that the system won't read for now, also for root, whom no permission stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def unreadable(*files: Path, number: int = errno.EACCES) -> Iterator[None]:
    """Within the block these files can't be opened, though they are there."""
    there, opened = {file.absolute() for file in files}, Path.open

    def refused(self: Path, *given: Any, **more: Any) -> Any:
        if self.absolute() in there:
            raise OSError(number, os.strerror(number), str(self))
        return opened(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", refused)
        yield
