"""Remembered recomputations: scores that agreed with their predictions, in the user's cache folder.

A remembered record is named by its seal, the sha256 of its predictions and of its data, and the version of
the evaluation. Contradictions are never remembered. A file of another owner, one that others may write, and a
damaged one are ignored: then scores are computed again. ``bench verify`` doesn't read this memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.data.data_source import GENERATOR, SPLIT
from bench.records.filesystem import READ, user_cache_folder, write_atomically
from bench.records.fingerprint import hash_canonical_json
from bench.schema import Block, ListOf, MapOf, Shape, find_fault, is_text
from bench.version import __version__

VERSION = 1
"""Raised when the meaning of a file changes."""
FOLDER = "scores"
_LARGEST = 2**24  # bytes of a file
_MOST = 50_000  # entries of a file
_SOUND = MapOf(ListOf(is_text))
_HASHES = MapOf(MapOf(is_text))


class ScoreMemory:
    """Sound records by the evaluation that they passed, and hashes of suites by the state of their files.

    Args:
        folder: Its folder; None for a memory that forgets everything at its end.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        self._new: dict[str, dict[str, Any]] = {}

    def find_sound(self, suite: Mapping[str, Any], record: str) -> list[str] | None:
        """Return the tasks of a sound record that have no predictions; None for an unknown record.

        ``suite`` are the facts of the evaluation, ``record`` is the name from :func:`name_record`.
        """
        found: list[str] | None = self._read(_name_file("suite", suite), _SOUND).get(record)
        return found

    def add_sound(self, suite: Mapping[str, Any], record: str, unscored: list[str]) -> None:
        """Remember a record whose scores agree with its predictions."""
        self._add(_name_file("suite", suite), record, unscored)

    def find_hashes(self, state: str) -> dict[str, str] | None:
        """Return the sha256 of each task of a suite, by the state of its files."""
        found: dict[str, str] | None = self._read(_name_file("data", {}), _HASHES).get(state)
        return found

    def add_hashes(self, state: str, hashes: Mapping[str, str]) -> None:
        """Remember the sha256 of each task of a suite."""
        self._add(_name_file("data", {}), state, dict(hashes))

    def save(self) -> None:
        """Write what is new, each file atomically; a folder that can't be written costs time later."""
        new, self._new = self._new, {}
        if self._folder is None or not new:
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self._folder.stat()):
                return
            for name, entries in new.items():
                kind = _HASHES if name == _name_file("data", {}) else _SOUND
                present = _read_entries(self._folder / name, kind)  # another process may have added some
                merged = (entries | present) if len(present) + len(entries) <= _MOST else entries
                write_atomically(self._folder / name, _format_entries(merged))

    def _read(self, name: str, kind: Shape) -> dict[str, Any]:
        if name not in self._known:
            self._known[name] = {} if self._folder is None else _read_entries(self._folder / name, kind)
        return self._known[name]

    def _add(self, name: str, entry: str, value: Any) -> None:
        self._known.setdefault(name, {})[entry] = value
        self._new.setdefault(name, {})[entry] = value


def open_memory(results: Path) -> ScoreMemory:
    """Return the memory in the user's cache folder; an empty one where that is below a results folder."""
    try:
        folder = (user_cache_folder() / FOLDER).resolve()
        below = folder.is_relative_to(results.resolve())
        private = not folder.exists() or _is_private(folder.stat())
    except (OSError, RuntimeError):  # no home, or a loop of links
        return ScoreMemory(None)
    return ScoreMemory(None if below or not private else folder)


def name_record(seal: str, predictions: str) -> str:
    """Return the name of a record by its seal and the sha256 of its predictions."""
    return hashlib.sha256(f"{seal} {predictions}".encode()).hexdigest()


def describe_files(folder: Path) -> str:
    """Return a hash of path, size and times of all files below a data folder: its state."""
    lines = [str(folder.resolve())]
    for top, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = Path(top, name)
            with suppress(OSError):  # a link to nothing
                facts = path.stat()
                lines.append(f"{path} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino}")
        if len(lines) > _MOST:  # a link in a loop, or a folder of other things
            return ""
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _name_file(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the name of the file of one program and evaluation: another version remembers nothing."""
    program = {"memory": VERSION, "bench": __version__, "generator": GENERATOR, "split": SPLIT}
    return f"{kind}-{hash_canonical_json({**program, 'facts': dict(facts)})[:32]}.json"


def _format_entries(entries: Mapping[str, Any]) -> bytes:
    digest = hash_canonical_json(dict(entries))
    return json.dumps({"sha256": digest, "entries": entries}, sort_keys=True).encode()


def _read_entries(path: Path, kind: Shape) -> dict[str, Any]:
    """Return the entries of a file; {} for a missing, damaged or large one, and one that others may write."""
    try:
        descriptor = os.open(path, READ | getattr(os, "O_BINARY", 0))
    except OSError:
        return {}
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or not _is_private(facts) or facts.st_size > _LARGEST:
        os.close(descriptor)
        return {}
    with os.fdopen(descriptor, "rb") as stream:
        try:
            data = json.loads(stream.read(_LARGEST))
            shape = Block({"sha256": is_text, "entries": kind}, closed=True)
            if find_fault(data, shape) is None and data["sha256"] == hash_canonical_json(data["entries"]):
                entries: dict[str, Any] = data["entries"]
                return entries
        except (OSError, ValueError, RecursionError):  # damaged in one of many ways
            pass
    return {}


def _is_private(facts: os.stat_result) -> bool:
    """Return True for what the user owns and nobody else may write."""
    if os.name == "nt":  # whose home folders have lists of rights
        return True
    return facts.st_uid == os.geteuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
