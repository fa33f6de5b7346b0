"""What methods that train a transformer share: options, the one stage, its encoder, SimCSE's head.

Torch is imported where it is used: cards are listed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bench.card import (
    DROPOUT,
    FIRST_TOKEN,
    BuildContext,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.stages import PAIRS, StageContext, StageSpec

CLS_VIEWS = (Need(FIRST_TOKEN), Need(DROPOUT))
"""What a method needs that contrasts two dropout views of [CLS]."""
TRAINING_OPTIONS = (
    Option("lr", 3e-5, "peak learning rate", minimum=0),
    Option("batch_size", 64, "sentences a step", minimum=1),
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
    ("cls", "avg", "avg_first_last", "pooler"),
)


FIRST_ROWS = "first rows"
"""Setting ``queue_cut`` of a student's stage: what stays of a batch that a queue cuts."""


def select_option(default: str) -> Option:
    """What chooses the checkpoint on the dev set, for methods whose code is sentence-transformers'."""
    return Option(
        "select",
        default,
        "what chooses the checkpoint on the dev set: Spearman of cosines, or (released) the best of cosine, "
        "dot product, Euclidean and Manhattan distance",
        ("cosine", "best_of_four"),
    )


def training_options(**defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults."""
    return tuple(
        replace(option, default=defaults.get(option.name, option.default)) for option in TRAINING_OPTIONS
    )


def single_stage(
    card: MethodCard, options: Mapping[str, OptionValue], train: Callable[[StageContext], dict[str, Any]]
) -> tuple[StageSpec, ...]:
    """The stage of a method that trains once; role and kind are the method's name."""
    settings = {n: v for n, v in options.items() if n not in ("text", "pooling")}
    text = str(options["text"])
    return (StageSpec(card.name, card.name, card.version, tuple(sorted(settings.items())), train, text=text),)


def load_trained_encoder(context: BuildContext, role: str) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the asked checkpoint, with its pooling.

    Raises:
        BenchError: the stage has not run.
    """
    from bench.nn.backbone import TransformerEncoder
    from bench.training.sentence_encoder import checkpoint_folder

    if role not in context.stages:
        raise BenchError(f"the stage '{role}' has not run")
    folder = checkpoint_folder(context.stages[role], context.checkpoint)
    return TransformerEncoder(
        folder, str(context.options["pooling"]), first_layer="layer1", device=context.device
    )


class TrainedOnce:
    """Base of a method whose one stage trains its encoder: a subclass adds the card and ``train``."""

    card: MethodCard

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage: train, leave both checkpoints in ``context.out`` and return the facts for the record."""
        raise NotImplementedError

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return single_stage(self.card, options, self.train)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return load_trained_encoder(context, self.card.name)


def init_linear(size: int) -> Any:
    """Return Linear(size, size), weights normal with std 0.02, bias 0: how BERT initialises a head."""
    from torch import nn

    linear = nn.Linear(size, size)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


ADAMW_EPS = (
    "released: AdamW of transformers 4.2.1 adds eps before it corrects the bias of the second moment; "
    "torch's, used here, adds it after"
)
"""A deviation of SimCSE and of the methods whose code is built on its trainer."""


class TrainedOnPairs(TrainedOnce):
    """Base of a method whose one stage learns from labelled pairs."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return single_stage(self.card, {**options, "text": PAIRS}, self.train)


def usual_options(**defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults, the training text and the pooling."""
    return (*training_options(**defaults), TEXT_OPTION, POOLING_OPTION)


def prompt_training_options(max_length: str, **defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults and another meaning of ``max_length``."""
    return tuple(
        replace(option, help=max_length) if option.name == "max_length" else option
        for option in training_options(**defaults)
    )
