"""Shared parts of methods that train a transformer: options, the one stage, its encoder, SimCSE's head.

Torch is imported where it is used, so that listing cards stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from bench import nn, training
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.lazy import torch
from bench.method_card import DROPOUT, FIRST_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.stages import PAIRS, StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.two_phase_step import Objective

CLS_VIEWS = (Need(FIRST_TOKEN), Need(DROPOUT))
"""Needs of a method that contrasts two dropout views of [CLS]."""
TRAINING_OPTIONS = (
    Option("lr", 3e-5, "peak learning rate", minimum=0),
    Option("batch_size", 64, "sentences a step", minimum=2),  # a contrast needs another sentence
    Option("epochs", 1, "passes over the corpus", minimum=1),
    Option("steps", 0, "optimiser steps; 0 counts by epochs", minimum=0),
    Option("eval_every", 125, "steps between dev evaluations", minimum=1),
    Option("max_length", 32, "tokens a sentence keeps in training, specials included", minimum=3),
    Option("dropout", 0.1, "hidden and attention dropout", minimum=0, below=1),
    Option("weight_decay", 0.0, "AdamW's weight decay", minimum=0),
    Option("clip", 1.0, "largest gradient norm, 0 for none", minimum=0),
    Option("schedule", "linear", "learning rate: linear decay to 0, or constant", ("linear", "constant")),
)


TEXT_OPTION = Option(
    "text",
    "train",
    "training text: the profile's, its round-trip translated copy a or b, each also with SICK's sentences",
    ("train", "a", "b", "train+sick", "a+sick", "b+sick"),
)


POOLING_OPTION = Option(
    "pooling",
    "cls",
    "what the trained encoder's vectors are; avg_first_last takes layer 1",
    ("cls", "avg", "avg_first_last", "avg_last_two", "pooler", "last", "weighted_mean", "mask"),
)


FIRST_ROWS = "first rows"
"""Setting ``queue_cut`` of a student's stage: a queue keeps the first rows of a batch that it cuts."""


def select_option(default: str) -> Option:
    """Return the option for the checkpoint's criterion, for methods with sentence-transformers' code."""
    return Option(
        "select",
        default,
        "what chooses the checkpoint on the dev set: Spearman of cosines, or (released) the best of cosine, "
        "dot product, Euclidean and Manhattan distance",
        ("cosine", "best_of_four"),
    )


def training_options(*, least_batch: int = 2, **defaults: OptionValue) -> tuple[Option, ...]:
    """Return SimCSE's training options with other defaults.

    ``least_batch`` is 1 for a loss that learns from one sentence.
    """
    options = []
    for option in TRAINING_OPTIONS:
        minimum = least_batch if option.name == "batch_size" else option.minimum
        default = defaults.get(option.name, option.default)
        options.append(replace(option, default=default, minimum=minimum))
    return tuple(options)


def single_stage(
    card: MethodCard, options: Mapping[str, OptionValue], train: Callable[[StageContext], dict[str, Any]]
) -> tuple[StageSpec, ...]:
    """Return the stage of a method that trains once; role and kind are the method's name."""
    settings = {n: v for n, v in options.items() if n not in ("text", "pooling")}
    text = str(options["text"])
    return (StageSpec(card.name, card.name, card.version, tuple(sorted(settings.items())), train, text=text),)


def load_trained_encoder(context: BuildContext, role: str) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the requested checkpoint, with its pooling.

    Raises:
        BenchError: the stage has not run.
    """
    if role not in context.stages:
        raise BenchError(f"the stage '{role}' has not run")
    folder = training.checkpoint_folder(context.stages[role], context.checkpoint)
    pooling = str(context.options["pooling"])
    return nn.TransformerEncoder(folder, pooling, first_layer="layer1", device=context.device)


class TrainedOnce:
    """Base of a method whose one stage trains its encoder: a subclass adds the card and ``train``."""

    card: MethodCard
    whole_batch: ClassVar[Mapping[str, float]] = {}
    """Options by which it encodes the whole batch at once, each with the value that leaves that out."""

    least_rows: ClassVar[int] = 1
    """Sentences that every batch needs, an epoch's last one too."""

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train, write both checkpoints to ``context.out`` and return the facts for the record: the stage."""
        raise NotImplementedError

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the one stage."""
        return single_stage(self.card, options, self.train)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the requested checkpoint."""
        return load_trained_encoder(context, self.card.name)


def init_linear(size: int) -> Any:
    """Return Linear(size, size), weights normal with std 0.02, bias 0, as in BERT's heads."""
    linear = torch.nn.Linear(size, size)
    torch.nn.init.normal_(linear.weight, std=0.02)
    torch.nn.init.zeros_(linear.bias)
    return linear


class EncoderWithHead(Objective):
    """z = tanh(W h_cls + b), SimCSE's training-only head, whose weights are drawn from torch's state."""

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.head = init_linear(nn.state_size(model))

    def tokens(self, rows: Sequence[list[int]]) -> nn.TokenBatch:
        """Run the host's half of :meth:`projected`."""
        return training.token_batch(rows, self.pad_id, self.encoder)

    def projected(self, batch: nn.TokenBatch) -> torch.Tensor:
        """Return z of each token row, (B, H); rows of one call differ only by their dropout masks."""
        return torch.tanh(self.head(training.batch_states(self.encoder, batch)))


class PairColumns:
    """Token rows of a stage's positives and, for triplets, of its hard negatives."""

    def __init__(self, tokenizer: Any, context: StageContext) -> None:
        others = filter(None, (context.partners, context.negatives))
        self._others = [training.build_rows(tokenizer, column, context.config) for column in others]

    @property
    def count(self) -> int:
        """Columns, the sentences' own among them: 2 of pairs, 3 of triplets."""
        return 1 + len(self._others)

    def rows(self, batch: Sequence[tuple[int, list[int]]]) -> list[list[int]]:
        """Return a batch's sentences, then their positives, then their hard negatives."""
        own = [row for _, row in batch]
        return [*own, *(column[number] for column in self._others for number, _ in batch)]


ADAMW_EPS = (
    "released: AdamW of transformers 4.2.1 adds eps before it corrects the bias of the second moment; "
    "torch's, used here, adds it after"
)
"""A deviation of SimCSE and of the methods whose code is built on its trainer."""


class TrainedOnPairs(TrainedOnce):
    """Base of a method whose one stage learns from labelled pairs."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the one stage."""
        return single_stage(self.card, {**options, "text": PAIRS}, self.train)


def usual_options(*, least_batch: int = 2, **defaults: OptionValue) -> tuple[Option, ...]:
    """Return SimCSE's training options with other defaults, the training text and the pooling."""
    return (
        *training_options(least_batch=least_batch, **defaults),
        TEXT_OPTION,
        POOLING_OPTION,
        *ENCODER_OPTIONS,
    )


def prompt_training_options(
    max_length: str, *, least_batch: int = 2, **defaults: OptionValue
) -> tuple[Option, ...]:
    """Return SimCSE's training options with other defaults and another meaning of ``max_length``."""
    return tuple(
        replace(option, help=max_length) if option.name == "max_length" else option
        for option in training_options(least_batch=least_batch, **defaults)
    )
