"""One cell: build, measure, write."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.data.mteb_names import is_mteb
from bench.data.suites import TRANSFER_SUITES, data_folder
from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError, DataError, NewerRecordError, NotComparableError, StorageError, printable
from bench.eval.mteb_tasks import MtebTask
from bench.eval.suite import SuiteTask, load_tasks
from bench.nn.threads import torch_threads
from bench.plan.cell import plugins_of
from bench.plan.job import Job
from bench.records.blocks import ENCODER, TRAINING, kept_facts
from bench.records.provenance import clean_traceback, provenance, timing, without_paths
from bench.records.record import ALL, RunRecord, Score
from bench.records.store import ResultStore, safe_name
from bench.run.builder import Builder
from bench.run.measure import at_precision, evaluate, kept, precision_effect
from bench.run.probing import add_probes, missing_probes, probe_data
from bench.run.stage_cache import StageCache
from bench.run.task import CellTask, Outcome
from bench.schema import number


def run_cell(
    task: CellTask,
    suites: Mapping[str, list[SuiteTask]] | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run one cell's pending suites under its lock, and add the probes that their records lack.

    Args:
        task: The cell; its data are looked for where it runs.
        suites: The suites' data where this process has read them already; a worker reads its own.
        progress: Called with finished sentences.
    """
    task = replace(task, data=data_folder(task.data))
    store = ResultStore(task.results, task.campaign)
    cell = task.jobs[0].cell
    outcomes: list[Outcome] = []
    with store.claim(task.jobs[0].place, wait=task.wait) as mine:
        if not mine:
            return [Outcome(job, "busy") for job in task.jobs]
        cache = StageCache(task.results / ".stages")
        builder = Builder(cell, task.device, task.training, cache, progress)
        classifies = any(job.suite in TRANSFER_SUITES or is_mteb(job.suite) for job in task.jobs)
        with torch_threads(task.threads, needs_torch=cell.model is not None or classifies):
            for job in task.jobs:
                finished = _finished_meanwhile(store, job, task)
                if finished is not None:
                    outcome = Outcome(job, "done", finished)
                else:
                    data = suites[job.suite] if suites else None
                    outcome = _run_job(job, task, store, builder, data, progress)
                outcomes.append(_with_probes(outcome, task, store, builder, progress))
    return outcomes


def _with_probes(
    outcome: Outcome, task: CellTask, store: ResultStore, builder: Builder, progress: Progress | None
) -> Outcome:
    """Add the probes that a finished record lacks; a failure leaves the record as it is."""
    job, record = outcome.job, outcome.record
    if record is None or record.status != "ok" or not task.probes:
        return outcome
    try:
        data = probe_data(task.probed, task.data, task.accept_data, task.world_seed)
        missing = missing_probes(record, task.probes, data)
        if not missing:
            return outcome
        record = add_probes(record, missing, data, builder, progress)
        record = store.write(job.place, record, store.predictions(record))
    except StorageError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        reason = printable(without_paths(f"probes: {' '.join(reason.split())}"))
        return Outcome(job, "failed", replace(record, status="failed", reason=reason))
    return Outcome(job, "ran" if outcome.state == "ran" else "probed", record)


