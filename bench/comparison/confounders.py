"""Confounders of a comparison: what else differs between two groups of runs, and what pairs their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter

from bench.comparison.selection import Group, format_seeds, group_by
from bench.errors import printable
from bench.records.fingerprint import (
    NONE,
    SPECIFICATION,
    UNSET,
    compute_record_key,
    find_fact_differences,
    machine_differences,
)
from bench.records.imported import describe_source, import_facts, is_imported
from bench.records.record import RunRecord, count_training_sentences, find_dev_tasks, is_supervised

_MOST = 6  # differing options that a sentence names


def describe_pairing(a: Group, b: Group) -> str | None:
    """Describe what pairs runs of a seed: stages that vary with it, data order, specification."""
    if not a.seeds or a.seeds != b.seeds:
        return None
    if _have_one_specification(a, b):
        return "have one specification"
    if least := _count_common_stages(a, b):
        return f"have {least} trained stage{'s' * (least > 1)} in common"
    return "see the same sentences in the same order" if _have_one_order(a, b) else None


def are_paired(a: Group, b: Group) -> bool:
    """Return whether :func:`describe_pairing` finds something; the fastest question comes first."""
    if not a.seeds or a.seeds != b.seeds:
        return False
    return _have_one_order(a, b) or _count_common_stages(a, b) > 0 or _have_one_specification(a, b)


def _have_one_specification(a: Group, b: Group) -> bool:
    """True if each seed's two runs, in the order of the seeds, have one specification."""
    for one, other, first, second in zip(a.runs, b.runs, a.specifications, b.specifications, strict=True):
        if one.record.options != other.record.options:
            return False
        if first != second and find_fact_differences(one.record, other.record, SPECIFICATION):
            return False
    return True


def _count_common_stages(a: Group, b: Group) -> int:
    """Return the trained stages that every two runs of a seed share, without those of several seeds."""
    common = [keys & others for keys, others in zip(a.stage_keys, b.stage_keys, strict=True)]
    if not all(common):
        return 0
    counts = Counter(chain.from_iterable(common))
    return min(sum(counts[key] == 1 for key in keys) for keys in common)


def _have_one_order(a: Group, b: Group) -> bool:
    """True if all runs see the same sentences in the same order."""
    orders = a.data_orders
    return len(orders) == 1 and orders == b.data_orders and frozenset() not in orders


def describe_confounders(a: Group, b: Group) -> list[str]:
    """Describe failed runs and other differences between the sides, in sentences."""
    sentences = [
        *_describe_failed_runs(a, b),
        *_describe_supervision(a, b),
        *_describe_checkpoint_choice(a, b),
        *_describe_specification(a, b),
        *_describe_difference("profile", a, b, attrgetter("profile")),
        *_describe_difference("training sentences seen by a run", a, b, _format_sentences_seen),
    ]
    of_a, machines = [run.record for run in a.runs], []
    of_b = [run.record for run in b.runs]
    for name, first, second in machine_differences(of_a, of_b):
        machines.append(f"{name} {' and '.join(first)} against {' and '.join(second)}")
    if machines:
        sentences.append(f"Different software and hardware: {printable(', '.join(machines))}.")
    return sentences


def _describe_failed_runs(a: Group, b: Group) -> list[str]:
    failures = []
    for group in (a, b):
        for reason, runs in group_by(group.failed, lambda run: run.record.reason).items():
            seeds = format_seeds([run.record.seed for run in runs if run.record.seed is not None])
            failures.append(f"{seeds} of {group.label} ({printable(str(reason))})")
    return [f"Failed, so not compared: {'; '.join(failures)}."] if failures else []


def _describe_supervision(a: Group, b: Group) -> list[str]:
    sides = [[is_supervised(run.record) for run in group.runs] for group in (a, b)]
    if not any(map(any, sides)):
        return []
    names = [printable(group.runs[0].record.method) for group in (a, b)]
    if all(map(any, sides)):
        return [f"Both are supervised, {names[0]} and {names[1]}: they learned from labels."]
    supervised, other = names if any(sides[0]) else reversed(names)
    contrast = f"{supervised} is supervised, it learned from labels, and {other} is not"
    return [f"{contrast}: no ranking of like with like."]


def _describe_checkpoint_choice(a: Group, b: Group) -> list[str]:
    named = []
    for group in (a, b):
        if tasks := set(chain.from_iterable(find_dev_tasks(run.record) for run in group.runs)):
            named.append(f"{group.label} on {', '.join(sorted(tasks))}")
    if not named:
        return []
    sides = printable(", ".join(named))
    return [f"Checkpoints were chosen on what is evaluated, which flatters them: {sides}."]


