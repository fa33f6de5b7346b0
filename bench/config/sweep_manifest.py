"""Manifests of sweeps on disk: which method fills which cell."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.config.sweeps import SWEEPS
from bench.errors import DataError, InputError, StorageError
from bench.records.filesystem import read_regular_file, write_atomically
from bench.schema import Block, ListOf, find_fault, is_count, is_label, parse_decimal

FOLDER = "sweeps"
_TEXTS: dict[str, Any] = {"sweep": is_label, "profile": is_label, "suites": ListOf(is_label)}
_MANIFEST = Block({**_TEXTS, "seeds": ListOf(is_count), "points": ListOf(ListOf(is_label, least=3))})


@dataclass(frozen=True)
class Manifest:
    """A sweep that ran: which method id belongs in which cell of its table."""

    sweep: str
    profile: str
    suites: tuple[str, ...]
    seeds: tuple[int, ...]
    points: tuple[tuple[str, str, str], ...]  # (row, column, method id), row by row


def manifest_path(manifest: Manifest, campaign: Path) -> Path:
    """Return the file of a sweep's grid; raises DataError for a profile that names a place elsewhere."""
    path = campaign / FOLDER / _file_name(manifest)
    if path.name != _file_name(manifest):
        what = f"'{manifest.profile}' is not the name of a profile"
        raise DataError(what, where=f"sweep {manifest.sweep}")
    return path


def _file_name(manifest: Manifest) -> str:
    return f"{manifest.profile}-{manifest.sweep}.json"


def save_manifest(manifest: Manifest, campaign: Path) -> None:
    """Write a sweep's grid next to its records, atomically; raises StorageError."""
    path = manifest_path(manifest, campaign)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(manifest), indent=1) + "\n").encode())
    except OSError as error:
        raise StorageError(f"the sweep's grid can't be written: {error.strerror}", where=str(path)) from error


def merge_manifests(one: Manifest, other: Manifest) -> Manifest:
    """Return a grid with the suites and seeds of both, which have the same cells."""
    suites = tuple(dict.fromkeys((*one.suites, *other.suites)))
    return replace(one, suites=suites, seeds=tuple(sorted({*one.seeds, *other.seeds})))


def add_earlier_runs(manifest: Manifest, campaign: Path) -> Manifest:
    """Return a grid with the suites and seeds of earlier runs too; raises InputError for other cells."""
    path = manifest_path(manifest, campaign)
    if not path.exists():
        return manifest
    earlier = load_manifest(path)
    if earlier.points != manifest.points:
        what = f"sweep {manifest.sweep} ran here with other cells"
        expected = f"the {len(manifest.points)} cells that it has now"
        raise InputError(what, where=str(path), expected=expected, hint="name another --campaign")
    return merge_manifests(earlier, manifest)


def load_manifest(path: Path) -> Manifest:
    """Return the grid in a file; raises DataError for a damaged one, or one under another's file name."""
    try:
        manifest = _parse_manifest(json.loads(read_regular_file(path).decode("utf-8")))
        if path.name != _file_name(manifest):
            raise ValueError(f"it is of sweep {manifest.sweep} and profile {manifest.profile}")
        return manifest
    except (OSError, ValueError, RecursionError) as error:
        hint = "delete it and run bench sweep again: finished cells are kept"
        raise DataError(f"the sweep's grid is damaged: {error}", where=str(path), hint=hint) from error


def load_manifests(campaign: Path) -> list[Manifest]:
    """Return the grids of all sweeps of a campaign; raises DataError for a damaged one."""
    return [load_manifest(path) for path in sorted((campaign / FOLDER).glob("*.json"))]


def _parse_manifest(data: Any) -> Manifest:
    if place := find_fault(data, _MANIFEST):
        raise ValueError(f"'{place}' is missing or of another type")
    name = data["sweep"]
    if name not in SWEEPS:
        raise ValueError(f"no sweep '{name}'")
    points = tuple((row, column, method) for row, column, method in data["points"])
    if not points and not SWEEPS[name].surface:
        raise ValueError("it has no cells")
    if SWEEPS[name].numeric:
        for row, _, _ in points:
            parse_decimal(row)
    return Manifest(name, data["profile"], tuple(data["suites"]), tuple(data["seeds"]), points)
