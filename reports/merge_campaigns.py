"""Merge campaigns' records, and report unreadable ones and those that lack predictions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, repeat
from pathlib import Path

from bench.comparison.selection import group_by
from bench.config import sweep_manifest as manifests
from bench.config.sweep_manifest import Manifest, load_manifests
from bench.errors import DataError, InputError, NotComparableError, printable
from bench.records.environment import strip_paths
from bench.records.fingerprint import KEYED, find_fact_differences
from bench.records.imported import describe_imports, is_published
from bench.records.integrity import find_record_clashes
from bench.records.record import NOT_RECOMPUTED, RecordPlace, RunRecord, safe_name
from bench.records.store import ResultStore
from bench.render.grid import Grid
from bench.reports.campaign import Campaign
from bench.reports.planned_runs import plan_notes
from bench.reports.record_groups import (
    UNREADABLE,
    by_profile_and_suite,
    failure_reasons,
    finished_records,
    label_lines,
    run_label,
    table_facts,
)

_SEPARATELY = "report them one by one"


@dataclass(frozen=True)
class CampaignRecord:
    """A record, or a stand-in for an unreadable one, with the campaign that it is read from.

    ``errors`` says why it is unreadable, or why an equal one of another campaign is.
    """

    record: RunRecord
    home: ResultStore
    errors: tuple[DataError, ...] = ()

    @property
    def file(self) -> str:
        """Of the record, below its campaign."""
        path = self.errors[0].where if self.errors else None
        return (path or str(self.home.path(self.record.place))).removeprefix(str(self.home.root))

    @property
    def readable(self) -> bool:
        """False for a stand-in."""
        return not self.errors


def parse_campaigns(results: Path, text: str) -> tuple[ResultStore, ...]:
    """Return the campaigns of ``--campaign``; raises InputError for a bad or repeated name."""
    names = text.split(",")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"'{repeated[0]}' is named twice", where="--campaign")
    return tuple(ResultStore(results, name) for name in names)


def collect_records(stores: Sequence[ResultStore]) -> list[CampaignRecord]:
    """Return every record of campaigns; raises as ``scan_campaign``."""
    collected = []
    for store in stores:
        for record, error in scan_campaign(store):
            collected.append(CampaignRecord(record, store, (error,) if error else ()))
    return collected


CheckScores = Callable[
    [ResultStore, Sequence[RunRecord]], tuple[Sequence[RunRecord], Mapping[RecordPlace, DataError]]
]
"""From records of a campaign to the same with notes, and the errors of those that contradict themselves."""


def refuse_contradictions(collected: Sequence[CampaignRecord], check: CheckScores) -> list[CampaignRecord]:
    """Return the records with notes on unchecked scores, a stand-in for each that ``check`` refuses."""
    checked = list(collected)
    for store in dict.fromkeys(entry.home for entry in collected):
        numbers = [i for i, entry in enumerate(collected) if entry.home is store and entry.readable]
        records, errors = check(store, [collected[i].record for i in numbers])
        for i, record in zip(numbers, records, strict=True):
            error = errors.get(record.place)
            checked[i] = replace(checked[i], record=record)
            if error is not None:
                path = store.path(record.place)
                checked[i] = CampaignRecord(_stand_in(record.place, path, error), store, (error,))
    return checked


def merge_records(records: Sequence[CampaignRecord]) -> list[CampaignRecord]:
    """Merge equal records of campaigns: of each the most complete one.

    Raises NotComparableError for other results of one method, seed and suite, and for another profile of one
    name; DataError for a copy of another campaign's record.
    """
    merged = list(map(_merge_copies, group_by(records, lambda record: record.file).values()))
    homes = record_stores(merged)
    if len(set(homes.values())) > 1:
        for clash in find_record_clashes([one.record for one in merged if one.readable]):
            first, second = clash.first.place, clash.second.place
            raise DataError(
                f"this and {homes[first].path(first)} {clash.what}",
                where=str(homes[second].path(second)),
                hint=clash.hint,
            )
        _check_profiles(merged)
    return merged


def _merge_copies(copies: Sequence[CampaignRecord]) -> CampaignRecord:
    """The best of several campaigns' records of a method, seed and suite."""
    readable = [copy for copy in copies if copy.readable]
    errors = tuple(error for copy in copies for error in copy.errors)
    if not readable:
        return replace(copies[0], errors=errors)
    for other in readable[1:]:
        _check_equal(readable[0], other)
    best = min(readable, key=lambda copy: _completeness_key(copy.record))
    if not errors:
        return best
    campaigns = ", ".join(copy.home.campaign for copy in copies if not copy.readable)
    note = f"{run_label(best.record)} is of campaign {best.home.campaign}; in {campaigns} it can't be read."
    return replace(best, record=replace(best.record, notes=(*best.record.notes, note)), errors=errors)


