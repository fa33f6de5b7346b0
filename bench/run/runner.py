"""Runs a plan: builds each cell's encoder once, evaluates it suite by suite, writes every record at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bench.encoder import Progress
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.run.cell import run_cell
from bench.run.executors import executor_for
from bench.run.executors.local import InProcess
from bench.run.probing import jobs_without_probes
from bench.run.stage_cache import StageCache
from bench.run.task import CellTask, Outcome


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
    tasks = _cell_tasks(plan)
    if tasks:  # else nothing is written, and the folder may be read-only
        plan.store.prepare()
    plan.store.clear_leftovers()
    StageCache(plan.spec.results / ".stages").clear_leftovers()
    executor = executor_for(plan.spec)
    here = isinstance(executor, InProcess)
    function = partial(run_cell, suites=plan.suites, progress=progress) if here else run_cell
    outcomes: list[Outcome] = []
    while tasks:
        task_of = {task.jobs[0].place: task for task in tasks}
        busy: list[CellTask] = []
        for results in executor.run(function, tasks, _stage_keys):
            if any(outcome.state == "busy" for outcome in results):
                busy.append(replace(task_of[results[0].job.place], wait=True))
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
    return [CellTask(tuple(jobs), plan.spec, plan.training, plan.world_seed) for jobs in by_cell.values()]
