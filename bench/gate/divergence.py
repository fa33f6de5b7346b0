"""The first stage whose numbers differ although equal ones were due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.gate.verdict import AVERAGE
from bench.records.fingerprint import machine_facts
from bench.records.record import (
    RecordPlace,
    RunRecord,
    comparable_measurements,
    is_same_measurement,
    training_measurements,
)

CLOSE = 1e-4
"""Most by which another CPU or version changes a similarity of an untrained encoder; a hundredth was measured
(docs/gate.md)."""
REPEATS = 1e-3
"""Most by which another CPU changes the average of a seed that equal versions train again: 0.1 points; a
hundredth was measured."""
LOSSES = 1e-3
"""Most by which it changes a stage's last loss, relatively; measured: a seventieth of it."""
_AFTER = ("joint", "distill", "static")
_ELSEWHERE = ("CPU", "platform")
_TRAINING, SIMILARITIES, SCORES = "training", "similarities", "scores"


def find_first_change(
    pairs: Sequence[tuple[RunRecord, RunRecord]], moved: Mapping[RecordPlace, float]
) -> tuple[str | None, float | None]:
    """Return the first stage whose numbers differ although equal ones were due, for pairs of one cell.

    Equal are due: every byte on equal versions and CPU; of a deterministic cell every similarity to ``CLOSE``
    elsewhere; of a seed with equal versions on another CPU its average to ``REPEATS``, and the last loss of
    every stage to ``LOSSES``. A pair is (reference, new). ``moved`` has the largest difference of a
    similarity by the reference's place; the largest accepted one is returned with the stage.
    """
    accepted = []
    for then, now in pairs:
        if machine_facts(then) == machine_facts(now):
            if not is_same_measurement(then, now):
                return _find_first_stage(then, now, 0.0), None
        elif then.seed is None:
            difference = moved.get(then.place)
            if difference is None:
                return _find_first_stage(then, now, 0.0), None
            if difference > CLOSE:
                return SIMILARITIES, None
            accepted.append(difference)
        elif have_same_versions(then, now) and _differs_in_training(then, now):
            return _find_first_stage(then, now, LOSSES), None
    return None, max(accepted, default=None)


def have_same_versions(then: RunRecord, now: RunRecord) -> bool:
    """True if two records have equal versions and settings, on any CPU."""
    first, second = machine_facts(then), machine_facts(now)
    names = (first.keys() | second.keys()) - set(_ELSEWHERE)
    return all(first.get(name) == second.get(name) for name in names)


def _differs_in_training(then: RunRecord, now: RunRecord) -> bool:
    first, second = then.score(AVERAGE), now.score(AVERAGE)
    if first is not None and second is not None and abs(first - second) > REPEATS:
        return True
    return not _are_close(_read_losses(then), _read_losses(now), LOSSES)


def _read_losses(record: RunRecord) -> dict[str, Any]:
    return {role: stage.get("last_loss") for role, stage in training_measurements(record).items()}


def _find_first_stage(then: RunRecord, now: RunRecord, within: float) -> str:
    """Return the first stage that differs by more than a relative amount, before the stages built on it."""
    was, is_now = comparable_measurements(then, now)
    different = [role for role in was if not _are_close(was[role], is_now.get(role), within)]
    if different:
        return f"{_TRAINING} of {min(different, key=lambda role: (role in _AFTER, role))}"
    return SIMILARITIES if then.predictions != now.predictions else SCORES


def _are_close(one: Any, other: Any, within: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= within * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_are_close(*pair, within) for pair in pairs)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_close(one[name], other[name], within) for name in one)
    return bool(one == other)
