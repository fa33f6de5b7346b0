"""Integrity of records, checked from the records themselves: seal, key, averages, copies.

A forger can recompute a seal and a key; ``bench verify`` also computes scores and trains cells again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench.records.fingerprint import compute_family_key, compute_record_key, machine_warnings
from bench.records.look_alikes import find_record_look_alike
from bench.records.record import ALL, AVERAGE, SCHEMA, RunRecord, Score, record_to_json, training_measurements
from bench.records.supervision import find_mark_faults
from bench.records.timing import find_timing_faults

AGAIN = "delete the file and run the cell again, or restore it from a copy"  # hint for a damaged record
TOLERANCE = 1e-9  # largest difference of equal scores: another CPU may sum in another order
_SEAL, _BLANK = "record_sha256", "0" * 64
_DERIVED = (ALL, "mean", "wmean", "dev")


HARDWARE_TOLERANCE = 6e-5  # largest difference of a trained average that we measured between two CPUs
_REMEDIES = {
    "copy": "delete the copy: it is no further result",
    "result": "run both cells again; two machines' results belong in two campaigns",
}


@dataclass(frozen=True)
class RecordClash:
    """Two records of one campaign that can't both be results: the check that found it, and the reason."""

    check: str
    first: RunRecord
    second: RunRecord
    what: str

    @property
    def hint(self) -> str:
        """The remedy."""
        return _REMEDIES[self.check]


@dataclass(frozen=True)
class RecordFault:
    """A fault of a record: the check that found it (one word), its description, and what to do."""

    check: str
    what: str
    hint: str = ""


def seal_record(record: RunRecord) -> RunRecord:
    """Return the record in the present schema with its key and its file's sha256, with zeros in its place."""
    record = replace(record, schema=SCHEMA)
    record = replace(record, key=compute_record_key(record))
    blank = replace(record, timing={**record.timing, _SEAL: _BLANK})
    digest = hashlib.sha256(record_to_json(blank).encode("utf-8")).hexdigest()
    return replace(record, timing={**record.timing, _SEAL: digest})


def read_seal(record: RunRecord) -> str:
    """Return the seal of a record, which names its file's content; "" without one."""
    seal = record.timing.get(_SEAL)
    return seal if isinstance(seal, str) else ""


def find_seal_fault(record: RunRecord, text: str) -> RecordFault | None:
    """Return the fault of a record's seal in its file: "seal" (changed) or "unsealed" (an older bench's)."""
    seal = record.timing.get(_SEAL)
    blank = text.replace(f'"{_SEAL}": "{seal}"', f'"{_SEAL}": "{_BLANK}"')
    if seal is not None and seal != hashlib.sha256(blank.encode("utf-8")).hexdigest():
        return RecordFault("seal", "this record was changed since it was written")
    if seal is not None and record.schema >= SCHEMA:
        return None
    what = "has no seal" if seal is None else f"is of schema {record.schema}, whose key can't be checked"
    what = f"this record {what}: it may have been changed since it was written"
    hint = "bench verify --seal checks it and seals it in the present schema"
    return RecordFault("unsealed", what, hint)


def find_record_faults(record: RunRecord) -> Iterator[RecordFault]:
    """Yield contradictions of a record: its key, its tasks, its names, times, averages and marks."""
    if record.schema == SCHEMA and record.key != compute_record_key(record):
        yield RecordFault("key", "its key is not that of what it says: something of it was edited")
    if look_alike := find_record_look_alike(record):
        yield RecordFault("method", look_alike, "run the cell again under a name of Latin letters")
    for what in find_timing_faults(record):
        yield RecordFault("timing", what)
    if record.status != "ok":
        return
    scored = {score.task for score in record.scores if score.subset == ALL}
    if missing := [task for task in record.tasks if task not in scored]:
        yield RecordFault("tasks", f"it has no score of {', '.join(missing)}")
    for score in record.scores:
        expected = _expected_average(score, record.scores)
        if expected is None or abs(expected - score.value) <= TOLERANCE:
            continue
        name = f"{score.task} {score.subset} {score.metric}"
        but = "no items stand behind its parts" if math.isnan(expected) else f"its parts give {expected!r}"
        yield RecordFault("average", f"{name} is {score.value!r}, but {but}")
    for what in find_mark_faults(record):
        yield RecordFault("notes", what)


