"""The immutable record of one cell on one suite, and its JSON form."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.errors import DataError, NewerRecordError

SCHEMA = 1
PROBED = 2
"""Schema of a record with probes; without them it is as ever."""
ALL = "all"  # subset name: every pair of a task in one correlation, the field's convention


@dataclass(frozen=True)
class Score:
    """One measured value.

    Args:
        task: Task id as in the published tables (STS12 ... SICKR), or "avg".
        subset: "all" (one correlation over all pairs), a subset's name, "mean" or "wmean" over subsets.
        metric: Name of the metric; ``value`` is in its own unit (spearman: -1 to 1).
        value: The value at full precision.
        n: Pairs behind it; for the task "avg" the number of tasks averaged.
    """

    task: str
    subset: str
    metric: str
    value: float
    n: int


@dataclass(frozen=True)
class RunRecord:
    """What one cell gave on one suite. 'Equal bytes' means equal JSON without the ``timing`` block.

    Args:
        profile: Profile label, ``NAME`` or ``NAME@HASH`` with another backbone.
        method: Method id, the row's name in every table.
        name: Registered name of the method.
        version: The card's version.
        options: Value of every option.
        backbone: {"name", "sha256"} of the weights it starts from, None for none.
        seed: The seed, None for a deterministic method.
        suite: Suite name.
        world: {"generator", "split", "seed"} of the mini world where suite, training text or dev set come
            from it, else None.
        tasks: For every task {"pairs", "sha256"} of the parsed data, and whether it is the reference.
        key: sha256 of everything that determines the scores; equal key, equal result.
        family: The same without the seed: only records of one family are averaged.
        status: "ok" or "failed".
        scores: Empty if failed.
        predictions: {"file", "sha256"} of the per-pair similarities beside the record, None if failed.
        reason: Why it failed, one line.
        traceback: The failure's traceback, without machine paths.
        training: Corpus, dev set, and each stage's key, steps, sentences and dev curve; empty for a method
            that doesn't train. Scores are those of the checkpoint selected on the dev set; the metric
            "spearman_last" gives the last checkpoint's.
        notes: What every table with this record must say.
        probes: What :mod:`bench.probes.measure` found, by probe; "version" and "data" say how and on what.
            They come after the scores and change none; what they took by the clock stands in timing.
        provenance: Versions, commit, device, threads: facts that repeat when the run is repeated.
        timing: Wall and CPU seconds, date, processor: facts that don't.
    """

    profile: str
    method: str
    name: str
    version: int
    options: dict[str, Any]
    backbone: dict[str, str] | None
    seed: int | None
    suite: str
    tasks: dict[str, dict[str, Any]]
    key: str
    family: str
    status: str
    scores: tuple[Score, ...] = ()
    predictions: dict[str, str] | None = None
    reason: str | None = None
    traceback: tuple[str, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    world: dict[str, int] | None = None
    probes: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def metric(self) -> str:
        """Metric of the suite's average: "spearman", or "accuracy" of transfer suites."""
        found = (score.metric for score in self.scores if (score.task, score.subset) == ("avg", ALL))
        return next((metric for metric in found if not metric.endswith("_last")), "spearman")

    def score(self, task: str, subset: str = ALL, metric: str | None = None) -> float | None:
        """Return one value in the metric's unit (None: the suite's metric), or None if there is none."""
        metric = self.metric if metric is None else metric
        for score in self.scores:
            if (score.task, score.subset, score.metric) == (task, subset, metric):
                return score.value
        return None


def to_json(record: RunRecord, *, timing: bool = True) -> str:
    """Return the canonical JSON text (sorted keys, two blanks, final newline)."""
    data = asdict(record)
    if not timing:
        del data["timing"]
    if not record.probes:
        del data["probes"]
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def from_json(text: str, where: str) -> RunRecord:
    """Parse a record.

    Raises:
        NewerRecordError: a newer schema.
        DataError: no JSON, not a record, or a field or score of the wrong type or range.
    """
    hint = "delete the file and run the cell again"
    try:
        data = json.loads(text)
        schema = data["schema"]
        if isinstance(schema, int) and schema > (PROBED if data.get("probes") else SCHEMA):
            raise NewerRecordError(
                f"record schema {schema} is newer than this bench",
                where=where,
                expected=f"schema {SCHEMA} or older",
                hint="upgrade cse-bench",
            )
        data["scores"] = tuple(Score(**score) for score in data["scores"])
        data["notes"] = tuple(data["notes"])
        if data["traceback"] is not None:
            data["traceback"] = tuple(data["traceback"])
        record = RunRecord(**data)
        if not _is_sound(record):
            raise ValueError("a field has the wrong type or range")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError("this is no run record", where=where, hint=hint) from error
    return record


def _is_sound(record: RunRecord) -> bool:
    """True if every field that is relied on has its type and range."""
    texts = (record.profile, record.method, record.name, record.suite, record.key, record.family)
    mappings = (
        record.options,
        record.tasks,
        record.provenance,
        record.timing,
        record.training,
        record.probes,
    )
    stages = record.training.get("stages", {})
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(mapping, dict) for mapping in mappings)
        and (record.seed is None or type(record.seed) is int)
        and record.status in ("ok", "failed")
        and (record.status == "failed") == (not record.scores)
        and _is_text_mapping(record.backbone, ("name", "sha256"))
        and _is_text_mapping(record.predictions, ("file", "sha256"))
        and all(
            _is_text_mapping(facts, ("sha256",)) and "reference" in facts for facts in record.tasks.values()
        )
        and all(isinstance(stage["sentences_seen"], int) for stage in stages.values())
        and (not stages or isinstance(record.timing["training_cpu_seconds"], dict))
        and (record.world is None or all(type(value) is int for value in record.world.values()))
        and (record.reason is None or isinstance(record.reason, str))
        and all(isinstance(note, str) for note in record.notes)
        and all(_is_sound_score(score) for score in record.scores)
        and _are_sound_probes(record.probes)
    )


def _is_text_mapping(value: Any, names: tuple[str, ...]) -> bool:
    return value is None or all(isinstance(value[name], str) for name in names)


def _is_sound_score(score: Score) -> bool:
    texts = (score.task, score.subset, score.metric)
    in_range = math.isfinite(score.value) and (
        not score.metric.startswith("spearman") or abs(score.value) <= 1
    )
    return all(isinstance(text, str) for text in texts) and type(score.n) is int and in_range


def _are_sound_probes(probes: dict[str, Any]) -> bool:
    blocks = [block for name, block in probes.items() if name != "version"]
    data = probes.get("data", {})
    return (
        all(isinstance(block, dict) for block in blocks)
        and _is_sound_value(probes)
        and (not probes or (isinstance(data["tasks"], dict) and type(data["sentences"]) is int))
    )


def _is_sound_value(value: Any) -> bool:
    """True for JSON whose numbers are all finite."""
    if isinstance(value, dict):
        return all(map(_is_sound_value, value.values()))
    if isinstance(value, list):
        return all(map(_is_sound_value, value))
    return not isinstance(value, float) or math.isfinite(value)
