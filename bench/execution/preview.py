"""What a plan reads, how long it will take and what it will cost, for ``bench run --dry-run``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq
from pathlib import Path

from bench.data.corpus import Corpus
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import FILES
from bench.data.suites import is_accepted
from bench.data.tasks import PairTask, is_invisible
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, PairScorer
from bench.eval.suite_measures import measure_of
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.monitor import format_duration
from bench.execution.stage_cache import StageCache
from bench.nn.device import torch_threads
from bench.nn.model_folder import ModelFolder, RecipeModel, explain_hash_change
from bench.plan.cell import Cell
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.registry import METHODS
from bench.stages import TRAIN, Stage, planned_steps

_SAMPLE = 192  # sentences to encode, stratified by length
_DEV_PAIRS = 64  # pairs of the dev set, likewise
_TRAINED = 128  # sentences to train on
_DIFFERS = ", not the reference version"
MISSING = ("NA", "N/A", "nan", "NaN", "null", "None")
"""What tables hold where a value is missing."""
_STEPS = {"cpu": 2, "cuda": 12, "mps": 12}  # but at least so many steps; the first one isn't counted


@dataclass(frozen=True)
class TimeEstimate:
    """What the cells of one method take on the present device, in seconds by the clock.

    Args:
        method: Method id.
        cells: How many: seeds.
        training: Of all their stages that are not done; one that an earlier method trains too is that one's.
            Dev evaluations are in it.
        evaluation: Of all their suites.
    """

    method: str
    cells: int
    training: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """Of all cells."""
        return self.training + self.evaluation


def estimate_times(plan: Plan, jobs: Sequence[Job]) -> Iterator[TimeEstimate | str]:
    """Estimate jobs on one worker, method by method, as soon as each is measured; start-up is not in it.

    Yields:
        The estimate, or in one line why a method has none: its run would be a failed cell.
    """
    cache, counted = StageCache(plan.spec.results / ".stages"), set[str]()
    by_method: dict[str, list[Job]] = {}
    for job in jobs:
        by_method.setdefault(job.cell.method, []).append(job)
    for method, group in by_method.items():
        cells = list({job.cell.seed: job.cell for job in group}.values())
        try:
            cost = _measure_cell(plan, group[0], cache)
        except (Exception, SystemExit) as error:
            yield f"no estimate: {method}: {type(error).__name__}: {' '.join(str(error).split())}"
            continue
        todo = {stage.key: stage for cell in cells for stage in cell.all_stages if cache.find(stage) is None}
        training = sum(cost.training(stage, plan) for key, stage in todo.items() if key not in counted)
        counted |= todo.keys()
        evaluation = sum(_evaluation_seconds(plan, job, cost) for job in group)
        yield TimeEstimate(method, len(cells), training, evaluation)


class CellTimes:
    """Estimated times of single cells; a method is measured when one of its cells is first asked for."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._cache = plan, StageCache(plan.spec.results / ".stages")
        self._costs: dict[str, _CellCost | None] = {}

    def to_train(self, jobs: Sequence[Job]) -> tuple[object, ...]:
        """What a cell's stages do that aren't done, alike for all seeds."""
        stages = jobs[0].cell.all_stages
        return tuple(sorted((_stage_signature(s) for s in stages if self._cache.find(s) is None), key=repr))

    def seconds(self, jobs: Sequence[Job]) -> float:
        """Seconds of a cell on one worker, start-up not in it; nothing for what has no estimate."""
        known = [job for job in jobs if measure_of(job.suite).encodes_once]
        if not known:
            return 0.0
        cell = known[0].cell
        if cell.method not in self._costs:
            self._costs[cell.method] = self._measure_cost(known[0])
        if (cost := self._costs[cell.method]) is None:
            return 0.0
        training = (cost.training(s, self._plan) for s in cell.all_stages if self._cache.find(s) is None)
        return sum(training) + sum(_evaluation_seconds(self._plan, job, cost) for job in known)

    def _measure_cost(self, job: Job) -> _CellCost | None:
        try:
            return _measure_cell(self._plan, job, self._cache)
        except (Exception, SystemExit):  # its run is a failed cell, which says why
            return None


def _evaluation_seconds(plan: Plan, job: Job, cost: _CellCost) -> float:
    """Seconds of a cell's evaluation on a suite, of both checkpoints where it trains."""
    return cost.sentence * len(_suite_sentences(plan, job.suite)) * (2 if job.cell.trains else 1)


