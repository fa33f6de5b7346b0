"""The keys of a record's training stages: whether they are those of the options, text and seed it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.errors import BenchError, InputError
from bench.plan.plan import make_plan
from bench.records.facts import arithmetic_of, differing
from bench.records.record import RunRecord
from bench.run.rerun import spec_of
from bench.stages import ARITHMETIC


def planned_keys(record: RunRecord, data: Path | None) -> dict[str, str]:
    """Return the key of each stage as this bench would give it, by role.

    Raises:
        BenchError: this bench can't plan the record's cell again: another version, or a model, text or
            plug-in that isn't at hand; says what.
    """
    if arithmetic_of(record) != ARITHMETIC:
        raise BenchError(f"trained by arithmetic {arithmetic_of(record)}, and this bench has {ARITHMETIC}")
    try:
        plan = make_plan(spec_of(record, data, None, None, (), Path("nowhere")))
    except InputError as error:
        what = f"data, a model or a text of profile {record.profile} isn't at hand"
        raise BenchError(what) from error
    (job,) = (job for job in plan.jobs if job.cell.seed == record.seed)
    if found := dict.fromkeys(each.fact for each in differing(record, job.record)):
        raise BenchError(f"this bench has another {', '.join(found)}")
    return {role: facts["key"] for role, facts in job.record.training.get("stages", {}).items()}


def wrong_stages(record: RunRecord, planned: dict[str, str]) -> list[str]:
    """Return the roles of the stages whose keys aren't the planned ones."""
    stages = record.training.get("stages", {})
    return [role for role in dict.fromkeys([*stages, *planned]) if _key(stages, role) != planned.get(role)]


def with_keys(record: RunRecord, planned: dict[str, str]) -> RunRecord:
    """Return a record of an older bench with its stages' keys as this one makes them."""
    stages = {
        role: {**facts, "key": planned[role]} if role in planned else facts
        for role, facts in record.training["stages"].items()
    }
    return replace(record, training={**record.training, "stages": stages})


def _key(stages: dict[str, dict[str, str]], role: str) -> str | None:
    return stages.get(role, {}).get("key")
