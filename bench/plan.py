"""From a specification to cells: which methods, options, models and seeds, and what is done already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench import profiles
from bench.card import MethodCard, OptionValue
from bench.data.corpus import Corpus, read_corpus
from bench.data.suites import data_folder, is_reference, load_suite
from bench.data.tasks import PairTask
from bench.errors import DataError, InputError, NewerRecordError, NotComparableError, did_you_mean
from bench.nn.folder import ModelFolder, resolve
from bench.record import RunRecord
from bench.registry import METHODS, discover
from bench.spec import MethodRequest, Override, RunSpec
from bench.stages import Stage, TrainedMethod, keyed_stages
from bench.store import Place, ResultStore

EVALUATION = 1  # raised when the numbers of an evaluation change; part of every key


@dataclass(frozen=True)
class Cell:
    """One method with its options, model and seed: what is built once and evaluated on the suites."""

    profile: str
    method: str
    card: MethodCard
    options: tuple[tuple[str, OptionValue], ...]
    model: ModelFolder | None
    seed: int | None
    stages: tuple[Stage, ...] = ()
    note: str = ""

    def place(self, suite: str) -> Place:
        """Where the cell's record for a suite belongs."""
        return Place(self.profile, self.method, self.seed, suite)

    def describe(self) -> str:
        """For messages: method id and seed."""
        return self.method if self.seed is None else f"{self.method} seed {self.seed}"


@dataclass(frozen=True)
class TrainingData:
    """What the methods that train get: the text, and the dev set for selecting checkpoints."""

    corpus: Corpus
    dev: PairTask


@dataclass(frozen=True)
class Job:
    """One cell on one suite, with the key of everything that determines its scores."""

    cell: Cell
    suite: str
    tasks: tuple[tuple[str, int, str, bool], ...]
    key: str
    family: str

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
    _check_overrides(spec)
    backbone = _backbone(spec, profile, methods)
    suite_names = spec.suites or profile.suites
    label = (
        profile.name if spec.backbone is None or backbone is None else f"{profile.name}@{backbone.sha256[:8]}"
    )
    training = _training_data(spec, profile, methods)
    cells: list[Cell] = []
    for request, card in zip(spec.methods, methods, strict=True):
        cells += _cells(request, card, spec, profile, label, backbone)
    cells = [_with_stages(cell, spec, training) for cell in cells]
    _refuse_twins(cells)
    suites = {
        name: load_suite(name, data_folder(spec.data), accept_data=spec.accept_data)[1]
        for name in suite_names
    }
    # seed by seed, so that a run which is stopped early still compares fairly
    cells.sort(key=lambda cell: -1 if cell.seed is None else cell.seed)
    jobs = tuple(_job(cell, name, suites[name], spec, training) for cell in cells for name in suite_names)
    store = ResultStore(spec.results, spec.campaign)
    return Plan(spec, jobs, suites, store, training)


def _training_data(spec: RunSpec, profile: profiles.Profile, cards: list[MethodCard]) -> TrainingData | None:
    """Read the training text and the dev set if a method here trains."""
    training = [card.name for card in cards if isinstance(METHODS.get(card.name), TrainedMethod)]
    if not training:
        for option, given in (("--corpus", spec.corpus), ("--dev", spec.dev)):
            if given is not None:
                raise InputError("no method here trains", where=f"{option} {given}")
        return None
    data = data_folder(spec.data)
    tasks = load_suite(spec.dev or profile.dev, data, accept_data=spec.accept_data)[1]
    if len(tasks) != 1:
        raise InputError(
            f"'{spec.dev}' has {len(tasks)} tasks", where="--dev", expected="a suite of one task"
        )
    if spec.corpus is not None:
        return TrainingData(read_corpus(spec.corpus), tasks[0])
    if data is None:
        raise InputError(
            f"{training[0]} needs a training text", expected="--corpus FILE, or --data DIR or BENCH_DATA"
        )
    exclude = profile.corpus.get("exclude_lines")
    corpus = read_corpus(data / profile.corpus["file"], (exclude[0], exclude[1]) if exclude else None)
    return TrainingData(corpus, tasks[0])


def _with_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    method = METHODS.get(cell.card.name)
    if not isinstance(method, TrainedMethod) or training is None or cell.seed is None or cell.model is None:
        return cell
    fingerprints: dict[str, str | int] = {
        "model": cell.model.sha256,
        "corpus": training.corpus.sha256,
        "dev": training.dev.sha256,
        "device": spec.device,
        "threads": spec.threads,
    }
    return replace(cell, stages=keyed_stages(method.stages(dict(cell.options)), cell.seed, fingerprints))


