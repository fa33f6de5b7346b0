"""Finished training stages on disk: content-addressed, checked before use, shared between methods."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bench.errors import StorageError, storage_reason
from bench.records.filesystem import do_locks_exclude, find_temporary_files, remove_with_leftovers
from bench.stages import Stage

CHECKPOINTS = ".checkpoints"
"""Folder in a stage cache for the states of trainings in progress."""
_MANIFEST, _FACTS = "MANIFEST.json", "facts.json"


@dataclass
class StageWork:
    """A stage in training: its folder, empty at first, and its facts for the record."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)


class StageCache:
    """Finished stages under one folder, each in a folder named by its key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, stage: Stage) -> Path | None:
        """Return a finished stage's folder, if it is complete and unchanged."""
        folder = self.root / stage.key
        return folder if is_complete_stage(folder) else None

    def checkpoint(self, stage: Stage) -> Path:
        """Return the file for the state of a stage in training."""
        return self.root / CHECKPOINTS / f"{stage.key}.safetensors"

    def facts(self, stage: Stage) -> dict[str, Any]:
        """Return the facts of a finished stage."""
        facts: dict[str, Any] = json.loads((self.root / stage.key / _FACTS).read_text(encoding="utf-8"))
        return facts

    @contextmanager
    def making(self, stage: Stage, *, wait: bool = True) -> Iterator[StageWork | None]:
        """Hold a stage's lock while it is trained; store the result when the block ends."""
        # Yields None for a finished stage, and for a locked one if ``wait`` is off. Raises StorageError.
        if self.find(stage) is not None:
            yield None  # also from a read-only cache
            return
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / f".{stage.key}.lock", blocking=wait)
            try:
                lock.acquire()
            except Timeout:
                yield None
                return
            try:
                yield from self._fill_stage(stage)
            finally:
                lock.release()
        except Exception as error:
            if isinstance(error, StorageError) or (reason := self._storage_reason(error)) is None:
                raise
            what = f"stage '{stage.spec.role}' can't be kept: {reason}"
            hint = "finished cells and stages are kept: fix this and run the same command again"
            raise StorageError(what, where=str(self.root), hint=hint) from error

    def _fill_stage(self, stage: Stage) -> Iterator[StageWork | None]:
        """Yield a temporary folder under the stage's lock, and give it the stage's name afterwards."""
        if self.find(stage) is not None:
            yield None
            return
        if do_locks_exclude(self.root):  # otherwise another process may train the same stage now
            for leftover in self.root.glob(f".{stage.key}.*.tmp"):
                shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{stage.key}.", suffix=".tmp", dir=self.root))
        try:
            if self.find(stage) is not None:
                yield None  # on NFS another's stage may be visible only after a change of the folder
                return
            work = StageWork(folder)
            yield work
            target = self.root / stage.key
            (folder / _FACTS).write_text(json.dumps(work.facts, indent=1, sort_keys=True, allow_nan=False))
            (folder / _MANIFEST).write_text(json.dumps(_hash_files(folder), indent=1, sort_keys=True))
            if self.find(stage) is None:  # without locks another process may have finished it meanwhile
                shutil.rmtree(target, ignore_errors=True)  # a damaged one
                folder.rename(target)
            remove_with_leftovers(self.checkpoint(stage))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _storage_reason(self, error: Exception) -> str | None:
        """Return the reason of a failed write to the cache; for the training's own errors None."""
        if isinstance(error, OSError) and Path(error.filename or "").is_relative_to(self.root):
            return error.strerror
        return storage_reason(error)

    def clear_leftovers(self) -> None:
        """Remove the temporary folders of killed processes, and the checkpoints of finished stages."""
        states = self.root / CHECKPOINTS
        for path in (*states.glob("*.safetensors"), *find_temporary_files(states)):
            name = path.name.removeprefix(".")
            key = name.partition(".")[0]
            if is_complete_stage(self.root / key):  # a damaged one is being made again
                remove_with_leftovers(states / f"{key}.safetensors")
        # where locks don't tell living processes from killed ones, all folders stay
        leftovers = list(self.root.glob(".*.tmp"))
        if not leftovers or not do_locks_exclude(self.root):
            return
        for leftover in leftovers:
            key = leftover.name.split(".")[1]
            with suppress(OSError, Timeout), FileLock(self.root / f".{key}.lock", blocking=False):
                shutil.rmtree(leftover, ignore_errors=True)


def is_complete_stage(folder: Path) -> bool:
    """Return whether a folder holds a finished stage with unchanged files."""
    try:
        return bool(json.loads((folder / _MANIFEST).read_text(encoding="utf-8")) == _hash_files(folder))
    except (OSError, ValueError):
        return False


def _hash_files(folder: Path) -> dict[str, str]:
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            with path.open("rb") as stream:
                sums[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return sums
