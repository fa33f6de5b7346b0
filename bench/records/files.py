"""Files that are whole or not there at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file in a folder that is there; a kill leaves what was there before, or the new file.

    Raises:
        OSError: it can't be written.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
