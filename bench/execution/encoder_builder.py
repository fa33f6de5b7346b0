"""From a cell to its encoders: makes a backbone, trains missing stages, loads a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bench.card import BuildContext
from bench.config import profiles
from bench.config.plugins import plugins_for_methods
from bench.data.source import data_folder
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError, CellFailedError, InputError
from bench.execution.events import TRAINS, WAITS
from bench.execution.stage_cache import StageCache
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
    """Return the cell with its backbone made, and its members'; nothing happens where all are there.

    Raises:
        CellFailedError: a backbone can't be made.
    """
    return replace(
        cell,
        model=cell.model and make_backbone(cell.model),
        auxiliaries=tuple((option, make_backbone(model)) for option, model in cell.auxiliaries),
        members=tuple((role, make_cell_backbones(member)) for role, member in cell.members),
    )


def make_backbone(model: ModelFolder) -> ModelFolder:
    """Return a model with the hash of its bytes; make it first, in a process of its own, if it isn't there.

    Raises:
        CellFailedError: the command failed.
        DataError: it was made from another model or text than its recipe says.
    """
    if not isinstance(model, RecipeModel) or model.sha256:
        return model
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CellFailedError(
            f"the backbone can't be kept: {error.strerror}",
            where=str(model.path.parent),
            hint="name another folder with BENCH_CACHE",
        ) from error
    with FileLock(model.path.parent / f".{model.path.name}.lock"):  # others wait for the first
        if not model.path.exists():
            _run_pretraining(model)
    check_backbone_recipe(model.path, model.recipe)
    return replace(model, sha256=hash_model(model.path))


def _run_pretraining(model: RecipeModel) -> None:
    command = [sys.executable, "-m", "bench", *model.command, "--out", str(model.path)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode:
        raise CellFailedError(
            f"the backbone can't be made: exit code {done.returncode}",
            where=model.name,
            hint=f"see what it says: bench {' '.join(model.command)} --out {model.path}",
        )


def find_missing_backbone(cells: Iterable[Cell]) -> RecipeModel | None:
    """Return the backbone of cells that is still to be made, None where there is none."""
    models = (model for cell in cells for model in _cell_models(cell))
    return next((model for model in models if isinstance(model, RecipeModel) and not model.sha256), None)


def check_backbone_text(cells: Iterable[Cell]) -> None:
    """Raise InputError where a backbone is to be made and the text that it learns from isn't there."""
    if (model := find_missing_backbone(cells)) is None:
        return
    profile = profiles.load_profile(model.command[2])
    data = data_folder(Path(model.command[-1]) if "--data" in model.command else None)
    file = profile.corpus["file"]
    if data is None or not (data / file).is_file():
        raise InputError(
            f"{model.name} is made from the text {file}, which isn't there",
            where=str(data) if data else "the data folder",
            expected="--data DIR or BENCH_DATA with it",
            hint="docs/data.md says what bench's own texts are, and how to take another",
        )


def _cell_models(cell: Cell) -> Iterator[ModelFolder]:
    if cell.model:
        yield cell.model
    yield from (model for _, model in cell.auxiliaries)
    for _, member in cell.members:
        yield from _cell_models(member)


MADE_WITH = "made_with"
"""What trained a stage, among its facts; absent from those of an older bench."""
STEP_TIMES = ("step_seconds", "dev_seconds")
"""Facts of a stage, for estimates, that repeat no more than its CPU seconds do."""


