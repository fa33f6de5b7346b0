"""Merge campaigns: equal records count once, and contradictory ones are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from bench.comparison.selection import group_by
from bench.config import sweep_manifest as manifests
from bench.config.sweep_manifest import Manifest, load_manifests
from bench.errors import DataError, InputError, NotComparableError
from bench.records.fingerprint import KEYED, find_fact_differences
from bench.records.integrity import find_record_copies
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from bench.reports.record_groups import by_profile_and_suite, run_label, table_facts
from bench.reports.unreadable_records import lacks_predictions, scan_campaign

_SEPARATELY = "report them one by one"


@dataclass(frozen=True)
class CampaignRecord:
    """A record of one or several campaigns.

    Args:
        record: The record; a stand-in for an unreadable one.
        home: The campaign that it is read from.
        errors: Why it is unreadable, or why an equal one of another campaign is.
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


def merge_records(records: Sequence[CampaignRecord]) -> list[CampaignRecord]:
    """Merge equal records of campaigns: of each the most complete one.

    Raises:
        NotComparableError: two campaigns have other results of one method, seed and suite, or another
            profile of one name.
        DataError: a record is a copy of one of another campaign.
    """
    merged = list(map(_merge_copies, group_by(records, lambda record: record.file).values()))
    homes = record_stores(merged)
    if len(set(homes.values())) > 1:
        for first, second, why in find_record_copies([one.record for one in merged if one.readable]):
            raise DataError(
                f"this and {homes[first.place].path(first.place)} {why}",
                where=str(homes[second.place].path(second.place)),
                hint="delete the copy: it is no further result",
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
    """Return the grids of sweeps, merged over campaigns: of all their seeds and suites.

    Args:
        stores: The campaigns.
        profile: Only those of this profile.
        suite: Only those of this suite, and only this suite of them.

    Raises:
        NotComparableError: a sweep whose cells are other methods in each.
        DataError: a damaged grid.
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
