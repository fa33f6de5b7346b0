"""Check a record's stages: against themselves, and against the run that would repeat it.

Losses and dev scores come only from the training, so only a repetition can confirm them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.errors import BenchError, DataError, InputError
from bench.execution.repetition import (
    build_rerun_spec,
    compare_notes,
    compare_text_names,
    compare_unkeyed_facts,
    find_repeating_job,
    parse_record_members,
)
from bench.nn.model_folder import ModelFolder, RecipeModel
from bench.plan.cell import Cell
from bench.plan.job import MATCHED, Job, add_stages, make_job
from bench.plan.plan import Plan, PlanInputs, make_plan
from bench.records.fingerprint import find_fact_differences, training_arithmetic
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord, last_stages
from bench.registry import METHODS
from bench.stages import ARITHMETIC, planned_sentences, planned_steps
from bench.verify.card_checks import matched_method
from bench.verify.findings import Problem

_OF_THE_SEED = {"seed", "seeds"}
_ROUNDED = 1e-6
"""Above the largest change of a score by scipy 1.18's ranks in float32 (1.2e-7)."""


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
        """Yield the record's differences from it."""
        stages = record.training.get("stages", {})
        roles = dict.fromkeys([*stages, *self.keys])
        if unequal := [role for role in roles if stages.get(role, {}).get("key") != self.keys.get(role)]:
            what = f"the key of {', '.join(unequal)} is not that of its options, text and seed"
            yield "stages", what, AGAIN
        yield from self._check_lengths(record)
        for what in compare_unkeyed_facts(record, self.job):
            yield "training", what, AGAIN
        for what in compare_notes(record, self.plan, self.job):
            yield "notes", what, AGAIN

    def _check_lengths(self, record: RunRecord) -> Iterator[Problem]:
        """Stages that are longer or shorter than their options and text make them."""
        stages = _own_stages(record)
        for role, _, stage in self.job.cell.named_stages:
            config, facts = dict(stage.spec.config), stages.get(role)
            if facts is None or self.plan.training is None or "eval_every" not in config:  # another loop's
                continue
            count = len(self.plan.training.texts[stage.spec.text].sentences)
            steps, every = planned_steps(config, count), int(config["eval_every"])
            lengths = {"steps": steps, "sentences_seen": planned_sentences(config, count)}
            for name, value in lengths.items():
                if facts.get(name, value) != value:
                    what = f"it says {name} {facts[name]}, and its options and text give {value}"
                    yield "training", f"stage {role}: {what}", AGAIN
            if [row[0] for row in facts.get("dev_curve", ())] != list(range(every, steps + 1, every)):
                what = f"its dev curve isn't of every {every} of {steps} steps"
                yield "training", f"stage {role}: {what}", AGAIN

    def doubts(self, record: RunRecord, inputs: PlanInputs | None = None) -> Iterator[str]:
        """Yield names that stay unchecked: of texts, and of a row matched to another length.

        Profiles change, so another length may have been right then.
        """
        for name in dict.fromkeys(compare_text_names(record, self.job)):
            yield f"name of a text: {name}"
        match = matched_method(record)
        if match is None:
            return
        (request,) = self.plan.spec.methods
        kept = tuple(option for option in request.options if option[0] not in (*MATCHED, "epochs"))
        matching = replace(request, options=(*kept, ("match", match)))
        plan = make_plan(replace(self.plan.spec, methods=(matching,)), inputs)
        steps, recorded = dict(plan.jobs[0].cell.options)["steps"], record.options["steps"]
        if steps != recorded:
            what = f"match={match} gives {steps} steps here, and it has {recorded}"
            yield f"name of row {record.method}: {what}"


def plan_rerun(record: RunRecord, data: Path | None, inputs: PlanInputs | None = None) -> PlannedRerun:
    """Plan the run that repeats a record; ``inputs`` are data read for other records.

    Raises:
        DataError: an impossible record, or one with another seed than its run.
        InputError: missing data, model, text or plug-in.
        BenchError: another version of something in this bench.
    """
    arithmetic = training_arithmetic(record)
    if arithmetic not in (0, ARITHMETIC):
        raise BenchError(f"trained by arithmetic {arithmetic}, and this bench has {ARITHMETIC}")
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
    job = _name_made_weights(plan, find_repeating_job(plan, record), record)
    facts = dict.fromkeys(difference.fact for difference in find_fact_differences(record, job.record))
    if facts and facts.keys() <= _OF_THE_SEED:
        seeds = ["none" if seed is None else str(seed) for seed in (record.seed, job.cell.seed)]
        raise DataError(f"its seed is {seeds[0]}, and that of its run {seeds[1]}")
    if facts:
        raise BenchError(f"this bench has another {', '.join(facts)}")
    return PlannedRerun(plan, job)


def _name_made_weights(plan: Plan, job: Job, record: RunRecord) -> Job:
    """Return the job with the weights that the record names, where recipes make them and none did so here.

    Members' keys hold the hash of such weights, and those of the stages that learn from them.
    """
    known = dict(_find_made_weights({"backbone": record.backbone, **record.training}))
    cell = _replace_models(job.cell, known)
    if cell == job.cell:
        return job
    keyed = add_stages(cell, plan.spec, plan.training)
    return make_job(keyed, job.source or job.suite, plan.suites[job.suite], plan.spec, plan.training)


