"""What must hold of a disturbed run and of what it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.config.sweep_manifest import FOLDER as SWEEPS
from bench.errors import DataError
from bench.execution.stage_cache import is_complete_stage
from bench.records.record import RunRecord, record_to_json
from bench.records.store import ResultStore

MADE = "made"
"""Where, beside results, commands of a fault write."""
_TIMES = ("cpu_seconds", "date")
_HIDDEN = (".locks", ".stages", ".checkpoints", ".vectors", ".download", ".ray")
"""Hidden folders that stay."""


class NotSurvivedError(Exception):
    """Something didn't hold; says what."""


def expect(held: object, what: str) -> None:
    if not held:
        raise NotSurvivedError(what)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    error: str


def records(folder: Path, campaign: str = "local") -> list[RunRecord]:
    store = ResultStore(folder / "results", campaign)
    try:
        return store.records() if store.root.is_dir() else []
    except DataError as error:
        raise NotSurvivedError(f"a half record: {error}") from error


def stable(folder: Path, campaign: str = "local") -> dict[str, bytes]:
    """All that must repeat: a campaign's records, predictions and sweeps, what else was made; no times."""
    store = ResultStore(folder / "results", campaign)
    contents = {}
    for record in records(folder, campaign):
        path = store.path(record.place)
        contents[str(path.relative_to(store.root))] = record_to_json(record, timing=False).encode()
    others = [*store.root.glob("*/*/*/*.npz"), *store.root.glob(f"{SWEEPS}/*.json")]
    contents |= {str(path.relative_to(store.root)): path.read_bytes() for path in others}
    made = [path for path in (folder / MADE).rglob("*") if path.is_file() and path.suffix != ".lock"]
    return contents | {str(path.relative_to(folder)): _without_times(path) for path in made}


def _without_times(path: Path) -> bytes:
    content = path.read_bytes()
    facts = json.loads(content) if path.suffix == ".json" else None
    if not isinstance(facts, dict) or not facts.keys() & set(_TIMES):
        return content
    return json.dumps(facts | dict.fromkeys(_TIMES)).encode()


def finished(folder: Path, campaign: str = "local") -> dict[Path, int]:
    """Files of finished cells and stages with their times of change; NotSurvivedError for a half record."""
    store = ResultStore(folder / "results", campaign)
    stamps: dict[Path, int] = {}
    for record in records(folder, campaign):
        if record.status == "ok" and store.is_whole(record.place, record):
            path = store.path(record.place)
            stamps |= {file: file.stat().st_mtime_ns for file in (path, path.with_suffix(".npz"))}
    for stage in (folder / "results" / ".stages").glob("[0-9a-f]*"):
        if is_complete_stage(stage):
            stamps |= {path: path.stat().st_mtime_ns for path in stage.iterdir()}
    return stamps


def check_kept(before: dict[Path, int], after: dict[Path, int]) -> None:
    for path, stamp in before.items():
        expect(after.get(path) == stamp, f"{path}: finished, and written again or lost")


def check_whole(folder: Path, expected: dict[str, bytes]) -> None:
    kept = stable(folder)
    differing = sorted(name for name in kept.keys() | expected.keys() if kept.get(name) != expected.get(name))
    expect(not differing, f"{folder}: other bytes than undisturbed: {', '.join(differing)}")
    check_nothing_left(folder)


def check_nothing_left(folder: Path) -> None:
    strays = sorted(map(str, _strays(folder)))
    expect(not strays, f"left lying about: {', '.join(strays)}")


def _strays(folder: Path) -> Iterator[Path]:
    yield from (
        stage for stage in (folder / "results" / ".stages").glob("[!.]*") if not is_complete_stage(stage)
    )
    yield from (folder / "results" / ".stages" / ".checkpoints").glob("*")
    for path in (file for top in ("results", MADE) for file in (folder / top).rglob("*")):
        hidden = path.name.startswith(".") and path.name not in _HIDDEN and path.suffix != ".lock"
        if hidden or path.suffix in (".tmp", ".part"):
            yield path


def check_one_line(done: Done, *parts: str) -> None:
    """Raise NotSurvivedError unless a run failed with one error line of these parts, and no traceback."""
    lines = [line for line in done.error.splitlines() if line.startswith("error: ")]
    expect(done.code not in (0, 130) and done.code > 0, f"exit code {done.code}: {done.error[-500:]}")
    expect(len(lines) == 1, f"{len(lines)} error lines: {done.error[-800:]}")
    expect("Traceback" not in done.error + done.out, f"a traceback: {done.error[-800:]}")
    for part in parts:
        expect(part in lines[0], f"'{part}' is not in: {lines[0]}")
