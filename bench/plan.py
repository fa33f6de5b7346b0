"""From a specification to jobs: which cells on which suites, under which keys, and what is done already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench import profiles
from bench.card import MethodCard
from bench.cells import Cell, make_cells, refuse_twins, with_members
from bench.data.mini.world import DEFAULT_SEED, make_world
from bench.data.suites import MINI_SUITES, SUITES, data_folder, is_reference, load_suite
from bench.data.tasks import PairTask
from bench.errors import DataError, InputError, NewerRecordError, NotComparableError, did_you_mean
from bench.nn.folder import ModelFolder, resolve
from bench.record import RunRecord
from bench.registry import METHODS, discover
from bench.spec import MethodRequest, RunSpec
from bench.stages import ComposedMethod, TrainedMethod, keyed_stages
from bench.store import Place, ResultStore
from bench.training_data import TrainingData, load_training_data, uses_world

EVALUATION = 1  # raised when the numbers of an evaluation change; part of every key


@dataclass(frozen=True)
class Job:
    """One cell on one suite, with the key of everything that determines its scores."""

    cell: Cell
    suite: str
    tasks: tuple[tuple[str, int, str, bool], ...]
    key: str
    family: str
    notes: tuple[str, ...] = ()
    world: dict[str, int] | None = None

    @property
    def place(self) -> Place:
        """Where the record belongs."""
        return self.cell.place(self.suite)


@dataclass(frozen=True)
class Plan:
    """All jobs of a specification, in the order in which they run."""

    spec: RunSpec
    jobs: tuple[Job, ...]
    suites: Mapping[str, list[PairTask]]
    store: ResultStore
    training: TrainingData | None
    world_seed: int = DEFAULT_SEED

    def status(self, job: Job) -> str:
        """Return "done", "failed" (runs again) or "to do".

        Raises:
            NotComparableError: a finished record of another specification stands at the job's place, or at
                another seed of the same method.
        """
        self._check_other_seeds(job)
        try:
            record = self.store.read(job.place)
        except NewerRecordError:
            raise
        except DataError:
            return "to do"  # a damaged record is no result; the cell runs again
        if record is None or not self.store.is_whole(job.place, record):
            return "to do"
        if record.status == "failed":
            return "failed"
        if record.key != job.key and not self.spec.force:
            raise NotComparableError(
                f"{job.cell.describe()} on {job.suite} was finished under another specification "
                f"({explain_difference(record, job, self)})",
                where=str(self.store.path(job.place)),
                hint="name another --campaign, or replace it with --force",
            )
        return "done" if record.key == job.key else "to do"

    def _check_other_seeds(self, job: Job) -> None:
        replaced = {other.cell.seed for other in self.jobs} if self.spec.force else set()
        for record in self.store.siblings(job.place):
            if record.status == "ok" and record.family != job.family and record.seed not in replaced:
                raise NotComparableError(
                    f"{job.cell.method} on {job.suite} has seed {record.seed} under another specification "
                    f"({explain_difference(record, job, self)})",
                    where=str(self.store.root),
                    hint="name another --campaign",
                )

    def pending(self) -> list[Job]:
        """Jobs that have to run (all of them with ``force``)."""
        return [job for job in self.jobs if self.status(job) != "done" or self.spec.force]


def make_plan(spec: RunSpec) -> Plan:
    """Resolve a specification against registry, profile, data and results; loads no torch.

    Raises:
        InputError: unknown names or options, a model folder that is none, no data.
        DataError: damaged data.
    """
    discover()
    profile = profiles.load(spec.profile)
    methods = [METHODS.get(request.name, where="--methods").card for request in spec.methods]
    backbone = _backbone(spec, profile, methods)
    suite_names = spec.suites or profile.suites
    label = (
        profile.name if spec.backbone is None or backbone is None else f"{profile.name}@{backbone.sha256[:8]}"
    )
    training = _training_data(spec, profile, methods)
    corpus_size = len(training.corpus.sentences) if training else 0
    cells: list[Cell] = []
    for request, card in zip(spec.methods, methods, strict=True):
        cells += make_cells(request, card, spec, profile, label, backbone, corpus_size)

    def member_cells(request: MethodRequest) -> list[Cell]:
        card = METHODS.get(request.name, where=request.text).card
        return make_cells(request, card, spec, profile, label, backbone, corpus_size)

    cells = [with_members(cell, member_cells) for cell in cells]
    _check_overrides(spec, cells)
    cells = [_with_stages(cell, spec, training) for cell in cells]
    refuse_twins(cells)
    seed = _world_seed(spec, profile, suite_names)
    data = data_folder(spec.data)
    suites = {
        name: load_suite(name, data, accept_data=spec.accept_data, world_seed=seed)[1] for name in suite_names
    }
    # seed by seed, so that a run which is stopped early still compares fairly
    cells.sort(key=lambda cell: -1 if cell.seed is None else cell.seed)
    jobs = tuple(
        _with_world(_job(cell, name, suites[name], spec, training), training, seed)
        for cell in cells
        for name in suite_names
    )
    store = ResultStore(spec.results, spec.campaign)
    return Plan(spec, jobs, suites, store, training, seed)


def _training_data(spec: RunSpec, profile: profiles.Profile, cards: list[MethodCard]) -> TrainingData | None:
    """Read the training text and the dev set if a method here trains."""
    training = [
        card.name for card in cards if isinstance(METHODS.get(card.name), TrainedMethod | ComposedMethod)
    ]
    if training:
        return load_training_data(spec, profile, training[0])
    for option, given in (("--corpus", spec.corpus), ("--dev", spec.dev)):
        if given is not None:
            raise InputError("no method here trains", where=f"{option} {given}")
    return None


def _world_seed(spec: RunSpec, profile: profiles.Profile, suites: Sequence[str]) -> int:
    """Return the mini world's seed; raises InputError where it is given and nothing here is of that world."""
    if spec.world_seed is None:
        return DEFAULT_SEED
    if not uses_world(profile) and not MINI_SUITES & {spec.dev, *suites}:
        raise InputError("nothing here comes from the mini world", where=f"--world-seed {spec.world_seed}")
    if uses_world(profile) and spec.backbone is None and spec.world_seed != DEFAULT_SEED:
        raise InputError(
            f"the backbone of profile '{profile.name}' was pretrained on world seed {DEFAULT_SEED}",
            where=f"--world-seed {spec.world_seed}",
            hint=f"bench pretrain --world-seed {spec.world_seed} --out DIR, then --backbone DIR",
        )
    return spec.world_seed


