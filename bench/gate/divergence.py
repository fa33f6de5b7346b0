"""Where numbers were due to be equal, and the first stage at which they aren't."""

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
"""Most by which another CPU or version moves a similarity that nobody trained: docs/gate.md has what was
measured, a hundred times less."""
REPEATS = 1e-3
"""Most by which another CPU moves the average of a seed that is trained again by equal versions: 0.1 points;
docs/gate.md has what was measured, a hundred times less."""
LOSSES = 1e-3
"""Most by which it moves a stage's last loss, relatively; measured 70 times less."""
_AFTER = ("joint", "distill", "static")
_ELSEWHERE = ("CPU", "platform")
_TRAINING, SIMILARITIES, SCORES = "training", "similarities", "scores"


def find_first_change(
    pairs: Sequence[tuple[RunRecord, RunRecord]], moved: Mapping[RecordPlace, float]
) -> tuple[str | None, float | None]:
    """Return the first stage whose numbers differ where equal ones were due.

    Equal are due: every byte on equal versions and CPU; of a deterministic cell every similarity to ``CLOSE``
    elsewhere; of a seed with equal versions on another CPU its average to ``REPEATS``, and the last loss of
    every stage to ``LOSSES``.

    Args:
        pairs: (reference, new) of one cell, of equal seeds.
        moved: Largest difference of a similarity between the two, by the reference's place.

    Returns:
        The stage, such as "training of sub1", "similarities" or "scores", None where nothing was due or
        nothing differs; and the largest difference of a similarity that was let pass, None where none was.
    """
    passed = []
    for then, now in pairs:
        if machine_facts(then) == machine_facts(now):
            if not is_same_measurement(then, now):
                return _find_first_stage(then, now, 0.0), None
        elif then.seed is None:
            by = moved.get(then.place)
            if by is None or by > CLOSE:
                return (SIMILARITIES if by is not None else _find_first_stage(then, now, 0.0)), None
            passed.append(by)
        elif have_same_versions(then, now) and _differs_in_training(then, now):
            return _find_first_stage(then, now, LOSSES), None
    return None, max(passed, default=None)


def have_same_versions(then: RunRecord, now: RunRecord) -> bool:
    """True if two records were made by equal versions and settings, on whatever CPU."""
    return _read_versions(then) == _read_versions(now)


def _read_versions(record: RunRecord) -> dict[str, str]:
    return {name: value for name, value in machine_facts(record).items() if name not in _ELSEWHERE}


def _differs_in_training(then: RunRecord, now: RunRecord) -> bool:
    one, other = then.score(AVERAGE), now.score(AVERAGE)
    if one is not None and other is not None and abs(one - other) > REPEATS:
        return True
    return not _are_close(_read_losses(then), _read_losses(now), LOSSES)


def _read_losses(record: RunRecord) -> dict[str, Any]:
    return {role: stage.get("last_loss") for role, stage in training_measurements(record).items()}


def _find_first_stage(then: RunRecord, now: RunRecord, within: float) -> str:
    """The first stage that differs by more than a relative amount; what builds on others comes after them."""
    was, is_now = comparable_measurements(then, now)
    different = [role for role in was if not _are_close(was[role], is_now.get(role), within)]
    if different:
        inputs = sorted(different, key=lambda role: (role in _AFTER, role))
        return f"{_TRAINING} of {inputs[0]}"
    return SIMILARITIES if then.predictions != now.predictions else SCORES


def _are_close(one: Any, other: Any, within: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= within * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _are_close(a, b, within) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_close(one[name], other[name], within) for name in one)
    return bool(one == other)
