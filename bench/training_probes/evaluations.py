"""Probes along a training: at every dev evaluation, with its score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import schema
from bench.errors import DataError
from bench.records.filesystem import write_atomically
from bench.schema import Block, ListOf, MapOf, Maybe, accept_any, find_fault

if TYPE_CHECKING:
    from bench.encoder import Encoder
    from bench.probes.interface import ProbeData, ProbeOptions
    from bench.stages import StageContext

EvaluationLog = list[tuple[float, dict[str, Any]]]  # dev score and probes of each evaluation, in their order


@dataclass(frozen=True)
class ProbedEvaluation:
    """An encoder at a dev evaluation of its training."""

    method: str
    seed: int | None
    stage: str  # role of the stage
    step: int  # optimiser steps so far
    dev: float  # the dev score, in the metric's unit
    probes: dict[str, Any]  # see :mod:`bench.probes.measurement`
    stages: tuple[str, ...]  # keys of all stages of the method
    key: str  # key of this stage


@dataclass(frozen=True)
class TrainingProbes:
    """Dev evaluations of some trainings; ``dev`` is the suite of the dev score."""

    profile: str
    dev: str
    evaluations: tuple[ProbedEvaluation, ...]


_DATA = Block({"tasks": MapOf(accept_any), "sentences": schema.is_count})
_EVALUATION: dict[str, schema.Shape] = {
    "method": schema.is_label, "seed": Maybe(schema.is_count), "stage": schema.is_label,
    "step": schema.is_count, "dev": schema.is_number, "probes": Block({"data": _DATA}),
    "stages": ListOf(schema.is_text), "key": schema.is_text,
}  # fmt: skip
_FILE: dict[str, schema.Shape] = {
    "profile": schema.is_label, "dev": schema.is_label,
    "evaluations": ListOf(Block(_EVALUATION, closed=True)),
    "schema": schema.is_whole_number, "sha256": schema.is_text,
}  # fmt: skip
_SCHEMA = 1


def write_training_probes(path: Path, probes: TrainingProbes) -> None:
    """Write evaluations atomically into a sealed JSON file; raises OSError."""
    body = _canonical_json({**asdict(probes), "schema": _SCHEMA})
    path.parent.mkdir(parents=True, exist_ok=True)
    sealed = {**json.loads(body), "sha256": hashlib.sha256(body.encode("utf-8")).hexdigest()}
    write_atomically(path, (_canonical_json(sealed) + "\n").encode("utf-8"))


def read_training_probes(path: Path) -> TrainingProbes:
    """Read a file of :func:`write_training_probes`; raises DataError for another or a changed file."""
    hint = "write it again with `bench probe METHOD --along --out FILE`, or move it away"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"this is not JSON: {error}", where=str(path), hint=hint) from error
    if (place := find_fault(data, Block(_FILE, closed=True))) is not None or data["schema"] != _SCHEMA:
        raise DataError(f"no probes along trainings: {place or 'schema'}", where=str(path), hint=hint)
    body = _canonical_json({name: part for name, part in data.items() if name != "sha256"})
    if hashlib.sha256(body.encode("utf-8")).hexdigest() != data["sha256"]:
        raise DataError("this file was changed since it was written", where=str(path), hint=hint)
    evaluations = (
        ProbedEvaluation(**{**block, "stages": tuple(block["stages"])}) for block in data["evaluations"]
    )
    return TrainingProbes(data["profile"], data["dev"], tuple(evaluations))


def _canonical_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)


def probe_evaluations(
    context: StageContext, data: ProbeData, names: Sequence[str], options: ProbeOptions, log: EvaluationLog
) -> StageContext:
    """Return a stage's context whose dev evaluations append their score and the named probes to ``log``.

    An evaluation is scored first, then probed: random state and weights stay the same, so the
    training continues unchanged.
    """
    from bench.probes.measurement import drop_curves, measure_probes
    from bench.training.sentence_encoder import RecordingEncoder

    def dev_score(encoder: Encoder, *select: str) -> float:
        score = context.dev_score(encoder, *select)
        plain = encoder.encoder if isinstance(encoder, RecordingEncoder) else encoder
        log.append((score, drop_curves(measure_probes(plain, data, names, options).probes)))
        return score

    return replace(context, dev_score=dev_score)
