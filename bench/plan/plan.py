"""From a specification to jobs: which cells on which suites, under which keys, and what is done already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from bench.card import MethodCard
from bench.config import profiles
from bench.config.profiles import Profile
from bench.config.spec import ALL_METHODS, MethodRequest, RunSpec
from bench.data.mteb_names import suite_label
from bench.data.source import DataSource
from bench.data.training_data import (
    TrainingData,
    add_texts,
    check_world_seed,
    missing_texts,
    read_training_data,
)
from bench.errors import DataError, InputError, MisplacedRecordError, NotComparableError
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.nn.model_folder import ModelFolder, explain_hash_change, resolve_folder
from bench.plan.backbones import profile_backbone
from bench.plan.cell import Cell
from bench.plan.cells import add_members, check_duplicate_names, drop_idle_seeds, make_cells
from bench.plan.job import Job, add_stages, make_job
from bench.plan.spec_checks import check_batches, check_copies, check_overrides, find_method_cards
from bench.records.filesystem import check_new_campaign, check_new_name, safe_name
from bench.records.fingerprint import FAMILY, KEYED, explain_differences, find_fact_differences
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from bench.registry import METHODS, discover
from bench.stages import TRAIN, ComposedMethod, Stage, TrainedMethod, planned_steps


class PlanInputs:
    """Reads each suite, each training text and each backbone once, however many plans are made from it.

    For one look at many records, as ``bench verify`` takes it; what is changed in between isn't seen.
    """

    def __init__(self) -> None:
        self._suites: dict[object, list[SuiteTask]] = {}
        self._texts: dict[object, TrainingData | None] = {}
        self._backbones: dict[object, ModelFolder] = {}

    def suite(self, name: str, source: DataSource) -> list[SuiteTask]:
        """Read and check a suite's tasks; see :meth:`bench.eval.measure.Measure.load`."""
        key = name, source
        if key not in self._suites:
            self._suites[key] = measure_of(name).load(source)
        return self._suites[key]

    def training(self, spec: RunSpec, trained: Sequence[str], texts: Collection[str]) -> TrainingData | None:
        """Read text and dev set; see :func:`bench.data.training_data.read_training_data`."""
        of_all = replace(spec, methods=(), seeds=(), suites=(), overrides=(), backbone=None)
        key = of_all, bool(trained), frozenset(texts)
        if key not in self._texts:
            self._texts[key] = read_training_data(spec, profiles.load_profile(spec.profile), trained, texts)
        return self._texts[key]

    def backbone(self, spec: RunSpec, profile: Profile) -> ModelFolder:
        """Find and hash the backbone; see :func:`bench.plan.backbones.profile_backbone`."""
        data = DataSource.of_run(spec).folder
        key = spec.backbone, profile.name, data
        if key not in self._backbones:
            self._backbones[key] = (
                profile_backbone(profile, data)
                if spec.backbone is None
                else resolve_folder(spec.backbone, where="--backbone")
            )
        return self._backbones[key]


T = TypeVar("T")


@dataclass(frozen=True)
class JobState:
    """What is at a job's place.

    Args:
        status: "done", "failed" (runs again), "to do" or "conflict" (doesn't run).
        record: The record that is there.
        conflict: What it conflicts with.
        fault: Why what is there is no result, so that the run replaces it; empty where there is nothing.
    """

    status: str
    record: RunRecord | None = None
    conflict: NotComparableError | None = None
    fault: str = ""


