"""What a record says of the course of its trainings, against itself and against what was asked for.

Losses and dev scores come from the training alone, so that only a repetition shows whether they are true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.errors import InputError
from bench.execution.repetition import parse_record_members
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.integrity import AGAIN
from bench.records.record import RunRecord, last_stages
from bench.registry import METHODS
from bench.stages import planned_sentences, planned_steps
from bench.verify.findings import Problem

_ROUNDED = 1e-6
"""What scipy 1.18's ranks in float32 moved a score by at most (1.2e-7), and somewhat more."""


def check_training(record: RunRecord) -> Iterator[Problem]:
    """Yield where a stage contradicts itself: the checkpoint that was chosen, and where its curves end."""
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


def check_planned_training(record: RunRecord, plan: Plan, job: Job) -> Iterator[Problem]:
    """Yield where a stage is longer or shorter than its options and text make it.

    Args:
        record: A record.
        plan: Of the run that repeats it.
        job: Its job there, of the same key.
    """
    stages = _own_stages(record)
    for role, _, stage in job.cell.named_stages:
        config, said = dict(stage.spec.config), stages.get(role)
        if said is None or plan.training is None or "eval_every" not in config:  # not of the training loop
            continue
        sentences = len(plan.training.texts[stage.spec.text].sentences)
        steps, every = planned_steps(config, sentences), int(config["eval_every"])
        given = {"steps": steps, "sentences_seen": planned_sentences(config, sentences)}
        for name, value in given.items():
            if said.get(name, value) != value:
                what = f"it says {name} {said[name]}, and its options and text give {value}"
                yield "training", f"stage {role}: {what}", AGAIN
        at = [row[0] for row in said.get("dev_curve", ())]
        if len(at) != steps // every or any(step != every * i for i, step in enumerate(at, start=1)):
            yield "training", f"stage {role}: its dev curve isn't of every {every} of {steps} steps", AGAIN


def _own_stages(record: RunRecord) -> Mapping[str, Mapping[str, Any]]:
    """Its stages, none where a method isn't bench's own: others may choose and count as they like."""
    try:
        names = {record.name, *(request.name for request, _ in parse_record_members(record))}
    except InputError:  # said already
        return {}
    own = names <= set(METHODS.names_from("bench"))
    stages: Mapping[str, Mapping[str, Any]] = record.training.get("stages", {}) if own else {}
    return stages


def _check_choice(stage: Mapping[str, Any]) -> Iterator[str]:
    """The chosen step is that of the best dev score, the first of equals, or the last step without one."""
    if not {"dev_curve", "selected_step", "selected_dev", "steps"} <= stage.keys():
        return
    curve = stage["dev_curve"]
    step, score, *_ = max(curve, key=lambda row: row[1]) if curve else (stage["steps"], None)
    said = stage["selected_step"], stage["selected_dev"]
    if said != (step, score):
        yield f"it chose step {said[0]} with {said[1]}, and its dev curve gives step {step} with {score}"


def _check_curves(stage: Mapping[str, Any]) -> Iterator[str]:
    steps = stage.get("steps")
    dev, losses = ([row[0] for row in stage.get(f"{name}_curve", ())] for name in ("dev", "loss"))
    if steps is None:
        return
    for name, at in (("dev", dev), ("loss", losses)):
        if at != sorted(set(at)) or any(not 1 <= step <= steps for step in at):
            yield f"the steps of its {name} curve are not some of {steps}, in their order"
    if losses and losses[-1] != steps:
        yield f"its loss curve ends at step {losses[-1]}, and it has {steps}"
    if len(losses) == steps and losses and stage.get("last_loss") != stage["loss_curve"][-1][1]:
        yield "its last loss is not that of its loss curve"
