"""The files of the site: only changed ones are written, and those of other programs stay."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from shutil import rmtree
from typing import Any

from bench.errors import InputError, StorageError
from bench.records.filesystem import write_atomically
from bench.version import __version__

MANIFEST = "site.json"
"""Every written file with its sha256: these may be replaced or removed."""
PROGRESS = ".progress"
"""Folder of an unfinished build: a file for each finished campaign and each finished part of one."""


def hash_content(content: bytes) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class SiteOutput:
    """The site's folder."""

    root: Path
    known: Mapping[str, str] = field(default_factory=dict)  # the last build's files: sha256 by path
    prints: Mapping[str, str] = field(default_factory=dict)  # hash of its sources by campaign
    written: dict[str, str] = field(default_factory=dict)  # this build's files: sha256 by path

    def remember(self, name: str, source: str, compute: Callable[[], Any]) -> Any:
        """Return a value in JSON's types, from the progress of a killed build if ``source`` is equal.

        ``source`` is the hash of everything that the value depends on.
        """
        path = self.root / PROGRESS / f"{name}.json"
        kept = _read_json(path)
        if isinstance(kept, dict) and kept.get("source") == source and "value" in kept:
            return kept["value"]
        value = compute()
        self._write_progress(path, {"source": source, "value": value})
        return value

    def complete(self, campaign: str, source: str) -> None:
        """Remember that a campaign's files are written, for the build after a killed one."""
        below = f"campaigns/{campaign}/"
        files = {path: digest for path, digest in self.written.items() if path.startswith(below)}
        path = self.root / PROGRESS / f"{campaign}.json"
        self._write_progress(path, {"source": source, "value": files})

    def _write_progress(self, path: Path, content: Any) -> None:
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, json.dumps(content).encode())
        except OSError as error:
            raise StorageError(f"the site can't be written: {error.strerror}", where=str(path)) from error

    def put(self, path: str, content: bytes) -> None:
        """Write a file of the site unless it is unchanged."""
        self.written[path] = hash_content(content)
        target = self.root / path
        if any((self.root / folder).is_symlink() for folder in Path(path).parents):
            raise InputError("a link in the site's folder", where=str(target.parent), hint="delete it")
        try:
            if not self._has_content(path, self.written[path]):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)  # never through a link
                target.write_bytes(content)  # after a kill the hash matches no manifest
        except OSError as error:
            raise StorageError(f"the site can't be written: {error.strerror}", where=str(target)) from error

    def keep(self, below: str) -> bool:
        """Keep all files of a folder; return False if one is missing or was changed."""
        files = {path: known for path, known in self.known.items() if path.startswith(below)}
        if not files or not all(self._has_content(path, known) for path, known in files.items()):
            return False
        self.written |= files
        return True

    def _has_content(self, path: str, wanted: str) -> bool:
        target = self.root / path
        try:
            return not target.is_symlink() and hash_content(target.read_bytes()) == wanted
        except OSError:
            return False

    def finish(self, prints: Mapping[str, str]) -> int:
        """Remove obsolete files of the last build and write the manifest; return their number."""
        gone = [path for path in self.known if path not in self.written]
        for path in gone:
            target = self.root / path
            with suppress(OSError):  # missing, or a folder now
                target.unlink()
            with suppress(OSError):  # not empty
                for folder in target.relative_to(self.root).parents:
                    (self.root / folder).rmdir()
        self.write_manifest(prints)
        if not (self.root / PROGRESS).is_symlink():
            rmtree(self.root / PROGRESS, ignore_errors=True)
        return len(gone)

    def begin(self, campaigns: Sequence[str]) -> None:
        """Write the campaigns to make into the manifest, so that files of a killed build are bench's."""
        if campaigns:
            self.write_manifest(self.prints, dict(self.known), campaigns)

    def write_manifest(
        self, prints: Mapping[str, str], files: Mapping[str, str] | None = None, making: Sequence[str] = ()
    ) -> None:
        """Write the manifest unless it is unchanged."""
        manifest = {"bench": __version__, "campaigns": dict(prints), "files": files or self.written}
        if making:
            manifest["making"] = list(making)
        content = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
        if not self._has_content(MANIFEST, hash_content(content)):
            write_atomically(self.root / MANIFEST, content)


