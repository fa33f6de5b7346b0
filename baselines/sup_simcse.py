"""Supervised SimCSE: labelled positives against all positives and hard negatives of the batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import POOLER_LAYER, SUPERVISED, HeldEncoder, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, check_train_pooling, refuse_lora
from bench.training.recipe import ADAMW_EPS, TrainedOnPairs, init_linear, training_options


class SupSimCSEObjective(training.Objective):
    """(Sentence number, token row) pairs to InfoNCE with hard negatives; the fresh pooler is kept."""

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, tokenizer.pad_token_id
        self.columns = training.PairColumns(tokenizer, context)
        self.tau = float(context.config["tau"])
        self.weight = float(context.config["hard_negative_weight"])
        set_fresh_pooler(model)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Put all columns into one call."""
        return training.token_batch(self.columns.rows(batch), self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """InfoNCE over positives and hard negatives."""
        projected = torch.tanh(self.encoder.pooler.dense(training.batch_states(self.encoder, prepared)))
        anchors, positives, *hard = projected.chunk(self.columns.count)
        negatives = hard[0] if hard else None
        return losses.hard_negative_nce(anchors, positives, negatives, self.tau, self.weight)


def set_fresh_pooler(model: Any) -> None:
    """Give a transformer a pooler with fresh weights from torch's random state."""
    if getattr(model, "pooler", None) is None and hasattr(model, "pooler"):
        model.pooler = type(model)(copy.deepcopy(model.config)).pooler
    dense = getattr(getattr(model, "pooler", None), "dense", None)
    size = model.config.hidden_size
    if not isinstance(dense, torch.nn.Linear) or dense.weight.shape != (size, size):
        message = f"{type(model).__name__} has no pooler for the head to replace"
        raise InputError(message, expected="a backbone such as BERT or RoBERTa")
    model.pooler.dense = init_linear(size)


@add_method
class SupSimCSE(TrainedOnPairs):
    """Supervised SimCSE."""

    card = MethodCard(
        name="sup_simcse",
        printed="Supervised SimCSE",
        family="supervised",
        adds="labelled positives and hard negatives in place of dropout views; the head is kept",
        cites=("gao-etal-2021-simcse",),
        tags=("labelled pairs",),
        known_as=(("syncse", "sup_simcse with --pairs FILE (SynCSE's data, not its method)"),),
        passes=9.0,
        encoders=(HeldEncoder(views=3, returned=True),),
        kind=SUPERVISED,
        summary="supervised SimCSE: labelled positives and hard negatives, the head kept",
        version=1,
        paper="Gao, Yao, Chen 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings, eq. 5",
        code="princeton-nlp/SimCSE 49fa580",
        equations=(
            "z = tanh(W h_cls + b), W and b fresh",
            "S_ij = cos(z_i, z^+_j) / tau; N_ij = cos(z_i, z^-_j) / tau + w [i = j], w = ln alpha",
            "L = mean_i -log softmax([S_i ; N_i])_i; of pairs without hard negatives -log softmax(S_i)_i",
            "at inference z, with the head",
        ),
        needs=(Need(POOLER_LAYER),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "hard_negative_weight",
                0.0,
                "w, the logarithm of alpha, the weight of a sentence's own hard negative",
            ),
            *training_options(least_batch=1, lr=5e-5, batch_size=512, epochs=3),
            Option(
                "pooling",
                "pooler",
                "vectors of the trained encoder: pooler is the trained head (released)",
                ("pooler", "cls", "avg", "avg_first_last"),
            ),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "one process has the whole batch; released: four, each with its quarter, exchange vectors",
            "the head replaces the backbone's pooler, so the backbone must have such a layer",
            "left out: the released code's masked-LM term, off in its supervised script",
            ADAMW_EPS,
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the one stage; InputError: another pooling than the pooler's, or adapters."""
        check_train_pooling(self.card.name, options, ("cls",), "isn't read by the pooler, which takes [CLS]")
        refuse_lora(
            options, "sup_simcse", "adapters would leave out the trained head, which is kept", "lora_rank=0"
        )
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on labelled pairs or triplets, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context,
            [tower],
            lambda model, _: SupSimCSEObjective(model, tower[1], context),
            numbered=True,
            pooling="pooler",
        )
