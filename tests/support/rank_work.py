"""What the processes of tests/training/test_distributed.py run: each of them imports it by name."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.encoder import Progress
from bench.errors import BenchError
from bench.method_card import OptionValue
from bench.nn import backbone
from bench.nn.backbone import IndexedRows, TransformerEncoder
from bench.registry import discover
from bench.stages import StageContext, TrainedMethod
from bench.training import checkpoint as checkpoint_module
from bench.training import distributed, sentence_encoder
from bench.training.distributed import (
    average_gradients,
    deal_rows,
    gather_shares,
    is_first_process,
    sum_over_processes,
    use_own_draws,
)
from bench.training.loop import TrainSettings, order_batches
from tests.support.training import train_alone

SENTENCES = (
    "The doctor is reading a book.",
    "a",
    "Two children are singing a song on the hill.",
    "the farmer",
    "This is a sentence.",
    "the doctor is on the hill",
    "children are reading",
)
Found = tuple[float, dict[str, NDArray[np.float64]]]
"""Loss of a step, and the gradient of every parameter that has one."""
_STEPS = 3
_PLAINLY = backbone._load_whole_model


class Stop(Exception):  # noqa: N818 - no error
    """Ends a stage before it would save anything."""


@dataclass(frozen=True)
class Gradients:
    """Loss and gradients of the first steps of methods, in float64 and at dropout 0."""

    cases: Mapping[str, tuple[str, Mapping[str, OptionValue], str]]  # method, changed options, stage's role
    bert: Path
    mlm: Path  # of the same vocabulary
    subs: Path  # a finished sub-encoder's stage
    sentences: Sequence[str] = SENTENCES

    def __call__(self, scratch: Path, progress: Progress | None) -> dict[str, list[Found]]:
        """Of every case."""
        with in_float64():
            return {name: self.of(*case, scratch) for name, case in self.cases.items()}

    def of(
        self,
        method: str,
        changes: Mapping[str, OptionValue],
        role: str,
        scratch: Path,
        instead: Callable[..., None] | None = None,
    ) -> list[Found]:
        """Run a stage's first steps, or something else in the place of its training loop."""
        trained = discover().get(method)
        assert isinstance(trained, TrainedMethod)
        options = {option.name: option.default for option in trained.card.options} | dict(changes)
        (stage,) = (stage for stage in trained.stages(options) if stage.role == role)
        config = dict(stage.config) | {"dropout": 0.0, "batch_size": 5, "steps": _STEPS, "max_length": 12}
        config |= {name: value for name, value in changes.items() if name in config}
        member = TransformerEncoder(self.bert, "avg")
        context = StageContext(
            config=config,
            seed=1,
            role=role,
            model=self.bert,
            device="cpu",
            sentences=self.sentences,
            corpus="c",
            dev_score=lambda *_: 0.0,
            inputs={"sub1": self.subs, "sub2": self.subs},
            out=scratch,
            members={role: member for role in stage.inputs if role not in ("sub1", "sub2")},
            auxiliaries=dict.fromkeys(("generator", "mlm_head"), self.mlm),
            partners=self.sentences[::-1],
            negatives=(*self.sentences[1:], self.sentences[0]),
        )
        found: list[Found] = []
        place: Any = sentence_encoder
        kept, place.train = place.train, instead or partial(first_steps, found)
        try:
            stage.train(context)
        except Stop:
            return found
        finally:
            place.train = kept
        raise AssertionError("it didn't train")


def first_steps(
    found: list[Found],
    objective: Any,
    encoder: Any,
    rows: IndexedRows,
    settings: TrainSettings,
    *,
    seed: int,
    corpus: str,
    **_: Any,
) -> None:
    """In place of :func:`bench.training.loop.train`: plain descent, so that later steps see earlier ones."""
    objective.double().train()
    order = order_batches(len(rows), settings.batch_size, seed, corpus, drop_last=settings.drop_last)
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    for _step in range(settings.steps):
        loss = objective([rows[index] for index in next(order)])
        objective.module.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(parameters)
        named = objective.named_parameters()
        found.append(
            (float(loss.detach()), {n: p.grad.numpy().copy() for n, p in named if p.grad is not None})
        )
        torch.nn.utils.clip_grad_norm_(parameters, 0.01)
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter -= parameter.grad
    raise Stop


