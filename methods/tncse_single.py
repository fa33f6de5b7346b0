"""One encoder with TNCSE's losses: SimCSE with the tensor norm (TNCSE, Table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.methods.twin import LTN_SCALE, NCE_FORM, TAU, Rows, pooler_layer, repeat_each_row
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.recipe import CLS_VIEWS, POOLING_OPTION, TEXT_OPTION, TRAINING_OPTIONS, TrainedOnce


class SingleObjective(training.Objective):
    """NCE(H, H) + LTN(H -> H) of one encoder (TNCSE, Table 5), with its pooler or a fresh one."""

    def __init__(self, encoder: Any, pad_id: int, config: Mapping[str, OptionValue]) -> None:
        super().__init__()
        self.encoder, self.pooler = encoder, pooler_layer(encoder)
        self.pad_id, self.config = pad_id, config

    def prepare(self, batch: Rows) -> nn.TokenBatch:
        """Put both views of a sentence into rows one after the other."""
        return training.token_batch(repeat_each_row(batch), self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Add NCE and (with ``ictn``) LTN."""
        states = training.batch_states(self.encoder, prepared)
        loss = losses.tower_nce(states, float(self.config["tau"]), str(self.config["nce_form"]))
        if self.config["ictn"]:
            pooled = torch.tanh(self.pooler(states))
            loss = loss + losses.ltn(states, pooled, states, pooled, scale=float(self.config["ltn_scale"]))
        return loss


@add_method
class TNCSESingle(TrainedOnce):
    """One encoder, NCE and LTN."""

    card = MethodCard(
        name="tncse_single",
        family="contrastive",
        adds="TNCSE's norm loss between the two views; negatives from both views",
        cites=("zong-etal-2025-tncse",),
        tags=("dropout views", "tensor norms"),
        passes=6.0,
        kind="method",
        summary="one encoder with TNCSE's NCE and its tensor-norm loss against itself",
        version=1,
        paper="Zong, Shi, Yi, Xu 2025 (TNCSE), Table 5",
        code="tianyuzong/TNCSE",
        equations=(
            "L = NCE(H, H) + LTN(H -> H)",
            "LTN = s mean_i -log c_i ||P_2i - P_2i+1|| / (||P_2i|| + ||P_2i+1||), c_i = cos(H_2i, H_2i+1)",
        ),
        needs=CLS_VIEWS,
        options=(
            TAU,
            Option("ictn", True, "the tensor-norm loss; false: only NCE"),
            NCE_FORM,
            LTN_SCALE,
            *TRAINING_OPTIONS,
            replace(TEXT_OPTION, default="train+sick"),
            POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "rates and schedule are SimCSE's (unstated in the paper)",
            "the angle is between the two views; between first views (paper) it would be 0, and so LTN",
        ),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train one encoder, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(SingleObjective, config=context.config))
