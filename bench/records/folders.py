"""What lies below a folder of results: its files, and the folders of which nobody sees what is in them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import DataError


@dataclass
class Below:
    """Everything below a folder but what is hidden, in the order of the paths.

    Args:
        files: Its files; a link to one is one.
        closed: Folders that can't be read, each with the system's words for it.
        linked: Links to folders, which are not followed.
    """

    files: list[Path] = field(default_factory=list)
    closed: dict[Path, str] = field(default_factory=dict)
    linked: list[Path] = field(default_factory=list)


def below(folder: Path) -> Below:
    """Return what is below a folder; nothing where there is no such folder.

    ``glob`` passes by a folder that can't be read without a word.
    """
    found = Below()

    def closed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # such as of another process that tidied up
            found.closed[Path(error.filename or folder)] = error.strerror or type(error).__name__

    for top, folders, names in os.walk(folder, onerror=closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.linked += [path for name in folders if (path := Path(top, name)).is_symlink()]
        found.files += [Path(top, name) for name in names if not name.startswith(".")]
    return Below(sorted(found.files), dict(sorted(found.closed.items())), sorted(found.linked))


def check_readable(folder: Path) -> None:
    """Raise DataError where a folder below can't be read: what it holds would be left out in silence."""
    for path, why in below(folder).closed.items():
        raise DataError(
            f"this folder can't be read: {why}", where=str(path), hint="give yourself the right to read it"
        )
