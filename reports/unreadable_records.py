"""What a report says of records that it can't read, or whose predictions aren't there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import DataError, printable
from bench.records.environment import strip_paths
from bench.records.record import RunRecord, safe_name
from bench.records.store import ResultStore
from bench.render.grid import Grid
from bench.reports.campaign import Campaign
from bench.reports.records import (
    UNREADABLE,
    by_profile_and_suite,
    failure_reasons,
    missing_score_notes,
    run_label,
)

_NO_PREDICTIONS = "Predictions that are missing, or not those of the record: "
_SEED = re.compile(r"seed-(\d{1,18})")


def scan_campaign(store: ResultStore) -> list[tuple[RunRecord, DataError | None]]:
    """Return what a report shows of a campaign, and for each record that can't be read why.

    Such a one is a record without a score, at the place of its file; a record without predictions of its own
    has a note. Raises what :meth:`ResultStore.scan` does, :class:`DataError` for a copied record too.
    """
    records, damaged = store.scan()
    stand_ins = _stand_ins(store, records, damaged)
    return [(record, None) for record in _note_missing_predictions(store, records)] + list(
        zip(stand_ins, damaged.values(), strict=True)
    )


def lacks_predictions(record: RunRecord) -> bool:
    """True if a note of :func:`scanned` says that a record's predictions aren't there."""
    return any(note.startswith(_NO_PREDICTIONS) for note in record.notes)


def append_doubts(grids: Sequence[Grid], campaign: Campaign, form: str) -> list[Grid]:
    """Return the grids; what none of them says yet of such records stands below the last one.

    In csv, which has no notes, it is a table of its own.
    """
    if form == "csv":
        lines = tuple(_doubt_lines(campaign))
        return [*grids, Grid("Records in doubt", ("place", "what"), lines, ())] if lines else list(grids)
    said = {note for grid in grids for note in grid.notes}
    more = [
        f"{where}: {line}"
        for where, line in _doubt_lines(campaign)
        if not any(note.endswith(line) for note in said)
    ]
    return [*grids[:-1], replace(grids[-1], notes=(*grids[-1].notes, *more))]


def list_unreadable(campaign: Campaign) -> list[str]:
    """Return a line for each record that can't be read."""
    return [
        f"{where}: {line}" for where, line in _doubt_lines(campaign) if not line.startswith(_NO_PREDICTIONS)
    ]


def _doubt_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield suite and profile, and a line of theirs."""
    for records in by_profile_and_suite(campaign.records):
        notes = dict.fromkeys(n for r in records for n in r.notes if n.startswith(_NO_PREDICTIONS))
        where = f"{records[0].suite}, profile {records[0].profile}"
        yield from (
            (where, line) for line in (*notes, *missing_score_notes((), failure_reasons(records, UNREADABLE)))
        )


def _stand_ins(
    store: ResultStore, records: Iterable[RunRecord], damaged: Mapping[Path, DataError]
) -> list[RunRecord]:
    """A record for each file that can't be read, with what its path and the error say."""
    names = {safe_name(text): text for r in records for text in (r.profile, r.method, r.suite)}
    found = []
    for path, error in damaged.items():
        parts = [printable(part) for part in path.relative_to(store.root).with_suffix("").parts]
        profile, method, folder, suite = (names.get(part, part) for part in parts)
        seed = _SEED.fullmatch(folder)
        made = RunRecord(
            profile, method, method, 0, {}, None, int(seed[1]) if seed else None, suite, {}, "", UNREADABLE
        )
        what = strip_paths(" ".join(error.what.replace(str(path), path.name).split()))
        found.append(replace(made, reason=printable(what)))
    return found


def _note_missing_predictions(store: ResultStore, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records, those without predictions of their own with a note that names all such rows of a table."""
    notes: dict[int, str] = {}
    for group in by_profile_and_suite(records):
        lacking = [r for r in group if r.status == "ok" and not store.is_whole(r.place, r)]
        if lacking:
            rows = ", ".join(map(run_label, lacking))
            text = f"{_NO_PREDICTIONS}{rows}."
            notes |= dict.fromkeys(map(id, lacking), text)
    return [replace(r, notes=(*r.notes, notes[id(r)])) if id(r) in notes else r for r in records]
