"""What methods that train a transformer share: options, the one stage, its encoder, SimCSE's loss and head.

Torch is imported where it is used: cards are listed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.card import DROPOUT, FIRST_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.stages import StageContext, StageSpec

if TYPE_CHECKING:
    from torch import Tensor


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


def one_stage(
    card: MethodCard, options: Mapping[str, OptionValue], train: Callable[[StageContext], dict[str, Any]]
) -> tuple[StageSpec, ...]:
    """The stage of a method that trains once; role and kind are the method's name."""
    settings = {n: v for n, v in options.items() if n not in ("text", "pooling")}
    text = str(options["text"])
    return (StageSpec(card.name, card.name, card.version, tuple(sorted(settings.items())), train, text=text),)


def trained_encoder(context: BuildContext, role: str) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the asked checkpoint, with its pooling.

    Raises:
        BenchError: the stage has not run.
    """
    from bench.nn.backbone import TransformerEncoder
    from bench.train.sentence_encoder import checkpoint_folder

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
        return one_stage(self.card, options, self.train)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, self.card.name)


def info_nce(anchors: Tensor, positives: Tensor, tau: float) -> Tensor:
    """SimCSE's loss: cross-entropy of each anchor against all positives of the batch.

    S_ij = cos(z_i, z'_j) / tau; loss = mean_i -log softmax(S_i)_i. Rows only: B - 1 negatives an anchor, all
    from the second view. Gradient flows through both sides and both norms (Gao et al. 2021, eq. 4).

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; ln B for equal rows; 0 for B = 1.

    Raises:
        ValueError: different shapes, or a temperature that isn't above 0.

    Example:
        >>> import torch
        >>> anchors, positives = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> round(info_nce(anchors, positives, tau=1.0).item(), 4)  # both rows equal: ln 2
        0.6931
        >>> round(info_nce(anchors, anchors, tau=0.05).item(), 4)
        0.0
    """
    import torch
    from torch.nn import functional

    if anchors.shape != positives.shape or anchors.ndim != 2:
        raise ValueError(
            f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must be (B, H)"
        )
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
    unit_a = functional.normalize(anchors, dim=1, eps=1e-8)
    unit_p = functional.normalize(positives, dim=1, eps=1e-8)
    similarity = unit_a @ unit_p.T / tau
    return functional.cross_entropy(similarity, torch.arange(len(anchors), device=anchors.device))


def fresh_linear(size: int) -> Any:
    """Return Linear(size, size), weights normal with std 0.02, bias 0: how BERT initialises a head."""
    from torch import nn

    linear = nn.Linear(size, size)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear
