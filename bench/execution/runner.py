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
from typing import Protocol

from bench.config.spec import ALL_METHODS, RunSpec
from bench.data.mteb_names import suite_label
from bench.errors import InputError
from bench.eval.suite_measures import measure_of
from bench.execution.cell_run import CellTask, Outcome, run_cell
from bench.execution.encoder_builder import check_backbone_text
from bench.execution.events import (
    EVALUATES,
    LOADS,
    PROBES,
    clear_dead_runs,
    count_cell_work,
    open_run_folder,
    work_name,
)
from bench.execution.executors.local import (
    Begins,
    Needs,
    Result,
    Task,
    WorkerProcesses,
    begin_always,
    need_nothing,
)
from bench.execution.preview import CellTimes
from bench.execution.record_probes import find_unprobed_jobs
from bench.execution.sharing import choose_cells_per_gpu
from bench.execution.stage_cache import StageCache
from bench.plan.backbones import check_backbones
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.plan.spec_checks import find_method_cards
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.registry import METHODS, discover


class Executor(Protocol):
    """Runs a function over tasks and yields each result as soon as it is available."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        needs: Needs = need_nothing,
        begins: Begins = begin_always,
    ) -> Iterator[Result]:
        """Yield results in the order of completion."""
        ...


class InProcess:
    """One after the other, here."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        needs: Needs = need_nothing,
        begins: Begins = begin_always,
    ) -> Iterator[Result]:
        """Yield results in the order of the tasks."""
        return (function(task) for task in tasks if begins(task))


def check_early_data(spec: RunSpec) -> None:
    """Refuse missing data before a plan is made, which may take seconds, where nothing is finished yet.

    A finished cell needs no data, and only a plan tells which are. What :func:`check_ready` says first stays
    first.

    Raises:
        InputError: an unknown method, or data that can't be had now.
    """
    discover()
    cards = find_method_cards([request for request in spec.methods if request.text != ALL_METHODS])
    if spec.executor != "local" or any(card.scores_pairs for card in cards):
        return
    root = ResultStore(spec.results, spec.campaign).root
    for suite in spec.suites:
        if not any(root.glob(f"*/*/*/{escape(safe_name(suite_label(suite)))}.json")):
            measure_of(suite).check_early()


def check_pending_cells(plan: Plan) -> None:
    """Refuse, before anything runs, what a plan's pending cells could only fail by.

    Raises:
        InputError: a method without vectors on a suite that needs them, or data that can't be had now.
    """
    check_backbone_text(job.cell for job in plan.pending())
    check_backbones((job.cell for job in plan.pending()), plan.training)
    suites = dict.fromkeys((job.source or job.suite, job.suite) for job in plan.pending())
    for name, label in suites:
        measure = measure_of(name)
        pairs = sorted({job.cell.method for job in plan.pending() if job.suite == label and _is_scorer(job)})
        if measure.needs_vectors and pairs:
            raise InputError(
                f"{' and '.join(pairs)} {'compares' if len(pairs) == 1 else 'compare'} pairs and "
                f"{'has' if len(pairs) == 1 else 'have'} no vectors, which this suite needs",
                where=f"--suite {name}",
                hint="leave it out of --methods" if len(pairs) == 1 else "leave them out of --methods",
            )
        if plan.spec.executor == "local":  # else the nodes' caches count
            measure.check(plan.suites[label])


def _is_scorer(job: Job) -> bool:
    """True for a method that has no vectors, by its card or by the options of this cell."""
    by_options = getattr(METHODS.get(job.cell.card.name), "scores_pairs", None)
    return job.cell.card.scores_pairs or (by_options is not None and by_options(dict(job.cell.options)))


CellKind = tuple[object, ...]


def count_fitting_cells(seconds: Sequence[float], workers: int, end: float) -> int:
    """How many cells of these times, taken in their order by so many workers, end in time.

    >>> count_fitting_cells([5, 5, 9, 2], workers=2, end=8)
    3
    """
    free, fit = [0.0] * workers, 0
    for each in seconds:
        begin = heapq.heappop(free)
        ends = begin + each < end
        heapq.heappush(free, begin + each if ends else begin)
        fit += ends
    return fit