@dataclass(frozen=True)
class Plan:
    """All jobs of a specification, in the order in which they run."""

    spec: RunSpec
    jobs: tuple[Job, ...]
    suites: Mapping[str, list[SuiteTask]]
    store: ResultStore
    training: TrainingData | None
    ids: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def states(self) -> Mapping[RecordPlace, JobState]:
        """What is at each job's place, read once: before anything runs.

        A finished record of another specification there, or at another seed of the same method, is a
        conflict, and so is another place's record: it is never replaced, and stops no other job.

        Raises:
            NewerRecordError: a record of a newer bench is there.
            UnsealedRecordError: one without a seal, or of an older schema.
            UnreadableRecordError: one that the system won't read.
        """
        found: dict[RecordPlace, JobState] = {}
        seeds: dict[tuple[str, str, str], tuple[dict[RecordPlace, RunRecord], dict[Path, DataError]]] = {}
        for job in self.jobs:
            group = (job.place.profile, job.place.method, job.suite)
            if group not in seeds:
                seeds[group] = self.store.seeds(job.place)
            found[job.place] = self._state(job, *seeds[group])
        return found

    def _state(
        self, job: Job, seeds: Mapping[RecordPlace, RunRecord], damaged: Mapping[Path, DataError]
    ) -> JobState:
        there, error = seeds.get(job.place), damaged.get(self.store.path(job.place))
        if isinstance(error, MisplacedRecordError):
            return JobState(
                "conflict", conflict=NotComparableError(error.what, where=error.where, hint=error.hint)
            )
        replaced = {other.place for other in self.jobs} if self.spec.force else set()
        for place, record in seeds.items():
            own = place == job.place
            if record.status != "ok" or place in replaced or (own and not self.store.is_whole(place, record)):
                continue
            if why := explain_differences(record, job.record, KEYED if own else FAMILY):
                seed = "" if place.seed is None else f" seed {place.seed}"
                conflict = NotComparableError(
                    f"{job.cell.method}{seed} on {job.suite} was finished under "
                    f"another specification ({why})",
                    where=str(self.store.path(place)),
                    hint=_hash_change_note(job)
                    + "name another --campaign"
                    + (", or replace it with --force" if own else ""),
                )
                return JobState("conflict", there, conflict)
        if there is None:
            return JobState("to do", fault=error.what if error else "")
        if there.status == "ok" and not self.store.is_whole(job.place, there):
            return JobState("to do", fault="the record's predictions are missing or not its own")
        if there.status == "failed":
            return JobState("failed")
        return JobState("to do" if find_fact_differences(there, job.record) else "done", there)

    def status(self, job: Job) -> str:
        """Return "done", "failed" (runs again), "to do" or "conflict"; see :attr:`states` for errors."""
        return self.states[job.place].status

    def pending(self) -> list[Job]:
        """Jobs that have to run, with ``force`` also those that are done."""
        kept = {"conflict"} if self.spec.force else {"conflict", "done"}
        return [job for job in self.jobs if self.status(job) not in kept]

    def count_stage_sentences(self, stage: Stage) -> int:
        """Count the sentences that a stage trains on."""
        config = dict(stage.spec.config)
        sentences = self.training.texts[stage.spec.text].sentences if self.training else ()
        return planned_steps(config, len(sentences)) * int(config["batch_size"])

    def conflicts(self) -> list[tuple[Job, NotComparableError]]:
        """Return the jobs that can't run, and why."""
        found = ((job, self.states[job.place].conflict) for job in self.jobs)
        return [(job, conflict) for job, conflict in found if conflict is not None]


def make_plan(spec: RunSpec, inputs: PlanInputs | None = None) -> Plan:
    """Resolve a specification against registry, profile, data and results; loads no torch.

    Args:
        spec: The specification.
        inputs: What other plans have read already; default: everything is read anew.

    Raises:
        InputError: unknown names or options, a model folder that is none, no data.
        DataError: damaged data.
    """
    read = inputs or PlanInputs()
    profile = profiles.load_profile(spec.profile)
    suite_names = spec.suites or profile.suites
    spec = replace(spec, methods=_expand_all_methods(spec.methods, suite_names))
    methods = find_method_cards(spec.methods)
    if not suite_names:
        raise InputError(f"profile '{profile.name}' has no suite", hint="it is there for bench pretrain")
    problems = _InputErrors()
    backbone = problems.get(lambda: _find_backbone(spec, profile, methods, read))
    label = (
        profile.name if spec.backbone is None or backbone is None else f"{profile.name}@{backbone.sha256[:8]}"
    )

    def new_cells(corpus_size: int, kept: _InputErrors, request: MethodRequest) -> list[Cell]:
        card = METHODS.get(request.name, where=request.text).card
        return make_cells(request, card, spec, profile, label, backbone, corpus_size, kept.get)

    def whole_cells(corpus_size: int, kept: _InputErrors, request: MethodRequest) -> list[Cell]:
        new = partial(new_cells, corpus_size, kept)
        return drop_idle_seeds([add_members(cell, new) for cell in new(request)])

    early = partial(whole_cells, 0, _InputErrors())  # what they say is said again below
    trained = [request.name for request in spec.methods if _request_trains(request, early)]
    seen = set[str]().union(*(_preliminary_texts(request, early) for request in spec.methods))
    training = problems.get(lambda: read.training(spec, trained, seen))
    size = len(training.corpus.sentences) if training else 0
    groups = [problems.get(partial(whole_cells, size, problems, request)) or [] for request in spec.methods]
    cells = [cell for group in groups for cell in group]
    texts = set[str]().union(*map(_training_texts, cells))
    problems.found += missing_texts(texts, spec, profile)
    check_world_seed(spec, profile, suite_names)
    source = DataSource.of_run(spec)
    suites = {name: problems.get(partial(read.suite, name, source)) or [] for name in suite_names}
    problems.check()
    check_overrides(spec, cells)
    if training:
        training = add_texts(training, texts, spec, profile)
    cells = [add_stages(cell, spec, training) for cell in cells]
    check_copies(spec, cells)
    check_batches(spec, cells, training)
    check_duplicate_names(groups)
    # seed by seed, so that a run which is stopped early still compares fairly
    cells.sort(key=lambda cell: -1 if cell.seed is None else cell.seed)
    jobs = tuple(make_job(cell, name, suites[name], spec, training) for cell in cells for name in suite_names)
    suites = {suite_label(name): tasks for name, tasks in suites.items()}
    store = ResultStore(spec.results, spec.campaign)
    ids = {r.text: group[0].method for r, group in zip(spec.methods, groups, strict=True)}
    return Plan(spec, jobs, suites, store, training, ids)


