"""What a record says of the stages that were trained for it, its members' among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.records.record import RunRecord

Stages = Mapping[str, Mapping[str, Any]]
"""By role; a member's stage has the member before it, as in "teacher/joint"."""


def distinct_stages(record: RunRecord) -> Stages:
    """Every stage once: members that share a training, such as tncse and jtcse, have it under two roles."""
    stages: Stages = record.training.get("stages", {})
    first: dict[str, str] = {}
    for role, stage in stages.items():
        first.setdefault(stage.get("key", role), role)
    return {role: stages[role] for role in first.values()}


def sentences_seen(record: RunRecord) -> int:
    """Sentences that all stages read."""
    return sum(stage["sentences_seen"] for stage in distinct_stages(record).values())


def training_seconds(record: RunRecord) -> float:
    """CPU seconds that all stages took."""
    seconds = record.timing.get("training_cpu_seconds", {})
    stages = distinct_stages(record)
    return float(sum(took for role, took in seconds.items() if role in stages))


def chosen_on(record: RunRecord) -> list[str]:
    """Return the tasks of a record on whose own data a checkpoint was chosen, for it or for a member."""
    dev = record.training.get("dev", {}).get("sha256")
    if not any(stage.get("dev_curve") for stage in record.training.get("stages", {}).values()):
        return []
    known = {task: (facts["sha256"], facts.get("pairs_sha256")) for task, facts in record.tasks.items()}
    return [task for task, prints in known.items() if dev is not None and dev in prints]


def last_stages(record: RunRecord) -> Stages:
    """The stages that end a training: a twin's joint one, all submodels of a sum; not a member's.

    Records have their stages in the order of their names, not in that of training.
    """
    own = {role: stage for role, stage in record.training.get("stages", {}).items() if "/" not in role}
    return {"joint": own["joint"]} if "joint" in own else own
