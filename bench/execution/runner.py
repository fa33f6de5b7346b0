"""Runs a plan: builds each cell's encoder once, evaluates it suite by suite, writes every record at once."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bench.config.run_spec import ALL_METHODS, RunSpec
from bench.data.mteb_names import suite_label
from bench.errors import InputError
from bench.eval.suite_measures import measure_of
from bench.execution import events
from bench.execution.cell_run import CellTask, Outcome, run_cell
from bench.execution.dry_run import CellTimes
from bench.execution.encoder_builder import check_backbone_text
from bench.execution.executors import local
from bench.execution.gpu_sharing import choose_cells_per_gpu
from bench.execution.record_probes import find_unprobed_jobs
from bench.execution.session_classes import check_sourceless_classes, keep_session_texts
from bench.execution.stage_cache import StageCache
from bench.plan.backbones import check_backbones
from bench.plan.cell_expansion import find_method_cards
from bench.plan.job import Job
from bench.plan.memory_options import check_memory_options
from bench.plan.plan import Plan
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.registry import discover

if TYPE_CHECKING:
    from bench.execution.executors.ray import RayTasks


class InProcess:
    """Runs tasks one after the other in this process."""

    def run(
        self,
        function: Callable[[local.Task], local.Result],
        tasks: Sequence[local.Task],
        needs: local.Needs = local.need_nothing,
        begins: local.Begins = local.begin_always,
    ) -> Iterator[local.Result]:
        """Yield results in the order of the tasks."""
        return (function(task) for task in tasks if begins(task))


Executor: TypeAlias = "InProcess | local.WorkerProcesses | RayTasks"


def check_early_data(spec: RunSpec) -> None:
    """Refuse missing data before the slow planning, for suites that lack records; raises InputError."""
    discover()
    cards = find_method_cards([request for request in spec.methods if request.text != ALL_METHODS])
    if spec.executor != "local" or any(card.scores_pairs for card in cards):
        return
    root = ResultStore(spec.results, spec.campaign).root
    for suite in spec.suites:
        if not any(root.glob(f"*/*/*/{escape(safe_name(suite_label(suite)))}.json")):
            measure_of(suite).check_early()


def check_pending_cells(plan: Plan) -> None:
    """Raise InputError, before anything runs, for a plan whose pending cells would fail."""
    pending = plan.pending()
    check_backbone_text(job.cell for job in pending)
    check_backbones((job.cell for job in pending), plan.training)
    check_memory_options(job.cell for job in pending)
    for name, label in dict.fromkeys((job.source or job.suite, job.suite) for job in pending):
        measure = measure_of(name)
        scorers = sorted(
            {job.cell.method for job in pending if job.suite == label and job.cell.lacks_vectors}
        )
        if measure.needs_vectors and scorers:
            verbs = ("compares", "has", "it") if len(scorers) == 1 else ("compare", "have", "them")
            names = " and ".join(scorers)
            what = f"{names} {verbs[0]} pairs and {verbs[1]} no vectors, which this suite needs"
            raise InputError(what, where=f"--suite {name}", hint=f"leave {verbs[2]} out of --methods")
        if plan.spec.executor == "local":  # on a cluster, the nodes' caches count
            measure.check(plan.suites[label])


CellKind = tuple[object, ...]


def count_fitting_cells(seconds: Sequence[float], workers: int, end: float) -> int:
    """Count the cells that end in time, when workers take them in order; times and end in seconds."""
    free, fit = [0.0] * workers, 0
    for duration in seconds:
        begin = heapq.heappop(free)
        in_time = begin + duration < end
        heapq.heappush(free, begin + duration if in_time else begin)
        fit += in_time
    return fit


class Deadline:
    """Decides for each cell whether it begins before ``end`` of ``clock``; keeps the others in ``left``."""

    # A cell needs as long as the longest of its kind in this run: same method, same suites, same unfinished
    # stages. The first of a kind needs the estimated seconds, 0 where they are unknown.
    def __init__(
        self,
        plan: Plan,
        end: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        estimate: Callable[[Sequence[Job]], float] | None = None,
    ) -> None:
        self._times = CellTimes(plan)
        self._end, self._clock, self._estimate = end, clock, estimate or self._times.seconds
        self._begun: dict[object, tuple[CellKind, float]] = {}
        self._took: dict[CellKind, float] = {}
        self.left: list[CellTask] = []

    def begins(self, task: CellTask) -> bool:
        """Begin a cell and return True if it would end in time, otherwise leave it."""
        kind = self._cell_kind(task)
        if self._clock() < self._end:  # afterwards, measuring for an estimate is wasted
            needed = self._took[kind] if kind in self._took else self._estimate(task.jobs)
            if (now := self._clock()) + needed < self._end:
                self._begun[task.jobs[0].place] = kind, now
                return True
        self.left.append(task)
        return False

    def _cell_kind(self, task: CellTask) -> CellKind:
        suites = tuple(job.suite for job in task.jobs)
        return task.jobs[0].cell.method, suites, self._times.training_kind(task.jobs)

    def end_cell(self, task: CellTask) -> None:
        """Note how long a cell took."""
        kind, begun = self._begun.pop(task.jobs[0].place)
        self._took[kind] = max(self._took.get(kind, 0.0), self._clock() - begun)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are left."""
        return [job for task in self.left for job in task.jobs]


