"""Probes along a training: at every dev evaluation, beside its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
    """

    method: str
    seed: int | None
    stage: str
    step: int
    dev: float
    probes: dict[str, Any]
    stages: tuple[str, ...]


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
    from bench.probes.measure import measure
    from bench.train.dev import Watched

    def dev_score(encoder: Encoder, *select: str) -> float:
        score = context.dev_score(encoder, *select)
        own = encoder.encoder if isinstance(encoder, Watched) else encoder
        found.append((score, measure(own, data, names, options).probes))
        return score

    return replace(context, dev_score=dev_score)
