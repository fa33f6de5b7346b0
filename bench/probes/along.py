"""Probes along a training: at every dev evaluation, beside its score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import DataError
from bench.records.files import write_whole
from bench.schema import Block, Each, Maybe, Rows, anything, count, fault, label, number, text, whole

if TYPE_CHECKING:
    from bench.encoder import Encoder
    from bench.probes.data import ProbeData
    from bench.probes.probe import ProbeOptions
    from bench.stages import StageContext

Found = list[tuple[float, dict[str, Any]]]
"""Dev score and probes of each evaluation, in their order."""


@dataclass(frozen=True)
class Evaluated:
    """An encoder at a dev evaluation of its training.

    Args:
        method: Method id.
        seed: Its seed.
        stage: Role of the stage.
        step: Optimiser steps so far.
        dev: The dev score, in the metric's unit.
        probes: See :mod:`bench.probes.measure`.
        stages: Keys of the stages that were trained for the method.
        key: Key of this stage.
    """

    method: str
    seed: int | None
    stage: str
    step: int
    dev: float
    probes: dict[str, Any]
    stages: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Along:
    """Dev evaluations of some trainings.

    Args:
        profile: Profile.
        dev: Suite of the dev score.
        evaluations: The evaluations, of a training in their order.
    """

    profile: str
    dev: str
    evaluations: tuple[Evaluated, ...]


_SHAPE = Block(
    {
        "profile": label,
        "dev": label,
        "evaluations": Rows(
            Block(
                {
                    **{"method": label, "seed": Maybe(count), "stage": label, "step": count, "dev": number},
                    **{"probes": Block({"data": Block({"tasks": Each(anything), "sentences": count})})},
                    **{"stages": Rows(text), "key": text},
                },
                closed=True,
            )
        ),
        "schema": whole,
        "sha256": text,
    },
    closed=True,
)
_SCHEMA = 1


def write_along(path: Path, found: Along) -> None:
    """Write evaluations into a sealed JSON file, whole or not at all; raises OSError."""
    body = _canonical({**asdict(found), "schema": _SCHEMA})
    path.parent.mkdir(parents=True, exist_ok=True)
    sealed = {**json.loads(body), "sha256": hashlib.sha256(body.encode("utf-8")).hexdigest()}
    write_whole(path, (_canonical(sealed) + "\n").encode("utf-8"))


def read_along(path: Path) -> Along:
    """Read what :func:`write_along` wrote.

    Raises:
        DataError: not such a file, or one that was changed since.
    """
    hint = "write it anew with `bench probe METHOD --along --out FILE`, or move it away"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"this is not JSON: {error}", where=str(path), hint=hint) from error
    if (place := fault(data, _SHAPE)) is not None or data["schema"] != _SCHEMA:
        raise DataError(f"no probes along trainings: {place or 'schema'}", where=str(path), hint=hint)
    body = _canonical({name: part for name, part in data.items() if name != "sha256"})
    if hashlib.sha256(body.encode("utf-8")).hexdigest() != data["sha256"]:
        raise DataError("this file was changed since it was written", where=str(path), hint=hint)
    found = (Evaluated(**{**one, "stages": tuple(one["stages"])}) for one in data["evaluations"])
    return Along(data["profile"], data["dev"], tuple(found))


def _canonical(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)


def probed_context(
    context: StageContext, data: ProbeData, names: Sequence[str], options: ProbeOptions, found: Found
) -> StageContext:
    """Return a stage's context whose dev evaluations measure the named probes too.

    An evaluation is scored first, then probed: as it draws no random number and changes no weight, the
    training goes on as it would without.

    Args:
        context: The context.
        data: The sentences.
        names: Of :data:`bench.probes.PROBES`.
        options: How.
        found: Gets the dev score and the probes of each evaluation.
    """
    from bench.probes.measure import measure, without_curves
    from bench.training.sentence_encoder import Watched

    def dev_score(encoder: Encoder, *select: str) -> float:
        score = context.dev_score(encoder, *select)
        own = encoder.encoder if isinstance(encoder, Watched) else encoder
        found.append((score, without_curves(measure(own, data, names, options).probes)))
        return score

    return replace(context, dev_score=dev_score)