def format_estimate(estimate: TimeEstimate, price: float | None, devices: int) -> str:
    """One line: a cell's time, and where an hour of a device has a price the cost.

    Args:
        estimate: The estimate.
        price: Of an hour of one device; None for no cost.
        devices: That a cell holds.
    """
    training, evaluation, each = (
        seconds / estimate.cells for seconds in (estimate.training, estimate.evaluation, estimate.seconds)
    )
    line = f"{estimate.method:40} {estimate.cells} cell(s) of about {format_duration(each)}"
    line += f": {format_duration(training)} training, {format_duration(evaluation)} evaluation"
    return line if price is None else f"{line}; cost {format_cost(each, price, devices)}"


def format_cost(seconds: float, price: float, devices: int) -> str:
    """What a time costs, in the price's own unit."""
    return f"{seconds / 3600 * price * devices:.2f}"


@dataclass(frozen=True)
class _CellCost:
    """What one cell of a method took.

    Args:
        sentence: Seconds to encode a sentence in evaluation.
        steps: Seconds of a step and of a dev evaluation, by what a stage does.
        other: Seconds a sentence of training where a stage doesn't say.
    """

    sentence: float
    steps: Mapping[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)
    other: float = 0.0

    def training(self, stage: Stage, plan: Plan) -> float:
        """Seconds of a whole stage, dev evaluations included."""
        if _stage_signature(stage) not in self.steps or plan.training is None:
            return self.other * _count_stage_sentences(stage, plan)
        config = dict(stage.spec.config)
        steps = planned_steps(config, len(plan.training.texts[stage.spec.text].sentences))
        step, dev = self.steps[_stage_signature(stage)]
        return steps * step + steps // int(config["eval_every"]) * dev