def open_site(root: Path) -> SiteOutput:
    """Return the folder of a site; raises InputError for a folder with other content."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        is_empty = not any(root.iterdir())
    except OSError as error:
        raise InputError(f"the folder can't be used: {error.strerror}", where=f"--out {root}") from error
    if is_empty:
        output = SiteOutput(root)
        output.write_manifest({})  # a killed first build can be repeated
        return output
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        known = {str(path): str(value) for path, value in manifest["files"].items() if _is_inside(str(path))}
        prints = {str(name): str(value) for name, value in manifest["campaigns"].items()}
        for name in map(str, manifest.get("making", ())):
            source, files = _read_progress(root, name)
            known |= dict.fromkeys(_find_partial_files(root, name), "") | files
            if files:
                prints[name] = source
        return SiteOutput(root, known, prints)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            "this folder is not empty and no site of bench",
            where=f"--out {root}",
            expected="an empty folder, or one that bench site made",
        ) from error


def _read_progress(root: Path, campaign: str) -> tuple[str, dict[str, str]]:
    """Return the hash of the sources of a campaign that a killed build finished, and its files."""
    kept = _read_json(root / PROGRESS / f"{campaign}.json") if _is_inside(campaign) else None
    if not isinstance(kept, dict) or not isinstance(kept.get("value"), dict):
        return "", {}
    files = {str(path): str(digest) for path, digest in kept["value"].items()}
    below = f"campaigns/{campaign}/"
    return str(kept.get("source")), {
        path: digest for path, digest in files.items() if path.startswith(below) and _is_inside(path)
    }


def _read_json(path: Path) -> Any:
    """Return the content of a file, None for a missing or damaged one."""
    try:
        return None if path.is_symlink() else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _find_partial_files(root: Path, campaign: str) -> list[str]:
    """Return the files of an unfinished campaign, unless its folder is a link."""
    folder = root / "campaigns" / campaign
    if not _is_inside(campaign) or any(part.is_symlink() for part in (folder, folder.parent)):
        return []
    files = (Path(top) / name for top, _, names in os.walk(folder) for name in names)
    return [file.relative_to(root).as_posix() for file in files]


def _is_inside(path: str) -> bool:
    """Return False for a path out of the site, which an edited manifest may hold."""
    parts = Path(path).parts
    return bool(parts) and not Path(path).is_absolute() and ".." not in parts and path.isprintable()


@cache
def hash_program() -> str:
    """Return a hash of the running bench: another one renders all pages again."""
    digest = hashlib.sha256()
    for package in ("bench", "bench.baselines", "bench.methods", "bench.reports"):
        for name, content in _read_sources(files(package), f"{package}/"):
            digest.update(f"{name}\0{hash_content(content)}\n".encode())
    return digest.hexdigest()


def _read_sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir() and item.name != "__pycache__":
            yield from _read_sources(item, f"{name}{item.name}/")
        elif item.name.endswith((".py", ".html", ".css", ".js", ".csv", ".toml")):
            yield f"{name}{item.name}", item.read_bytes()


def hash_folder(root: Path) -> str:
    """Return a hash of a campaign's visible files, those of linked folders too, as records are read there."""
    digest, visited, paths = hashlib.sha256(), {os.path.realpath(root)}, list[Path]()
    for top, folders, names in os.walk(root, followlinks=True):
        inner = {name: os.path.realpath(os.path.join(top, name)) for name in folders if name[:1] != "."}
        folders[:] = [name for name, real in inner.items() if real not in visited]
        visited |= set(inner.values())
        paths += [Path(top, name) for name in names if name[:1] != "."]
    for path in sorted(paths):
        if path.is_file():
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\0{hash_content(path.read_bytes())}\n".encode())
    return digest.hexdigest()
