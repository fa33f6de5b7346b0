"""Records as result files of mteb: ``results/MODEL/REVISION/TASK.json``, which ``mteb.ResultCache`` reads.

Each run is a model, ``bench/PROFILE-METHOD-seed-N``: mteb's tables keep only one of a model's revisions. The
revision has 40 digits, from the facts that determine the encoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.eval.mteb_scores import metric_name
from bench.exchange.mteb_facts import (
    MODEL_META,
    SourceTask,
    TaskReader,
    find_senteval_task,
    read_source_task,
)
from bench.exchange.record_choice import ChosenRecords, LeftOut, LeftOutError
from bench.records.filesystem import create_folder_atomically
from bench.records.fingerprint import ENCODER_FACTS, fact_values, hash_canonical_json
from bench.records.imported import import_facts, is_imported
from bench.records.record import ALL, RunRecord, safe_name

_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PUBLIC_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(@[A-Za-z0-9._-]+)?$")
"""A row of ``bench import mteb:FOLDER``, with a revision where it has one row a revision."""


@dataclass
class TaskFile:
    """mteb's file of one task: scores by split and subset."""

    source: SourceTask
    suite: str  # the first suite that had it
    entries: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the file's content; what bench doesn't know is null."""
        scores: dict[str, list[dict[str, Any]]] = {}
        for (split, _), entry in self.entries.items():
            scores.setdefault(split, []).append(entry)
        return {
            "dataset_revision": self.source.revision,
            "task_name": self.source.name,
            "mteb_version": self.source.mteb_version,
            "scores": scores,
            "evaluation_time": None,
            "kg_co2_emissions": None,
        }


@dataclass
class ModelFolder:
    """The results of one run."""

    meta: dict[str, Any]
    files: dict[str, TaskFile] = field(default_factory=dict)


Models = dict[tuple[str, str], ModelFolder]
"""By mteb's name and revision."""


def collect_models(chosen: ChosenRecords, data: Path | None) -> Models:
    """Return the results of records by model; those that mteb has no task for are counted as left out.

    ``data`` has the data of tasks from files, as in ``--data``.
    Raises InputError for two results of one model on one task, and for tasks of mteb where mteb is missing.
    """
    models: Models = {}
    reader = TaskReader(data)
    pairs = [(record, task) for record in chosen.records for task in record.tasks]
    measured = {(r.place, task): source for r, task in pairs if (source := read_source_task(r, task))}
    # mteb's own results come first: of a task that bench measured too, they are the ones to keep
    for record, task in sorted(pairs, key=lambda pair: (pair[0].place, pair[1]) not in measured):
        source = measured.get((record.place, task))
        _add_task(models, record, task, source, reader, chosen.left_out)
    return {key: models[key] for key in sorted(models)}


def _add_task(
    models: Models,
    record: RunRecord,
    task: str,
    source: SourceTask | None,
    reader: TaskReader,
    left_out: LeftOut,
) -> None:
    """Add a record's result on a task to its model, or count it as left out."""
    what = f"{record.suite} {task}"
    try:
        source = source or find_senteval_task(record, task)
        entries = list(_build_entries(record, task, source, reader))
    except LeftOutError as reason:
        left_out.add(what, str(reason))
        return
    key = name_model(record, task)
    model = models.setdefault(key, ModelFolder(_describe_model(record, *key)))
    file = model.files.setdefault(source.name, TaskFile(source, record.suite))
    if source.pooled and not file.source.pooled:
        left_out.add(what, f"suite {file.suite} has it from mteb")
        return
    facts = (source.revision, source.mteb_version)
    clash = (file.source.revision, file.source.mteb_version) != facts
    for split, entry in entries:
        place = (split, entry["hf_subset"])
        clash = clash or file.entries.setdefault(place, entry) != entry
    if clash:
        what = f"{key[0]} has two results on {source.name}, of suites {file.suite} and {record.suite}"
        raise InputError(what, where="--layout mteb", hint="choose with --suite")


