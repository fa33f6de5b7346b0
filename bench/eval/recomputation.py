"""Scores of records, computed again from predictions and gold before a command uses them.

A record whose scores contradict its predictions is refused. One that can't be checked keeps its scores and
gets a note, which every table prints. Agreements are remembered, see :mod:`bench.eval.score_memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from bench.data.data_source import data_folder
from bench.data.imported_names import is_imported_suite
from bench.data.mteb_names import has_own_tasks, is_mteb
from bench.data.suites import SUITES
from bench.errors import BenchError, DataError, InputError, NotComparableError
from bench.eval.rescoring import contradiction_error, load_record_tasks, rescore_record
from bench.eval.score_memory import ScoreMemory, describe_files, name_record, open_memory
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.records.fingerprint import hash_canonical_json
from bench.records.imported import is_published
from bench.records.integrity import read_seal
from bench.records.record import NOT_RECOMPUTED, RecordPlace, RunRecord
from bench.records.store import ResultStore

NO_DATA, OTHER_DATA, NO_PREDICTIONS = "no evaluation data", "other evaluation data", "no predictions"
PUBLISHED = "published elsewhere, without predictions"
_MOST_NAMED = 6
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Recomputation:
    """The outcome of one record: a contradiction, a reason why its scores are unchecked, or neither."""

    error: DataError | None = None
    reason: str = ""


@dataclass
class ScoreChecker:
    """Computes scores again, or finds in the memory that it did; ``data`` is as in ``--data``."""

    data: Path | None
    memory: ScoreMemory
    _state: str | None = field(default=None, init=False)
    _failed: dict[str, str] = field(default_factory=dict, init=False)

    def check(
        self, store: ResultStore, record: RunRecord, tasks: Mapping[str, SuiteTask] | None = None
    ) -> Recomputation:
        """Check a record as its store read it; ``tasks`` are those of its suite, if they are read already.

        Raises UnreadableRecordError for unreadable predictions.
        """
        if record.status != "ok":
            return Recomputation()
        if is_published(record):
            return Recomputation(reason=PUBLISHED)
        if record.predictions is None or not store.is_whole(record.place, record):
            return Recomputation(reason=NO_PREDICTIONS)
        expected = {name: str(facts["sha256"]) for name, facts in record.tasks.items()}
        suite = {"suite": record.suite, "version": measure_of(record.suite).version, "tasks": expected}
        name = name_record(read_seal(record), record.predictions["sha256"])
        unscored = self.memory.find_sound(suite, name) if read_seal(record) else None
        if unscored is not None and self._find_hashes(record, tasks) == expected:
            return Recomputation(reason=_describe_unscored(unscored))
        outcome, unscored = self._recompute(store, record, tasks)
        if outcome.error is None and unscored is not None and read_seal(record):
            self._find_hashes(record, tasks)  # to remember them
            self.memory.add_sound(suite, name, unscored)
        return outcome

    def require(
        self, store: ResultStore, record: RunRecord, tasks: Mapping[str, SuiteTask] | None = None
    ) -> None:
        """Raise DataError for a record that contradicts itself; otherwise as :meth:`check`."""
        outcome = self.check(store, record, tasks)
        if outcome.error is not None:
            raise outcome.error

    def _find_hashes(
        self, record: RunRecord, tasks: Mapping[str, SuiteTask] | None
    ) -> Mapping[str, str] | None:
        """Return the sha256 of the tasks at hand, remembered by the state of the data folder."""
        if tasks is not None:
            return {name: task.sha256 for name, task in tasks.items()}
        state = self._describe_data(record)
        known = self.memory.find_hashes(state) if state else None
        if known is not None:
            return known
        try:
            loaded = load_record_tasks(record, self.data)
        except BenchError:
            return None
        hashes = {name: task.sha256 for name, task in loaded.items()}
        if state:
            self.memory.add_hashes(state, hashes)
        return hashes

    def _describe_data(self, record: RunRecord) -> str:
        """Return the state of the files that a suite is read from; "" if they are none."""
        folder = data_folder(self.data)
        embedded = record.suite in SUITES.names() and SUITES.get(record.suite).embedded
        looked_up = is_mteb(record.suite) and not has_own_tasks(record.suite)
        if folder is None or embedded or looked_up or is_imported_suite(record.suite):
            return ""
        if self._state is None:
            self._state = describe_files(folder)
        facts = [record.suite, record.world, self._state]
        return hash_canonical_json(facts) if self._state else ""

    def _recompute(
        self, store: ResultStore, record: RunRecord, tasks: Mapping[str, SuiteTask] | None
    ) -> tuple[Recomputation, list[str] | None]:
        """Return the outcome, and the tasks without predictions of a sound record."""
        suite = hash_canonical_json([record.suite, record.world, record.tasks])
        if tasks is None and suite in self._failed:
            return Recomputation(reason=self._failed[suite]), None
        try:
            if tasks is None:
                tasks = self._load_tasks(record)
        except BenchError as error:
            self._failed[suite] = describe_missing_data(error)
            return Recomputation(reason=self._failed[suite]), None
        try:
            rescored = rescore_record(record, tasks, store.predictions(record))
        except DataError as error:
            return Recomputation(error=error), None
        except Exception as error:  # a hostile record must not end the command with a traceback
            what = f"computing its scores again failed, {type(error).__name__}: {error}"
            return Recomputation(error=DataError(what, where=str(store.path(record.place)))), None
        if rescored.wrong:
            return Recomputation(error=contradiction_error(store, record, rescored.wrong)), None
        unscored = list(rescored.unscored if rescored.checked else record.tasks)
        return Recomputation(reason=_describe_unscored(unscored)), unscored

    def _load_tasks(self, record: RunRecord) -> Mapping[str, SuiteTask]:
        if is_mteb(record.suite) and not has_own_tasks(record.suite) and find_spec("mteb") is None:
            raise InputError("mteb is missing")
        return load_record_tasks(record, self.data)


def open_checker(store: ResultStore, data: Path | None) -> ScoreChecker:
    """Return a checker for records of a results folder; its memory is to be saved."""
    return ScoreChecker(data, open_memory(store.root.parent))


def recompute_scores(
    store: ResultStore,
    records: Iterable[RunRecord],
    data: Path | None,
    progress: Progress = lambda _: None,
) -> dict[RecordPlace, Recomputation]:
    """Return the outcome of each record of a campaign; raises as :meth:`ScoreChecker.check`."""
    checker = open_checker(store, data)
    outcomes = {}
    try:
        for record in records:
            outcomes[record.place] = checker.check(store, record)
            progress(1)
    finally:
        checker.memory.save()
    return outcomes


def require_sound_scores(
    store: ResultStore,
    records: Sequence[RunRecord],
    data: Path | None,
    progress: Progress = lambda _: None,
) -> list[RunRecord]:
    """Return the records, with notes on unchecked scores; raises DataError for the first contradiction."""
    outcomes = recompute_scores(store, records, data, progress)
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return note_unchecked_scores(records, outcomes)


def load_sound_records(
    store: ResultStore, data: Path | None, progress: Progress = lambda _: None
) -> list[RunRecord]:
    """Return all records of a campaign as :func:`require_sound_scores` does; raises as ``store.records``."""
    return require_sound_scores(store, store.records(), data, progress)


def split_contradictions(
    store: ResultStore,
    records: Sequence[RunRecord],
    data: Path | None,
    progress: Progress = lambda _: None,
) -> tuple[list[RunRecord], dict[RecordPlace, DataError]]:
    """Return the records as a report shows them, and the errors of those that it shows without a score.

    Notes name unchecked scores, except those of missing predictions: reports have a note for these.
    """
    outcomes = recompute_scores(store, records, data, progress)
    errors = {place: outcome.error for place, outcome in outcomes.items() if outcome.error is not None}
    silent = {place: o for place, o in outcomes.items() if o.reason not in (NO_PREDICTIONS, PUBLISHED)}
    return note_unchecked_scores(records, silent), errors


def note_unchecked_scores(
    records: Sequence[RunRecord], outcomes: Mapping[RecordPlace, Recomputation]
) -> list[RunRecord]:
    """Return the records; those whose scores are unchecked have a note with the reason.

    It names the rows where other rows of their profile and suite were checked.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        if record.status == "ok":
            groups.setdefault((record.profile, record.suite), []).append(record)
    notes: dict[RecordPlace, str] = {}
    for group in groups.values():
        rows: dict[str, list[RunRecord]] = {}
        for record in group:
            rows.setdefault(_find_reason(record, outcomes), []).append(record)
        for reason, unchecked in rows.items():
            if reason:
                whole = len(unchecked) == len(group)
                note = f"{NOT_RECOMPUTED}{reason}{'' if whole else f' ({_name_runs(unchecked)})'}."
                notes |= dict.fromkeys((record.place for record in unchecked), note)
    noted = []
    for record in records:
        note = notes.get(record.place, "")
        noted.append(replace(record, notes=(*record.notes, note)) if note else record)
    return noted


def _find_reason(record: RunRecord, outcomes: Mapping[RecordPlace, Recomputation]) -> str:
    outcome = outcomes.get(record.place, Recomputation())
    return outcome.reason


def describe_missing_data(error: BenchError) -> str:
    """Return the reason of an error of :func:`bench.eval.rescoring.load_record_tasks`."""
    if isinstance(error, NotComparableError):
        return OTHER_DATA
    return f"damaged evaluation data ({error.what})" if isinstance(error, DataError) else NO_DATA


def _describe_unscored(tasks: Sequence[str]) -> str:
    return f"{NO_PREDICTIONS} of {', '.join(tasks)}" if tasks else ""


def _name_runs(records: Sequence[RunRecord]) -> str:
    names = []
    for record in records[:_MOST_NAMED]:
        names.append(record.method if record.seed is None else f"{record.method} seed {record.seed}")
    more = len(records) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
