"""Runs a plan: builds each cell's encoder once, evaluates it suite by suite, writes every record at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from bench.builder import Builder
from bench.data.mini.world import DEFAULT_SEED
from bench.data.suites import data_folder, load_suite
from bench.data.tasks import PairTask
from bench.encoder import Progress
from bench.errors import BenchError, DataError, NewerRecordError, NotComparableError
from bench.executors.local import local_executor
from bench.plan import Job, Plan
from bench.probing import add_probes, jobs_without_probes, missing_probes, probe_data, probed_suite
from bench.provenance import clean_traceback, provenance, timing, without_paths
from bench.record import ALL, RunRecord, Score
from bench.stages import StageCache
from bench.store import ResultStore
from bench.training_data import TrainingData


@dataclass(frozen=True)
class CellTask:
    """What a worker gets: one cell and its pending suites (it must pickle)."""

    jobs: tuple[Job, ...]
    results: Path
    campaign: str
    data: Path | None
    accept_data: bool
    device: str
    threads: int
    force: bool
    training: TrainingData | None
    world_seed: int = DEFAULT_SEED
    wait: bool = False
    probes: tuple[str, ...] = ()
    probed: str = ""
    """Suite whose sentences are probed."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    "ran", "probed" (it was there already), "failed", "done" (by another process) or "busy" (another has it).
    """

    job: Job
    state: str
    record: RunRecord | None = None


def run_plan(
    plan: Plan, *, on_outcome: Callable[[Outcome], None], progress: Progress | None = None
) -> list[Outcome]:
    """Run every pending job and add the probes that are asked for, also to records that are there already.

    Cells that another process is computing come last and are waited for.

    Args:
        plan: The plan.
        on_outcome: Called for every job as soon as its record is on disk.
        progress: Called with finished sentences, when cells run in this process.

    Returns:
        The outcomes of all jobs of :func:`pending_jobs`.
    """
    plan.store.prepare()
    tasks = _cell_tasks(plan)
    function = run_cell if plan.spec.workers > 1 else partial(run_cell, suites=plan.suites, progress=progress)
    executor = local_executor(plan.spec.workers)
    outcomes: list[Outcome] = []
    while tasks:
        busy: list[CellTask] = []
        for task, results in executor.run(function, tasks, _stage_keys):
            if any(outcome.state == "busy" for outcome in results):
                busy.append(replace(task, wait=True))
                continue
            for outcome in results:
                outcomes.append(outcome)
                on_outcome(outcome)
        tasks = busy
    return outcomes


def _stage_keys(task: CellTask) -> frozenset[str]:
    return frozenset(stage.key for stage in task.jobs[0].cell.all_stages)


def pending_jobs(plan: Plan) -> list[Job]:
    """Jobs that have to run, and finished ones whose records lack probes."""
    lacking = {job.place for job in jobs_without_probes(plan)}
    pending = {job.place for job in plan.pending()}
    return [job for job in plan.jobs if job.place in pending | lacking]


def _cell_tasks(plan: Plan) -> list[CellTask]:
    by_cell: dict[tuple[str, int | None], list[Job]] = {}
    for job in pending_jobs(plan):
        by_cell.setdefault((job.cell.method, job.cell.seed), []).append(job)
    spec = plan.spec
    return [
        CellTask(
            tuple(jobs),
            spec.results,
            spec.campaign,
            data_folder(spec.data),
            spec.accept_data,
            spec.device,
            spec.threads,
            spec.force,
            plan.training,
            plan.world_seed,
            probes=spec.probes,
            probed=probed_suite(spec) if spec.probes else "",
        )
        for jobs in by_cell.values()
    ]


def run_cell(
    task: CellTask,
    suites: Mapping[str, list[PairTask]] | None = None,
    progress: Progress | None = None,
) -> tuple[CellTask, list[Outcome]]:
    """Run one cell's pending suites under its lock, and add the probes that their records lack.

    Args:
        task: The cell.
        suites: The suites' data where this process has read them already; a worker reads its own.
        progress: Called with finished sentences.
    """
    store = ResultStore(task.results, task.campaign)
    cell = task.jobs[0].cell
    outcomes: list[Outcome] = []
    with store.claim(task.jobs[0].place, wait=task.wait) as mine:
        if not mine:
            return task, [Outcome(job, "busy") for job in task.jobs]
        cache = StageCache(task.results / ".stages")
        builder = Builder(cell, task.device, task.training, cache, progress)
        with torch_threads(task.threads, needs_torch=cell.model is not None):
            for job in task.jobs:
                finished = _finished_meanwhile(store, job, task)
                if finished is not None:
                    outcome = Outcome(job, "done", finished)
                else:
                    data = suites[job.suite] if suites else None
                    outcome = _run_job(job, task, store, builder, data, progress)
                outcomes.append(_with_probes(outcome, task, store, builder, progress))
    return task, outcomes


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
    except Exception as error:
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        reason = without_paths(f"probes: {' '.join(reason.split())}")
        return Outcome(job, "failed", replace(record, status="failed", reason=reason))
    return Outcome(job, "ran" if outcome.state == "ran" else "probed", record)


def _run_job(
    job: Job,
    task: CellTask,
    store: ResultStore,
    builder: Builder,
    data: list[PairTask] | None,
    progress: Progress | None,
) -> Outcome:
    """Evaluate and write one record; a failure becomes a record with its traceback, never a number."""
    from bench.eval.sts import predict, score_suite

    started, wall, cpu = time.time(), time.perf_counter(), time.process_time()
    record, predictions, facts = _blank(job), None, {}
    try:
        tasks = data or _suite_tasks(job.suite, task.data, task.accept_data, task.world_seed)
        if [(t.id, t.sha256) for t in tasks] != [(name, sha256) for name, _, sha256, _ in job.tasks]:
            raise BenchError("the evaluation data changed since the run was planned", where=job.suite)
        encoder = builder.encoder()
        facts = encoder.facts
        predictions = predict(encoder, tasks, progress=progress)
        scores = score_suite(tasks, predictions)
        if job.cell.trains:
            scores += _last_checkpoint(builder, tasks, scores, progress)
        record = replace(record, status="ok", scores=scores, training=builder.facts())
    except Exception as error:
        predictions = None
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        record = replace(
            record, reason=without_paths(" ".join(reason.split())), traceback=clean_traceback(error)
        )
    block = timing(started=started, wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
    if job.cell.trains:
        block["training_cpu_seconds"] = builder.training_seconds()
    record = replace(
        record,
        provenance={**provenance(device=task.device, threads=task.threads), "encoder": facts},
        timing=block,
    )
    if record.status == "failed" and _has_result(store, job):
        return Outcome(job, "failed", record)  # a forced run that fails doesn't cost the finished record
    record = store.write(job.place, record, predictions)
    return Outcome(job, "ran" if record.status == "ok" else "failed", record)


def _last_checkpoint(
    builder: Builder, tasks: list[PairTask], selected: tuple[Score, ...], progress: Progress | None
) -> tuple[Score, ...]:
    """Scores of the last checkpoint (metric "spearman_last"), for what choosing on the dev set was worth."""
    from bench.eval.sts import predict, score_suite

    scores = selected
    if builder.last_differs():
        scores = score_suite(tasks, predict(builder.encoder("last"), tasks, progress=progress))
    return tuple(replace(score, metric="spearman_last") for score in scores if score.subset == ALL)


@cache
def _suite_tasks(name: str, data: Path | None, accept_data: bool, world_seed: int) -> list[PairTask]:
    return load_suite(name, data, accept_data=accept_data, world_seed=world_seed)[1]


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
    cell = job.cell
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
            task_id: {"pairs": pairs, "sha256": sha256, "reference": reference}
            for task_id, pairs, sha256, reference in job.tasks
        },
        key=job.key,
        family=job.family,
        status="failed",
        notes=job.notes,
        world=job.world,
    )


@contextmanager
def torch_threads(count: int, *, needs_torch: bool) -> Iterator[None]:
    """Set torch's threads for a cell and put them back."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false" if count == 1 else "true")
    if not needs_torch:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
