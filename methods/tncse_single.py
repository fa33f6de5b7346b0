"""One encoder with TNCSE's losses: what the tensor norm does for SimCSE alone (TNCSE, Table 5)."""

from __future__ import annotations

from typing import Any

from bench.card import MethodCard, Option
from bench.registry import add_method
from bench.stages import StageContext
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, TRAINING_OPTIONS, TrainedOnce


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
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("ictn", True, "the tensor-norm loss; without it NCE alone"),
            Option(
                "nce_form",
                "released",
                "negatives: all other 2N - 2 rows (released) or the N - 1 of the other view (paper)",
                ("released", "paper"),
            ),
            Option("ltn_scale", 0.5, "factor of LTN: 0.5 released, 1 paper", minimum=0),
            *TRAINING_OPTIONS,
            Option(TEXT_OPTION.name, "train+sick", TEXT_OPTION.help, TEXT_OPTION.choices),
            Option(POOLING_OPTION.name, POOLING_OPTION.default, POOLING_OPTION.help, POOLING_OPTION.choices),
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
