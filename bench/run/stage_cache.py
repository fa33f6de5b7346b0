"""Finished training stages on disk: content-addressed, checked before use, shared between methods."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bench.errors import StorageError, storage_reason
from bench.stages import Stage

_MANIFEST = "MANIFEST.json"


_FACTS = "facts.json"


class StageCache:
    """Finished stages under one folder, each in a folder named by its key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, stage: Stage) -> Path | None:
        """Return a finished stage's folder if every file is as it was written, else None."""
        folder = self.root / stage.key
        return folder if is_whole(folder) else None

    def facts(self, stage: Stage) -> dict[str, Any]:
        """Facts that the stage's training left for the record."""
        facts: dict[str, Any] = json.loads((self.root / stage.key / _FACTS).read_text(encoding="utf-8"))
        return facts

    def ensure(
        self, stage: Stage, train: Callable[[Path], dict[str, Any]], *, wait: bool = True
    ) -> Path | None:
        """Return the stage's folder, training it first if it isn't there whole.

        A killed training leaves only a temporary folder, which the next training of the stage removes.

        Args:
            stage: The stage.
            train: Gets an empty folder, fills it, returns facts.
            wait: Wait for another process that trains the stage; else return None while one does.

        Raises:
            StorageError: the cache can't be written.
        """
        if (found := self.find(stage)) is not None:
            return found  # also from a cache that can only be read
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f".{stage.key}.lock", blocking=wait):
                return self.find(stage) or self._train(stage, train)
        except Timeout:
            return None
        except Exception as error:
            if isinstance(error, StorageError) or (reason := self._reason(error)) is None:
                raise
            raise StorageError(
                f"stage '{stage.spec.role}' can't be kept: {reason}",
                where=str(self.root),
                hint="finished cells and stages are kept: fix this and run the same command again",
            ) from error

    def _reason(self, error: Exception) -> str | None:
        """Why the cache can't be written, None for an error of another kind in the training."""
        if isinstance(error, OSError) and Path(error.filename or "").is_relative_to(self.root):
            return error.strerror
        return storage_reason(error)

    def clear_leftovers(self) -> None:
        """Remove what killed processes left half trained, where no other process is at work."""
        for leftover in self.root.glob(".*.tmp"):
            key = leftover.name.split(".")[1]
            with suppress(OSError, Timeout), FileLock(self.root / f".{key}.lock", blocking=False):
                shutil.rmtree(leftover, ignore_errors=True)

    def _train(self, stage: Stage, train: Callable[[Path], dict[str, Any]]) -> Path:
        for leftover in self.root.glob(f".{stage.key}.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        target = self.root / stage.key
        temporary = Path(tempfile.mkdtemp(prefix=f".{stage.key}.", suffix=".tmp", dir=self.root))
        try:
            if (found := self.find(stage)) is not None:
                return found  # on NFS a node may see another's finished stage only once it changes the folder
            facts = train(temporary)
            (temporary / _FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True, allow_nan=False))
            (temporary / _MANIFEST).write_text(json.dumps(_checksums(temporary), indent=1, sort_keys=True))
            shutil.rmtree(target, ignore_errors=True)  # not whole, or we would not be here
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return target


def is_whole(folder: Path) -> bool:
    """True if this is the folder of a finished stage, and every file in it is as it was written."""
    try:
        return bool(json.loads((folder / _MANIFEST).read_text(encoding="utf-8")) == _checksums(folder))
    except (OSError, ValueError):
        return False


def _checksums(folder: Path) -> dict[str, str]:
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            with path.open("rb") as stream:
                sums[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return sums
