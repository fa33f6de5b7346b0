"""Everything below a folder."""

from __future__ import annotations

from pathlib import Path


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, the locks left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
