"""What SimCSE trains: two dropout views of each sentence through one call of the transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.nn.backbone import Rows
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import train_sentence_encoder


class SimCSEObjective(Objective):
    """Token rows to InfoNCE between two dropout views, under the training-only tanh head.

    With partners it takes (sentence number, token row) pairs, and the second view is the partner's.

    Args:
        model: The transformer.
        pad_id: Padding id.
        tau: Temperature.
        head: False compares the [CLS] states themselves (TNCSE's sub-encoders).
        partners: Token row of each sentence's translation (EDFSE).
    """

    def __init__(
        self, model: Any, pad_id: int, tau: float, *, head: bool = True, partners: Rows | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.pad_id, self.tau, self.partners = model, pad_id, tau, partners
        self.head: Any = fresh_linear(model.config.hidden_size) if head else None

    def prepare(self, batch: Sequence[Any]) -> TokenBatch:
        """Both views go through one call, so without partners they differ by their dropout masks alone."""
        rows = [*batch, *batch]
        if self.partners is not None:
            rows = [*(row for _, row in batch), *(self.partners[number] for number, _ in batch)]
        return token_batch(rows, self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """InfoNCE between the first views and the second ones."""
        projected = batch_states(self.encoder, prepared)
        if self.head is not None:
            projected = torch.tanh(self.head(projected))
        anchors, positives = projected.chunk(2)
        return info_nce(anchors, positives, self.tau)


def train(context: StageContext) -> dict[str, Any]:
    """Train with InfoNCE over two dropout views: the stage.

    Arguments, result and errors are those of :func:`bench.train.sentence_encoder.train_towers`.
    """
    tau = float(context.config["tau"])
    return train_sentence_encoder(context, lambda model, pad_id: SimCSEObjective(model, pad_id, tau))
