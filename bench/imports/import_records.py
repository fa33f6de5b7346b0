"""Write published results as records of a campaign, and say what changed since the last import."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from filelock import FileLock, Timeout

from bench.errors import InputError, NotComparableError, StorageError
from bench.imports.published import PublishedResults, PublishedRun
from bench.records.imported import ABOUT, IMPORTED, is_imported
from bench.records.look_alikes import find_record_look_alike
from bench.records.record import AVERAGE, RunRecord
from bench.records.store import ResultStore, predictions_to_npz


@dataclass(frozen=True)
class ScoreChange:
    """A score of a row that differs from the last import: task, then and now, in the metric's unit."""

    row: str
    task: str
    then: float
    now: float


@dataclass(frozen=True)
class ImportOutcome:
    """What an import wrote: numbers of runs, and the changed scores.

    Args:
        gone: Rows of an earlier import from this source that it no longer has; they stay.
        others: Number of runs of the suite from other sources, which stay.
    """

    added: int
    updated: int
    unchanged: int
    changed: tuple[ScoreChange, ...]
    gone: tuple[str, ...]
    others: int = 0


def make_record(run: PublishedRun, results: PublishedResults, profile: str) -> RunRecord:
    """Return the record of a published run."""
    options = {name: str(run.facts[name]) for name in ("revision",) if run.facts.get(name)}
    tasks = {name: {"reference": False, **facts} for name, facts in run.tasks.items()}
    provenance: dict[str, Any] = {IMPORTED: {**results.source, ABOUT: dict(run.facts)}}
    return RunRecord(
        profile=profile,
        method=run.method,
        name=f"{IMPORTED}:{run.method}",
        version=1,
        options=options,
        backbone=None,
        seed=run.seed,
        suite=results.suite,
        tasks=tasks,
        key="",
        status="ok",
        scores=run.scores,
        notes=(*run.notes, *results.table_notes),
        provenance=provenance,
        timing={"started": datetime.now(UTC).isoformat(timespec="seconds")},
    )


def import_results(
    store: ResultStore,
    results: PublishedResults,
    profile: str = IMPORTED,
    progress: Callable[[int], None] = lambda _: None,
    *,
    dry: bool = False,
) -> ImportOutcome:
    """Write the runs of a source into a campaign, each atomically; ``dry`` only compares.

    Raises InputError for a row of the campaign that wasn't imported, NotComparableError for one on other
    data.
    """
    records = [make_record(run, results, profile) for run in results.runs]
    for record in records:
        if look_alike := find_record_look_alike(record):
            raise InputError(look_alike, where=str(results.source.get("label")), hint="rename it there")
    if dry:
        return _compare_rows(store, results, records, lambda *_: None)
    store.prepare()
    with _hold_campaign(store):
        return _compare_rows(store, results, records, partial(_write_run, store, progress))


def _compare_rows(
    store: ResultStore,
    results: PublishedResults,
    records: Sequence[RunRecord],
    write: Callable[[PublishedRun, RunRecord, bool], None],
) -> ImportOutcome:
    """Compare records with the campaign's, and call ``write`` with each and whether it is new or changed."""
    old = _read_rows(store, records[0].profile, results.suite) if records else {}
    _check_rows(store, old.values(), list(records))
    changed: list[ScoreChange] = []
    counts = {"added": 0, "updated": 0, "unchanged": 0}
    for run, record in zip(results.runs, records, strict=True):
        then = old.get((record.method, record.seed))
        differences = [] if then is None else list(_list_changes(then, record))
        changed += differences
        kind = "added" if then is None else "unchanged" if _is_same(then, record, run) else "updated"
        counts[kind] += 1
        write(run, record, kind != "unchanged")
    here = {(record.method, record.seed) for record in records}
    label = results.source.get("kind"), results.source.get("label")
    gone = [key for key, record in old.items() if key not in here and _source_label(record) == label]
    names = tuple(_row_name(*key) for key in gone)
    others = sum(key not in here and _source_label(record) != label for key, record in old.items())
    return ImportOutcome(**counts, changed=tuple(changed), gone=names, others=others)