def _completeness_key(record: RunRecord) -> tuple[bool, int, int]:
    """Sort key of equal records: first that with predictions, most probes and most of its training."""
    facts = sum(map(len, record.training.get("stages", {}).values()))
    return lacks_predictions(record), -len(record.probes), -facts


def _check_equal(first: CampaignRecord, second: CampaignRecord) -> None:
    """Raise NotComparableError for two records with different results."""
    a, b = first.record, second.record
    names = first.home.campaign, second.home.campaign
    changed = sorted(name for name in a.probes if a.probes[name] != b.probes.get(name, a.probes[name]))
    facts = []
    for difference in find_fact_differences(a, b, KEYED):
        then, now = difference.then, difference.now  # equal texts: of a member with other options
        facts.append(f"{difference.name} {then} and {now if now != then else f'another {now}'}")
    if facts:
        what = f"it was measured under different specifications: {'; '.join(facts)}"
    elif a.status != b.status:
        verbs = {"ok": "finished", "failed": "failed"}
        what = f"it {verbs[a.status]} in {names[0]} and {verbs[b.status]} in {names[1]}"
    elif (a.scores, a.predictions) != (b.scores, b.predictions):
        what = f"it has other scores: avg {a.score('avg')} and {b.score('avg')}"
    elif changed:
        what = f"its probes differ: {', '.join(changed)}"
    else:
        return
    raise NotComparableError(
        f"campaigns {names[0]} and {names[1]} both have {run_label(a)} of suite {a.suite}, profile "
        f"{a.profile}, but {what}",
        where="--campaign",
        hint=f"{_SEPARATELY}, or move one of the two records away",
    )


def _check_profiles(merged: Sequence[CampaignRecord]) -> None:
    """Raise NotComparableError where weights, text, dev set, world or evaluation of a table's rows differ."""
    campaigns = {id(one.record): one.home.campaign for one in merged}
    for records in by_profile_and_suite(one.record for one in merged if one.readable):
        for fact, values in table_facts(records):
            texts: dict[str, dict[str, str]] = {}
            for record, value, text in values:
                texts.setdefault(campaigns[id(record)], {})[value] = text
            for first, name in product(list(texts)[:1], texts):
                if texts[name].keys() != texts[first].keys():
                    a, b = (" or ".join(dict.fromkeys(texts[each].values())) for each in (first, name))
                    raise NotComparableError(
                        f"profile {records[0].profile} is not the same in campaigns {first} and {name}: "
                        f"{fact} {a} in {first}, {b} in {name}",
                        where=f"suite {records[0].suite}",
                        hint=_SEPARATELY,
                    )


def merge_sweeps(
    stores: Iterable[ResultStore], profile: str | None, suite: str | None = None
) -> list[Manifest]:
    """Return the grids of sweeps of a profile and a suite, merged over campaigns: of all their seeds.

    Raises NotComparableError for a sweep whose cells are other methods in each, DataError for a damaged grid.
    """
    merged: dict[tuple[str, str], tuple[str, Manifest]] = {}
    for store in stores:
        for manifest in load_manifests(store.root):
            key = manifest.profile, manifest.sweep
            if profile not in (None, manifest.profile):
                continue
            first, known = merged.setdefault(key, (store.campaign, manifest))
            if known.points != manifest.points:
                raise NotComparableError(
                    f"sweep {manifest.sweep} has other cells in campaigns {first} and {store.campaign}",
                    where=f"profile {manifest.profile}",
                    hint=_SEPARATELY,
                )
            merged[key] = first, manifests.merge_manifests(known, manifest)
    sweeps = [manifest for _, manifest in merged.values()]
    if not suite:
        return sweeps
    return [replace(sweep, suites=(suite,)) for sweep in sweeps if suite in sweep.suites]