def _describe_specification(a: Group, b: Group) -> list[str]:
    first, second = a.runs[0].record, b.runs[0].record
    elsewhere = [printable(group.label) for group in (a, b) if is_imported(group.runs[0].record)]
    if elsewhere:
        return _describe_imported_sides(a, b, elsewhere)
    differences = find_fact_differences(first, second, SPECIFICATION)
    if not differences:
        scores = {compute_record_key(run.record): run.record.scores for run in a.runs}
        equal = []
        for run in b.runs:
            if (key := compute_record_key(run.record)) in scores:
                equal.append(run.record.scores == scores[key])
        repeats = f"; {len(equal)} runs are on both sides, {sum(equal)} of them equal to the last digit"
        return [f"Both sides have one specification{repeats * bool(equal)}."]
    if first.name != second.name:
        sentences = [f"The methods differ: {printable(first.name)} and {printable(second.name)}."]
        both_train = first.training.get("stages") and second.training.get("stages")
        expected = _OF_A_METHOD if both_train else _OF_A_METHOD | _OF_TRAINING
        for one in differences:
            if one.fact not in expected and not {one.then, one.now} & _NOTHING:
                sentences.append(printable(f"Different {one.name}: {one.then} against {one.now}."))
        return sentences
    names = [printable(f"{one.name} {one.then} against {one.now}") for one in differences]
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"The specifications differ in {', '.join(names[:_MOST])}{rest}."]


def _describe_imported_sides(a: Group, b: Group, elsewhere: Sequence[str]) -> list[str]:
    """Name the source of imported sides, and the data revisions that are known to differ."""
    records = [group.runs[0].record for group in (a, b)]
    sources = "; ".join(dict.fromkeys(map(describe_source, filter(is_imported, records))))
    verb = "was" if len(elsewhere) == 1 else "were"
    where = f"{' and '.join(elsewhere)} {verb} made elsewhere ({printable(sources)})"
    said = [f"{where}; nobody here has checked the scores."]
    first, second = (_read_data_revisions(record) for record in records)
    other = [task for task in first if task in second and first[task] != second[task]]
    if other:
        named = ", ".join(f"{task} ({first[task][:8]} against {second[task][:8]})" for task in other[:_MOST])
        rest = f" and {len(other) - _MOST} more" if len(other) > _MOST else ""
        said.append(printable(f"Measured on different data revisions: {named}{rest}."))
    return said


def _read_data_revisions(record: RunRecord) -> dict[str, str]:
    """Return the data revision of each task, of those that the record names."""
    own = import_facts(record).get("data_revisions", {})
    revisions = {}
    for task, facts in record.tasks.items():
        dataset = facts.get("dataset")
        revision = own.get(task) or (dataset.get("revision") if isinstance(dataset, dict) else None)
        if isinstance(revision, str) and revision != "any":
            revisions[task] = revision
    return revisions


_OF_A_METHOD = {"method", "method version", "option", "plug-in file", "auxiliary model", "member"} | {
    "training text of stage",
    "version of stage",
}
_OF_TRAINING = {fact.name for fact in SPECIFICATION if fact.in_stage}
_NOTHING = {NONE, UNSET, "0"}


def _describe_difference(what: str, a: Group, b: Group, read: Callable[[RunRecord], str]) -> list[str]:
    """Return a sentence if both sides have a fact, and a different one."""
    facts = {read(run.record) for run in a.runs} - {""}
    others = {read(run.record) for run in b.runs} - {""}
    if facts == others or not facts or not others:
        return []
    first, second = (", ".join(sorted(map(printable, side))) for side in (facts, others))
    return [f"Different {what}: {first} against {second}."]


def find_shared_stage(records: Sequence[RunRecord]) -> str | None:
    """Return the role of a stage that two seeds of a method share, which makes them dependent; or None.

    The backbone isn't such a stage: whatever seeds show, they show for this backbone.
    """
    seeds: dict[str, int | None] = {}
    for record in records:
        for role, stage in record.training.get("stages", {}).items():
            key = str(stage.get("key") or f"{role} {record.seed}")
            if seeds.setdefault(key, record.seed) != record.seed:
                return str(role)
    return None


def _format_sentences_seen(record: RunRecord) -> str:
    return f"{count_training_sentences(record):,}" if record.training.get("stages") else ""