def run_plan(
    plan: Plan,
    *,
    on_outcome: Callable[[Outcome], None],
    watch: Callable[[Path], AbstractContextManager[object]] | None = None,
    deadline: Deadline | None = None,
) -> list[Outcome]:
    """Run every pending job, and add the requested probes, to existing records too; return all outcomes."""
    # ``on_outcome`` is called for every job as soon as its record is on disk. ``watch`` gets the folder of
    # the run's events. Unless there is a deadline, it waits for cells of other processes at the end.
    tasks = _build_cell_tasks(plan)
    if tasks:  # otherwise nothing is written, and the folder may be read-only
        check_sourceless_classes(plan)
        plan.store.prepare()
        keep_session_texts(plan)
    plan.store.clear_leftovers()
    events.clear_dead_runs(plan.store.root)
    StageCache(plan.spec.results / ".stages").clear_leftovers()
    executor = choose_executor(plan.spec, partial(choose_cells_per_gpu, plan, len(tasks)))
    if not tasks:
        return []
    methods = Counter(task.jobs[0].cell.method for task in tasks)
    outcomes: list[Outcome] = []
    with ExitStack() as opened:
        work = _count_method_work(plan, tasks)
        folder = opened.enter_context(events.open_run_folder(plan.store.root, methods, work))
        if watch and folder:
            opened.enter_context(watch(folder))
        tasks = [replace(task, running=folder) for task in tasks]
        function = partial(run_cell, suites=plan.suites) if isinstance(executor, InProcess) else run_cell
        begins = deadline.begins if deadline else local.begin_always
        while tasks:
            task_of = {task.jobs[0].place: task for task in tasks}
            busy: list[CellTask] = []
            for results in executor.run(function, tasks, CellTask.stage_keys, begins):
                task = task_of[results[0].job.place]
                if any(outcome.state == "busy" for outcome in results):
                    busy.append(replace(task, wait=True))
                    continue
                if deadline:
                    deadline.end_cell(task)
                for outcome in results:
                    outcomes.append(outcome)
                    on_outcome(outcome)
            if deadline:  # the end of other processes' cells is unknown
                deadline.left += busy
                busy = []
            tasks = busy
    return outcomes


def find_pending_jobs(plan: Plan) -> list[Job]:
    """Return jobs that have to run, and finished ones whose records lack probes."""
    unprobed = find_unprobed_jobs(plan) if plan.spec.probes else []
    places = {job.place for job in (*plan.pending(), *unprobed)}
    return [job for job in plan.jobs if job.place in places]


def _build_cell_tasks(plan: Plan) -> list[CellTask]:
    by_cell: dict[tuple[str, int | None], list[Job]] = {}
    for job in find_pending_jobs(plan):
        by_cell.setdefault((job.cell.method, job.cell.seed), []).append(job)
    pending = {job.place for job in plan.pending()}
    tasks = []
    for jobs in by_cell.values():
        besides = {events.work_name(events.EVALUATES, job.suite): 1 for job in jobs if job.place in pending}
        besides[events.work_name(events.LOADS)] = 1
        if plan.spec.probes:
            besides[events.work_name(events.PROBES)] = len(jobs)
        tasks.append(CellTask(tuple(jobs), plan.spec, plan.training, besides=besides))
    return tasks


def _count_method_work(plan: Plan, tasks: Iterable[CellTask]) -> dict[str, Counter[str]]:
    """Count the work of each method's cells; a shared stage counts for its first cell."""
    finished, seen = StageCache(plan.spec.results / ".stages").root, set[str]()
    work: dict[str, Counter[str]] = {}
    for task in tasks:
        missing = task.find_missing_stages(finished)
        stages = {key: stage for key, stage in missing.items() if key not in seen}
        seen |= stages.keys()
        of_method = work.setdefault(task.jobs[0].cell.method, Counter())
        of_method.update(events.count_cell_work(stages, task.besides))
    return work


def choose_executor(spec: RunSpec, sharing: Callable[[], int] = lambda: 1) -> Executor:
    """Return the executor; ``sharing`` counts the tasks that share a GPU, where the specification is open."""
    if spec.executor == "local":
        workers = spec.workers or sharing()
        return InProcess() if workers == 1 else local.WorkerProcesses(workers, spec.plugins)
    from bench.execution.executors.ray import RayTasks

    cpus, gpus = spec.threads * spec.ranks, spec.ranks if spec.device == "cuda" else 0
    share = spec.per_gpu or sharing() if gpus == 1 else 1
    place = (spec.results, spec.ray_address, spec.workers, spec.plugins)
    return RayTasks(*place, cpus=cpus, gpus=gpus, sharing=share)
