"""Files that are whole or not there at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

_HOST = re.sub(r"[^A-Za-z0-9-]+", "-", os.uname().nodename)[:40]


def temporary(path: Path) -> Path:
    """Return a new hidden name beside a file, ``.NAME.HOST.PID.RANDOM.tmp``, to write to and then rename.

    No other process has it, even on another machine that shares the folder; what a killed one leaves behind
    is ``.*.tmp``.
    """
    name = path.name.encode("utf-8", "ignore")[:80].decode("utf-8", "ignore")
    return path.with_name(f".{name}.{_HOST}.{os.getpid()}.{os.urandom(6).hex()}.tmp")


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file in a folder that is there; a kill leaves what was there before, or the new file.

    Raises:
        OSError: it can't be written.
    """
    scratch = temporary(path)
    with scratch.open("xb") as stream:
        try:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