def _check_overrides(spec: RunSpec) -> None:
    known = {request.name for request in spec.methods} | {r.alias for r in spec.methods if r.alias}
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


def _cells(
    request: MethodRequest,
    card: MethodCard,
    spec: RunSpec,
    profile: profiles.Profile,
    label: str,
    backbone: ModelFolder | None,
) -> list[Cell]:
    path, short = _argument(request, card)
    base = {option.name: option.default for option in card.options}
    for name, value in profile.methods.get(card.name, {}).items():
        base[name] = card.option(name, f"profile {profile.name}").parse(
            value, f"profile {profile.name}: {name}"
        )
    options = dict(base)
    if short and short[0] in dict(request.options):
        raise InputError(
            f"{short[0]} is given twice", where=f"--methods {request.text}", expected="one value"
        )
    given = [(short[0], short[1], f"--methods {request.text}")] if short else []
    given += [(name, value, f"--methods {request.text}") for name, value in request.options]
    given += [
        _checked_stage(override, card)
        for override in spec.overrides
        if override.method in (card.name, request.alias)
    ]
    for name, value, where in given:
        options[name] = card.option(name, where).parse(value, where)
    model = resolve(path, where=f"--methods {request.text}") if path is not None else None
    if card.needs_backbone:
        model = backbone
    changed = [f"{name}={value}" for name, value in sorted(options.items()) if value != base[name]]
    stem = f"{model.name.split('/')[-1]}-{model.sha256[:8]}" if card.takes_path and model else card.name
    identity = request.alias or (f"{stem}[{','.join(changed)}]" if changed else stem)
    if request.alias and request.alias in METHODS.names():
        raise InputError(
            f"the alias '{request.alias}' is the name of a registered method",
            where=f"--methods {request.text}",
            expected="another name",
        )
    seeds: tuple[int | None, ...] = (None,) if card.deterministic else spec.seeds
    frozen = tuple(sorted(options.items()))
    note = profile.note if card.needs_backbone and spec.backbone is None else ""
    return [Cell(label, identity, card, frozen, model, seed, note=note) for seed in seeds]


def _argument(request: MethodRequest, card: MethodCard) -> tuple[str | None, tuple[str, str] | None]:
    """Split NAME:ARGUMENT into a model path and the short option (name, value)."""
    argument, where = request.argument, f"--methods {request.text}"
    if card.takes_path:
        if argument is None:
            raise InputError(f"'{card.name}' needs a model", where=where, expected=f"{card.name}:PATH")
        path, colon, last = argument.rpartition(":")
        if colon and card.short_option and last in card.option(card.short_option, where).choices:
            return path, (card.short_option, last)
        return argument, None
    if argument is None:
        return None, None
    if card.short_option is None:
        raise InputError(f"'{card.name}' takes nothing after a colon", where=where, expected=card.name)
    return None, (card.short_option, argument)


def _checked_stage(override: Override, card: MethodCard) -> tuple[str, str, str]:
    where = f"--set {override.text}"
    if override.stage is not None:
        raise InputError(
            f"{card.name} has no stage '{override.stage}'", where=where, expected=f"{card.name}.OPTION=VALUE"
        )
    return override.option, override.value, where


def _refuse_twins(cells: list[Cell]) -> None:
    seen: set[tuple[str, int | None]] = set()
    for cell in cells:
        if (cell.method, cell.seed) in seen:
            raise InputError(
                f"'{cell.method}' is asked for twice",
                where="--methods",
                expected="each method once",
                hint="give one of them a name: NAME=METHOD",
            )
        seen.add((cell.method, cell.seed))


def _job(cell: Cell, suite: str, tasks: list[PairTask], spec: RunSpec, training: TrainingData | None) -> Job:
    facts = tuple((task.id, task.pairs, task.sha256, is_reference(task)) for task in tasks)
    identity = {
        "evaluation": EVALUATION,
        "method": cell.card.name,
        "version": cell.card.version,
        "options": dict(cell.options),
        "model": cell.model.sha256 if cell.model else None,
        "seed": cell.seed,
        "stages": [stage.key for stage in cell.stages],
        "suite": suite,
        "tasks": [[task_id, sha256] for task_id, _, sha256, _ in facts],
        "device": spec.device,
        "threads": spec.threads,
    }
    family = {name: value for name, value in identity.items() if name not in ("seed", "stages")}
    if cell.stages and training:
        family |= {"corpus": training.corpus.sha256, "dev": training.dev.sha256}
    return Job(cell, suite, facts, _digest(identity), _digest(family))


def _digest(identity: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def explain_difference(record: RunRecord, job: Job, plan: Plan) -> str:
    """Say in a few words what differs between a finished record and what is asked now."""
    spec, training = plan.spec, plan.training if job.cell.stages else None
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
