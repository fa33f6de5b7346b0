"""What two records must share to be compared, and what else may differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.records.record import SCHEMA, RunRecord, to_json

_MACHINE = ("python", "platform", "device", "threads", "precision")
_SETTING = ("device", "threads", "ranks")
_UNSET = "not set"


def differences(then: RunRecord, now: RunRecord) -> tuple[str, ...]:
    """Say what of the specification and the data differs, a line each; nothing where they compare.

    Device, threads and ranks are part of a record's family but no difference here: the first two change last
    digits, the last one which dropout is drawn, as another seed would.
    """
    if then.family == now.family and then.tasks == now.tasks:
        return ()
    lines = [
        f"{name} then {was}, now {now_is}"
        for name, was, now_is in (
            ("method", then.name, now.name),
            ("method version", then.version, now.version),
            ("seeds", _seeded(then), _seeded(now)),
            *_pairs("option", then.options, now.options),
            ("weights", _short(then.backbone), _short(now.backbone)),
            ("training precision", then.train_precision, now.train_precision),
            ("numerics", then.numerics, now.numerics),
            ("world", _world(then), _world(now)),
            *_pairs("data", _hashes(then.tasks), _hashes(now.tasks)),
            *_pairs("training", _texts(then), _texts(now)),
        )
        if was != now_is
    ]
    machines = (machine(then), machine(now))
    same_setting = all(machines[0].get(name) == machines[1].get(name) for name in _SETTING)
    if not lines and then.family != now.family and same_setting:
        lines = ["another version of the evaluation, or of a method that this one builds on"]
    return tuple(lines)


def same_result(then: RunRecord, now: RunRecord) -> bool:
    """True if both say the same to the last bit: scores, similarities, training; versions and times aside."""
    bare = (replace(record, provenance={}, probes={}, schema=SCHEMA) for record in (then, now))
    first, second = (to_json(record, timing=False) for record in bare)
    return first == second


def machine(record: RunRecord) -> dict[str, str]:
    """Versions, device, threads, ranks and CPU of a record: where all are equal, so are the bytes."""
    facts = {name: record.provenance.get(name) for name in _MACHINE}
    facts["ranks"] = record.ranks
    for block in ("versions", "encoder"):
        facts |= record.provenance.get(block) or {}
    facts["CPU"] = record.timing.get("processor")
    return {name: str(value) for name, value in facts.items() if value is not None}


def machine_warnings(then: Sequence[RunRecord], now: Sequence[RunRecord]) -> tuple[str, ...]:
    """Say which versions and which hardware differ, a line each."""
    before, after = _values(then), _values(now)
    return tuple(
        f"{name} then {' and '.join(before[name])}, now {' and '.join(after[name])}"
        for name in before
        if name in after and before[name] != after[name]
    )


def _values(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    facts = [machine(record) for record in records]
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: sorted({each[name] for each in facts if name in each}) for name in names}


def _pairs(what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*then, *now])
    return [(f"{what} {name}", then.get(name, _UNSET), now.get(name, _UNSET)) for name in names]


def _seeded(record: RunRecord) -> str:
    return "none" if record.seed is None else "several"


def _short(facts: Mapping[str, Any] | None) -> str:
    return str(facts["sha256"])[:12] if facts else "none"


def _hashes(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: _short(each) for name, each in facts.items()}


def _world(record: RunRecord) -> str:
    return " ".join(f"{name} {value}" for name, value in sorted((record.world or {}).items())) or "none"


def _texts(record: RunRecord) -> dict[str, str]:
    """Fingerprints of training text, dev set, translated copies and auxiliary models."""
    training = record.training
    facts = {name: training[name] for name in ("corpus", "dev") if training.get(name)}
    facts |= {f"copy {role}": s["text"] for role, s in training.get("stages", {}).items() if "text" in s}
    facts |= {f"model {name}": model for name, model in training.get("auxiliaries", {}).items()}
    return _hashes(facts)