def _run_job(
    job: Job,
    task: CellTask,
    store: ResultStore,
    builder: Builder,
    data: list[SuiteTask] | None,
    progress: Progress | None,
) -> Outcome:
    """Evaluate and write one record; a failure becomes a record with its traceback, never a number."""
    started, wall, cpu = time.time(), time.perf_counter(), time.process_time()
    record, predictions, facts = _blank(job), None, {}
    more: dict[str, Any] = {}
    try:
        tasks = data or _suite_tasks(job.source or job.suite, task.data, task.accept_data, task.world_seed)
        if [(t.id, t.sha256) for t in tasks] != [(name, sha256) for name, _, sha256, _ in job.tasks]:
            raise BenchError("the evaluation data changed since the run was planned", where=job.suite)
        encoder = builder.encoder()
        facts = kept_facts(encoder.facts, ENCODER, "the encoder's facts")
        if is_mteb(job.suite):
            if task.precision != "fp32":
                raise BenchError("what mteb measures has fp32 alone", hint="without --precision")
            scores, more["mteb"] = _measure_with_mteb(encoder, tasks, job, task, store, progress)
        else:
            lowered = kept(at_precision(encoder, task), job, task, precision=task.precision)
            scores, predictions, found = evaluate(lowered, tasks, job, task, progress)
            more |= found
            coverage = getattr(encoder, "coverage", {})  # what it knew of these sentences
            facts |= kept_facts(coverage, ENCODER, "the encoder's coverage")
            if task.precision != "fp32":
                whole = kept(encoder, job, task, precision="fp32")
                full = evaluate(whole, tasks, job, task, progress)[0]
                more["evaluation_precision"] = precision_effect(task.precision, scores, full)
                more["precision"] = task.precision
            if job.cell.trains and job.suite not in TRANSFER_SUITES:
                scores += _last_checkpoint(builder, tasks, scores, job, task, progress)
        training = kept_facts(builder.facts(), TRAINING, "the facts of its training")
        record = replace(record, status="ok", scores=scores, training=training)
    except StorageError:
        raise  # the next cell's training would be in vain as well
    except (Exception, SystemExit) as error:
        predictions = None
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        reason = printable(without_paths(" ".join(reason.split())))
        record = replace(record, reason=reason, traceback=clean_traceback(error))
    plugins = plugins_of(job.cell)
    block = timing(started=started, wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
    if job.cell.trains:
        block["training_cpu_seconds"] = _training_seconds(builder)
    record = replace(
        record,
        provenance={
            **provenance(device=task.device, threads=task.threads),
            "encoder": facts,
            **({"plugins": plugins} if plugins else {}),
            **more,
        },
        timing=block,
    )
    if record.status == "failed" and _has_result(store, job):
        return Outcome(job, "failed", record)  # a forced run that fails doesn't cost the finished record
    record = store.write(job.place, record, predictions)
    return Outcome(job, "ran" if record.status == "ok" else "failed", record)


def _training_seconds(builder: Builder) -> dict[str, float]:
    """CPU seconds of each finished stage; none where a stage doesn't say, which fails the cell."""
    try:
        seconds = builder.training_seconds()
    except KeyError:
        return {}
    return {stage: value for stage, value in seconds.items() if number(value)}


def _measure_with_mteb(
    encoder: Encoder | PairScorer,
    tasks: Sequence[SuiteTask],
    job: Job,
    task: CellTask,
    store: ResultStore,
    progress: Progress | None,
) -> tuple[tuple[Score, ...], dict[str, Any]]:
    """Scores of a suite of mteb's, and what the record says of them; finished tasks aren't measured again."""
    from bench.eval.mteb_run import evaluate

    cell = job.cell
    run = evaluate(
        encoder,
        [each for each in tasks if isinstance(each, MtebTask)],
        name=f"bench/{safe_name(f'{cell.profile}-{cell.describe()}'.replace(' ', '-'))}",
        folder=store.root / "mteb",
        identity=json.dumps([cell.identity(), task.device, task.threads, task.precision], sort_keys=True),
        force=task.force,
        progress=progress,
    )
    return run.scores, run.facts


def _last_checkpoint(
    builder: Builder,
    tasks: Sequence[SuiteTask],
    selected: tuple[Score, ...],
    job: Job,
    task: CellTask,
    progress: Progress | None,
) -> tuple[Score, ...]:
    """Scores of the last checkpoint (metric "spearman_last"), for what choosing on the dev set was worth."""
    scores = selected
    if builder.last_differs():
        last = at_precision(builder.encoder("last"), task)
        last = kept(last, job, task, precision=task.precision, checkpoint="last")
        scores = evaluate(last, tasks, job, task, progress)[0]
    return tuple(replace(score, metric="spearman_last") for score in scores if score.subset == ALL)


@cache
def _suite_tasks(name: str, data: Path | None, accept_data: bool, world_seed: int) -> list[SuiteTask]:
    return load_tasks(name, data, accept_data=accept_data, world_seed=world_seed)


def _finished_meanwhile(store: ResultStore, job: Job, task: CellTask) -> RunRecord | None:
    """Return the record if another process finished the job between planning and now.

    Raises:
        NotComparableError: another process finished another specification in the same place.
    """
    if task.force or not _has_result(store, job):
        return None
    record = store.read(job.place)
    if record is not None and record.key != job.key:
        raise NotComparableError(
            f"another process just finished {job.cell.describe()} on {job.suite} under another specification",
            where=str(store.path(job.place)),
            hint="name another --campaign",
        )
    return record


def _has_result(store: ResultStore, job: Job) -> bool:
    """True if a finished, whole record stands at the job's place."""
    try:
        record = store.read(job.place)
    except NewerRecordError:
        raise
    except DataError:
        return False
    return record is not None and record.status == "ok" and store.is_whole(job.place, record)


def _blank(job: Job) -> RunRecord:
    cell, items = job.cell, "items" if job.suite in TRANSFER_SUITES else "pairs"
    return RunRecord(
        profile=cell.profile,
        method=cell.method,
        name=cell.card.name,
        version=cell.card.version,
        options=dict(cell.options),
        backbone={"name": cell.model.name, "sha256": cell.model.sha256} if cell.model else None,
        seed=cell.seed,
        suite=job.suite,
        tasks={
            task_id: {items: count, "sha256": sha256, "reference": reference}
            for task_id, count, sha256, reference in job.tasks
        },
        key=job.key,
        family=job.family,
        status="failed",
        notes=job.notes,
        world=job.world,
    )
