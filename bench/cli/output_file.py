"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InputError
from bench.records.filesystem import write_atomically


def write_file(path: Path, text: str, where: str, *, append: bool = False) -> None:
    """Write a text file whole or not at all.

    Args:
        path: The file; folders above it are made.
        text: Its text.
        where: The option that names it, for messages.
        append: Keep its text, and write below it.

    Raises:
        InputError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if append and path.exists() else b""
        write_atomically(path, before + text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}", where=where) from error
