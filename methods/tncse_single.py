"""One encoder with TNCSE's losses: what the tensor norm does for SimCSE alone (TNCSE, Table 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.card import MethodCard, Option
from bench.methods._twin import LTN_SCALE, NCE_FORM, TAU
from bench.registry import add_method
from bench.stages import StageContext
from bench.train.recipe import CLS_VIEWS, POOLING_OPTION, TEXT_OPTION, TRAINING_OPTIONS, TrainedOnce


@add_method
class TNCSESingle(TrainedOnce):
    """One encoder, NCE and LTN."""

    card = MethodCard(
        name="tncse_single",
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
            Option("ictn", True, "the tensor-norm loss; without it NCE alone"),
            NCE_FORM,
            LTN_SCALE,
            *TRAINING_OPTIONS,
            replace(TEXT_OPTION, default="train+sick"),
            POOLING_OPTION,
        ),
        deviations=(
            "rates and schedule of this ablation aren't stated: SimCSE's stand in",
            "the angle is between the two views; between first views (paper) it is always 0 here, and so LTN",
        ),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage; see :class:`bench.methods._objectives.SingleObjective`."""
        from bench.methods._objectives import SingleObjective
        from bench.train.sentence_encoder import train_sentence_encoder

        return train_sentence_encoder(
            context, lambda model, pad_id: SingleObjective(model, pad_id, context.config)
        )
