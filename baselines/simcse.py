"""Unsupervised SimCSE: two dropout views of a sentence against the rest of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    TRAINING_OPTIONS,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [  # plug-ins take what methods share from here too
    "POOLING_OPTION",
    "TEXT_OPTION",
    "TRAINING_OPTIONS",
    "fresh_linear",
    "info_nce",
    "make_objective",
    "one_stage",
    "train_simcse",
    "trained_encoder",
    "training_options",
]


def make_objective(model: Any, pad_id: int, tau: float, *, head: bool = True) -> Any:
    """Return the module: token rows to loss, with the training-only tanh head (fresh, std 0.02, bias 0).

    Args:
        model: The transformer.
        pad_id: Padding id.
        tau: Temperature.
        head: False compares the [CLS] states themselves (TNCSE's sub-encoders).
    """
    import torch
    from torch import nn

    from bench.train.chunks import cls_states

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size) if head else None

        def forward(self, rows: list[list[int]]) -> Tensor:
            """Both views go through one call, so they differ by their dropout masks alone."""
            projected = cls_states(self.encoder, [*rows, *rows], pad_id)
            if self.head is not None:
                projected = torch.tanh(self.head(projected))
            return info_nce(projected[: len(rows)], projected[len(rows) :], tau)

    return Objective()


def train_simcse(context: StageContext) -> dict[str, Any]:
    """Train with InfoNCE over two dropout views: the stage.

    Arguments, result and errors are those of :func:`bench.train.sentence_encoder.train_towers`.
    """
    from bench.train.sentence_encoder import train_sentence_encoder

    tau = float(context.config["tau"])
    return train_sentence_encoder(context, lambda model, pad_id: make_objective(model, pad_id, tau))


@add_method
class SimCSE:
    """Unsupervised SimCSE."""

    card = MethodCard(
        name="simcse",
        kind="baseline",
        summary="unsupervised SimCSE: dropout views, InfoNCE, [CLS]",
        version=1,
        paper="Gao, Yao, Chen 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings, eq. 4",
        code="princeton-nlp/SimCSE 49fa580",
        equations=(
            "z = tanh(W h_cls + b) in training; S_ij = cos(z_i, z'_j) / tau; L = mean_i -log softmax(S_i)_i",
            "at inference h_cls of the last layer, without the head",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            *TRAINING_OPTIONS,
            Option("match", "", "a method whose stages' sentences it sees in all, in place of steps"),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the optional MLM term is not implemented (off in the released run)",
        ),
        published_names=(("simcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_simcse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "simcse")