def _expected_average(score: Score, scores: Sequence[Score]) -> float | None:
    """Compute an average from the record's other scores, nan for empty parts; other scores give None."""
    if (score.task, score.subset) == (AVERAGE, ALL):
        parts = [s for s in scores if (s.subset, s.metric) == (ALL, score.metric) and s.task != AVERAGE]
    elif score.subset in ("mean", "wmean"):
        same = (s for s in scores if (s.task, s.metric) == (score.task, score.metric))
        parts = [s for s in same if s.subset not in _DERIVED]
    else:
        return None
    if not parts:
        return None
    weights = [part.n for part in parts] if score.subset == "wmean" else [1] * len(parts)
    if not any(weights):
        return math.nan
    return sum(part.value * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights)


def find_record_clashes(records: Sequence[RunRecord]) -> Iterator[RecordClash]:
    """Yield the copies among one campaign's records, and the results that contradict each other."""
    of_row: dict[tuple[str, ...], RunRecord] = {}
    of_key: dict[str, list[RunRecord]] = {}
    of_predictions: dict[str, list[RunRecord]] = {}
    for record in records:
        first = of_row.setdefault((record.profile, record.method, record.suite, record.key), record)
        if first is not record:
            yield RecordClash("copy", first, record, "have one key: one is a copy of the other")
            continue
        if record.status != "ok":
            continue
        yield from _find_contradictions(of_key.setdefault(record.key, []), record)
        of_key[record.key].append(record)
        if record.seed is None or not record.predictions or _trains_no_step(record):
            continue
        same = of_predictions.setdefault(record.predictions["sha256"], [])
        if copied := next((other for other in same if _is_other_seed(other, record)), None):
            what = "are equal to the byte: one is a copy of the other, or the seed is ignored"
            yield RecordClash("copy", copied, record, what)
        same.append(record)


def find_result_clashes(records: Iterable[RunRecord]) -> Iterator[RecordClash]:
    """Yield records of any campaigns with one key, equal versions and CPU, and other scores."""
    of_key: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.status == "ok":
            earlier = of_key.setdefault(record.key, [])
            equal = (first for first in earlier if _repeats(first, record))
            yield from _find_contradictions(equal, record)
            earlier.append(record)


def _find_contradictions(earlier: Iterable[RunRecord], record: RunRecord) -> Iterator[RecordClash]:
    """Yield the first record of the same key whose scores differ by more than the hardware explains.

    Row names and profiles are not part of the key, so two rows of one run have equal scores.
    """
    for first in earlier:
        if contradiction := _compare_scores(first, record):
            yield RecordClash("result", first, record, f"have one key and two results: {contradiction}")
            return


def _compare_scores(one: RunRecord, other: RunRecord) -> str:
    """Return the score of two records of one key that differs too much, or ""."""
    repeats = _repeats(one, other)
    values = {(score.task, score.subset, score.metric): score.value for score in one.scores}
    for score in other.scores:
        name = score.task, score.subset, score.metric
        # A part may move by the average's bound times the number of parts.
        parts = 1 if score.task == AVERAGE else max(1, len(other.tasks))
        bound = TOLERANCE if repeats else HARDWARE_TOLERANCE * parts
        if name in values and not abs(values[name] - score.value) <= bound:
            return f"{' '.join(name)} is {values[name]!r} and {score.value!r}"
    return ""


def _repeats(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two records of one key are of equal CPUs and versions, so that every digit is equal."""
    return str(one.provenance.get("device")) == "cpu" and not machine_warnings([one], [other])


def _trains_no_step(record: RunRecord) -> bool:
    """Return whether all seeds have equal encoders, as their training has no steps."""
    trained = training_measurements(record)
    return bool(trained) and not any(stage.get("steps", 1) for stage in trained.values())


def _is_other_seed(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two records are of one row, or one method, on one suite, and of two seeds."""
    if (one.profile, one.method, one.suite) == (other.profile, other.method, other.suite):
        return True
    return one.seed != other.seed and compute_family_key(one) == compute_family_key(other)
