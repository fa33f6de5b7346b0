"""What this bench would plan in the place of a record: keys of stages, what is said of labels, notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.errors import BenchError, DataError, InputError
from bench.execution.repetition import (
    build_rerun_spec,
    compare_notes,
    compare_text_names,
    compare_unkeyed_facts,
    find_repeating_job,
)
from bench.plan.job import MATCHED, Job
from bench.plan.plan import Plan, PlanInputs, make_plan
from bench.records.fingerprint import find_fact_differences, training_arithmetic
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord
from bench.stages import ARITHMETIC
from bench.verify.findings import Problem
from bench.verify.method_id_checks import matched_method
from bench.verify.training_checks import check_planned_training

_OF_THE_SEED = {"seed", "seeds"}


@dataclass(frozen=True)
class PlannedRerun:
    """The run that repeats a record, of the same key."""

    plan: Plan
    job: Job

    @property
    def keys(self) -> dict[str, str]:
        """The key of each stage, by role."""
        stages = self.job.record.training.get("stages", {})
        return {role: facts["key"] for role, facts in stages.items()}

    def wrong(self, record: RunRecord) -> Iterator[Problem]:
        """Yield what the record says otherwise."""
        stages = record.training.get("stages", {})
        roles = dict.fromkeys([*stages, *self.keys])
        if odd := [role for role in roles if stages.get(role, {}).get("key") != self.keys.get(role)]:
            what = f"the key of {', '.join(odd)} is not that of its options, text and seed"
            yield "stages", what, AGAIN
        yield from check_planned_training(record, self.plan, self.job)
        for what in compare_unkeyed_facts(record, self.job):
            yield "training", what, AGAIN
        for what in compare_notes(record, self.plan, self.job):
            yield "notes", what, AGAIN

    def doubts(self, record: RunRecord, inputs: PlanInputs | None = None) -> Iterator[str]:
        """Yield what of its names nothing here shows: those of texts, and the length a row was matched to.

        Profiles change, so that another length may have been the right one then.
        """
        for name in dict.fromkeys(compare_text_names(record, self.job)):
            yield f"name of a text: {name}"
        match = matched_method(record)
        if match is None:
            return
        (request,) = self.plan.spec.methods
        left = tuple((name, value) for name, value in request.options if name not in (*MATCHED, "epochs"))
        again = replace(self.plan.spec, methods=(replace(request, options=(*left, ("match", match))),))
        steps, had = dict(make_plan(again, inputs).jobs[0].cell.options)["steps"], record.options["steps"]
        if steps != had:
            yield f"name of row {record.method}: match={match} gives {steps} steps here, and it has {had}"


def plan_rerun(record: RunRecord, data: Path | None, inputs: PlanInputs | None = None) -> PlannedRerun:
    """Plan the run that repeats a record.

    Args:
        record: The record.
        data: Data folder; default BENCH_DATA, then ./data.
        inputs: What was read for other records already.

    Raises:
        DataError: the record says what no run takes, or has a seed where its method has none, or none.
        InputError: data, a model, a text or a plug-in isn't at hand.
        BenchError: this bench has another version of something; says what.
    """
    if training_arithmetic(record) not in (0, ARITHMETIC):
        raise BenchError(
            f"trained by arithmetic {training_arithmetic(record)}, and this bench has {ARITHMETIC}"
        )
    try:
        spec = build_rerun_spec(record, data, None, None, (), Path("nowhere"))
    except DataError:
        raise
    except InputError as error:
        raise _missing_input(record, error) from error
    try:
        plan = make_plan(spec, inputs)
    except InputError as error:
        raise _missing_input(record, error) from error
    job = find_repeating_job(plan, record)
    facts = dict.fromkeys(each.fact for each in find_fact_differences(record, job.record))
    if facts and facts.keys() <= _OF_THE_SEED:
        raise DataError(f"its seed is {_seed(record.seed)}, and that of its run {_seed(job.cell.seed)}")
    if facts:
        raise BenchError(f"this bench has another {', '.join(facts)}")
    return PlannedRerun(plan, job)


def _missing_input(record: RunRecord, error: InputError) -> InputError:
    """What this machine lacks or no run takes, in one wording for all methods that lack the same."""
    what = error.what.replace(f"{record.name} needs", "a method needs")
    return InputError(f"of profile {record.profile}, {what}")


def _seed(seed: int | None) -> str:
    return "none" if seed is None else str(seed)


def replace_stage_keys(record: RunRecord, keys: dict[str, str]) -> RunRecord:
    """Return a record of an older bench with its stages' keys as this one makes them."""
    stages = {
        role: {**facts, "key": keys[role]} if role in keys else facts
        for role, facts in record.training["stages"].items()
    }
    return replace(record, training={**record.training, "stages": stages})
