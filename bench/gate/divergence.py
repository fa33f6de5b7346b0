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
)

CLOSE = 1e-4
"""Most by which another CPU or version changes a similarity of an untrained encoder; a hundredth was measured
(docs/gate.md)."""
REPEATS = 1e-3
"""Most by which another CPU changes the average of a seed that equal versions train again: 0.1 points; a
hundredth was measured."""
LOSSES = 1e-3
"""Most by which it changes a stage's last loss, first losses and gradient norms, relatively; measured: a
seventieth of it."""
_FIRST_STEPS = 10
_AFTER = ("joint", "distill", "static")
_ELSEWHERE = ("CPU", "platform")
_TRAINING, SIMILARITIES, SCORES = "training", "similarities", "scores"


def find_first_change(
    pairs: Sequence[tuple[RunRecord, RunRecord]], moved: Mapping[RecordPlace, float]
) -> tuple[str | None, float | None]:
    """Return the first stage whose numbers differ although equal ones were due, for pairs of one cell.

    Equal are due: every byte on equal versions and CPU; of a deterministic cell every similarity to ``CLOSE``
    elsewhere; of a seed with equal versions on another CPU its average and the dev scores of every stage to
    ``REPEATS``, its last loss, first losses and gradient norms to ``LOSSES``. A pair is
    (reference, new). ``moved`` has the largest difference of a similarity by the reference's place; the
    largest accepted one is returned with the stage.
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
        elif have_same_versions(then, now):
            stage = _find_unrepeated_stage(then, now)
            if stage is not None:
                return stage, None
    return None, max(accepted, default=None)


def have_same_versions(then: RunRecord, now: RunRecord) -> bool:
    """True if two records have equal versions and settings, on any CPU."""
    return not find_version_differences([then], [now])


def find_version_differences(then: Sequence[RunRecord], now: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line for each version or setting that differs between two sides, apart from CPU and platform.

    Builds of one version, such as torch's 2.13.0 and 2.13.0+cpu, and patches of one Python differ as hardware
    does.
    """
    before, after = _collect_versions(then), _collect_versions(now)
    lines = []
    for name in sorted(before.keys() | after.keys()):
        was, is_now = before.get(name, ["none"]), after.get(name, ["none"])
        if {_drop_build(name, text) for text in was} != {_drop_build(name, text) for text in is_now}:
            lines.append(f"{name} then {' and '.join(was)}, now {' and '.join(is_now)}")
    return tuple(lines)


def _collect_versions(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    values: dict[str, set[str]] = {}
    for record in records:
        for name, value in machine_facts(record).items():
            if name not in _ELSEWHERE:
                values.setdefault(name, set()).add(value)
    return {name: sorted(texts) for name, texts in values.items()}


def _drop_build(name: str, version: str) -> str:
    if name == "Python":
        return ".".join(version.split(".")[:2])
    return version.partition("+")[0]


def _find_unrepeated_stage(then: RunRecord, now: RunRecord) -> str | None:
    """Return the first stage that differs by more than another CPU moves it, if any."""
    was, is_now = comparable_measurements(then, now)
    different = [role for role in was if not _is_repeated(was[role], is_now.get(role, {}))]
    if different:
        return _name_training(different)
    first, second = then.score(AVERAGE), now.score(AVERAGE)
    if first is not None and second is not None and abs(first - second) > REPEATS:
        return _find_first_stage(then, now, LOSSES)
    return None


def _is_repeated(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if a stage's measurements are as close as another CPU comes."""
    if not _are_close(then.get("last_loss"), now.get("last_loss"), LOSSES):
        return False
    if not _are_close(_read_first_losses(then), _read_first_losses(now), LOSSES):
        return False
    if not _are_close(then.get("gradient_norms"), now.get("gradient_norms"), LOSSES):
        return False
    was, is_now = _read_dev_scores(then), _read_dev_scores(now)
    if was.keys() != is_now.keys():
        return False
    return all(abs(was[step] - is_now[step]) <= REPEATS for step in was)


def _read_first_losses(stage: Mapping[str, Any]) -> list[list[float]]:
    return [row for row in stage.get("loss_curve", ()) if row[0] <= _FIRST_STEPS]


def _read_dev_scores(stage: Mapping[str, Any]) -> dict[int | None, float]:
    """Return the dev scores by step, that of the selected checkpoint under None."""
    scores: dict[int | None, float] = {step: score for step, score in stage.get("dev_curve", ())}
    selected = stage.get("selected_dev")
    return scores if selected is None else {**scores, None: selected}


def _find_first_stage(then: RunRecord, now: RunRecord, within: float) -> str:
    """Return the first stage that differs by more than a relative amount, before the stages built on it."""
    was, is_now = comparable_measurements(then, now)
    different = [role for role in was if not _are_close(was[role], is_now.get(role), within)]
    if different:
        return _name_training(different)
    return SIMILARITIES if then.predictions != now.predictions else SCORES


def _name_training(roles: Sequence[str]) -> str:
    return f"{_TRAINING} of {min(roles, key=lambda role: (role in _AFTER, role))}"


def _are_close(one: Any, other: Any, within: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= within * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_are_close(*pair, within) for pair in pairs)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_close(one[name], other[name], within) for name in one)
    return bool(one == other)