def record_stores(records: Iterable[CampaignRecord]) -> dict[RecordPlace, ResultStore]:
    """Return the campaign of each record, by the record's place."""
    return {one.record.place: one.home for one in records}


_NO_PREDICTIONS = "Predictions that are missing, or not those of the record: "
_DOUBTS = (_NO_PREDICTIONS, NOT_RECOMPUTED)
"""How notes on records in doubt begin."""
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


def is_doubt(note: str) -> bool:
    """Return whether a record's note says that its scores or predictions are doubtful."""
    return note.startswith(_DOUBTS)


def append_doubts(grids: Sequence[Grid], campaign: Campaign, form: str) -> list[Grid]:
    """Return the grids, with missing lines on doubtful or imported records and on plans below the last one.

    In csv the records are tables, and plans a column of the table of records.
    """
    lines, imports = list(_doubt_lines(campaign)), _import_lines(grids, campaign)
    if form == "csv":
        tables = []
        for title, own in (("Records in doubt", lines), ("Imported rows", imports)):
            tables += [Grid(title, ("place", "what"), tuple(own), ())] * bool(own)
        return [*grids, *tables]
    places = by_profile_and_suite(campaign.records)
    for where, note in imports:
        lines.append((where if len(places) > 1 else "", note))
    for records in places:
        lines += [(_describe_place(records), note) for note in plan_notes(campaign, records)]
    printed = tuple({note for grid in grids for note in grid.notes})
    notes = list(grids[-1].notes)
    for where, line in lines:
        if not any(note.endswith(line) for note in printed):
            notes.append(f"{where}: {line}" if where else line)
    return [*grids[:-1], replace(grids[-1], notes=tuple(notes))]


def _import_lines(grids: Sequence[Grid], campaign: Campaign) -> list[tuple[str, str]]:
    """Return place and note of the imported rows of each profile and suite that the grids show."""
    titles = [grid.title for grid in grids if ", profile " in grid.title]
    lines = []
    for records in by_profile_and_suite(campaign.records):
        where, note = _describe_place(records), describe_imports(records)
        if note and (not titles or any(where in title for title in titles)):
            lines.append((where, note))
    return lines


def _describe_place(records: Sequence[RunRecord]) -> str:
    return f"{records[0].suite}, profile {records[0].profile}"


def list_unreadable(campaign: Campaign) -> list[str]:
    """Return a line for each unreadable record."""
    lines = _doubt_lines(campaign)
    return [f"{where}: {line}" for where, line in lines if not line.startswith(_DOUBTS)]


def _doubt_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield suite and profile, and a line of theirs."""
    for records in by_profile_and_suite(campaign.records):
        notes = dict.fromkeys(note for record in records for note in record.notes)
        lines = [note for note in notes if note.startswith(_DOUBTS)]
        lines += label_lines("Unreadable", failure_reasons(records, UNREADABLE))
        yield from ((_describe_place(records), line) for line in lines)


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
        yield _stand_in(RecordPlace(profile, method, seed, suite), path, error)


def _stand_in(place: RecordPlace, path: Path, error: DataError) -> RunRecord:
    """Return an empty record with the reason of an error."""
    profile, method, seed, suite = place.profile, place.method, place.seed, place.suite
    record = RunRecord(profile, method, method, 0, {}, None, seed, suite, {}, "", UNREADABLE)
    reason = strip_paths(" ".join(error.what.replace(str(path), path.name).split()))
    return replace(record, reason=printable(reason))


def _note_missing_predictions(store: ResultStore, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records; those that lack their predictions have a note that lists all such rows of a table."""
    notes: dict[int, str] = {}
    for group in by_profile_and_suite(records):
        lacking = []
        for record in finished_records(group):
            published = is_published(record)  # as its own note says
            if not published and not store.is_whole(record.place, record):
                lacking.append(record)
        note = f"{_NO_PREDICTIONS}{', '.join(map(run_label, lacking))}."
        notes |= dict.fromkeys(map(id, lacking), note)
    noted = list(records)
    for place, record in enumerate(records):
        if id(record) in notes:
            noted[place] = replace(record, notes=(*record.notes, notes[id(record)]))
    return noted
