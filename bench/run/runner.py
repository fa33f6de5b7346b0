"""Runs a plan: builds each cell's encoder once, evaluates it suite by suite, writes every record at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.run.cell import run_cell
from bench.run.deadline import Deadline
from bench.run.events import EVALUATES, LOADS, PROBES, all_work, clear_leftovers, run_folder, work_of
from bench.run.executors import executor_for
from bench.run.executors.local import Executor, InProcess, always
from bench.run.probing import jobs_without_probes
from bench.run.sharing import sharing
from bench.run.stage_cache import StageCache
from bench.run.task import CellTask, Outcome


def run_plan(
    plan: Plan,
    *,
    on_outcome: Callable[[Outcome], None],
    watch: Callable[[Path], AbstractContextManager[object]] | None = None,
    deadline: Deadline | None = None,
) -> list[Outcome]:
    """Run every pending job and add the probes that are asked for, also to records that are there already.

    Cells that another process is computing come last and are waited for.

    Args:
        plan: The plan.
        on_outcome: Called for every job as soon as its record is on disk.
        watch: Gets the folder of the run's events (:mod:`bench.run.events`), and is open while cells run.
        deadline: Says which cells are begun, and keeps the others; then nobody is waited for.

    Returns:
        The outcomes of all jobs of :func:`pending_jobs`, but for those that the deadline keeps.
    """
    tasks = _cell_tasks(plan)
    if tasks:  # else nothing is written, and the folder may be read-only
        plan.store.prepare()
    plan.store.clear_leftovers()
    clear_leftovers(plan.store.root)
    StageCache(plan.spec.results / ".stages").clear_leftovers()
    executor = executor_for(plan.spec, partial(sharing, plan, len(tasks)))
    if not tasks:
        return []
    methods = Counter(task.jobs[0].cell.method for task in tasks)
    with ExitStack() as opened:
        folder = opened.enter_context(run_folder(plan.store.root, methods, _work(plan, tasks)))
        if watch and folder:
            opened.enter_context(watch(folder))
        tasks = [replace(task, running=folder) for task in tasks]
        return _run(plan, executor, tasks, on_outcome, deadline)


def _run(
    plan: Plan,
    executor: Executor,
    tasks: list[CellTask],
    on_outcome: Callable[[Outcome], None],
    deadline: Deadline | None,
) -> list[Outcome]:
    here = isinstance(executor, InProcess)
    function = partial(run_cell, suites=plan.suites) if here else run_cell
    outcomes: list[Outcome] = []
    while tasks:
        task_of = {task.jobs[0].place: task for task in tasks}
        busy: list[CellTask] = []
        for results in executor.run(function, tasks, _stage_keys, deadline.begins if deadline else always):
            task = task_of[results[0].job.place]
            if any(outcome.state == "busy" for outcome in results):
                busy.append(replace(task, wait=True))
                continue
            if deadline:
                deadline.ended(task)
            for outcome in results:
                outcomes.append(outcome)
                on_outcome(outcome)
        if deadline:
            deadline.leave(busy)
        tasks = [] if deadline else busy
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
    pending = {job.place for job in plan.pending()}
    tasks = []
    for jobs in by_cell.values():
        besides = {work_of(EVALUATES, job.suite): 1 for job in jobs if job.place in pending}
        besides |= {work_of(LOADS): 1} | ({work_of(PROBES): len(jobs)} if plan.spec.probes else {})
        tasks.append(CellTask(tuple(jobs), plan.spec, plan.training, plan.world_seed, besides=besides))
    return tasks


def _work(plan: Plan, tasks: Iterable[CellTask]) -> dict[str, Counter[str]]:
    """The work of each method's cells; a stage that several cells have is that of the first."""
    finished, seen = StageCache(plan.spec.results / ".stages").root, set[str]()
    found: dict[str, Counter[str]] = {}
    for task in tasks:
        stages = {key: each for key, each in task.to_train(finished).items() if key not in seen}
        seen |= stages.keys()
        found.setdefault(task.jobs[0].cell.method, Counter()).update(all_work(stages, task.besides))
    return found
