"""The immutable record of one cell on one suite: its JSON form, its stages, equality of measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import DataError, NewerRecordError
from bench.records.filesystem import safe_name as safe_name
from bench.records.record_schema import RECORD
from bench.schema import find_fault, find_unwritable

SCHEMA = 3
EXTERNAL = ("hf", "st", "exported", "vectors", "prompteol", "echo")  # methods whose model is a path
AVERAGE = "avg"
NOT_RECOMPUTED = "Scores not recomputed: "
"""How the note on unchecked scores begins, which commands add to records that they read."""
ALL = "all"  # subset name: every pair of a task in one correlation, the field's convention


@dataclass(frozen=True)
class RecordPlace:
    """Place of a record: profile label, method id, seed (None: deterministic) and suite."""

    profile: str
    method: str
    seed: int | None
    suite: str

    @property
    def folder(self) -> Path:
        """Folder below the campaign's."""
        seed = "no-seed" if self.seed is None else f"seed-{self.seed}"
        return Path(safe_name(self.profile)) / safe_name(self.method) / seed


@dataclass(frozen=True)
class Score:
    """One measured value."""

    task: str  # id as in the published tables (STS12 ... SICKR), or "avg"
    subset: str  # "all" (one correlation over all pairs), a subset, "mean" or "wmean" over subsets
    metric: str
    value: float  # in the metric's own unit (spearman: -1 to 1), at full precision
    n: int  # pairs; for "avg" the number of tasks averaged; 0: unknown to mteb


@dataclass(frozen=True)
class RunRecord:
    """Result of one cell on one suite. Two records are equal if their JSON is, apart from ``timing``.

    Scores are those of the checkpoint selected on the dev set; the metric "spearman_last" has the last one's.
    """

    profile: str  # label, ``NAME`` or ``NAME@HASH`` with another backbone
    method: str  # id, the row's name in every table
    name: str  # registered name of the method
    version: int  # the card's
    options: dict[str, Any]
    backbone: dict[str, str] | None  # {"name", "sha256"} of the weights it starts from
    seed: int | None  # None for a deterministic method
    suite: str
    tasks: dict[str, dict[str, Any]]  # {"pairs", "sha256"} of the parsed data, and if they are the reference
    key: str  # sha256 of everything that determines the scores, see ``bench.records.fingerprint.FACTS``
    status: str  # "ok" or "failed"
    scores: tuple[Score, ...] = ()
    predictions: dict[str, str] | None = None  # {"file", "sha256"} of the per-pair similarities
    reason: str | None = None  # of a failure, in one line
    traceback: tuple[str, ...] | None = None  # stripped of paths
    evaluation: dict[str, Any] = field(default_factory=dict)  # its "version", "precision", "solver"
    training: dict[str, Any] = field(default_factory=dict)  # corpus, dev set, key and curves of each stage
    notes: tuple[str, ...] = ()  # for every table with this record
    world: dict[str, int] | None = None  # {"generator", "split", "seed"} of the mini world of any of its data
    probes: dict[str, Any] = field(default_factory=dict)  # results by probe, with "version" and "data"
    provenance: dict[str, Any] = field(default_factory=dict)  # versions, commit, device: facts that repeat
    timing: dict[str, Any] = field(default_factory=dict)  # seconds, date, processor: facts that vary
    schema: int = SCHEMA

    @property
    def metric(self) -> str:
        """Metric of the suite's average, such as "spearman", or "accuracy" of transfer suites."""
        for score in self.scores:
            if (score.task, score.subset) == (AVERAGE, ALL) and not score.metric.endswith("_last"):
                return score.metric
        return "spearman"

    @property
    def place(self) -> RecordPlace:
        """Its place in the campaign."""
        return RecordPlace(self.profile, self.method, self.seed, self.suite)

    def score(self, task: str, subset: str = ALL, metric: str | None = None) -> float | None:
        """Return one value in the metric's unit, if it is there; default metric: the suite's."""
        metric = self.metric if metric is None else metric
        for score in self.scores:
            if (score.task, score.subset, score.metric) == (task, subset, metric):
                return score.value
        return None


def name_label_models(record: RunRecord) -> set[str]:
    """Return the language models that wrote labels of a record's training, as its user states."""
    stages = record.training.get("stages", {}).values()
    texts = (record.training.get("corpus", {}), *(stage.get("text", {}) for stage in stages))
    return {text["label_model"] for text in texts if "label_model" in text}


def is_supervised(record: RunRecord) -> bool:
    """Return whether the method, or one that it builds on, learned from labels."""
    stages = record.training.get("stages", {}).values()
    return bool(record.training.get("supervised")) or any("pairs" in s.get("text", {}) for s in stages)


