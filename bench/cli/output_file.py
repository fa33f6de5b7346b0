"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.records.filesystem import write_atomically


def write_file(path: Path, text: str, where: str, *, append: bool = False) -> None:
    """Write or extend a text file atomically; makes the folders above it.

    Raises:
        InputError: it can't be written; ``where`` is the option that names it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if append and path.exists() else b""
        write_atomically(path, before + text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}", where=where) from error
