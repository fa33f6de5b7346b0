"""What bench keeps on disk to save work, and can make again: stages, checkpoints, vectors, backbones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bench.errors import StorageError
from bench.execution.stage_cache import CHECKPOINTS
from bench.plan.backbones import backbone_cache_folder
from bench.records.filesystem import is_locked, pretraining_lock

KINDS = ("stages", "checkpoints", "vectors", "backbones")
_KEY = re.compile(r"[0-9a-f]{64}")
_CHECKPOINT = "-checkpoint.safetensors"  # ending of a pretraining's
_UNFINISHED = "-unfinished"


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder of a cache, with the lock of the process that makes it."""

    kind: str
    path: Path
    lock: Path

    @property
    def size(self) -> int:
        """Bytes of its files; links are not followed."""
        if self.path.is_dir() and not self.path.is_symlink():
            return sum(_file_size(file) for file in self.path.rglob("*"))
        return _file_size(self.path)


def _file_size(path: Path) -> int:
    try:
        return 0 if path.is_dir() and not path.is_symlink() else path.lstat().st_size
    except OSError:  # removed meanwhile
        return 0


def find_cache_entries(results: Path) -> list[CacheEntry]:
    """Return the entries below a results folder and in the user's cache folder, by kind and name."""
    entries = [*_find_stages(results / ".stages"), *_find_vectors(results / ".vectors")]
    with suppress(RuntimeError):  # no home
        entries += _find_backbones(backbone_cache_folder())
    return sorted(entries, key=lambda entry: (KINDS.index(entry.kind), entry.path))


def _find_stages(root: Path) -> Iterator[CacheEntry]:
    for path in root.glob("*"):
        if _KEY.fullmatch(path.name):
            yield CacheEntry("stages", path, root / f".{path.name}.lock")
    for path in (root / CHECKPOINTS).glob("*"):
        if key := _KEY.match(path.name.removeprefix(".")):  # a killed process's temporary file too
            yield CacheEntry("checkpoints", path, root / f".{key[0]}.lock")


def _find_vectors(root: Path) -> Iterator[CacheEntry]:
    for path in root.glob("*.npz"):
        if _KEY.fullmatch(path.stem):
            yield CacheEntry("vectors", path, root / f".{path.stem}.lock")


def _find_backbones(root: Path) -> Iterator[CacheEntry]:
    for path in root.glob("*"):
        if _CHECKPOINT in path.name:  # a killed process's temporary file too
            name = path.name.removeprefix(".").partition(_CHECKPOINT)[0]
            yield CacheEntry("checkpoints", path, pretraining_lock(root / name))
        elif (path / "config.json").is_file() and not path.name.startswith("."):
            name = path.name.removesuffix(_UNFINISHED)
            yield CacheEntry("backbones", path, pretraining_lock(root / name))


def check_no_run(results: Path) -> None:
    """Raise StorageError while a run computes a cell below a results folder."""
    for lock in results.glob("*/.locks/*.lock"):
        if lock.name != ".probe.lock" and is_locked(lock):
            what = f"a run computes a cell of campaign '{lock.parents[1].name}'"
            raise StorageError(what, where=str(results), hint="clear the cache when it has ended")


def remove_cache_entry(entry: CacheEntry) -> bool:
    """Remove an entry, unless a process is making it; return whether it is gone. Raises StorageError."""
    if is_locked(entry.lock):
        return False
    try:
        if entry.kind == "vectors" or not entry.lock.exists():
            _remove(entry.path)
            return True
        with FileLock(entry.lock, blocking=False):
            _remove(entry.path)
    except Timeout:
        return False
    except OSError as error:
        what = f"it can't be removed: {error.strerror or error}"
        raise StorageError(
            what, where=str(entry.path), hint="give yourself the right to write there"
        ) from error
    return True


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # under a temporary name first: a killed removal leaves no half stage
    leaving = path.with_name(f".{path.name}.cleared.tmp")
    shutil.rmtree(leaving, ignore_errors=True)
    path.rename(leaving)
    shutil.rmtree(leaving)
