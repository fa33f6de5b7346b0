"""Writing the site: only what changed, and nothing that another program put there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from bench.errors import InputError, StorageError
from bench.records.filesystem import write_atomically
from bench.version import __version__

MANIFEST = "site.json"
"""Every file of the site with its sha256: what was written, so what may be replaced or removed."""


def hash_content(content: bytes) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class SiteOutput:
    """The site's folder.

    Args:
        root: The folder.
        known: sha256 by path of what the last build wrote.
        prints: By campaign, what its files were made from.
        written: sha256 by path of what this build has.
    """

    root: Path
    known: Mapping[str, str] = field(default_factory=dict)
    prints: Mapping[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, content: bytes) -> None:
        """Write a file of the site, unless it is there already."""
        self.written[path] = hash_content(content)
        target = self.root / path
        if any((self.root / folder).is_symlink() for folder in Path(path).parents):
            raise InputError("a link in the site's folder", where=str(target.parent), hint="delete it")
        try:
            if not self._has_content(path, self.written[path]):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)  # never through a link
                target.write_bytes(content)  # what a kill leaves here has not the hash of any manifest
        except OSError as error:
            raise StorageError(f"the site can't be written: {error.strerror}", where=str(target)) from error

    def keep(self, below: str) -> bool:
        """Keep all files of a folder as the last build left them; False where one is gone or was changed."""
        own = {path: known for path, known in self.known.items() if path.startswith(below)}
        if not own or not all(self._has_content(path, known) for path, known in own.items()):
            return False
        self.written |= own
        return True

    def _has_content(self, path: str, wanted: str) -> bool:
        target = self.root / path
        try:
            return not target.is_symlink() and hash_content(target.read_bytes()) == wanted
        except OSError:
            return False

    def finish(self, prints: Mapping[str, str]) -> int:
        """Remove what the last build wrote and this one has not, and say what there is; return how many."""
        gone = [path for path in self.known if path not in self.written]
        for path in gone:
            target = self.root / path
            with suppress(OSError):  # it is gone, or a folder now
                target.unlink()
            with suppress(OSError):  # it isn't empty
                for folder in target.relative_to(self.root).parents:
                    (self.root / folder).rmdir()
        self.say(prints)
        return len(gone)

    def begin(self, campaigns: Sequence[str]) -> None:
        """Say which campaigns are about to be made: what a kill leaves in their folders is bench's."""
        if campaigns:
            self.say(self.prints, dict(self.known), campaigns)

    def say(
        self, prints: Mapping[str, str], there: Mapping[str, str] | None = None, making: Sequence[str] = ()
    ) -> None:
        """Write what there is, unless that is said already."""
        said = {"bench": __version__, "campaigns": dict(prints), "files": there or self.written}
        if making:
            said["making"] = list(making)
        content = (json.dumps(said, indent=1, sort_keys=True) + "\n").encode()
        if not self._has_content(MANIFEST, hash_content(content)):
            write_atomically(self.root / MANIFEST, content)


def open_site(root: Path) -> SiteOutput:
    """Return the folder of a site, new or of an earlier build.

    Raises:
        InputError: a folder that holds something else, or can't be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        there = any(root.iterdir())
    except OSError as error:
        raise InputError(f"the folder can't be used: {error.strerror}", where=f"--out {root}") from error
    if not there:
        new = SiteOutput(root)
        new.say({})  # before anything is in it: a first build that is killed can be repeated
        return new
    try:
        said = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        known = {str(path): str(value) for path, value in said["files"].items() if _is_inside(str(path))}
        known |= {
            path: "" for name in said.get("making", ()) for path in _find_partial_files(root, str(name))
        }
        return SiteOutput(root, known, {str(name): str(value) for name, value in said["campaigns"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            "this folder is not empty and no site of bench",
            where=f"--out {root}",
            expected="an empty folder, or one that bench site made",
        ) from error


def _find_partial_files(root: Path, campaign: str) -> list[str]:
    """Files of a campaign that was being made when a build ended, none where links lead elsewhere."""
    folder = root / "campaigns" / campaign
    if not _is_inside(campaign) or any(part.is_symlink() for part in (folder, folder.parent)):
        return []
    return [
        (Path(top) / name).relative_to(root).as_posix() for top, _, names in os.walk(folder) for name in names
    ]


def _is_inside(path: str) -> bool:
    """False for a path that leads out of the site, which an edited manifest may hold."""
    parts = Path(path).parts
    return bool(parts) and not Path(path).is_absolute() and ".." not in parts and path.isprintable()


def hash_program() -> str:
    """Return a hash of this bench: pages of another one are made anew."""
    found = hashlib.sha256()
    for name, content in _read_sources(files("bench"), ""):
        found.update(f"{name}\0{hash_content(content)}\n".encode())
    return found.hexdigest()


def _read_sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir() and item.name != "__pycache__":
            yield from _read_sources(item, f"{name}{item.name}/")
        elif item.name.endswith((".py", ".html", ".css", ".js", ".csv", ".toml")):
            yield f"{name}{item.name}", item.read_bytes()


def hash_folder(root: Path) -> str:
    """Return a hash of every file of a campaign's folder but hidden ones, so of all that its page shows."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            found.update(f"{name.as_posix()}\0{hash_content(path.read_bytes())}\n".encode())
    return found.hexdigest()
