"""What a sweep asked for, on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.data.tasks import decimal
from bench.errors import DataError, StorageError
from bench.records.files import write_whole
from bench.schema import Block, Rows, count, fault, label
from bench.sweeps.grids import SWEEPS

FOLDER = "sweeps"


_MANIFEST = Block(
    {
        "sweep": label,
        "profile": label,
        "suites": Rows(label),
        "seeds": Rows(count),
        "points": Rows(Rows(label, least=3)),
    }
)


@dataclass(frozen=True)
class Manifest:
    """A sweep that ran, for its table: which method id belongs in which cell.

    Args:
        sweep: Its name.
        profile: The profile's name in results.
        suites: Suites.
        seeds: Seeds.
        points: (row, column, method id), row by row.
    """

    sweep: str
    profile: str
    suites: tuple[str, ...]
    seeds: tuple[int, ...]
    points: tuple[tuple[str, str, str], ...]


def save(manifest: Manifest, campaign: Path) -> None:
    """Write a sweep's grid next to its records, atomically; raises StorageError if it can't be written."""
    path = campaign / FOLDER / f"{manifest.profile}-{manifest.sweep}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(asdict(manifest), indent=1) + "\n").encode())
    except OSError as error:
        raise StorageError(f"the sweep's grid can't be written: {error.strerror}", where=str(path)) from error


def load_all(campaign: Path) -> list[Manifest]:
    """Return the grids of all sweeps that ran in a campaign; raises DataError for a damaged one."""
    manifests = []
    for path in sorted((campaign / FOLDER).glob("*.json")):
        try:
            manifests.append(_manifest(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(
                f"the sweep's grid is damaged: {error}", where=str(path), hint="run bench sweep again"
            ) from error
    return manifests


def _manifest(data: Any) -> Manifest:
    if place := fault(data, _MANIFEST):
        raise ValueError(f"'{place}' is missing or isn't what it should be")
    name = data["sweep"]
    if name not in SWEEPS:
        raise ValueError(f"no sweep '{name}'")
    points = tuple((row, column, method) for row, column, method in data["points"])
    if SWEEPS[name].numeric:
        for row, _, _ in points:
            decimal(row)
    return Manifest(name, data["profile"], tuple(data["suites"]), tuple(data["seeds"]), points)