def record_to_json(record: RunRecord, *, timing: bool = True) -> str:
    """Return the canonical JSON text: sorted keys, two blanks, final newline."""
    data = asdict(record)
    if not timing:
        del data["timing"]
    if not record.probes:
        del data["probes"]
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def parse_record(text: str, where: str) -> RunRecord:
    """Parse a record of this schema or an older one; raises NewerRecordError or DataError."""
    try:
        data = json.loads(text, object_pairs_hook=_reject_duplicate_names)
        schema = data.get("schema") if isinstance(data, dict) else None
        if type(schema) is not int or schema < 1:
            raise ValueError("it has no schema")
        if schema > SCHEMA:
            what = f"record schema {schema} is newer than this bench"
            expected = f"schema {SCHEMA} or older"
            raise NewerRecordError(what, where=where, expected=expected, hint="upgrade cse-bench")
        if place := find_unwritable(data) or find_fault(data, RECORD):
            raise ValueError(f"'{place}' is missing or isn't what it should be")
        _check_consistency(data)
        data.pop("family", None)  # of schemas 1 and 2
        data["scores"] = tuple(Score(**score) for score in data["scores"])
        data["notes"] = tuple(data.get("notes", ()))
        if data.get("traceback") is not None:
            data["traceback"] = tuple(data["traceback"])
        return RunRecord(**data)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"this is not a run record: {error}", where=where) from error


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    block = dict(pairs)
    if len(block) < len(pairs):
        raise ValueError("a name is given twice in one block")
    return block


def _check_consistency(data: dict[str, Any]) -> None:
    """Raise ValueError for contradicting blocks and impossible scores."""
    if (data["status"] == "failed") != (not data["scores"]):
        raise ValueError("'scores' is empty in a finished record, or not in a failed one")
    if data.get("training", {}).get("stages") and "training_cpu_seconds" not in data.get("timing", {}):
        raise ValueError("'timing.training_cpu_seconds' is missing")
    seen = set()
    for score in data["scores"]:
        name = score["task"], score["subset"], score["metric"]
        if name in seen:
            raise ValueError(f"two scores of {' '.join(name)}")
        if score["subset"] == ALL and score["task"] not in (AVERAGE, *data["tasks"]):
            raise ValueError(f"a score of {score['task']}, which is none of 'tasks'")
        if score["metric"].startswith("spearman") and abs(score["value"]) > 1:
            raise ValueError(f"{' '.join(name)} is {score['value']}")
        task = data["tasks"].get(score["task"])
        hides_count = task is not None and not task.get("pairs") and not task.get("items")  # as mteb may
        if score["n"] == 0 and not hides_count:
            raise ValueError(f"{' '.join(name)} is of no items")
        seen.add(name)
    probes = data.get("probes", {})
    if any(name != "version" and not isinstance(block, dict) for name, block in probes.items()):
        raise ValueError("a block of 'probes' is none")
    if probes and "data" not in probes:
        raise ValueError("'probes.data' is missing")


Stages = Mapping[str, Mapping[str, Any]]
"""By role; a member's as MEMBER/ROLE, such as "teacher/joint"."""


def distinct_stages(record: RunRecord) -> Stages:
    """Return each training once: members may share one under two roles."""
    stages: Stages = record.training.get("stages", {})
    first: dict[str, str] = {}
    for role, stage in stages.items():
        first.setdefault(stage.get("key", role), role)
    return {role: stages[role] for role in first.values()}


def count_training_sentences(record: RunRecord) -> int:
    """Count the sentences of all stages."""
    return sum(stage["sentences_seen"] for stage in distinct_stages(record).values())


def sum_training_seconds(record: RunRecord) -> float:
    """Sum the CPU seconds of all stages."""
    seconds = record.timing.get("training_cpu_seconds", {})
    stages = distinct_stages(record)
    return float(sum(took for role, took in seconds.items() if role in stages))


def find_dev_tasks(record: RunRecord) -> list[str]:
    """Return the tasks whose own data selected a checkpoint of the method or a member."""
    dev = record.training.get("dev", {}).get("sha256")
    stages = record.training.get("stages", {}).values()
    if dev is None or not any(stage.get("dev_curve") for stage in stages):
        return []
    tasks = record.tasks.items()
    return [task for task, facts in tasks if dev in (facts["sha256"], facts.get("pairs_sha256"))]


def last_stages(record: RunRecord) -> Stages:
    """Return the method's own final stages: a twin's joint one, all submodels of a sum."""
    stages = {role: stage for role, stage in record.training.get("stages", {}).items() if "/" not in role}
    return {"joint": stages["joint"]} if "joint" in stages else stages


_ASKED = ("key", "version", "text", "settings", "numerics", "precision", "ranks")
"""Settings of a stage."""
_LATER = ("loss_curve", "gradient_norms")  # measurements that older records lack


def is_same_measurement(then: RunRecord, now: RunRecord) -> bool:
    """Return whether scores, similarities and training agree to the last bit."""
    was, is_now = comparable_measurements(then, now)
    return (then.scores, then.predictions, was) == (now.scores, now.predictions, is_now)


def comparable_measurements(then: RunRecord, now: RunRecord) -> tuple[dict[str, dict[str, Any]], ...]:
    """Return the training measurements of two records that both are new enough to have."""
    was, is_now = training_measurements(then), training_measurements(now)
    for role in was.keys() & is_now.keys():
        for name in _LATER:
            if (name in was[role]) != (name in is_now[role]):
                was[role].pop(name, None)
                is_now[role].pop(name, None)
    return was, is_now


def training_measurements(record: RunRecord) -> dict[str, dict[str, Any]]:
    """Return the measurements of each stage."""
    measurements = {}
    for role, stage in record.training.get("stages", {}).items():
        measurements[role] = {name: value for name, value in stage.items() if name not in _ASKED}
    return measurements