def _build_entries(
    record: RunRecord, task: str, source: SourceTask, reader: TaskReader
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the splits and entries of a task's file; raises LeftOutError."""
    about = reader.read(record, task, source)
    if about.main_score != source.score:
        raise LeftOutError(f"the record has {source.score}, and mteb's main score is {about.main_score}")
    parts = _read_parts(record, task, source, tuple(about.languages))
    for split, subset, value in parts:
        if subset not in about.languages:
            raise LeftOutError(f"mteb knows no languages of subset {subset}")
        scores = {"main_score": value}
        if _is_score_known(record, source):
            scores[source.score] = value
        if len(parts) == 1:
            scores |= _read_ranks(record, task)
        yield split, {**scores, "hf_subset": subset, "languages": list(about.languages[subset])}


def _is_score_known(record: RunRecord, source: SourceTask) -> bool:
    """Return whether a main score is the named one: another source's may not be, nor that of no vectors."""
    has_vectors = "dim" in record.provenance.get("encoder", {})
    return not is_imported(record) and (has_vectors or not source.pooled)


def _read_parts(
    record: RunRecord, task: str, source: SourceTask, subsets: Sequence[str]
) -> list[tuple[str, str, float]]:
    """Return split, subset and main score of each part of a task; raises LeftOutError for a missing one."""
    metric = metric_name(source.score)
    named = [s for s in record.scores if s.task == task and s.subset != ALL and s.metric == metric]
    if named and not source.pooled:
        parts = []
        for score in named:
            split, slash, subset = score.subset.partition("/")
            if len(source.splits) == 1:
                split, slash, subset = source.splits[0], "/", score.subset
            if not slash or split not in source.splits:
                raise LeftOutError(f"the record names no split of {score.subset}")
            parts.append((split, subset, score.value))
        return parts
    value = record.score(task, ALL, metric)
    if value is None:
        raise LeftOutError(f"the record has no {metric}")
    subsets = source.subsets or subsets
    if len(source.splits) != 1 or len(subsets) != 1:
        raise LeftOutError("the record has the mean over its subsets, without theirs")
    return [(source.splits[0], subsets[0], value)]


def _read_ranks(record: RunRecord, task: str) -> dict[str, float]:
    """Return the scores at ranks of a retrieval task, by mteb's names."""
    scores = [s for s in record.scores if (s.task, s.subset) == (task, ALL) and "@" in s.metric]
    return {score.metric.replace("@", "_at_"): score.value for score in scores}


def name_model(record: RunRecord, task: str) -> tuple[str, str]:
    """Return name and revision of a run as a model of mteb; an imported result keeps those of its source."""
    seed = "" if record.seed is None else f"-seed-{record.seed}"
    revision = hash_canonical_json(fact_values(record, ENCODER_FACTS))[:40]
    public = _PUBLIC_NAME.match(record.method) if is_imported(record) else None
    if public:
        facts = import_facts(record)
        of_tasks: Any = facts.get("revisions")  # of a row that joins several
        given = of_tasks.get(task) if isinstance(of_tasks, dict) else facts.get("revision")
        if isinstance(given, str) and _REVISION.fullmatch(given):
            revision = given
        return f"{public[1]}{seed}", revision
    return f"bench/{safe_name(f'{record.profile}-{record.method}{seed}'.replace(' ', '-'))}", revision


def _describe_model(record: RunRecord, name: str, revision: str) -> dict[str, Any]:
    """Return mteb's description of a model, with null for everything that the record doesn't say."""
    imported, encoder = import_facts(record), record.provenance.get("encoder", {})
    corpus = record.training.get("corpus", {}).get("name")
    parameters = _read_number(imported.get("n_parameters", encoder.get("parameters")))
    unknown = (
        *("languages", "n_active_parameters_override", "n_embedding_parameters", "memory_usage_mb"),
        *("public_training_code", "public_training_data", "reference", "use_instructions"),
        *("adapted_from", "superseded_by", "citation", "contacts", "experiment_kwargs", "output_dtypes"),
        *("extra_requirements_groups", "loader"),
    )
    return {
        **dict.fromkeys(unknown),
        "loader_kwargs": {},
        "name": name,
        "revision": revision,
        "release_date": imported.get("release_date"),
        "n_parameters": parameters,
        "max_tokens": _read_number(imported.get("max_tokens", encoder.get("max_length"))),
        "embed_dim": _read_number(imported.get("embed_dim", encoder.get("dim"))),
        "license": imported.get("licence"),
        "open_weights": imported.get("open_weights"),
        "framework": ["PyTorch"] if encoder.get("parameters") else [],
        "similarity_fn_name": "cosine" if encoder.get("similarity") == "cosine" else None,
        "training_datasets": [corpus] if corpus else None,
        "modalities": ["text"],
        "model_type": ["dense"],
    }


def _read_number(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def write_models(models: Models, out: Path, commit: Callable[[], object] = lambda: None) -> int:
    """Write mteb's files to a new or empty folder, as a whole; return the number of results.

    ``commit`` is called just before the whole folder gets its name. Raises InputError without a result and
    where two models would share a folder, OSError where writing fails.
    """
    if not any(model.files for model in models.values()):
        raise InputError("no task of these records is one of mteb's", where="--layout mteb")
    folders: dict[Path, str] = {}
    for name, revision in models:
        folder = Path("results", name.replace("/", "__").replace(" ", "_"), revision)
        if first := folders.get(folder):
            what = f"{first} and {name} would be one folder, {folder}"
            raise InputError(what, where="--layout mteb", hint="choose with --methods")
        folders[folder] = name
    with create_folder_atomically(out.resolve(), commit) as root:
        for folder, model in zip(folders, models.values(), strict=True):
            (root / folder).mkdir(parents=True)
            _write_json(root / folder / f"{MODEL_META}.json", model.meta)
            for task, file in model.files.items():
                _write_json(root / folder / f"{task}.json", file.as_json())
    return sum(len(model.files) for model in models.values())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")
