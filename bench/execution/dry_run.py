"""Inputs, estimated times and costs of a plan, for ``bench run --dry-run``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq
from pathlib import Path

from bench.config.profiles import load_profile
from bench.data.corpus import Corpus
from bench.data.label_origin import describe_labels
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import FILES
from bench.data.suites import is_accepted
from bench.data.tasks import is_invisible
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, PairScorer
from bench.eval.suite_measures import measure_of
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.monitor import format_duration
from bench.execution.stage_cache import CHECKPOINTS, StageCache
from bench.nn.adapter_view import open_plain_folder
from bench.nn.device import torch_threads
from bench.nn.folder_facts import read_json_object
from bench.nn.lora_settings import LoraSettings
from bench.nn.model_folder import ModelFolder, RecipeModel, count_weights, explain_hash_change
from bench.plan.cell import Cell
from bench.plan.cost_arithmetic import read_architecture
from bench.plan.job import Job
from bench.plan.lora_checks import count_adapter_weights
from bench.plan.plan import Plan
from bench.plan.profile_costs import describe_plan
from bench.registry import METHODS
from bench.stages import TRAIN, Stage, estimate_checkpoint_size, planned_steps

_SAMPLE = 192  # sentences to encode, stratified by length
_DEV_PAIRS = 64  # pairs of the dev set, likewise
_TRAINED = 128  # sentences to train on
_STEPS = {"cpu": 2, "cuda": 12, "mps": 12}  # least number of steps; the clock starts after the first
_DIFFERS = ", not the reference version"
MISSING = ("NA", "N/A", "nan", "NaN", "null", "None")  # texts that tables hold for a missing value


@dataclass(frozen=True)
class TimeEstimate:
    """Wall-clock seconds of the cells of one method; a stage of several methods counts for the first."""

    method: str
    cells: int
    training: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """Time of all cells."""
        return self.training + self.evaluation


def estimate_times(plan: Plan, jobs: Sequence[Job]) -> Iterator[TimeEstimate | str]:
    """Yield estimates on one worker, method by method, or a line for one that fails; start-up is extra."""
    cache, counted = StageCache(plan.spec.results / ".stages"), set[str]()
    by_method: dict[str, list[Job]] = {}
    for job in jobs:
        by_method.setdefault(job.cell.method, []).append(job)
    for method, group in by_method.items():
        cells = {job.cell.seed: job.cell for job in group}.values()
        try:
            cost = _measure_cell(plan, group[0], cache)
        except (Exception, SystemExit) as error:
            yield f"no estimate: {method}: {type(error).__name__}: {' '.join(str(error).split())}"
            continue
        todo = {stage.key: stage for cell in cells for stage in _unfinished_stages(cell, cache)}
        training = sum(cost.training(stage, plan) for key, stage in todo.items() if key not in counted)
        counted |= todo.keys()
        evaluation = sum(cost.evaluation(job, plan) for job in group)
        yield TimeEstimate(method, len(cells), training, evaluation)


class CellTimes:
    """Estimates times of single cells; measures a method at its first cell."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._cache = plan, StageCache(plan.spec.results / ".stages")
        self._costs: dict[str, _CellCost | None] = {}

    def training_kind(self, jobs: Sequence[Job]) -> tuple[object, ...]:
        """Return the signatures of a cell's unfinished stages, equal for all seeds."""
        stages = _unfinished_stages(jobs[0].cell, self._cache)
        return tuple(sorted(map(_stage_signature, stages), key=repr))

    def seconds(self, jobs: Sequence[Job]) -> float:
        """Estimate a cell's seconds on one worker after start-up, 0 if that fails."""
        known = [job for job in jobs if measure_of(job.suite).encodes_once]
        if not known:
            return 0.0
        cell = known[0].cell
        if cell.method not in self._costs:
            try:
                self._costs[cell.method] = _measure_cell(self._plan, known[0], self._cache)
            except (Exception, SystemExit):  # its run is a failed cell with the reason
                self._costs[cell.method] = None
        cost = self._costs[cell.method]
        if cost is None:
            return 0.0
        training = sum(cost.training(stage, self._plan) for stage in _unfinished_stages(cell, self._cache))
        return training + sum(cost.evaluation(job, self._plan) for job in known)


def _unfinished_stages(cell: Cell, cache: StageCache) -> list[Stage]:
    return [stage for stage in cell.all_stages if cache.find(stage) is None]


def format_estimate(estimate: TimeEstimate, price: float | None, devices: int) -> str:
    """Format a cell's time in one line, with its cost if an hour of one of its ``devices`` has a price."""
    times = (estimate.training, estimate.evaluation, estimate.seconds)
    training, evaluation, total = (seconds / estimate.cells for seconds in times)
    line = f"{estimate.method:40} {estimate.cells} cell(s) of about {format_duration(total)}"
    line += f": {format_duration(training)} training, {format_duration(evaluation)} evaluation"
    return line if price is None else f"{line}; cost {format_cost(total, price, devices)}"