def _measure_cell(plan: Plan, job: Job, cache: StageCache) -> _CellCost:
    """Train a few steps of a cell's stages, where they are not all done, and encode a few sentences."""
    sentences, finished = _suite_sentences(plan, job.suite), all(map(cache.find, job.cell.all_stages))
    cell = job.cell if finished else _shorten_cell(job.cell, plan.spec.device)
    training, share = _shorten_dev(plan.training)
    stride = max(1, len(sentences) // _SAMPLE)
    sample = sentences[stride // 2 :: stride]
    with (
        tempfile.TemporaryDirectory() as scratch,
        torch_threads(plan.spec.threads, needs_torch=cell.model is not None),
    ):
        used = cache if finished else StageCache(Path(scratch))
        begin = time.perf_counter()
        encoder = EncoderBuilder(cell, plan.spec.device, training, used).encoder()
        elapsed = time.perf_counter() - begin
        steps = (
            {}
            if finished
            else {_stage_signature(s): _read_step_times(used, s, share) for s in cell.all_stages}
        )
        trained = sum(_count_stage_sentences(stage, plan) for stage in cell.all_stages)
        _encode_sample(encoder, sample[:8])  # the first call is slower than the rest
        begin = time.perf_counter()
        _encode_sample(encoder, sample)
        sentence = (time.perf_counter() - begin) / len(sample)
    known = {doing: times for doing, times in steps.items() if times is not None}
    return _CellCost(sentence, known, elapsed / trained if trained else 0.0)


def _read_step_times(cache: StageCache, stage: Stage, share: float) -> tuple[float, float] | None:
    """Seconds of a step and of an evaluation on the whole dev set, None where a stage doesn't say."""
    facts = cache.facts(stage)
    if "step_seconds" not in facts:
        return None
    return facts["step_seconds"], facts["dev_seconds"] / share


def _stage_signature(stage: Stage) -> tuple[object, ...]:
    """What stages of different seeds have in common; a shortened one is like its whole self."""
    config = {name: value for name, value in stage.spec.config if name not in ("steps", "eval_every")}
    return stage.stream, stage.spec.kind, stage.spec.text, tuple(sorted(config.items()))


def _shorten_dev(training: TrainingData | None) -> tuple[TrainingData | None, float]:
    """The training data with a part of the dev set, and how large a part."""
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
    """Distinct sentences of a suite by length."""
    found = set(measure_of(suite).sentences(plan.suites[suite]))
    return sorted(found, key=lambda text: (len(text), text))


def _encode_sample(encoder: Encoder | PairScorer, sentences: list[str]) -> None:
    if isinstance(encoder, PairScorer):
        encoder.score_pairs(sentences, sentences)
    else:
        encoder.encode(sentences)


def _shorten_cell(cell: Cell, device: str) -> Cell:
    members = tuple((role, _shorten_cell(member, device)) for role, member in cell.members)
    return replace(
        cell, stages=tuple(_shorten_stage(stage, device) for stage in cell.stages), members=members
    )


def _shorten_stage(stage: Stage, device: str) -> Stage:
    config = dict(stage.spec.config)
    steps = max(_STEPS[device], _TRAINED // int(config["batch_size"]))
    config |= {"steps": steps, "eval_every": steps}
    return replace(stage, spec=replace(stage.spec, config=tuple(config.items())))


def _count_stage_sentences(stage: Stage, plan: Plan) -> int:
    """Sentences that a stage trains on."""
    config = dict(stage.spec.config)
    sentences = plan.training.texts[stage.spec.text].sentences if plan.training else ()
    return planned_steps(config, len(sentences)) * int(config["batch_size"])


def list_plan_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return what each input is for and what it is, in one line; one that is missing has stopped the plan."""
    rows: dict[tuple[str, str], None] = {}
    for cell in {id(job.cell): job.cell for job in plan.jobs}.values():
        rows |= dict.fromkeys((what, _describe_folder(folder)) for what, folder in _walk_models(cell))
        note = getattr(METHODS.get(cell.card.name), "folder_note", None)
        if (
            cell.model is not None
            and note is not None
            and (said := note(cell.model.path, dict(cell.options)))
        ):
            rows[cell.model.name, said] = None
    texts = sorted({stage.spec.text for job in plan.jobs for stage in job.cell.all_stages})
    if plan.training is not None and texts:
        for name in texts:
            text = plan.training.texts[name]
            what = "training text" if name == TRAIN else f"text {name}"
            rows[what, f"{_format_name_and_hash(text.name, text.sha256)}, {_describe_text(text)}"] = None
        dev = plan.training.dev
        differs = _DIFFERS if is_accepted(dev) else ""
        form = f", {dev.form}" if dev.form else ""
        size = _describe_dev_size(dev, plan.training.texts)
        rows["dev set", f"{_format_name_and_hash(dev.id, dev.sha256)}{differs}{form}, {size}"] = None
    references = {name: job.record.tasks for job in plan.jobs for name in [job.suite]}
    for suite, tasks in plan.suites.items():
        facts = references.get(suite, {})
        odd = {name for name, fact in facts.items() if not fact["reference"] and not suite.startswith(FILES)}
        named = (f"{task.id} (not the reference version)" if task.id in odd else task.id for task in tasks)
        rows["suite", f"{suite}: {', '.join(named)}"] = None
        for task in tasks:
            local = getattr(task, "local", None)
            if suite.startswith(FILES) and isinstance(local, LocalTask):
                rows[f"task {task.id}", local.described()] = None
    return list(rows)


def _describe_text(text: Corpus) -> str:
    """How a text was read, how many sentences it has, and what is odd about some of them."""
    sentences, partners, negatives = text.sentences, text.partners, text.negatives
    again = len(sentences) - len(set(sentences))
    parts = [text.form] if text.form else []
    parts += [f"{len(sentences):,} sentences", f"{again:,} of them exact duplicates"]
    for count, what in (
        (text.empty, "empty lines or cells left out"),
        (sum(map(is_invisible, sentences)), "sentences of invisible characters alone"),
        (
            sum(text in MISSING for column in (sentences, partners, negatives) for text in column),
            "sentences that say NA, nan, null or None",
        ),
        (sum(map(eq, sentences, partners)), "positives equal to their sentence"),
        (sum(map(eq, partners, negatives)), "negatives equal to their positive"),
        (sum(map(eq, sentences, negatives)), "negatives equal to their sentence"),
    ):
        parts += [f"{what}: {count:,}"] if count else []
    return ", ".join(parts)


def _describe_dev_size(dev: PairTask, texts: Mapping[str, Corpus]) -> str:
    """How many pairs a dev set has, and how many of its sentences a training text has too."""
    sentences = {sentence for pair in dev.all_pairs() for sentence in pair}
    known = sentences.intersection(sentence for text in texts.values() for sentence in text.sentences)
    shared = f", {len(known):,} of their {len(sentences):,} sentences in the training text"
    return f"{dev.items:,} pairs{shared if known else ''}"


def _walk_models(cell: Cell) -> Iterator[tuple[str, ModelFolder]]:
    if cell.model is not None:
        yield ("backbone" if cell.card.needs_backbone else "model"), cell.model
    for option, folder in cell.auxiliaries:
        yield f"{cell.card.name}.{option}", folder
    for _, member in cell.members:
        yield from _walk_models(member)


def _describe_folder(folder: ModelFolder) -> str:
    if not isinstance(folder, RecipeModel) or folder.sha256:
        note = explain_hash_change(folder.path)
        return _format_name_and_hash(folder.name, folder.sha256) + (f", {note}" if note else "")
    return f"{folder.name}, made first by: bench {' '.join(folder.command)} --out {folder.path}"


def _format_name_and_hash(name: str, sha256: str) -> str:
    return f"{name}, sha256 {sha256[:12]}"
