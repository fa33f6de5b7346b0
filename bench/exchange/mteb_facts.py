"""Which task of mteb a task of a record is, with its splits, subsets and languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.data.mteb_names import has_own_tasks
from bench.data.suites import reference_fingerprints
from bench.errors import BenchError
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask
from bench.eval.rescoring import load_record_tasks
from bench.exchange.record_choice import LeftOutError
from bench.records.filesystem import find_name_fault
from bench.records.fingerprint import hash_canonical_json
from bench.records.imported import import_facts, is_imported
from bench.records.record import RunRecord
from bench.schema import Block, ListOf, find_fault, is_label

NO_REVISION = "dataset revision not available"
"""mteb's own words for a result whose data have no known revision."""
SENTEVAL = ("STS12", "STS13", "STS14", "STS15", "STS16")
"""SentEval's tasks whose pairs are mteb's, by its descriptive statistics of both sides' texts and gold.

Scores of all-MiniLM-L6-v2 agree with the published ones to 2e-7. STS14 differs by one blank.
"""
_OTHERS = {
    "STSB": "mteb's STSBenchmark has these pairs as written; here they are tokenised in lower case",
    "SICKR": "mteb's SICK-R has 9,927 pairs; here they are the 4,927 of the test split",
}
_DATASET = Block({"path": is_label, "revision": is_label})
_SOURCE = Block({
    "name": is_label, "score": is_label, "dataset": _DATASET,
    "subsets": ListOf(is_label), "splits": ListOf(is_label, least=1),
})  # fmt: skip
MODEL_META = "model_meta"
"""Name of the file that describes a model, beside those of tasks."""
ANY = "any"
"""Data revision in a record of ``bench import --data-revisions any``."""
_FIXED = {"default": ("eng-Latn",)}


@dataclass(frozen=True)
class SourceTask:
    """A task of mteb as a record has it."""

    name: str
    score: str  # mteb's name of the reported score
    revision: str  # of the data
    splits: tuple[str, ...]
    subsets: tuple[str, ...] = ()  # empty for all
    mteb_version: str | None = None
    pooled: bool = False  # bench's own score over all pairs, SentEval's subsets among them


@dataclass(frozen=True)
class TaskAbout:
    """mteb's facts of a task."""

    main_score: str
    languages: Mapping[str, tuple[str, ...]]  # by subset


def read_source_task(record: RunRecord, task: str) -> SourceTask | None:
    """Return the task of mteb that a record names, None if mteb didn't measure it."""
    mteb: Any = record.provenance.get("mteb")
    measured = mteb.get("tasks") if isinstance(mteb, dict) else None
    facts: Any = measured.get(task) if isinstance(measured, dict) else record.tasks[task]
    if find_fault(facts, _SOURCE) is not None:
        return None
    if facts["name"] == MODEL_META or find_name_fault(f"{facts['name']}.json"):
        return None
    revision = facts["dataset"]["revision"]
    if revision == ANY:  # rows on several data revisions share a table
        revisions: Any = import_facts(record).get("data_revisions")
        revision = revisions.get(task) if isinstance(revisions, dict) else None
    return SourceTask(
        name=facts["name"],
        score=facts["score"],
        revision=revision if is_label(revision) else NO_REVISION,
        splits=tuple(facts["splits"]),
        subsets=tuple(facts["subsets"]),
        mteb_version=_read_version(record),
    )


def _read_version(record: RunRecord) -> str | None:
    """Return mteb's version, None where a source states none or several."""
    mteb: Any = record.provenance.get("mteb")
    stated = mteb.get("version") if isinstance(mteb, dict) else None
    versions: Any = import_facts(record).get("mteb_versions", [stated])
    if not isinstance(versions, list) or len(versions) != 1:
        return None
    return versions[0] if is_label(versions[0]) else None


def find_senteval_task(record: RunRecord, task: str) -> SourceTask:
    """Return the task of mteb with the pairs of SentEval's; raises LeftOutError for other tasks."""
    reference = reference_fingerprints().get(task, {}).get("sha256")
    if reference is None or task not in (*SENTEVAL, *_OTHERS):
        raise LeftOutError("it is no task of mteb's")
    if is_imported(record):
        raise LeftOutError("it was imported from a table, and the pairs behind its scores are unknown")
    if record.tasks[task].get("sha256") != reference:
        raise LeftOutError("its pairs differ from the reference version")
    if task in _OTHERS:
        raise LeftOutError(_OTHERS[task])
    return SourceTask(task, "cosine_spearman", NO_REVISION, ("test",), ("default",), pooled=True)


@dataclass
class TaskReader:
    """Reads mteb's facts of tasks: from its registry, or of tasks from files from those."""

    data: Path | None
    _local: dict[str, Mapping[str, Any] | str] = field(default_factory=dict)

    def read(self, record: RunRecord, task: str, source: SourceTask) -> TaskAbout:
        """Return the facts of a task; raises LeftOutError with the reason if they are missing."""
        if source.pooled:
            return TaskAbout(source.score, _FIXED)
        if not has_own_tasks(record.suite):
            return read_registry_task(source.name)
        tasks = self._load_tasks(record)
        own = tasks.get(task)
        if not isinstance(own, MtebTask) or own.local is None:
            raise LeftOutError("it is no task from a file")
        return TaskAbout(own.score, {"default": (own.local.language,)})

    def _load_tasks(self, record: RunRecord) -> Mapping[str, Any]:
        key = hash_canonical_json([record.suite, record.world, record.tasks])
        if key not in self._local:
            try:
                self._local[key] = load_record_tasks(record, self.data)
            except BenchError as error:
                self._local[key] = f"its data, which name its language, are missing: {error.what}"
        tasks = self._local[key]
        if isinstance(tasks, str):
            raise LeftOutError(tasks)
        return tasks


@cache
def read_registry_task(name: str) -> TaskAbout:
    """Return the facts of a task in mteb's registry.

    Raises LeftOutError for an unknown one, and InputError where mteb isn't installed.
    """
    mteb = import_mteb()
    with preserve_random_state(), silence_mteb():
        try:
            task = mteb.get_task(name)
        except KeyError as error:
            raise LeftOutError(f"mteb {version('mteb')} has no task {name}") from error
    languages = {subset: tuple(codes) for subset, codes in task.metadata.hf_subsets_to_langscripts.items()}
    if task.is_aggregate:
        every = dict.fromkeys(code for codes in languages.values() for code in codes)
        languages = {"default": tuple(every)}
    return TaskAbout(task.metadata.main_score, languages)
