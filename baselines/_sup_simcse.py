"""What supervised SimCSE trains: a head in the pooler's place, and labelled positives and hard negatives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.baselines._labelled import Columns, hard_negative_nce
from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear
from bench.train.sentence_encoder import train_towers


class SupSimCSEObjective(Objective):
    """(Sentence number, token row) pairs to InfoNCE with hard negatives, under a head that stays.

    Args:
        model: The transformer; its pooler becomes the head, with fresh weights.
        tokenizer: Its tokenizer.
        context: The stage: its options, positives and hard negatives.
    """

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, tokenizer.pad_token_id
        self.columns = Columns(tokenizer, context)
        self.tau = float(context.config["tau"])
        self.weight = float(context.config["hard_negative_weight"])
        set_fresh_pooler(model)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> TokenBatch:
        """All columns go through one call."""
        return token_batch(self.columns.rows(batch), self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """InfoNCE over positives and hard negatives."""
        projected = torch.tanh(self.encoder.pooler.dense(batch_states(self.encoder, prepared)))
        anchors, positives, *negatives = projected.chunk(self.columns.count)
        return hard_negative_nce(
            anchors, positives, negatives[0] if negatives else None, self.tau, self.weight
        )


def set_fresh_pooler(model: Any) -> None:
    """Give a transformer's pooler fresh weights, from torch's random state; one that lacks it gets one.

    Raises:
        InputError: its architecture has no pooler of one layer.
    """
    if getattr(model, "pooler", None) is None and hasattr(model, "pooler"):
        model.pooler = type(model)(copy.deepcopy(model.config)).pooler
    dense = getattr(getattr(model, "pooler", None), "dense", None)
    size = model.config.hidden_size
    if not isinstance(dense, nn.Linear) or dense.weight.shape != (size, size):
        raise InputError(
            f"{type(model).__name__} has no pooler, whose place the head takes",
            expected="a backbone such as BERT or RoBERTa",
        )
    model.pooler.dense = fresh_linear(size)


def train(context: StageContext) -> dict[str, Any]:
    """Train on labelled pairs or triplets: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a backbone without a pooler.
    """
    tower = load_backbone(context.model)
    return train_towers(
        context,
        [tower],
        lambda model, _: SupSimCSEObjective(model, tower[1], context),
        numbered=True,
        pooling="pooler",
    )
