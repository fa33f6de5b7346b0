"""Bundles for tests: contents edited as somebody would who makes seals, keys and manifest anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.records.integrity import seal_record
from bench.records.record import parse_record, record_to_json
from bench.verify import archive

NOISE = "records/mini/noise/seed-1/toy"
"""A record of the campaign, and its predictions, without their endings."""


def rewritten(folder: Path, files: Mapping[str, bytes], campaign: str = "local") -> Path:
    """Write other contents as a bundle whose own form has no fault."""
    path = folder / "other.zip"
    path.write_bytes(archive.assemble_bundle(campaign, files))
    return path


def edited(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Edit a record; its key and seal are made anew."""
    data = json.loads(content)
    change(data)
    return record_to_json(seal_record(parse_record(json.dumps(data), "test"))).encode()


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder, hidden ones too; None for a folder."""
    paths = sorted(folder.rglob("*"))
    return {p.relative_to(folder).as_posix(): None if p.is_dir() else p.read_bytes() for p in paths}


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Assert that nothing below a folder changes."""
    before = snapshot(folder)
    yield
    assert snapshot(folder) == before