@contextmanager
def in_float64() -> Iterator[None]:
    """Load backbones in float64, so that what is copied from them is, too; each folder is read once."""

    def load(folder: Path, *, needs_pooler: bool, **_: Any) -> tuple[Any, Any]:
        model, tokenizer = copy.deepcopy(_read(folder, needs_pooler))
        return model.double(), tokenizer

    place: Any = backbone  # whoever imported load_backbone by name calls this
    place._load_whole_model = load
    try:
        yield
    finally:
        place._load_whole_model = _PLAINLY


@cache
def _read(folder: Path, needs_pooler: bool) -> tuple[Any, Any]:
    return _PLAINLY(folder, needs_pooler=needs_pooler, dtype=torch.float32)


def alone(work: Callable[[Path, Progress | None], Any]) -> Any:
    """What a process of its own makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder), None)


def encode_shares(rows: Sequence[Any], encode: Callable[[Sequence[Any]], Tensor]) -> Tensor:
    """Encode rows, each process its share, and return all vectors, with gradient through the own ones."""
    share = deal_rows([len(row) for row in rows])
    with use_own_draws():
        own = encode([rows[number] for number in share.own])
    return gather_shares(own)[torch.tensor(share.place)]


def facts(scratch: Path, progress: Progress | None) -> dict[str, Any]:
    """What a process knows of itself and of the others."""
    print("said by the first one alone")
    if progress:
        progress(3)
    ours = float(torch.rand(()))
    vectors = encode_shares(["a", "bbb", "cc"], lambda own: torch.tensor([[float(len(s))] for s in own]))
    return {
        "first": is_first_process(),
        "size": distributed._ranks[0].size,
        "threads": torch.get_num_threads(),
        "lengths": vectors.flatten().tolist(),
        "total": sum_over_processes(1.0 if is_first_process() else 0.5),
        "draw": ours,
        "scratch": scratch.is_dir(),
    }


@dataclass(frozen=True)
class Together:
    """All of this in one go, into a file; then the second process fails, while the first waits for it."""

    gradients: Gradients
    file: Path

    def __call__(self, scratch: Path, progress: Progress | None) -> None:
        """See the class."""
        known, found = facts(scratch, progress), self.gradients(scratch, progress)
        if is_first_process():
            self.file.write_bytes(pickle.dumps((known, found)))
        sum_over_processes(1.0)  # once the file is there
        if not is_first_process():
            raise BenchError("no luck", hint="try again")
        sum_over_processes(1.0)


@dataclass(frozen=True)
class Resumed:
    """A short training with a checkpoint after every step, which ends in an error at a step."""

    backbone: Path
    checkpoint: Path | None
    stop: int = 0  # step whose end it doesn't see, 0 for none

    def __call__(self, scratch: Path, say: Callable[[object], None] | None) -> Any:
        checkpoint_module.EVERY, checkpoint_module._ASKED_EVERY = 0.0, 1
        steps: list[int] = []

        def progress(sentences: int) -> None:
            steps.append(sentences)
            if len(steps) == self.stop:
                raise Stop

        given = {"checkpoint": self.checkpoint, "progress": progress}
        changes: dict[str, OptionValue] = {"steps": 6, "eval_every": 2, "batch_size": 16}
        trained = train_alone("esimcse", self.backbone, scratch, given, **changes)
        if not is_first_process():
            return None
        times = ("cpu_seconds", "step_seconds", "dev_seconds")
        facts = {name: value for name, value in trained.facts.items() if name not in times}
        weights = {name: value.double().sum().item() for name, value in trained.kept().items()}
        return facts, trained.losses, weights
