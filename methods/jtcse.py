"""JTCSE: TNCSE's twin with cross-attention layers between the towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.methods._derived import add_derived
from bench.methods._twin import (
    JOINT_OPTIONS,
    TWIN_DEVIATIONS,
    sub_options,
    train_joint,
    twin_encoder,
    twin_stages,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import training_options

HALF = -1
PAPER = "Zong, Yi, Shi, Wang, Xu 2025, JTCSE: Joint Tensor-Modulus Constraints and Cross-Attention"


@add_method
class JTCSE:
    """JTCSE."""

    card = MethodCard(
        name="jtcse",
        kind="method",
        summary="TNCSE with cross-attention layers: each tower's attention also weights the other's values",
        version=1,
        paper=f"{PAPER}, eqs. 8-15",
        code="tianyuzong/JTCSE",
        equations=(
            "L = NCE(H_I, H_I) + NCE(H_II, H_II) + ICNCE + LTN(I -> II) + LTN(II -> I)",
            "CACT_a = softmax(Q_a K_a^T / sqrt(d_head)) V_b at every k-th layer, k = L / n (eq. 10)",
            "ICNCE = NCE(H_I, H_II) + NCE(c_I, c_II) or, with probability 1/2, both with I and II exchanged",
            "at inference h_cls of tower I + h_cls of tower II, without any cross-attention",
        ),
        options=(
            *JOINT_OPTIONS,
            Option(
                "caels", HALF, "cross-attention layers: a divisor of the layers, 0, or -1 for half of them"
            ),
            Option(
                "cross_stream",
                "carry",
                "the cross stream goes from CAEL to CAEL, or starts anew at the last",
                ("carry", "last"),
            ),
            *training_options(
                lr=1.3e-6, eval_every=100, max_length=64, weight_decay=0.01, clip=0.0, schedule="constant"
            ),
            *sub_options(1.5e-5, 2e-5),
        ),
        deviations=(
            *TWIN_DEVIATIONS,
            "the cross stream between CAELs is our reading of Fig. 4 (cross_stream=carry): the encoder file "
            "could not be read",
            "whether the released encoder lowers the dropout is unknown; the backbone's own 0.1 is kept",
        ),
        published_names=(("jtcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Both sub-encoders (shared with tncse), then the joint stage."""
        return twin_stages(options, "jtcse", self.card.version, train_jtcse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the sum of the towers."""
        return twin_encoder(context)


def train_jtcse(context: StageContext) -> dict[str, Any]:
    """The joint stage; raises InputError where the number of CAELs doesn't divide the layers."""
    from bench.nn.twin import cael_layers

    count = int(context.config["caels"])
    return train_joint(context, lambda layers: cael_layers(layers, layers // 2 if count == HALF else count))


add_derived("jtcse", "JTCSE", PAPER, __name__)