class Deadline:
    """Says of each cell whether it is begun, and keeps those that aren't.

    A cell takes as long as the longest like it in this run took: same method, same suites, the same kinds of
    stages still to train. Before there is one, it takes what ``--estimate`` says.

    Args:
        plan: The plan.
        end: By the clock.
        clock: Seconds.
        estimate: From a cell's jobs to seconds; 0 where nobody knows, and it is begun while there is time.
    """

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
        """True if a cell would be finished in time; then it begins now."""
        kind = self._cell_kind(task)
        if self._clock() < self._end:  # else nobody has to measure anything
            needed = self._took[kind] if kind in self._took else self._estimate(task.jobs)
            if (now := self._clock()) + needed < self._end:
                self._begun[task.jobs[0].place] = kind, now
                return True
        self.left.append(task)
        return False

    def ended(self, task: CellTask) -> None:
        """Note how long a cell took."""
        kind, begun = self._begun.pop(task.jobs[0].place)
        self._took[kind] = max(self._took.get(kind, 0.0), self._clock() - begun)

    def leave(self, tasks: Sequence[CellTask]) -> None:
        """Leave cells that another process computes: nobody knows when it ends."""
        self.left += tasks

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are left."""
        return [job for task in self.left for job in task.jobs]

    def _cell_kind(self, task: CellTask) -> CellKind:
        suites = tuple(job.suite for job in task.jobs)
        return task.jobs[0].cell.method, suites, self._times.to_train(task.jobs)


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
        watch: Gets the folder of the run's events (:mod:`bench.execution.events`), open while cells run.
        deadline: Says which cells are begun, and keeps the others; then nobody is waited for.

    Returns:
        The outcomes of all jobs of :func:`pending_jobs`, but for those that the deadline keeps.
    """
    tasks = _build_cell_tasks(plan)
    if tasks:  # else nothing is written, and the folder may be read-only
        plan.store.prepare()
    plan.store.clear_leftovers()
    clear_dead_runs(plan.store.root)
    StageCache(plan.spec.results / ".stages").clear_leftovers()
    executor = choose_executor(plan.spec, partial(choose_cells_per_gpu, plan, len(tasks)))
    if not tasks:
        return []
    methods = Counter(task.jobs[0].cell.method for task in tasks)
    with ExitStack() as opened:
        folder = opened.enter_context(
            open_run_folder(plan.store.root, methods, _count_method_work(plan, tasks))
        )
        if watch and folder:
            opened.enter_context(watch(folder))
        tasks = [replace(task, running=folder) for task in tasks]
        here = isinstance(executor, InProcess)
        function = partial(run_cell, suites=plan.suites) if here else run_cell
        outcomes: list[Outcome] = []
        while tasks:
            task_of = {task.jobs[0].place: task for task in tasks}
            busy: list[CellTask] = []
            begins: Begins = deadline.begins if deadline else lambda _: True
            for results in executor.run(function, tasks, _stage_keys, begins):
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


def find_pending_jobs(plan: Plan) -> list[Job]:
    """Jobs that have to run, and finished ones whose records lack probes."""
    lacking = {job.place for job in find_unprobed_jobs(plan)} if plan.spec.probes else set()
    pending = {job.place for job in plan.pending()}
    return [job for job in plan.jobs if job.place in pending | lacking]


def _build_cell_tasks(plan: Plan) -> list[CellTask]:
    by_cell: dict[tuple[str, int | None], list[Job]] = {}
    for job in find_pending_jobs(plan):
        by_cell.setdefault((job.cell.method, job.cell.seed), []).append(job)
    pending = {job.place for job in plan.pending()}
    tasks = []
    for jobs in by_cell.values():
        besides = {work_name(EVALUATES, job.suite): 1 for job in jobs if job.place in pending}
        besides |= {work_name(LOADS): 1} | ({work_name(PROBES): len(jobs)} if plan.spec.probes else {})
        tasks.append(CellTask(tuple(jobs), plan.spec, plan.training, besides=besides))
    return tasks


def _count_method_work(plan: Plan, tasks: Iterable[CellTask]) -> dict[str, Counter[str]]:
    """The work of each method's cells; a stage that several cells have is that of the first."""
    finished, seen = StageCache(plan.spec.results / ".stages").root, set[str]()
    found: dict[str, Counter[str]] = {}
    for task in tasks:
        stages = {key: each for key, each in task.to_train(finished).items() if key not in seen}
        seen |= stages.keys()
        found.setdefault(task.jobs[0].cell.method, Counter()).update(count_cell_work(stages, task.besides))
    return found


def choose_executor(spec: RunSpec, sharing: Callable[[], int] = lambda: 1) -> Executor:
    """Return what runs a specification's tasks; no executor and no number of workers changes a score.

    Args:
        spec: The specification.
        sharing: Says how many tasks share a GPU, where the specification leaves that open.
    """
    if spec.executor == "local":
        workers = spec.workers or sharing()
        return InProcess() if workers == 1 else WorkerProcesses(workers, spec.plugins)
    from bench.execution.executors.ray import RayTasks

    return RayTasks(
        spec.results,
        spec.ray_address,
        spec.workers,
        spec.plugins,
        cpus=spec.threads * spec.ranks,
        gpus=spec.ranks if spec.device == "cuda" else 0,
        sharing=1 if spec.device != "cuda" or spec.ranks > 1 else spec.per_gpu or sharing(),
    )