def _with_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    """Return the cell with its training stages keyed, its members' before its own."""
    members = tuple((role, _with_stages(member, spec, training)) for role, member in cell.members)
    cell = replace(cell, members=members)
    method = METHODS.get(cell.card.name)
    if not isinstance(method, TrainedMethod) or training is None or cell.seed is None or cell.model is None:
        return cell
    fingerprints: dict[str, str | int] = {
        "model": cell.model.sha256,
        "dev": training.dev.sha256,
        "device": spec.device,
        "threads": spec.threads,
    }
    texts = {name: corpus.sha256 for name, corpus in training.texts.items()}
    keys = {role: _digest(member.identity()) for role, member in members}
    stages = keyed_stages(method.stages(dict(cell.options)), cell.seed, fingerprints, texts, keys)
    return replace(cell, stages=stages)


def _check_overrides(spec: RunSpec, cells: Sequence[Cell]) -> None:
    """Raise InputError for an override of a method that isn't there (a member of one may be overridden)."""
    known = {request.name for request in spec.methods} | {r.alias for r in spec.methods if r.alias}
    known |= {name for cell in cells for name in cell.member_names}
    known |= {value for request in spec.methods for name, value in request.options if name == "match"}
    for override in spec.overrides:
        if override.method not in known:
            raise InputError(
                f"no method '{override.method}' in --methods",
                where=f"--set {override.text}",
                expected=f"one of {', '.join(sorted(known))}",
                hint=did_you_mean(override.method, known),
            )


def _backbone(spec: RunSpec, profile: profiles.Profile, cards: list[MethodCard]) -> ModelFolder | None:
    if not any(card.needs_backbone for card in cards):
        if spec.backbone is not None:
            raise InputError("no method here starts from a backbone", where=f"--backbone {spec.backbone}")
        return None
    if spec.backbone is not None:
        return resolve(spec.backbone, where="--backbone")
    return resolve(
        profiles.backbone_reference(profile), where=f"profile {profile.name}", name=profile.backbone["name"]
    )


def _job(cell: Cell, suite: str, tasks: list[PairTask], spec: RunSpec, training: TrainingData | None) -> Job:
    facts = tuple((task.id, task.pairs, task.sha256, is_reference(task)) for task in tasks)
    setting: dict[str, object] = {
        "evaluation": EVALUATION,
        "suite": suite,
        "tasks": [[task_id, sha256] for task_id, _, sha256, _ in facts],
        "device": spec.device,
        "threads": spec.threads,
    }
    family = setting | cell.family()
    if cell.trains and training:
        family |= {"corpus": training.corpus.sha256, "dev": training.dev.sha256}
    notes = (*cell.notes, *filter(None, (SUITES.get(suite).note,)))
    return Job(cell, suite, facts, _digest(setting | cell.identity()), _digest(family), notes)


def _with_world(job: Job, training: TrainingData | None, seed: int) -> Job:
    """Name the mini world where the suite, the training text or the dev set comes from it."""
    trained = training is not None and job.cell.trains
    world = make_world(seed).facts
    if job.suite in MINI_SUITES or (trained and training is not None and training.corpus.world == world):
        return replace(job, world=world)
    return job


def _digest(identity: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def explain_difference(record: RunRecord, job: Job, plan: Plan) -> str:
    """Say in a few words what differs between a finished record and what is asked now."""
    spec, training = plan.spec, plan.training if job.cell.trains else None
    corpus, dev = (training.corpus.sha256, training.dev.sha256) if training else (None, None)
    model = job.cell.model.sha256 if job.cell.model else None
    tasks = {task_id: sha256 for task_id, _, sha256, _ in job.tasks}
    pairs = (
        ("method", record.name, job.cell.card.name),
        ("method version", record.version, job.cell.card.version),
        ("options", record.options, dict(job.cell.options)),
        ("model weights", (record.backbone or {}).get("sha256"), model),
        ("data", {name: facts.get("sha256") for name, facts in record.tasks.items()}, tasks),
        ("training text", (record.training.get("corpus") or {}).get("sha256"), corpus),
        ("dev set", (record.training.get("dev") or {}).get("sha256"), dev),
        ("threads", record.provenance.get("threads"), spec.threads),
        ("device", str(record.provenance.get("device")).split(" ")[0], spec.device),
    )
    differing = [
        f"{name} then {then}, now {now}"
        if isinstance(now, int | str) and len(str(now)) < 20
        else f"other {name}"
        for name, then, now in pairs
        if then != now
    ]
    return "; ".join(differing) or "another version of the evaluation"
