"""Several campaigns as one: what two of them hold counts once, and what contradicts is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.comparison.selection import group_by
from bench.config import sweep_manifest as manifests
from bench.config.sweep_manifest import Manifest, load_manifests
from bench.errors import DataError, InputError, NotComparableError
from bench.records.fingerprint import KEYED, FactDifference, find_fact_differences
from bench.records.integrity import find_record_copies
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from bench.reports.records import by_profile_and_suite, run_label, table_facts
from bench.reports.unreadable_records import lacks_predictions, scan_campaign


@dataclass(frozen=True)
class CampaignRecord:
    """A record of one or several campaigns.

    Args:
        record: The record; a stand-in where it can't be read.
        home: The campaign that it is read from.
        errors: Why it can't be read, or an equal one of another campaign.
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
    """Return the campaigns that ``--campaign`` names, with commas between them.

    Raises:
        InputError: a name that is none, or one that is given twice.
    """
    names = text.split(",")
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"'{repeated[0]}' is named twice", where="--campaign")
    return tuple(ResultStore(results, name) for name in names)


def collect_records(stores: Sequence[ResultStore]) -> list[CampaignRecord]:
    """Return every record of campaigns; raises as ``scan_campaign``."""
    return [
        CampaignRecord(record, store, () if error is None else (error,))
        for store in stores
        for record, error in scan_campaign(store)
    ]


def merge_records(every: Sequence[CampaignRecord]) -> list[CampaignRecord]:
    """Return records of campaigns as those of one: what several hold is one, from that which has most of it.

    Raises:
        NotComparableError: two campaigns have other results of one method, seed and suite, or mean something
            else by a profile.
        DataError: a record is a copy of one of another campaign.
    """
    found = [_merge_copies(there) for there in group_by(every, lambda one: one.file).values()]
    homes = record_stores(found)
    if len(set(homes.values())) > 1:
        for first, second, why in find_record_copies([one.record for one in found if one.readable]):
            raise DataError(
                f"this and {homes[first.place].path(first.place)} {why}",
                where=str(homes[second.place].path(second.place)),
                hint="delete the copy: it is no further result",
            )
        _check_profiles(found)
    return found


def _merge_copies(there: Sequence[CampaignRecord]) -> CampaignRecord:
    """One of the records of a method, seed and suite in several campaigns."""
    readable = [one for one in there if one.readable]
    errors = tuple(error for one in there for error in one.errors)
    if not readable:
        return replace(there[0], errors=errors)
    for other in readable[1:]:
        _check_equal(readable[0], other)
    best = min(readable, key=lambda one: _completeness_key(one.record))
    if not errors:
        return best
    named = ", ".join(one.home.campaign for one in there if not one.readable)
    note = f"{run_label(best.record)} is of campaign {best.home.campaign}; in {named} it can't be read."
    return replace(best, record=replace(best.record, notes=(*best.record.notes, note)), errors=errors)


def _completeness_key(record: RunRecord) -> tuple[bool, int, int]:
    """Sort key of equal records: first that with predictions, most probes and most of its training."""
    kept = sum(len(stage) for stage in record.training.get("stages", {}).values())
    return lacks_predictions(record), -len(record.probes), -kept


def _check_equal(one: CampaignRecord, other: CampaignRecord) -> None:
    """Raise NotComparableError for two records that aren't the same result."""
    a, b = one.record, other.record
    names = one.home.campaign, other.home.campaign
    what = ""
    if said := list(map(_describe_difference, find_fact_differences(a, b, KEYED))):
        what = f"it was measured under different specifications: {'; '.join(said)}"
    elif a.status != b.status:
        what = f"it {_outcome_text(a)} in {names[0]} and {_outcome_text(b)} in {names[1]}"
    elif (a.scores, a.predictions) != (b.scores, b.predictions):
        what = f"it has other scores: avg {_average_text(a)} and {_average_text(b)}"
    elif changed := [name for name in a.probes if a.probes[name] != b.probes.get(name, a.probes[name])]:
        what = f"its probes say something else: {', '.join(sorted(changed))}"
    if what:
        raise NotComparableError(
            f"campaigns {names[0]} and {names[1]} both have {run_label(a)} of suite {a.suite}, profile "
            f"{a.profile}, but {what}",
            where="--campaign",
            hint="report them one by one, or move one of the two records away",
        )


def _describe_difference(difference: FactDifference) -> str:
    """What differs; a member of other options is shown by its method alone."""
    then, now = difference.then, difference.now
    return f"{difference.name} {then} and {now if now != then else f'another {now}'}"


def _outcome_text(record: RunRecord) -> str:
    return "finished" if record.status == "ok" else "failed"


def _average_text(record: RunRecord) -> str:
    value = record.score("avg")
    return "none" if value is None else f"{value!r}"


def _check_profiles(found: Sequence[CampaignRecord]) -> None:
    """Raise NotComparableError where weights, text, dev set, world or evaluation of a table's rows differ."""
    known = {id(one.record): one.home.campaign for one in found}
    for records in by_profile_and_suite(one.record for one in found if one.readable):
        if len({known[id(record)] for record in records}) < 2:
            continue
        for what, said in _facts_by_campaign(records, known):
            names, (first, *rest) = list(said), said.values()
            for name, values in zip(names[1:], rest, strict=True):
                if values.keys() != first.keys():
                    a, b = (" or ".join(dict.fromkeys(each.values())) for each in (first, values))
                    raise NotComparableError(
                        f"profile {records[0].profile} is not the same in campaigns {names[0]} and {name}: "
                        f"{what} {a} in {names[0]}, {b} in {name}",
                        where=f"suite {records[0].suite}",
                        hint="report them one by one",
                    )


def _facts_by_campaign(
    records: Sequence[RunRecord], known: Mapping[int, str]
) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """Yield a fact, and by campaign its values with what is shown of them."""
    for name, values in table_facts(records):
        said: dict[str, dict[str, str]] = {}
        for record, value, shown in values:
            said.setdefault(known[id(record)], {})[value] = shown
        if len(said) > 1:
            yield name, said


def merge_sweeps(
    stores: Iterable[ResultStore], profile: str | None, suite: str | None = None
) -> list[Manifest]:
    """Return the grids of the sweeps of campaigns; a sweep of several is one, of all their seeds and suites.

    Args:
        stores: The campaigns.
        profile: Leave out those of other profiles.
        suite: Leave out those that didn't run on this suite, and the others' other suites.

    Raises:
        NotComparableError: a sweep whose cells are other methods in each.
        DataError: a damaged grid.
    """
    found: dict[tuple[str, str], tuple[str, Manifest]] = {}
    for store in stores:
        for manifest in load_manifests(store.root):
            key = manifest.profile, manifest.sweep
            if profile not in (None, manifest.profile):
                continue
            first, known = found.setdefault(key, (store.campaign, manifest))
            if known.points != manifest.points:
                raise NotComparableError(
                    f"sweep {manifest.sweep} has other cells in campaigns {first} and {store.campaign}",
                    where=f"profile {manifest.profile}",
                    hint="report them one by one",
                )
            found[key] = first, manifests.merge_manifests(known, manifest)
    every = [manifest for _, manifest in found.values()]
    return [replace(one, suites=(suite,)) for one in every if suite in one.suites] if suite else every


def record_stores(found: Iterable[CampaignRecord]) -> dict[RecordPlace, ResultStore]:
    """Return which campaign has a record, by the record's place."""
    return {one.record.place: one.home for one in found}
