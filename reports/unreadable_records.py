"""Report unreadable records, and records that lack their predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

from bench.errors import DataError, printable
from bench.records.environment import strip_paths
from bench.records.record import RunRecord, safe_name
from bench.records.store import ResultStore
from bench.render.grid import Grid
from bench.reports.campaign import Campaign
from bench.reports.record_groups import (
    UNREADABLE,
    by_profile_and_suite,
    failure_reasons,
    finished_records,
    label_lines,
    run_label,
)

_NO_PREDICTIONS = "Predictions that are missing, or not those of the record: "
_SEED = re.compile(r"seed-(\d{1,18})")


def scan_campaign(store: ResultStore) -> list[tuple[RunRecord, DataError | None]]:
    """Return a campaign's records, and a stand-in with its error for each unreadable one.

    Records that lack their predictions have a note. Raises as :meth:`ResultStore.scan`, and DataError for a
    copied record.
    """
    records, damaged = store.scan()
    readable = zip(_note_missing_predictions(store, records), repeat(None))
    return [*readable, *zip(_stand_ins(store, records, damaged), damaged.values(), strict=True)]


def lacks_predictions(record: RunRecord) -> bool:
    """True for a record of :func:`scan_campaign` that lacks its predictions."""
    return any(note.startswith(_NO_PREDICTIONS) for note in record.notes)


def append_doubts(grids: Sequence[Grid], campaign: Campaign, form: str) -> list[Grid]:
    """Return the grids, with missing lines on such records below the last one; in csv as a table."""
    lines = list(_doubt_lines(campaign))
    if form == "csv":
        table = Grid("Records in doubt", ("place", "what"), tuple(lines), ())
        return [*grids, table] if lines else list(grids)
    printed = tuple({note for grid in grids for note in grid.notes})
    notes = list(grids[-1].notes)
    for where, line in lines:
        if not any(note.endswith(line) for note in printed):
            notes.append(f"{where}: {line}")
    return [*grids[:-1], replace(grids[-1], notes=tuple(notes))]


def list_unreadable(campaign: Campaign) -> list[str]:
    """Return a line for each unreadable record."""
    lines = _doubt_lines(campaign)
    return [f"{where}: {line}" for where, line in lines if not line.startswith(_NO_PREDICTIONS)]


def _doubt_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield suite and profile, and a line of theirs."""
    for records in by_profile_and_suite(campaign.records):
        notes = dict.fromkeys(note for record in records for note in record.notes)
        lines = [note for note in notes if note.startswith(_NO_PREDICTIONS)]
        lines += label_lines("Unreadable", failure_reasons(records, UNREADABLE))
        yield from ((f"{records[0].suite}, profile {records[0].profile}", line) for line in lines)


def _stand_ins(
    store: ResultStore, records: Iterable[RunRecord], damaged: Mapping[Path, DataError]
) -> Iterator[RunRecord]:
    """Yield an empty record for each unreadable file, from its path and error."""
    names = {safe_name(text): text for r in records for text in (r.profile, r.method, r.suite)}
    for path, error in damaged.items():
        parts = map(printable, path.relative_to(store.root).with_suffix("").parts)
        profile, method, folder, suite = (names.get(part, part) for part in parts)
        match = _SEED.fullmatch(folder)
        seed = int(match[1]) if match else None
        record = RunRecord(profile, method, method, 0, {}, None, seed, suite, {}, "", UNREADABLE)
        reason = strip_paths(" ".join(error.what.replace(str(path), path.name).split()))
        yield replace(record, reason=printable(reason))


def _note_missing_predictions(store: ResultStore, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records; those that lack their predictions have a note that lists all such rows of a table."""
    notes: dict[int, str] = {}
    for group in by_profile_and_suite(records):
        lacking = [record for record in finished_records(group) if not store.is_whole(record.place, record)]
        note = f"{_NO_PREDICTIONS}{', '.join(map(run_label, lacking))}."
        notes |= dict.fromkeys(map(id, lacking), note)
    noted = list(records)
    for place, record in enumerate(records):
        if id(record) in notes:
            noted[place] = replace(record, notes=(*record.notes, notes[id(record)]))
    return noted