def _find_made_weights(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield recipe and hash of all models of a record, or of a member, that a recipe makes."""
    for model in (block.get("backbone") or {}, *block.get("auxiliaries", {}).values()):
        if "recipe" in model:
            yield model["recipe"], model["sha256"]
    for member in block.get("members", {}).values():
        yield from _find_made_weights(member)


def _replace_models(cell: Cell, known: Mapping[str, str]) -> Cell:
    def name(model: ModelFolder | None) -> ModelFolder | None:
        if isinstance(model, RecipeModel) and not model.sha256:
            return replace(model, sha256=known.get(model.recipe, ""))
        return model

    auxiliaries = tuple((option, name(model) or model) for option, model in cell.auxiliaries)
    members = tuple((role, _replace_models(member, known)) for role, member in cell.members)
    return replace(cell, model=name(cell.model), auxiliaries=auxiliaries, members=members)


def _missing_input(record: RunRecord, error: InputError) -> InputError:
    """The error of a missing input, in the same words for all methods."""
    what = error.what.replace(f"{record.name} needs", "a method needs")
    what = re.sub(r"; expected [^|]*?(?= \||$)", "", what).replace(" | ", "; ")  # options of bench run
    return InputError(f"of profile {record.profile}, {what}")


def replace_stage_keys(record: RunRecord, keys: dict[str, str]) -> RunRecord:
    """Return an older bench's record with this bench's keys of its stages."""
    stages = dict(record.training["stages"])
    for role in stages.keys() & keys.keys():
        stages[role] = {**stages[role], "key": keys[role]}
    return replace(record, training={**record.training, "stages": stages})


def check_training(record: RunRecord) -> Iterator[Problem]:
    """Yield contradictions of a stage: the chosen checkpoint, the ends of its curves, its last scores."""
    for role, stage in _own_stages(record).items():
        for what in (*_check_choice(stage), *_check_curves(stage)):
            yield "training", f"stage {role}: {what}", AGAIN
    yield from _check_last_scores(record)


def _check_last_scores(record: RunRecord) -> Iterator[Problem]:
    """Where every training chose its last step, scores of the last checkpoint are the record's own."""
    last = last_stages(record).values() if _own_stages(record) else ()
    if not last or any(stage.get("selected_step", 0) != stage.get("steps") for stage in last):
        return
    scores = {(s.task, s.subset, s.metric): s.value for s in record.scores}
    for (task, subset, metric), value in scores.items():
        own = scores.get((task, subset, metric.removesuffix("_last")), value)
        if metric.endswith("_last") and abs(value - own) > _ROUNDED:
            what = f"{task} {subset} {metric} is {value!r}, and it chose its last step, which has {own!r}"
            yield "score", what, AGAIN


def _own_stages(record: RunRecord) -> Mapping[str, Mapping[str, Any]]:
    """Stages of bench's own methods; others may choose and count in their own ways."""
    try:
        names = {record.name, *(request.name for request, _ in parse_record_members(record))}
    except InputError:  # reported by the checks of cards
        return {}
    own = names <= set(METHODS.names_from("bench"))
    stages: Mapping[str, Mapping[str, Any]] = record.training.get("stages", {}) if own else {}
    return stages


def _check_choice(stage: Mapping[str, Any]) -> Iterator[str]:
    """The chosen step is the first best of the dev curve, or the last of all if that is empty."""
    if not {"dev_curve", "selected_step", "selected_dev", "steps"} <= stage.keys():
        return
    curve = stage["dev_curve"]
    step, score, *_ = max(curve, key=lambda row: row[1]) if curve else (stage["steps"], None)
    chosen = stage["selected_step"], stage["selected_dev"]
    if chosen != (step, score):
        yield f"it chose step {chosen[0]} with {chosen[1]}, and its dev curve gives step {step} with {score}"


def _check_curves(stage: Mapping[str, Any]) -> Iterator[str]:
    steps = stage.get("steps")
    if steps is None:
        return
    at: dict[str, list[int]] = {}
    for name in ("dev", "loss"):
        at[name] = [row[0] for row in stage.get(f"{name}_curve", ())]
        if at[name] != sorted(set(at[name])) or any(not 1 <= step <= steps for step in at[name]):
            yield f"the steps of its {name} curve are not some of {steps}, in their order"
    losses = at["loss"]
    if losses and losses[-1] != steps:
        yield f"its loss curve ends at step {losses[-1]}, and it has {steps}"
    if len(losses) == steps and losses and stage.get("last_loss") != stage["loss_curve"][-1][1]:
        yield "its last loss is not that of its loss curve"
    norms = stage.get("gradient_norms", ())
    if len(norms) > steps or any(norm is not None and norm < 0 for norm in norms):
        yield f"its gradient norms are not those of its first steps, of {steps}"
