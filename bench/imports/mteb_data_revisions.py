"""Which rows were measured on the same data: the data revision of each task's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.eval.mteb_tasks import MtebTask
from bench.imports.mteb_choice import ANY, WantedTask
from bench.imports.mteb_result_file import NO_REVISION, describe_names
from bench.imports.mteb_revisions import ModelRow, shorten_revision

Signature = tuple[str, ...]
"""Data revisions of a row, in the tasks' order."""


def sign_data(row: ModelRow, wanted: Sequence[WantedTask]) -> Signature:
    """Return the data revision of each task of a complete row."""
    return tuple(row.files[each.task.id].data_revision for each in wanted)


def find_common_signature(rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]) -> Signature:
    """Return the data revisions that most rows have; of equally many the nearest to the installed mteb's.

    Rows that don't state each revision don't count, unless there are only such rows.
    """
    installed = tuple(each.task.dataset[1] for each in wanted)
    signatures = [sign_data(row, wanted) for row in rows.values()]
    stated = [signature for signature in signatures if NO_REVISION not in signature]
    counts = Counter(stated or signatures)

    def rank(signature: Signature) -> tuple[int, int, Signature]:
        same = sum(one == other for one, other in zip(signature, installed, strict=True))
        return counts[signature], same, signature

    return max(counts, key=rank)


def keep_common_data(
    rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]
) -> tuple[dict[str, ModelRow], dict[str, str], list[str]]:
    """Return the rows on the most common data, the others with their reason, and notes."""
    common = find_common_signature(rows, wanted)
    kept, left_out = {}, {}
    for name, row in rows.items():
        own = sign_data(row, wanted)
        if own == common and NO_REVISION not in own:
            kept[name] = row
            continue
        if NO_REVISION in own:
            what = f"the data revision of {own.count(NO_REVISION)} of {len(own)} tasks isn't stated"
            left_out[name] = f"{what}; --data-revisions any keeps it"
            continue
        differing = [
            f"{each.task.id} {shorten_revision(one)} and not {shorten_revision(other)}"
            for each, one, other in zip(wanted, own, common, strict=True)
            if one != other
        ]
        what = f"other data in {len(differing)} of {len(own)} tasks ({describe_names(differing, 2)})"
        left_out[name] = f"{what}; --data-revisions any keeps it"
    notes = []
    if left_out:
        notes.append(
            f"{len(kept)} of {len(rows)} complete rows have the same data revisions; "
            f"left out for other data: {len(left_out)} (--data-revisions any keeps them)"
        )
    if not kept:
        return kept, left_out, notes
    older = [each.task.id for each, own in zip(wanted, common, strict=True) if own != each.task.dataset[1]]
    if older:
        notes.append(
            f"the data revisions of {len(older)} of {len(wanted)} tasks aren't those of the installed mteb "
            f"({describe_names(older, 5)})"
        )
    return kept, left_out, notes


def count_data_revisions(
    rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]
) -> dict[str, Counter[str]]:
    """Return the rows by data revision of each task of which they have several."""
    found = {}
    for each in wanted:
        counts = Counter(row.files[each.task.id].data_revision for row in rows.values())
        if len(counts) > 1:
            found[each.task.id] = counts
    return found


def describe_data_revisions(rows: Mapping[str, ModelRow], wanted: Sequence[WantedTask]) -> list[str]:
    """Return a note for each task of which the rows have different data revisions."""
    notes = []
    for task, counts in count_data_revisions(rows, wanted).items():
        parts = [f"{shorten_revision(name)} {number}" for name, number in counts.most_common()]
        notes.append(f"{task}: rows by data revision: {describe_names(parts, 6)}")
    return notes


def identify_task(each: WantedTask, row: ModelRow, rule: str) -> MtebTask:
    """Return the task as a row measured it: with the file's data revision, or "any"."""
    revision = ANY if rule == ANY else row.files[each.task.id].data_revision
    return replace(each.task, dataset=(each.task.dataset[0], revision))
