"""From a cell to its encoders: make its backbone, train missing stages, load a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bench.config import profiles
from bench.config.plugins import plugins_for_methods
from bench.data.data_source import data_folder
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError, CellFailedError, InputError
from bench.execution.events import TRAINS, WAITS
from bench.execution.stage_cache import StageCache
from bench.method_card import BuildContext
from bench.nn.adapter_folder import offer_bases
from bench.nn.model_folder import ModelFolder, RecipeModel, hash_model
from bench.plan.backbones import check_backbone_recipe
from bench.plan.cell import Cell
from bench.plan.job import training_block
from bench.records.environment import collect_training_environment, diff_environments
from bench.registry import discover
from bench.stages import Report, Stage, StageContext

if TYPE_CHECKING:
    from bench.training.process_group import Say


def make_cell_backbones(cell: Cell) -> Cell:
    """Return the cell with missing backbones made, its members' too; raises as :func:`make_backbone`."""
    auxiliaries = tuple((option, make_backbone(model)) for option, model in cell.auxiliaries)
    members = tuple((role, make_cell_backbones(member)) for role, member in cell.members)
    model = cell.model and make_backbone(cell.model)
    return replace(cell, model=model, auxiliaries=auxiliaries, members=members)


def make_backbone(model: ModelFolder) -> ModelFolder:
    """Return a model with its hash, made first if it is missing; raises CellFailedError and DataError."""
    if not isinstance(model, RecipeModel) or model.sha256:
        return model
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the backbone can't be kept: {error.strerror}"
        hint = "name another folder with BENCH_CACHE"
        raise CellFailedError(what, where=str(model.path.parent), hint=hint) from error
    with FileLock(model.path.parent / f".{model.path.name}.lock"):  # others wait for the first
        if not model.path.exists():
            _run_pretraining(model)
    check_backbone_recipe(model.path, model.recipe)
    return replace(model, sha256=hash_model(model.path))