def _write_run(
    store: ResultStore, progress: Callable[[int], None], run: PublishedRun, record: RunRecord, changed: bool
) -> None:
    if changed:
        with store.claim(record.place, wait=True):
            store.write(record.place, record, run.predictions)
    progress(1)


@contextmanager
def _hold_campaign(store: ResultStore) -> Iterator[None]:
    """Keep another import out of the campaign; raises StorageError where one is at work."""
    lock = FileLock(store.root / ".locks" / "import.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        what = "another import into this campaign is at work"
        raise StorageError(what, where=str(store.root), hint="try again when it is done") from error
    except (OSError, NotImplementedError):  # no locks here
        pass
    try:
        yield
    finally:
        lock.release()


def _read_rows(store: ResultStore, profile: str, suite: str) -> dict[tuple[str, int | None], RunRecord]:
    """Return the campaign's records of a profile and suite, by row and seed."""
    if not store.root.is_dir():
        return {}
    records = store.records() if any(store.root.glob("*/*/*/*.json")) else []
    same = (record for record in records if (record.profile, record.suite) == (profile, suite))
    return {(record.method, record.seed): record for record in same}


def _check_rows(store: ResultStore, old: Iterable[RunRecord], new: list[RunRecord]) -> None:
    """Refuse to replace what was run here, and to join other data, or a row with seeds and one without."""
    old = list(old)
    known = {record.method.casefold(): record.method for record in old}
    for record in new:
        if (other := known.get(record.method.casefold(), record.method)) != record.method:
            what = f"{record.method} stands in this campaign as {other}"
            raise InputError(what, where=str(store.root), hint="write both alike in the source")
    data, places = (_data_hashes(new[0]) if new else {}), {record.place for record in new}
    seeded = {record.method: record.seed is not None for record in new}
    for record in old:
        where, hint = str(store.path(record.place)), "name another campaign with --into"
        if record.place in places and not is_imported(record):
            raise InputError(f"{record.method} was run here", where=where, hint=hint)
        there = f"{record.method} stands in this campaign"
        if _data_hashes(record) != data:
            what = f"{there} with other tasks, metrics or versions of the data"
            raise NotComparableError(what, where=where, hint=hint)
        has_seed = record.seed is not None
        if seeded.get(record.method, has_seed) != has_seed:
            what = f"{there} {'with' if has_seed else 'without'} seeds"
            expected = "a row with seeds in all of its runs or in none"
            raise InputError(what, where=where, expected=expected, hint=hint)


def _data_hashes(record: RunRecord) -> dict[str, str]:
    return {name: facts["sha256"] for name, facts in record.tasks.items()}


def _list_changes(then: RunRecord, now: RunRecord) -> Iterator[ScoreChange]:
    """Yield the scores of tasks that differ, or only the average's."""
    row, any_task = _row_name(now.method, now.seed), False
    for task in (*now.tasks, AVERAGE):
        was, is_now = then.score(task), now.score(task)
        if was != is_now and is_now is not None and not (task == AVERAGE and any_task):
            any_task = True
            yield ScoreChange(row, task, float("nan") if was is None else was, is_now)


def _is_same(then: RunRecord, now: RunRecord, run: PublishedRun) -> bool:
    """Return whether a record says the same as a published run, but for its time."""
    digest = None
    if run.predictions is not None:
        digest = hashlib.sha256(predictions_to_npz(run.predictions)).hexdigest()
    blank: dict[str, Any] = {"timing": {}, "key": "", "predictions": None}
    same = (then.predictions or {}).get("sha256") == digest
    return same and replace(then, **blank) == replace(now, **blank)


def _row_name(method: str, seed: int | None) -> str:
    return method if seed is None else f"{method}#{seed}"


def _source_label(record: RunRecord) -> tuple[object, object]:
    facts = record.provenance.get(IMPORTED, {})
    return facts.get("kind"), facts.get("label")