def _expand_all_methods(
    requests: Sequence[MethodRequest], suites: Sequence[str]
) -> tuple[MethodRequest, ...]:
    """Put every registered method that needs no path and no other method's name in the place of "all".

    Without those that have no vectors, where a suite is refused to them.
    """
    vectors = any(measure_of(suite).needs_vectors for suite in suites)
    cards = [method.card for _, method in discover()]
    whole = [
        MethodRequest(card.name, card.name)
        for card in cards
        if card.stands_alone and not (vectors and card.scores_pairs)
    ]
    return tuple(
        named for request in requests for named in (whole if request.text == ALL_METHODS else [request])
    )


class _InputErrors:
    """Collects what is missing, so that one line names all of it: every checkpoint, every data set."""

    def __init__(self) -> None:
        self.found: list[InputError] = []

    def get(self, load: Callable[[], T]) -> T | None:
        """Return what ``load`` returns, or None and keep its error."""
        try:
            return load()
        except InputError as error:
            self.found.append(error)
            return None

    def check(self) -> None:
        """Raise InputError if there was any error."""
        found = {str(error): error for error in self.found}
        if len(found) == 1:
            raise self.found[0]
        if found:
            raise InputError(f"{len(found)} inputs are missing or wrong: {' | '.join(found)}")


def _request_trains(request: MethodRequest, cells: Callable[[MethodRequest], list[Cell]]) -> bool:
    """True if a method, or one that it builds on, trains with the options that it has here."""
    try:
        return any(_training_texts(cell) for cell in cells(request))
    except InputError:  # said again, and not lost, when the cells are made for good
        return isinstance(METHODS.get(request.name), TrainedMethod | ComposedMethod)


def _preliminary_texts(request: MethodRequest, cells: Callable[[MethodRequest], list[Cell]]) -> set[str]:
    """Names of the training texts of a request's cells; the usual one where they can't be made yet."""
    try:
        return set[str]().union(*map(_training_texts, cells(request)))
    except InputError:
        return {TRAIN}


def _training_texts(cell: Cell) -> set[str]:
    """Names of the training texts that a cell's stages and its members' see."""
    method = METHODS.get(cell.card.name)
    own = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
    return {stage.text for stage in own}.union(*(_training_texts(member) for _, member in cell.members))


def _find_backbone(
    spec: RunSpec, profile: profiles.Profile, cards: list[MethodCard], read: PlanInputs
) -> ModelFolder | None:
    if not any(card.needs_backbone for card in cards):
        if spec.backbone is not None:
            raise InputError("no method here starts from a backbone", where=f"--backbone {spec.backbone}")
        return None
    return read.backbone(spec, profile)


def _hash_change_note(job: Job) -> str:
    """Say that a model's hash covers more files than it did, where it does."""
    note = explain_hash_change(job.cell.model.path) if job.cell.model else ""
    return f"{note}; " if note else ""


def check_folder_names(plan: Plan) -> None:
    """Refuse new names of folders that a case-insensitive file system or Windows can't hold.

    What the campaign has already under exactly its name goes on. A repetition in a scratch folder isn't
    checked: its names are those of records.

    Raises:
        InputError: such a name of the campaign, the profile or a row.
    """
    check_new_campaign(plan.spec.results, plan.spec.campaign)
    requests = {request.text: request for request in plan.spec.methods}
    rows = {safe_name(method): requests[text] for text, method in plan.ids.items()}
    for label in dict.fromkeys(job.place.profile for job in plan.jobs):
        profile = safe_name(label)
        where = f"--profile {plan.spec.profile}"
        check_new_name(plan.store.root, profile, where=where, hint="give the profile's file another name")
        for name, request in rows.items():
            folder, where = plan.store.root / profile, f"--methods {request.text}"
            check_new_name(folder, name, where=where, hint=_rename_hint(request), others=rows)


def _rename_hint(request: MethodRequest) -> str:
    """What to type for the same method under a name of its own."""
    alias, method = request.alias, request.text
    if alias is not None:
        method = method.partition("=")[2].strip()
    name = re.sub(r"[^A-Za-z0-9_+-]+", "-", alias or request.name).strip("-")
    return f"type another name for the row: {shlex.quote(f'{name}-1={method}')}"
