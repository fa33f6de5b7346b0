"""From a specification to jobs: which cells on which suites, under which keys, and which are done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from bench.config import profiles
from bench.config.profiles import Profile
from bench.config.run_spec import MethodRequest, RunSpec
from bench.data import training_data
from bench.data.data_source import DataSource
from bench.data.mteb_names import suite_label
from bench.data.training_data import TrainingData
from bench.errors import DataError, InputError, MisplacedRecordError, NotComparableError
from bench.eval.recomputation import open_checker
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.nn.model_folder import ModelFolder, resolve_folder
from bench.plan.all_methods import LeftOut, expand_all_methods, find_input_errors, leave_out_short_texts
from bench.plan.backbones import describe_widths, profile_backbone
from bench.plan.cell import Cell
from bench.plan.cell_expansion import (
    add_members,
    check_batches,
    check_copies,
    check_duplicate_names,
    check_overrides,
    drop_idle_seeds,
    find_method_cards,
    make_cells,
)
from bench.plan.conflicts import find_conflict
from bench.plan.job import Job, add_stages, make_job
from bench.plan.lora_checks import describe_rates
from bench.plan.plugin_forms import choose_plugin_forms
from bench.plan.pooling_notes import describe_poolings
from bench.plan.profile_costs import describe_untuned
from bench.plan.unused_options import describe_unused_options
from bench.records.filesystem import check_new_campaign, check_new_name, safe_name
from bench.records.fingerprint import find_fact_differences
from bench.records.look_alikes import find_look_alike, find_record_look_alike
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from bench.registry import METHODS
from bench.stages import TRAIN, ComposedMethod, Stage, TrainedMethod, planned_steps

T = TypeVar("T")


class PlanInputs:
    """Reads each suite, training text and backbone once for several plans, whatever changes in between."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}

    def _once(self, key: tuple[object, ...], load: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = load()
        known: T = self._known[key]
        return known

    def suite(self, name: str, source: DataSource) -> list[SuiteTask]:
        """Read and check a suite's tasks; see :meth:`bench.eval.measure.Measure.load`."""
        return self._once(("suite", name, source), lambda: measure_of(name).load(source))

    def training(self, spec: RunSpec, trained: Sequence[str], texts: Collection[str]) -> TrainingData | None:
        """Read text and dev set; see :func:`bench.data.training_data.read_training_data`."""
        shared = replace(spec, methods=(), seeds=(), suites=(), overrides=(), backbone=None)
        key = "training", shared, bool(trained), frozenset(texts)
        profile = profiles.load_profile(spec.profile)
        return self._once(key, lambda: training_data.read_training_data(spec, profile, trained, texts))

    def backbone(self, spec: RunSpec, profile: Profile) -> ModelFolder:
        """Find and hash the backbone; see :func:`bench.plan.backbones.profile_backbone`."""
        data, name = DataSource.of_run(spec).folder, spec.backbone
        if name is not None:
            return self._once(("given", name), lambda: resolve_folder(name, where="--backbone"))
        return self._once(("backbone", profile.name, data), lambda: profile_backbone(profile, data))


@dataclass(frozen=True)
class JobState:
    """State of a job's place: "done", "failed" (runs again), "to do" or "conflict" (is left out)."""

    status: str
    record: RunRecord | None = None
    conflict: NotComparableError | None = None
    fault: str = ""  # why the files at the place will be replaced


@dataclass(frozen=True)
class Plan:
    """All jobs of a specification, in the order of the run.

    ``spec`` names the methods that "all" stands for, ``left_out`` those of "all" whose inputs are missing.
    ``notes`` are about options that rows don't use.
    """

    spec: RunSpec
    jobs: tuple[Job, ...]
    suites: Mapping[str, list[SuiteTask]]
    store: ResultStore
    training: TrainingData | None
    ids: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def states(self) -> Mapping[RecordPlace, JobState]:
        """State of each job's place, read once before anything runs; raises as :meth:`ResultStore.seeds`."""
        # A conflict is a finished record of another specification at the place or at another seed of the
        # method, or a record of another place. It stays, and other jobs run.
        states: dict[RecordPlace, JobState] = {}
        checker = open_checker(self.store, self.spec.data)
        seeds: dict[tuple[str, str, str], tuple[dict[RecordPlace, RunRecord], dict[Path, DataError]]] = {}
        for job in self.jobs:
            group = (job.place.profile, job.place.method, job.suite)
            if group not in seeds:
                seeds[group] = self.store.seeds(job.place)
            state = self._state(job, *seeds[group])
            if state.status == "done" and state.record is not None:
                tasks = {task.id: task for task in self.suites[job.suite]}
                error = checker.check(self.store, state.record, tasks).error
                if error is not None:  # these are no results: the cell runs again
                    state = JobState("to do", fault=error.what)
            states[job.place] = state
        checker.memory.save()
        return states

    def _state(
        self, job: Job, seeds: Mapping[RecordPlace, RunRecord], damaged: Mapping[Path, DataError]
    ) -> JobState:
        present, error = seeds.get(job.place), damaged.get(self.store.path(job.place))
        if isinstance(error, MisplacedRecordError):
            conflict = NotComparableError(error.what, where=error.where, hint=error.hint)
            return JobState("conflict", conflict=conflict)
        if other := find_conflict(job, seeds, self.store, self.jobs, force=self.spec.force):
            return JobState("conflict", present, other)
        if present is None:
            return JobState("to do", fault=error.what if error else "")
        if present.status == "ok" and not self.store.is_whole(job.place, present):
            return JobState("to do", fault="the record's predictions are missing or not its own")
        if present.status == "failed":
            return JobState("failed")
        return JobState("to do" if find_fact_differences(present, job.record) else "done", present)

    def status(self, job: Job) -> str:
        """Return "done", "failed" (runs again), "to do" or "conflict"; see :attr:`states` for errors."""
        return self.states[job.place].status

    def pending(self) -> list[Job]:
        """Return jobs that have to run, with ``force`` also those that are done."""
        kept = {"conflict"} if self.spec.force else {"conflict", "done"}
        return [job for job in self.jobs if self.status(job) not in kept]

    def count_stage_sentences(self, stage: Stage) -> int:
        """Count the sentences that a stage trains on."""
        config = dict(stage.spec.config)
        sentences = self.training.texts[stage.spec.text].sentences if self.training else ()
        return planned_steps(config, len(sentences)) * int(config["batch_size"])

    def conflicts(self) -> list[tuple[Job, NotComparableError]]:
        """Return the jobs in conflict, with their conflicts."""
        states = ((job, self.states[job.place]) for job in self.jobs)
        return [(job, state.conflict) for job, state in states if state.conflict is not None]


def make_plan(spec: RunSpec, inputs: PlanInputs | None = None) -> Plan:
    """Resolve a specification against registry, profile, data and results, without loading torch.

    Plans may share ``inputs``, which are read once. Raises InputError, or DataError for damaged data.
    """
    read = inputs or PlanInputs()
    profile = profiles.load_profile(spec.profile)
    suite_names = spec.suites or profile.suites
    if not suite_names:
        raise InputError(f"profile '{profile.name}' has no suite", hint="it is there for bench pretrain")
    find_errors = partial(_find_missing_inputs, spec, profile, read)
    named = spec.methods
    asked, left_out = expand_all_methods(named, find_errors)
    spec = replace(spec, methods=asked)
    cards = find_method_cards(spec.methods)
    problems = _InputErrors()
    backbone = None
    if any(card.needs_backbone for card in cards):
        backbone = problems.get(lambda: read.backbone(spec, profile))
    elif spec.backbone is not None:
        where = f"--backbone {spec.backbone}"
        problems.found.append(InputError("no method here starts from a backbone", where=where))

    def whole_cells(corpus_size: int, kept: _InputErrors, request: MethodRequest) -> list[Cell]:
        return _make_whole_cells(request, spec, profile, backbone, corpus_size, kept)

    trained, needed = [], set[str]()
    for request in spec.methods:
        try:
            texts = set[str]().union(*map(_training_texts, whole_cells(0, _InputErrors(), request)))
            trains = bool(texts)
        except InputError:  # raised again when the final cells are made
            texts, trains = {TRAIN}, isinstance(METHODS.get(request.name), TrainedMethod | ComposedMethod)
        needed |= texts
        trained += [request.name] if trains else []
    training = problems.get(lambda: read.training(spec, trained, needed))
    size = len(training.corpus.sentences) if training else 0
    groups = [problems.get(partial(whole_cells, size, problems, request)) or [] for request in spec.methods]
    cells = [cell for group in groups for cell in group]
    texts = set[str]().union(*map(_training_texts, cells))
    problems.found += training_data.missing_texts(texts, spec, profile)
    training_data.check_world_seed(spec, profile, suite_names)
    source = DataSource.of_run(spec)
    suites = {name: problems.get(partial(read.suite, name, source)) or [] for name in suite_names}
    problems.check()
    check_overrides(spec, cells)
    if training:
        training = training_data.add_texts(training, texts, spec, profile)
    store = ResultStore(spec.results, spec.campaign)
    forms = choose_plugin_forms(cells, [suite_label(name) for name in suite_names], spec, store)
    cells = [add_stages(cell, forms[cell.method], training) for cell in cells]
    check_copies(spec, cells)
    check_duplicate_names(groups)
    ids = {request.text: group[0].method for request, group in zip(asked, groups, strict=True)}
    of_all = {ids[request.text] for request in asked if request not in named}
    cells, short = leave_out_short_texts(cells, training, of_all)
    check_batches(spec, cells, training)
    rows = {cell.method for cell in cells}
    ids = {text: row for text, row in ids.items() if row in rows}
    spec = replace(spec, methods=tuple(request for request in asked if request.text in ids))
    # seed by seed, so that a run which is stopped early still compares fairly
    cells.sort(key=lambda cell: -1 if cell.seed is None else cell.seed)
    jobs = tuple(
        make_job(cell, name, suites[name], forms[cell.method], training)
        for cell in cells
        for name in suite_names
    )
    suites = {suite_label(name): tasks for name, tasks in suites.items()}
    row_texts = {cell.method: _training_texts(cell) for cell in cells}
    notes = (*describe_unused_options(spec, row_texts), *describe_poolings(cells), *describe_rates(cells))
    notes += tuple(describe_widths(cells))
    if spec.backbone is None:
        notes += tuple(describe_untuned(cells, profile))
    return Plan(spec, jobs, suites, store, training, ids, left_out + short, notes)


class _InputErrors:
    """Collects input errors, so that one message names every missing checkpoint and data set."""

    def __init__(self) -> None:
        self.found: list[InputError] = []

    def get(self, load: Callable[[], T]) -> T | None:
        """Return the result of ``load``, or keep its error."""
        try:
            return load()
        except InputError as error:
            self.found.append(error)
            return None

    def check(self) -> None:
        """Raise InputError if there was any error."""
        errors = {str(error): error for error in self.found}
        if len(errors) == 1:
            raise self.found[0]
        if errors:
            raise InputError(f"{len(errors)} inputs are missing or wrong: {' | '.join(errors)}")


def _make_whole_cells(
    request: MethodRequest,
    spec: RunSpec,
    profile: Profile,
    backbone: ModelFolder | None,
    corpus_size: int,
    kept: _InputErrors,
) -> list[Cell]:
    """Return a request's cells with their members; ``kept`` gets the errors for missing models."""
    label = profile.name
    if spec.backbone is not None and backbone is not None:
        label = f"{profile.name}@{backbone.sha256[:8]}"

    def new(request: MethodRequest) -> list[Cell]:
        card = METHODS.get(request.name, where=request.text).card
        return make_cells(request, card, spec, profile, label, backbone, corpus_size, kept.get)

    return drop_idle_seeds([add_members(cell, new) for cell in new(request)])


def _find_missing_inputs(
    spec: RunSpec, profile: Profile, read: PlanInputs, request: MethodRequest
) -> list[InputError]:
    """Return the errors for the inputs that a method lacks and that most methods do without."""
    # Backbone, training text, dev set and suites are everyone's: the plan raises their errors.
    kept = _InputErrors()
    needs_backbone = METHODS.get(request.name).card.needs_backbone
    backbone = _InputErrors().get(lambda: read.backbone(spec, profile)) if needs_backbone else None
    try:
        cells = _make_whole_cells(request, spec, profile, backbone, 0, kept)
    except InputError:  # a wrong option: raised again when the final cells are made
        return []
    texts = set[str]().union(*map(_training_texts, cells))
    return find_input_errors(request, cells, kept.found, texts, spec, profile)


def _training_texts(cell: Cell) -> set[str]:
    """Return the names of the training texts of a cell and its members."""
    texts = set()
    for part in cell.walk():
        method = METHODS.get(part.card.name)
        if isinstance(method, TrainedMethod):
            texts |= {stage.text for stage in method.stages(dict(part.options))}
    return texts


def check_folder_names(plan: Plan) -> None:
    """Raise InputError for new names that a file system refuses, or that pose as others by look-alikes."""
    check_new_campaign(plan.spec.results, plan.spec.campaign)
    requests = {request.text: request for request in plan.spec.methods}
    by_method = {method: requests[text] for text, method in plan.ids.items()}
    for job in plan.jobs:
        if look_alike := find_record_look_alike(job.record):
            hint = _rename_hint(by_method[job.place.method])
            if not find_look_alike(job.place.method):
                hint = "rename the profile, the suite's file or its task"
            expected = "letters of one alphabet in a word"
            where = f"--methods {job.cell.describe()}"
            raise InputError(look_alike, where=where, expected=expected, hint=hint)
    rows = {safe_name(method): requests[text] for text, method in plan.ids.items()}
    for label in dict.fromkeys(job.place.profile for job in plan.jobs):
        profile = safe_name(label)
        where = f"--profile {plan.spec.profile}"
        check_new_name(plan.store.root, profile, where=where, hint="give the profile's file another name")
        for name, request in rows.items():
            folder, where = plan.store.root / profile, f"--methods {request.text}"
            check_new_name(folder, name, where=where, hint=_rename_hint(request), others=rows)


def _rename_hint(request: MethodRequest) -> str:
    """Return a hint how to type the same method under another name."""
    method = request.text if request.alias is None else request.text.partition("=")[2].strip()
    name = re.sub(r"[^A-Za-z0-9_+-]+", "-", request.alias or request.name).strip("-")
    return f"type another name for the row: {shlex.quote(f'{name}-1={method}')}"


_STEP, _PAIR = 6, 2
"""Forward passes per trained sentence (two views, forward and backward) and per evaluated item."""


def split_plan(plan: Plan, count: int) -> list[tuple[Job, ...]]:
    """Split a plan's jobs into ``count`` shares of similar work for independent machines."""
    # Cells that share a training stage, directly or through a third, stay together, so nothing is trained
    # twice. The shares depend on the plan only, not on finished work.
    groups = _group_jobs(plan)
    order = sorted(range(len(groups)), key=lambda group: -_count_work(plan, groups[group]))
    load, owner = [0] * count, dict[str, int]()
    for group in order:  # the largest first, each to the share with the least work
        least = load.index(min(load))
        load[least] += _count_work(plan, groups[group])
        owner |= {job.cell.describe(): least for job in groups[group]}
    jobs: list[list[Job]] = [[] for _ in range(count)]
    for job in plan.jobs:
        jobs[owner[job.cell.describe()]].append(job)
    return list(map(tuple, jobs))


def _group_jobs(plan: Plan) -> list[list[Job]]:
    """Group jobs whose cells are connected by their stages, in the order of their first."""
    groups: list[tuple[set[object], list[Job]]] = []
    for job in plan.jobs:
        ties: set[object] = {job.cell.describe(), *(stage.key for stage in job.cell.all_stages)}
        tied = [group for group in groups if group[0] & ties]
        jobs = [member for group in tied for member in group[1]]
        ties = ties.union(*(group[0] for group in tied))
        at = groups.index(tied[0]) if tied else len(groups)
        groups = [group for group in groups if group not in tied]
        groups.insert(at, (ties, [*jobs, job]))
    return [jobs for _, jobs in groups]


def _count_work(plan: Plan, jobs: list[Job]) -> int:
    """Count roughly the sentences that pass through a transformer."""
    stages = {stage.key: stage for job in jobs for stage in job.cell.all_stages}
    trained = sum(map(plan.count_stage_sentences, stages.values()))
    items = sum(task.items for job in jobs for task in plan.suites[job.suite])
    return _STEP * trained + _PAIR * items
