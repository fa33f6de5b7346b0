"""Finished records of another specification than a job's, at its place or at other seeds of its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.comparison.selection import format_seeds
from bench.config.plugins import explain_whole_files
from bench.errors import NotComparableError
from bench.nn.model_folder import explain_hash_change
from bench.plan.job import Job
from bench.records.fingerprint import FAMILY, KEYED, explain_differences
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore


def find_conflict(
    job: Job,
    seeds: Mapping[RecordPlace, RunRecord],
    store: ResultStore,
    jobs: Sequence[Job],
    *,
    force: bool,
) -> NotComparableError | None:
    """Return the conflict of a job with finished seeds of another specification, or None.

    Only seeds of one specification are averaged. So ``force`` replaces some of them where the others share
    the new specification. Otherwise the error names the others, and the options that replace all.
    """
    replaced = {other.place for other in jobs} if force else set()
    reasons: dict[str, list[RecordPlace]] = {}
    for place, record in seeds.items():
        same_place = place == job.place
        damaged_predictions = same_place and not store.is_whole(place, record)
        if record.status != "ok" or place in replaced or damaged_predictions:
            continue
        if why := explain_differences(record, job.record, KEYED if same_place else FAMILY):
            reasons.setdefault(why, []).append(place)
    if not reasons:
        return None
    why, places = next(iter(reasons.items()))
    found = [place.seed for place in places if place.seed is not None]
    name = f"{job.cell.method} {format_seeds(found)}" if found else job.cell.method
    verb = "were" if len(found) > 1 else "was"
    what = f"{name} on {job.suite} {verb} finished under another specification ({why})"
    hint = f"name another --campaign, or replace {_force_words(job, jobs, found)}"
    if job.cell.model and (note := explain_hash_change(job.cell.model.path)):
        hint = f"{note}; {hint}"
    if "plug-in file" in why and (note := explain_whole_files({job.cell.card.name, *job.cell.member_names})):
        hint = f"{note}; {hint}"
    return NotComparableError(what, where=str(store.path(places[0])), hint=hint)


def _force_words(job: Job, jobs: Sequence[Job], found: Sequence[int]) -> str:
    """Return the options that replace seeds together with those that are planned."""
    planned = (other.cell.seed for other in jobs if _is_same_row(other, job))
    seeds = sorted({*found, *(seed for seed in planned if seed is not None)})
    if not seeds:
        return "it with --force"
    text = format_seeds(seeds).partition(" ")[2]
    return f"{'all seeds' if len(seeds) > 1 else 'it'} with --seeds {text} --force"


def _is_same_row(one: Job, other: Job) -> bool:
    return one.suite == other.suite and replace(one.place, seed=None) == replace(other.place, seed=None)