def _run_pretraining(model: RecipeModel) -> None:
    words = [*model.command, "--out", str(model.path)]
    command = [sys.executable, "-m", "bench", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:  # noqa: S603
        try:
            code = running.wait()
        except BaseException:
            running.terminate()  # it ends with a checkpoint, for which leaving the block waits
            raise
    if code:
        what = f"the backbone can't be made: exit code {code}"
        hint = f"for its error message, run: bench {' '.join(words)}"
        raise CellFailedError(what, where=model.name, hint=hint)


def find_missing_backbone(cells: Iterable[Cell]) -> RecipeModel | None:
    """Return the first backbone of cells that is still to be made, if any."""
    models = (model for cell in cells for part in cell.walk() for model in part.models)
    return next((m for m in models if isinstance(m, RecipeModel) and not m.sha256), None)


def check_backbone_text(cells: Iterable[Cell]) -> None:
    """Raise InputError where the training text of a backbone that is to be made is missing."""
    if (model := find_missing_backbone(cells)) is None:
        return
    profile = profiles.load_profile(model.command[2])
    data = data_folder(Path(model.command[-1]) if "--data" in model.command else None)
    file = profile.corpus["file"]
    if data is None or not (data / file).is_file():
        what = f"{model.name} is made from the text {file}, which is missing"
        hint = "see docs/data.md for the texts, and for how to take another"
        where, expected = str(data or "the data folder"), "--data DIR or BENCH_DATA with it"
        raise InputError(what, where=where, expected=expected, hint=hint)


MADE_WITH = "made_with"  # fact of a stage: the environment that trained it; older stages lack it
STEP_TIMES = ("step_seconds", "dev_seconds")
"""Facts of a stage for time estimates, which vary from run to run."""


class EncoderBuilder:
    """Builds one cell's encoders, each once; a failed stage raises its error at every call."""

    def __init__(
        self,
        cell: Cell,
        device: str,
        training: TrainingData | None,
        cache: StageCache,
        progress: Progress | None = None,
        report: Report | None = None,
    ) -> None:
        self.cell, self.device, self.training = cell, device, training
        self.cache, self.progress, self.report = cache, progress, report
        self._folders: dict[str, Path] | None = None
        self._error: Exception | None = None
        self._encoders: dict[tuple[str, str], Encoder | PairScorer] = {}
        self._members = {
            role: EncoderBuilder(member, device, training, cache, progress, report)
            for role, member in cell.members
        }

    def encoder(self, checkpoint: str = "selected", precision: str = "fp32") -> Encoder | PairScorer:
        """Return the encoder of a checkpoint, "selected" or "last", with weights in "fp32", "bf16" or "fp16".

        Raises BenchError for an encoder that computes in fp32 only.
        """
        if (checkpoint, precision) not in self._encoders:
            self.cell = cell = make_cell_backbones(self.cell)
            model, folders = cell.model.path if cell.model else None, self.folders()
            members = {role: self.member(role, precision) for role in self._members}
            options = dict(cell.options)
            context = BuildContext(options, cell.seed, model, self.device, folders, checkpoint, members)
            self._encoders[checkpoint, precision] = self._build(context, precision)
            self._check_models()
        return self._encoders[checkpoint, precision]

    def _build(self, context: BuildContext, precision: str) -> Encoder | PairScorer:
        method, bases = discover().get(self.cell.card.name), offer_bases([m.path for m in self.cell.models])
        if precision == "fp32":  # word vectors need no torch
            with bases:
                return method.build(context)
        from bench.nn.half_precision import build_at_precision, cast_encoder

        with bases, build_at_precision(precision):
            encoder = method.build(context)
        lowered: Encoder | PairScorer = cast_encoder(encoder, precision)
        return lowered

    def member(self, role: str, precision: str = "fp32") -> Encoder:
        """Return the selected encoder of a member."""
        encoder = self._members[role].encoder(precision=precision)
        if not isinstance(encoder, Encoder):
            raise BenchError(f"{self._members[role].cell.method} has no vectors to build on")
        return encoder

    def folders(self) -> dict[str, Path]:
        """Run or find all stages; return their folders by role."""
        if self._error is not None:
            raise self._error
        if self._folders is None:
            try:
                self._folders = self._make_folders()
            except Exception as error:
                self._error = error
                raise
        return self._folders

    def _make_folders(self) -> dict[str, Path]:
        self.cell = make_cell_backbones(self.cell)
        roles = {stage.spec.role for stage in self.cell.stages}
        folders: dict[str, Path] = {}
        waiting, wait = list(self.cell.stages), False
        while waiting:
            ready = [stage for stage in waiting if roles & set(stage.spec.inputs) <= folders.keys()]
            for stage in ready:  # while another process trains one, go on with the next
                with self.cache.making(stage, wait=wait) as work:
                    if work is not None:
                        work.facts |= self._train_stage(stage, dict(folders), work.folder)
                if (folder := self.cache.find(stage)) is not None:
                    folders[stage.spec.role] = folder
                    waiting.remove(stage)
                    wait = False
                    break
            else:
                wait = True  # other processes train all of them
                self._report_news(doing=WAITS, key=waiting[0].key)
        return folders

    def last_differs(self) -> bool:
        """Return whether the last checkpoint of a final stage differs from the selected one."""
        final = map(self.cache.facts, self.cell.final_stages)
        return any(facts["selected_step"] != facts["steps"] for facts in final)

    def facts(self) -> dict[str, Any]:
        """Return the record's training block: the settings, and each stage's measurements."""
        block = training_block(self.cell, self.training)
        omitted = ("cpu_seconds", MADE_WITH, *STEP_TIMES)  # the first is in the timing block
        for role, _, stage in self.cell.named_stages if "stages" in block else ():
            facts = self.cache.facts(stage).items()
            block["stages"][role] |= {name: value for name, value in facts if name not in omitted}
        return block

    def training_seconds(self) -> dict[str, float]:
        """Return the CPU seconds that each finished stage took when it was trained."""
        seconds = {}
        for role, _, stage in self.cell.named_stages:
            if self.cache.find(stage):
                seconds[role] = self.cache.facts(stage)["cpu_seconds"]
        return seconds

    def diff_stage_environments(self) -> dict[str, dict[str, Any]]:
        """Return the differing facts of each stage's environment: versions, device, processor."""
        here = collect_training_environment(self.device)
        differences = {}
        for role, _, stage in self.cell.named_stages:
            if difference := diff_environments(self.cache.facts(stage).get(MADE_WITH, {}), here):
                differences[role] = difference
        return differences

    def _train_stage(self, stage: Stage, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
        """Train a stage into ``out``, here or in several processes; return its facts."""
        if self.training is None or self.cell.model is None:
            raise _missing_training_error(stage)
        self._report_news(doing=TRAINS, key=stage.key)
        if self.cell.ranks == 1:
            facts = self.train_here(stage, inputs, out)
        else:
            from bench.training.process_group import run_processes

            for role in set(stage.spec.inputs) & self._members.keys():
                self._members[role].finish_stages()  # so that the processes only read them
            training = self.training.for_stage(stage.spec.text)
            work = RankWork(self.cell, self.device, training, self.cache, stage.key, inputs, out)
            plugins = plugins_for_methods({self.cell.card.name, *self.cell.member_names})
            progress, ranks = self._forward_report, self.cell.ranks
            facts = run_processes(work, ranks, device=self.device, plugins=plugins, progress=progress)
        return {**facts, MADE_WITH: collect_training_environment(self.device)}

    def _report_news(self, **news: Any) -> None:
        if self.report:
            self.report(news)

    def _forward_report(self, report: int | Mapping[str, Any]) -> None:
        """Pass on finished sentences or news of the first process."""
        if not isinstance(report, int):
            self._report_news(**report)
        elif self.progress:
            self.progress(report)

    def finish_stages(self) -> None:
        """Run or find all stages, its members' too."""
        for member in self._members.values():
            member.finish_stages()
        self.folders()

    def train_here(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        """Train a stage in this process, as the only one or one of several; return its facts."""
        from bench.training.mixed_precision import train_at_precision
        from bench.training.randomness import use_deterministic_kernels
        from bench.training.two_phase_step import compile_steps

        context = replace(self.context(stage, inputs, out), checkpoint=self.cache.checkpoint(stage))
        precision, compiled = train_at_precision(self.cell.train_precision), compile_steps(self.cell.compiled)
        bases = offer_bases([model.path for model in self.cell.models])
        with bases, precision, compiled, use_deterministic_kernels(context.device):
            facts = stage.spec.train(context)
        self._check_models()
        return facts

    def context(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> StageContext:
        """Return the context of a training into the empty folder ``out``; ``inputs`` are folders by role."""
        from bench.eval.sts import dev_spearman

        self.cell = cell = make_cell_backbones(self.cell)
        if self.training is None or cell.model is None:
            raise _missing_training_error(stage)
        dev, text = self.training.dev, self.training.texts[stage.spec.text]
        auxiliaries = {option: folder.path for option, folder in cell.auxiliaries}
        members = {role: self.member(role) for role in self._members if role in stage.spec.inputs}
        return StageContext(
            config=dict(stage.spec.config),
            seed=stage.seed,
            role=stage.stream,
            model=cell.model.path,
            device=self.device,
            sentences=text.sentences,
            corpus=text.sha256,
            dev_score=lambda encoder, select="cosine": dev_spearman(encoder, dev, select),
            inputs=inputs,
            out=out,
            progress=self.progress,
            members=members,
            auxiliaries=auxiliaries,
            partners=self.training.partners(stage.spec.text),
            report=self.report,
            negatives=text.negatives,
            needs=cell.needs,
            model_name=cell.model.name,
            model_sha256=cell.model.sha256,
        )

    def _check_models(self) -> None:
        """Raise BenchError if a model's files changed since the plan."""
        for model in dict.fromkeys(self.cell.models):
            if hash_model(model.path) != model.sha256:
                raise BenchError(f"the files of model '{model.name}' changed since the run was planned")


def _missing_training_error(stage: Stage) -> BenchError:
    return BenchError(f"stage '{stage.spec.role}' needs a training text and a backbone")


@dataclass(frozen=True)
class RankWork:
    """A stage of a cell for each of the processes that train it together; it must pickle."""

    cell: Cell
    device: str
    training: TrainingData
    cache: StageCache
    key: str
    inputs: Mapping[str, Path]
    out: Path

    def __call__(self, scratch: Path, say: Say | None) -> dict[str, Any]:
        """Train it; only the first process writes into the stage's folder."""
        from bench.training.distributed import is_first_process

        builder = EncoderBuilder(self.cell, self.device, self.training, self.cache, say, say)
        (stage,) = (stage for stage in self.cell.stages if stage.key == self.key)
        return builder.train_here(stage, self.inputs, self.out if is_first_process() else scratch)
