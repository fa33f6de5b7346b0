"""What a record says of itself, against what a run of its cell would say: what no key has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.data.pins import NLI, WIKI1M, note
from bench.data.training import TrainingData
from bench.plan.job import Job, make_job
from bench.plan.plan import Plan
from bench.records.record import RunRecord, is_supervised


def job_of(plan: Plan, record: RunRecord) -> Job:
    """Return the job of a plan that repeats a record, the first where none has its seed."""
    return next((job for job in plan.jobs if job.cell.seed == record.seed), plan.jobs[0])


def said_otherwise(record: RunRecord, plan: Plan, job: Job) -> Iterator[str]:
    """Yield what a record says of labels and in its notes, and its run would say otherwise.

    The names of the row, the model and the texts are the record's own: all else of these is in its key.

    Args:
        record: A record.
        plan: Of the run that repeats it.
        job: Its job there, of the same key.
    """
    cell, said = job.cell, record.backbone or {}
    model = replace(cell.model, name=said.get("name", cell.model.name)) if cell.model else None
    renamed = replace(cell, method=record.method, model=model)
    training = plan.training and _renamed(plan.training, record)
    source, tasks = job.source or job.suite, plan.suites[job.suite]
    own = make_job(renamed, source, tasks, plan.spec, training, plan.world_seed).record
    if is_supervised(record) != is_supervised(own):
        verb = ("says", "doesn't") if is_supervised(record) else ("doesn't say", "did")
        yield f"it {verb[0]} that it learned from labels, and it {verb[1]}"
    for text in own.notes:
        if text not in (*record.notes, *(training.notes(cell.texts) if training else ())):
            yield f"it lacks the note '{text}'"
    names = {text.name for text in training.texts.values()} if training else set()
    elsewhere = {note(name) for name in names & {WIKI1M, NLI}}  # the copy at hand may be the pinned one
    for text in record.notes:
        if text not in own.notes and text not in elsewhere:
            yield f"its run has no note '{text}'"


def facts_otherwise(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield what no key has of the model, the texts and the dev set, and a record says otherwise.

    Args:
        record: A record.
        job: That of the run that repeats it, of the same key.
    """
    said, own = record.training, job.record.training
    stages, ours = said.get("stages", {}), own.get("stages", {})
    blocks = [
        ("model", ("name", "recipe"), record.backbone, job.record.backbone),
        ("training text", ("sentences", "pairs"), said.get("corpus"), own.get("corpus")),
        ("dev set", ("task",), said.get("dev"), own.get("dev")),
    ]
    blocks += [
        (f"text of stage {role}", ("pairs", "paired"), stages.get(role, {}).get("text"), stage.get("text"))
        for role, stage in ours.items()
    ]
    for what, facts, its, here in blocks:
        for fact in facts:
            stated, found = (its or {}).get(fact), (here or {}).get(fact)
            if stated != found:
                yield f"it says {fact} {stated} of its {what}, and that is {found}"


def names_otherwise(record: RunRecord, job: Job) -> Iterator[str]:
    """Yield texts that a record calls otherwise: a copy of another name is the same text."""
    said, own = record.training, job.record.training
    texts = [(said.get("corpus"), own.get("corpus"))]
    texts += [
        (said.get("stages", {}).get(role, {}).get("text"), stage.get("text"))
        for role, stage in own.get("stages", {}).items()
    ]
    for its, here in texts:
        if its and here and its["name"] != here["name"]:
            yield f"{its['name']} is called {here['name']} here"


def _renamed(training: TrainingData, record: RunRecord) -> TrainingData:
    """The texts with the names that a record gives them."""
    stages = record.training.get("stages", {}).values()
    blocks = (record.training.get("corpus"), *(stage.get("text") for stage in stages))
    names = {block["sha256"]: block["name"] for block in blocks if block and "name" in block}
    texts = {
        key: replace(text, name=names.get(text.sha256, text.name)) for key, text in training.texts.items()
    }
    return replace(training, texts=texts)
