"""The sealed manifest of a campaign: hashes of the files that other commands put beside its records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bench.errors import DataError, StorageError
from bench.records.filesystem import read_regular_file, write_atomically
from bench.schema import Block, MapOf, find_fault, is_count, is_text

FILE = "manifest.json"
SCHEMA = 1
_SHAPE = Block({"schema": is_count, "files": MapOf(is_text), "sha256": is_text}, closed=True)
_PATIENCE = 10.0  # seconds to wait for another process that seals
_HINT = f"restore {FILE}, or delete it and run bench verify results/CAMPAIGN --seal"


def read_campaign_manifest(root: Path) -> dict[str, str] | None:
    """Return the sha256 of each sealed file by its path below a campaign, None without a manifest.

    Raises DataError for a manifest that is damaged, changed or a newer bench's.
    """
    path = root / FILE
    try:
        content = read_regular_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"the manifest can't be read: {error.strerror}"
        raise DataError(what, where=str(path), hint="give yourself the right to read it") from error
    try:
        data = json.loads(content)
        if place := find_fault(data, _SHAPE):
            raise ValueError(f"'{place}' is missing, unknown or isn't what it should be")
        if outside := [name for name in data["files"] if not _is_below(name)]:
            raise ValueError(f"'{outside[0]}' is no file below the campaign")
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is no manifest of a campaign: {error}", where=str(path), hint=_HINT) from error
    if data["schema"] > SCHEMA:
        what = f"manifest schema {data['schema']} is newer than this bench"
        raise DataError(what, where=str(path), expected=f"schema {SCHEMA}", hint="upgrade cse-bench")
    files: dict[str, str] = data["files"]
    if content.replace(b"\r\n", b"\n") != _render_manifest(files):
        raise DataError("this manifest was changed since it was written", where=str(path), hint=_HINT)
    return files


def _is_below(name: str) -> bool:
    """Return whether a name is of a file below a folder, on every system."""
    parts = name.split("/")
    return not {"", ".", ".."}.intersection(parts) and not any(char in name for char in "\\:\0")


def find_file_fault(root: Path, name: str, files: Mapping[str, str]) -> str:
    """Return the fault of a file that a manifest names, or ""."""
    try:
        content = read_regular_file(root / name)
    except FileNotFoundError:
        return f"{FILE} names this file, and it is gone"
    except OSError as error:
        return f"it can't be read: {error.strerror or error}"
    if hash_text_file(content) == files[name]:
        return ""
    return f"this file was changed since it was sealed in {FILE}"


def hash_text_file(content: bytes) -> str:
    """Return the sha256 of a text file, whatever line ends git gave it."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def seal_campaign_files(root: Path, names: Iterable[str], gone: Iterable[str] = ()) -> list[str]:
    """Seal files of a campaign that were just checked or written, and return their names.

    Other entries of the manifest stay, except those of ``gone``. Raises DataError for a damaged manifest,
    StorageError.
    """
    sealed = sorted(names)
    with _hold_manifest(root):
        files = dict(read_campaign_manifest(root) or {})
        for name in gone:
            files.pop(name, None)
        try:
            for name in sealed:
                files[name] = hash_text_file(read_regular_file(root / name))
            write_atomically(root / FILE, _render_manifest(files))
        except OSError as error:
            what = f"the manifest can't be written: {error.strerror}"
            raise StorageError(what, where=str(root / FILE)) from error
    return sealed


@contextmanager
def _hold_manifest(root: Path) -> Iterator[None]:
    """Keep other processes from sealing, where the folder has locks; raises StorageError after a while."""
    lock = FileLock(root / ".locks" / f"{FILE}.lock")
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout as error:
        what = "another process is sealing files"
        raise StorageError(what, where=str(root / FILE), hint="try again") from error
    except (OSError, NotImplementedError):  # no locks here
        pass
    try:
        yield
    finally:
        lock.release()


def _render_manifest(files: Mapping[str, str]) -> bytes:
    """Return the manifest of some files, with the hash of its own facts."""
    facts = {"schema": SCHEMA, "files": dict(files)}
    body = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    sealed = facts | {"sha256": hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode()