def format_cost(seconds: float, price: float, devices: int) -> str:
    """Format the cost of a time, in the price's unit."""
    return f"{seconds / 3600 * price * devices:.2f}"


@dataclass(frozen=True)
class _CellCost:
    """Measured seconds of one cell of a method."""

    sentence: float  # to encode one in evaluation
    steps: Mapping[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)
    """Of a step and of a dev evaluation, by the stage's signature."""
    other: float = 0.0  # per training sentence of further stages

    def training(self, stage: Stage, plan: Plan) -> float:
        """Seconds of a whole stage, dev evaluations included."""
        if _stage_signature(stage) not in self.steps or plan.training is None:
            return self.other * plan.count_stage_sentences(stage)
        config = dict(stage.spec.config)
        steps = planned_steps(config, len(plan.training.texts[stage.spec.text].sentences))
        step, dev = self.steps[_stage_signature(stage)]
        return steps * step + steps // int(config["eval_every"]) * dev

    def evaluation(self, job: Job, plan: Plan) -> float:
        """Seconds of an evaluation on a suite, of both checkpoints where the cell trains."""
        return self.sentence * len(_suite_sentences(plan, job.suite)) * (1 + job.cell.trains)


def _measure_cell(plan: Plan, job: Job, cache: StageCache) -> _CellCost:
    """Train a cell's stages for a few steps, unless all are finished, and encode a few sentences."""
    sentences, finished = _suite_sentences(plan, job.suite), not _unfinished_stages(job.cell, cache)
    cell, used = job.cell, cache
    training, share = _shorten_dev(plan.training)
    stride = max(1, len(sentences) // _SAMPLE)
    sample = sentences[stride // 2 :: stride]
    threads = torch_threads(plan.spec.threads, needs_torch=cell.model is not None)
    with tempfile.TemporaryDirectory() as scratch, threads:
        if not finished:
            cell, used = _shorten_cell(cell, plan.spec.device), StageCache(Path(scratch))
        begin = time.perf_counter()
        encoder = EncoderBuilder(cell, plan.spec.device, training, used).encoder()
        elapsed = time.perf_counter() - begin
        steps: dict[tuple[object, ...], tuple[float, float]] = {}
        for stage in () if finished else cell.all_stages:
            facts = used.facts(stage)
            if "step_seconds" in facts:
                steps[_stage_signature(stage)] = facts["step_seconds"], facts["dev_seconds"] / share
        trained = sum(map(plan.count_stage_sentences, cell.all_stages))
        _encode_sample(encoder, sample[:8])  # the first call is slower than the rest
        begin = time.perf_counter()
        _encode_sample(encoder, sample)
        sentence = (time.perf_counter() - begin) / len(sample)
    return _CellCost(sentence, steps, elapsed / trained if trained else 0.0)


def _stage_signature(stage: Stage) -> tuple[object, ...]:
    """Return what stages of different seeds, and shortened ones, have in common."""
    config = {name: value for name, value in stage.spec.config if name not in ("steps", "eval_every")}
    return stage.stream, stage.spec.kind, stage.spec.text, tuple(sorted(config.items()))


def _shorten_dev(training: TrainingData | None) -> tuple[TrainingData | None, float]:
    """Return the training data with a part of the dev set, and the share of that part."""
    if training is None:
        return None, 1.0
    stride = max(1, training.dev.pairs // _DEV_PAIRS)
    subsets = tuple(
        replace(s, first=s.first[::stride], second=s.second[::stride], gold=s.gold[::stride])
        for s in training.dev.subsets
    )
    dev = replace(training.dev, subsets=subsets)
    return replace(training, dev=dev), dev.pairs / training.dev.pairs


def _suite_sentences(plan: Plan, suite: str) -> list[str]:
    """Return the distinct sentences of a suite by length."""
    return sorted(set(measure_of(suite).sentences(plan.suites[suite])), key=lambda text: (len(text), text))


def _encode_sample(encoder: Encoder | PairScorer, sentences: list[str]) -> None:
    if isinstance(encoder, PairScorer):
        encoder.score_pairs(sentences, sentences)
    else:
        encoder.encode(sentences)


def _shorten_cell(cell: Cell, device: str) -> Cell:
    stages = []
    for stage in cell.stages:
        config = dict(stage.spec.config)
        steps = max(_STEPS[device], _TRAINED // int(config["batch_size"]))
        config |= {"steps": steps, "eval_every": steps}
        stages.append(replace(stage, spec=replace(stage.spec, config=tuple(config.items()))))
    members = tuple((role, _shorten_cell(member, device)) for role, member in cell.members)
    return replace(cell, stages=tuple(stages), members=members)


def describe_checkpoints(jobs: Iterable[Job], cache: StageCache) -> str | None:
    """Return a line on the disk that checkpoints of unfinished stages need, None without such stages."""
    sizes = []
    for cell in {id(job.cell): job.cell for job in jobs}.values():
        for _, owner, stage in cell.named_stages:
            if owner.model is None or cache.find(stage) is not None:
                continue
            towers = len({own.spec.role for own in owner.stages} & set(stage.spec.inputs))
            settings = LoraSettings.from_config(dict(stage.spec.config))
            if settings is None:
                with open_plain_folder(owner.model.path) as plain:
                    weights = count_weights(plain)
            else:
                weights = count_adapter_weights(owner.model, settings)
            sizes.append(estimate_checkpoint_size(weights) * max(1, towers))
    if not sizes:
        return None
    size = f"about {max(sizes) / 1e6:,.1f} MB" if max(sizes) else "four times its weights"
    place = cache.root / CHECKPOINTS
    keeps = f"after five minutes a stage in training keeps {size} in {place}"
    return f"checkpoints: {keeps} (twice that as it is replaced), freed at its end"


def describe_plan_costs(plan: Plan) -> str | None:
    """Return a line on memory and hours by arithmetic, of the backbone in a profile that states its sizes."""
    cells = [job.cell for job in plan.jobs]
    model = next((cell.model for cell in cells if cell.stages and cell.model), None)
    if model is None or plan.training is None or not load_profile(plan.spec.profile).architecture:
        return None
    sized = read_architecture(read_json_object(model.path / "config.json"))
    return None if sized is None else describe_plan(cells, sized, len(plan.training.corpus.sentences))


def list_plan_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return the purpose of each input and its description in one line; all are present."""
    rows: dict[tuple[str, str], None] = {}
    for cell in {id(job.cell): job.cell for job in plan.jobs}.values():
        for part in cell.walk():
            purpose = "backbone" if part.card.needs_backbone else "model"
            models = [(purpose, part.model)] if part.model else []
            models += [(f"{part.card.name}.{option}", folder) for option, folder in part.auxiliaries]
            rows |= dict.fromkeys((what, _describe_folder(folder)) for what, folder in models)
        describe = getattr(METHODS.get(cell.card.name), "folder_note", None)
        if cell.model and describe and (note := describe(cell.model.path, dict(cell.options))):
            rows[cell.model.name, note] = None
    names = {stage.spec.text for job in plan.jobs for stage in job.cell.all_stages}
    if plan.training is not None and names:
        rows |= dict.fromkeys(_describe_training(plan.training, sorted(names)))
    references = {job.suite: job.record.tasks for job in plan.jobs}
    for suite, tasks in plan.suites.items():
        facts, from_files = references.get(suite, {}), suite.startswith(FILES)
        odd = {name for name, fact in facts.items() if not fact["reference"] and not from_files}
        notes = dict.fromkeys(odd, " (not the reference version)")
        rows["suite", f"{suite}: {', '.join(task.id + notes.get(task.id, '') for task in tasks)}"] = None
        for task in tasks if from_files else ():
            local = getattr(task, "local", None)
            if isinstance(local, LocalTask):
                rows[f"task {task.id}", local.described()] = None
    return list(rows)


def _describe_training(training: TrainingData, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        text = training.texts[name]
        what = "training text" if name == TRAIN else f"text {name}"
        yield what, f"{text.name}, sha256 {text.sha256[:12]}, {_describe_text(text)}"
    dev = training.dev
    parts = [f"{dev.id}, sha256 {dev.sha256[:12]}{_DIFFERS if is_accepted(dev) else ''}"]
    parts += [dev.form] if dev.form else []
    sentences = {sentence for pair in dev.all_pairs() for sentence in pair}
    trained = (sentence for text in training.texts.values() for sentence in text.sentences)
    parts.append(f"{dev.items:,} pairs")
    if known := sentences.intersection(trained):
        parts.append(f"{len(known):,} of their {len(sentences):,} sentences in the training text")
    yield "dev set", ", ".join(parts)


def _describe_text(text: Corpus) -> str:
    """Describe a text's format, its size, and its unusual sentences."""
    sentences, partners, negatives = text.sentences, text.partners, text.negatives
    duplicates = len(sentences) - len(set(sentences))
    parts = [text.form, f"{len(sentences):,} sentences", f"{duplicates:,} of them exact duplicates"]
    missing = sum(cell in MISSING for column in (sentences, partners, negatives) for cell in column)
    counts = {
        "empty lines or cells left out": text.empty,
        "sentences of invisible characters alone": sum(map(is_invisible, sentences)),
        "sentences that say NA, nan, null or None": missing,
        "positives equal to their sentence": sum(map(eq, sentences, partners)),
        "negatives equal to their positive": sum(map(eq, partners, negatives)),
        "negatives equal to their sentence": sum(map(eq, sentences, negatives)),
    }
    parts += [f"{what}: {count:,}" for what, count in counts.items() if count]
    parts.append(describe_labels(text.label_model))
    return ", ".join(filter(None, parts))


def _describe_folder(folder: ModelFolder) -> str:
    if isinstance(folder, RecipeModel) and not folder.sha256:
        return f"{folder.name}, made first by: bench {' '.join(folder.command)} --out {folder.path}"
    bases = [f"adapter of {base.name} {base.sha256[:12]}" for base in getattr(folder, "bases", ())]
    parts = (folder.name, f"sha256 {folder.sha256[:12]}", *bases, explain_hash_change(folder.path))
    return ", ".join(filter(None, parts))