class EncoderBuilder:
    """Builds one cell's encoders, each once; a failed stage fails every time it is asked for.

    Args:
        cell: The cell.
        device: "cpu", "cuda" or "mps".
        training: Training text and dev set, None where no method trains.
        cache: Finished stages.
        progress: Called with finished sentences.
        report: Called with what the cell does now, and with the news of a training.
    """

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
        self._encoders: dict[str, Encoder | PairScorer] = {}
        self._members = {
            role: EncoderBuilder(member, device, training, cache, progress, report)
            for role, member in cell.members
        }

    def encoder(self, checkpoint: str = "selected") -> Encoder | PairScorer:
        """Return the encoder of a checkpoint, "selected" or "last"."""
        if checkpoint not in self._encoders:
            cell = self._make_backbones()
            context = BuildContext(
                dict(cell.options),
                cell.seed,
                cell.model.path if cell.model else None,
                self.device,
                self.folders(),
                checkpoint,
                {role: self.member(role) for role in self._members},
            )
            self._encoders[checkpoint] = discover().get(cell.card.name).build(context)
            self._check_model()
        return self._encoders[checkpoint]

    def member(self, role: str) -> Encoder:
        """Return the selected encoder of another method that this one builds on."""
        encoder = self._members[role].encoder()
        if not isinstance(encoder, Encoder):
            raise BenchError(f"{self._members[role].cell.method} has no vectors to build on")
        return encoder

    def folders(self) -> dict[str, Path]:
        """Run or find all stages; return their folders by role."""
        if self._error is not None:
            raise self._error
        if self._folders is not None:
            return self._folders
        try:
            self._make_backbones()
            folders: dict[str, Path] = {}
            waiting, wait = list(self.cell.stages), False
            while waiting:
                for stage in self._trainable_stages(waiting, folders):
                    with self.cache.making(stage, wait=wait) as work:
                        if work is not None:
                            work.facts |= self._train_stage(stage, dict(folders), work.folder)
                    if (folder := self.cache.find(stage)) is not None:
                        folders[stage.spec.role] = folder
                        waiting.remove(stage)
                        wait = False
                        break
                else:
                    wait = True  # all that could be trained now is being trained elsewhere
                    self._report_news(doing=WAITS, key=waiting[0].key)
        except Exception as error:
            self._error = error
            raise
        self._folders = folders
        return folders

    def _trainable_stages(self, waiting: Sequence[Stage], folders: Mapping[str, Path]) -> list[Stage]:
        """Stages whose inputs are there: while another process trains one, those that don't need it."""
        roles = {stage.spec.role for stage in self.cell.stages}
        return [stage for stage in waiting if roles & set(stage.spec.inputs) <= folders.keys()]

    def last_differs(self) -> bool:
        """True if the last checkpoint of a stage that no other builds on isn't the selected one."""
        final = [self.cache.facts(stage) for stage in self.cell.final_stages]
        return any(facts["selected_step"] != facts["steps"] for facts in final)

    def facts(self) -> dict[str, Any]:
        """What the record says of the training: what was asked for, and what each stage gave."""
        block = training_block(self.cell, self.training)
        measured = self._stage_measurements() if "stages" in block else {}
        if measured:
            block["stages"] = {role: {**facts, **measured[role]} for role, facts in block["stages"].items()}
        return block

    def _stage_measurements(self) -> dict[str, dict[str, Any]]:
        """What each stage's training gave, the members' under their role and a slash."""
        passing = ("cpu_seconds", MADE_WITH, *STEP_TIMES)  # the first is in the timing block
        return {
            role: {name: value for name, value in self.cache.facts(stage).items() if name not in passing}
            for role, _, stage in self.cell.named_stages
        }

    def training_seconds(self) -> dict[str, float]:
        """CPU seconds that each finished stage took when it was trained."""
        finished = ((role, stage) for role, _, stage in self.cell.named_stages if self.cache.find(stage))
        return {role: self.cache.facts(stage)["cpu_seconds"] for role, stage in finished}

    def trained_otherwise(self) -> dict[str, dict[str, Any]]:
        """What trained each stage, as far as that is otherwise here: versions, device, processor."""
        here = collect_training_environment(self.device)
        facts = ((role, self.cache.facts(stage)) for role, _, stage in self.cell.named_stages)
        found = {role: diff_environments(each.get(MADE_WITH, {}), here) for role, each in facts}
        return {role: each for role, each in found.items() if each}

    def _make_backbones(self) -> Cell:
        """The cell, its backbone made where it wasn't there yet."""
        self.cell = make_cell_backbones(self.cell)
        return self.cell

    def _train_stage(self, stage: Stage, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
        """Train a stage into ``out``, here or in several processes; return its facts, and what trained it."""
        if self.training is None or self.cell.model is None:
            raise BenchError(f"stage '{stage.spec.role}' needs a training text and a backbone")
        self._report_news(doing=TRAINS, key=stage.key)
        if self.cell.ranks == 1:
            return {
                **self.train_here(stage, inputs, out),
                MADE_WITH: collect_training_environment(self.device),
            }
        from bench.training.process_group import run_processes

        for role in set(stage.spec.inputs) & self._members.keys():
            self._members[role].prepare()  # the processes find it finished
        training = self.training.for_stage(stage.spec.text)
        work = RankWork(self.cell, self.device, training, self.cache, stage.key, inputs, out)
        names = {self.cell.card.name, *self.cell.member_names}
        facts: dict[str, Any] = run_processes(
            work,
            self.cell.ranks,
            device=self.device,
            plugins=plugins_for_methods(names),
            progress=self._forward_report,
        )
        return {**facts, MADE_WITH: collect_training_environment(self.device)}

    def _report_news(self, **news: Any) -> None:
        if self.report:
            self.report(news)

    def _forward_report(self, said: int | Mapping[str, Any]) -> None:
        """Pass on what the first of several processes says: finished sentences, or news."""
        if isinstance(said, int):
            if self.progress:
                self.progress(said)
        else:
            self._report_news(**said)

    def prepare(self) -> None:
        """Run or find all stages, its members' too."""
        for member in self._members.values():
            member.prepare()
        self.folders()

    def train_here(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        """Train a stage in this process, alone or as one of several; return its facts."""
        from bench.training.mixed_precision import train_at_precision
        from bench.training.randomness import use_deterministic_kernels
        from bench.training.two_phase_step import compile_steps

        context = self.context(stage, inputs, out)
        precision, compiled = train_at_precision(self.cell.train_precision), compile_steps(self.cell.compiled)
        with precision, compiled, use_deterministic_kernels(context.device):
            facts = stage.spec.train(context)
        self._check_model()
        return facts

    def context(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> StageContext:
        """What a stage's training gets.

        Args:
            stage: One of the cell's stages.
            inputs: Folder of each earlier stage, by role.
            out: Empty folder for its files.

        Raises:
            BenchError: there is no training text or no backbone.
        """
        from bench.eval.sts import dev_spearman

        if self.training is None or self.cell.model is None:
            raise BenchError(f"stage '{stage.spec.role}' needs a training text and a backbone")
        self._make_backbones()
        dev, text = self.training.dev, self.training.texts[stage.spec.text]
        return StageContext(
            config=dict(stage.spec.config),
            seed=stage.seed,
            role=stage.stream,
            model=self.cell.model.path,
            device=self.device,
            sentences=text.sentences,
            corpus=text.sha256,
            dev_score=lambda encoder, select="cosine": dev_spearman(encoder, dev, select),
            inputs=inputs,
            out=out,
            progress=self.progress,
            members={role: self.member(role) for role in self._members if role in stage.spec.inputs},
            auxiliaries={option: folder.path for option, folder in self.cell.auxiliaries},
            partners=self.training.partners(stage.spec.text),
            report=self.report,
            negatives=text.negatives,
            needs=self.cell.needs,
        )

    def _check_model(self) -> None:
        """Raise BenchError if a model's files aren't those that were planned with."""
        for model in dict.fromkeys((self.cell.model, *(folder for _, folder in self.cell.auxiliaries))):
            if model is not None and hash_model(model.path) != model.sha256:
                raise BenchError(f"the files of model '{model.name}' changed since the run was planned")


@dataclass(frozen=True)
class RankWork:
    """A stage of a cell, as each of the processes that train it together gets it (it must pickle)."""

    cell: Cell
    device: str
    training: TrainingData
    cache: StageCache
    key: str
    inputs: Mapping[str, Path]
    out: Path

    def __call__(self, scratch: Path, say: Say | None) -> dict[str, Any]:
        """Train it; the first process alone writes into the stage's folder."""
        from bench.training.distributed import is_first_process

        builder = EncoderBuilder(self.cell, self.device, self.training, self.cache, say, say)
        (stage,) = (stage for stage in self.cell.stages if stage.key == self.key)
        return builder.train_here(stage, self.inputs, self.out if is_first_process() else scratch)
