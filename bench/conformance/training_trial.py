"""A trial training of a method's stages on a tiny text, watched: gradients, losses, dropout views."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.conformance.dropout_views import Rows, Views, compare_views, describe_idle_dropout, record_rows
from bench.data.training_data import TrainingData
from bench.encoder import Encoder
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.stage_cache import StageCache
from bench.nn.backbone import IndexedRows
from bench.nn.dropout import set_dropout
from bench.plan.cell import Cell
from bench.stages import Stage, StageContext
from bench.training.randomness import own_random_state
from bench.training.training_watch import watch_trainings
from bench.training.two_phase_step import Objective

_BATCH, _BATCHES = 8, 8  # fixed batches on which the loss is measured
_DRAWS = "dropout/conformance"


@dataclass
class StageTrial:
    """What the training of one stage shows.

    Args:
        role: The stage.
        parameters: Parameters of the objective, and of the encoder that is evaluated and kept, by name.
        kept: Names of the encoder's.
        peaks: Largest absolute gradient of each over all steps.
        still: Names of those that the training left as they were.
        before: Loss of each fixed batch at the start.
        after: The same at the end: with the same draws, and with the start's queues, momentum copies and
            counters, so that only trained parameters differ.
        views: Dropout views at the start and at the end, None without any.
        idle_dropout: Dropout modules that draw nothing in a step.
        evaluated: Encoder of the last dev evaluation.
        problem: Why nothing is measured on fixed batches, or "".
    """

    role: str
    parameters: dict[str, nn.Parameter]
    kept: set[str]
    peaks: dict[str, float]
    still: set[str] = field(default_factory=set)
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    views: tuple[Views, Views] | None = None
    idle_dropout: str = ""
    evaluated: Encoder | None = None
    problem: str = ""


class TrainingWatch:
    """Watches one training from before its first step to its end; ``trial`` has what it shows."""

    def __init__(self, role: str, objective: Objective, encoder: nn.Module, rows: IndexedRows) -> None:
        parameters = dict(objective.module.named_parameters())
        names = {id(value): name for name, value in parameters.items()}
        for name, value in encoder.named_parameters():
            if id(value) not in names:
                names[id(value)] = f"tower {name}"
                parameters[names[id(value)]] = value
        kept = {names[id(value)] for value in encoder.parameters()}
        self.trial = StageTrial(role, parameters, kept, dict.fromkeys(parameters, 0.0))
        self._objective, self._batches = objective, list(_fixed_batches(rows))
        self._values = {name: value.detach().clone() for name, value in parameters.items()}
        self._start: tuple[Objective, nn.Module] | None = None
        self._plain, self._drawn = list[Rows](), list[Rows]()
        try:
            self._start = copy.deepcopy((objective, encoder))
        except Exception as error:  # an attribute of any kind
            self.trial.problem = f"its objective can't be copied ({type(error).__name__}: {error})"
        else:
            self._measure_start(self._start)
        self._hooks = [
            value.register_post_accumulate_grad_hook(partial(self._note_gradient, name))  # type: ignore[no-untyped-call]
            for name, value in parameters.items()
            if value.requires_grad
        ]

    def _note_gradient(self, name: str, parameter: Tensor) -> None:
        if parameter.grad is not None:
            peak = float(parameter.grad.abs().max())
            peaks = self.trial.peaks
            peaks[name] = max(peaks[name], 1.0 if peak != peak else peak)

    def _measure_start(self, start: tuple[Objective, nn.Module]) -> None:
        objective, encoder = copy.deepcopy(start)
        for tower in encoder.children():
            set_dropout(tower, 0.0)
        _, self._plain = measure_batches(objective, encoder, self._batches)
        objective, encoder = copy.deepcopy(start)
        self.trial.before, self._drawn = measure_batches(objective, encoder, self._batches)
        self.trial.idle_dropout = describe_idle_dropout(encoder)

    def finish(self) -> None:
        """Measure the end."""
        for hook in self._hooks:
            hook.remove()
        trial = self.trial
        trial.still = {n for n, value in trial.parameters.items() if torch.equal(value, self._values[n])}
        if self._start is None:
            return
        objective, encoder = self._start
        trained = dict(self._objective.module.named_parameters())
        with torch.no_grad():
            for name, value in objective.module.named_parameters():
                if value.requires_grad:
                    value.copy_(trained[name])
        trial.after, drawn = measure_batches(objective, encoder, self._batches)
        first, last = compare_views(self._plain, self._drawn), compare_views(self._plain, drawn)
        if first is not None and last is not None:
            trial.views = first, last


def _fixed_batches(rows: IndexedRows) -> Iterator[list[Any]]:
    size = min(_BATCH, len(rows))
    for start in range(0, min(len(rows), _BATCH * _BATCHES) - size + 1, size):
        yield [rows[number] for number in range(start, start + size)]


def measure_batches(
    objective: Objective, encoder: nn.Module, batches: Sequence[Any]
) -> tuple[list[float], list[Rows]]:
    """Return the loss of each batch in training mode, with fixed draws, and the rows that it encodes."""
    objective.train()
    losses, rows = [], []
    with own_random_state(1, _DRAWS):
        for batch in batches:
            with record_rows(encoder) as recorded:
                losses.append(float(objective(batch).detach()))
            rows.append(recorded())
    return losses, rows


class TrialBuilder(EncoderBuilder):
    """Trains the stages of one cell in a fresh cache, watched; its members come from ``shared``."""

    def __init__(
        self, cell: Cell, training: TrainingData | None, cache: StageCache, shared: StageCache
    ) -> None:
        super().__init__(cell, "cpu", training, cache)
        self._members = {
            role: EncoderBuilder(member, "cpu", training, shared) for role, member in cell.members
        }
        self.trials: list[StageTrial] = []
        """Of each training in the loop of :mod:`bench.training`."""

    def context(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> StageContext:
        """Return the context of a training; its dev evaluation keeps the evaluated encoder."""
        context = super().context(stage, inputs, out)

        def keep(encoder: Encoder, *select: str) -> float:
            for trial in (trial for trial in self.trials if trial.role == stage.spec.role):
                trial.evaluated = encoder
            return context.dev_score(encoder, *select)

        return replace(context, dev_score=keep)

    def train_here(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        """Train a stage in this process, watched; return its facts."""
        for member in self._members.values():
            member.finish_stages()
        watches: list[TrainingWatch] = []

        def watch(objective: Objective, encoder: nn.Module, rows: IndexedRows) -> None:
            watches.append(TrainingWatch(stage.spec.role, objective, encoder, rows))
            self.trials.append(watches[-1].trial)

        with watch_trainings(watch):
            facts = super().train_here(stage, inputs, out)
        for each in watches:
            each.finish()
        return facts
