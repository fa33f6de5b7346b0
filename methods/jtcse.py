"""JTCSE: TNCSE's twin with cross-attention layers between the towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import nn
from bench.method_card import LAYERS, ONE_ENCODER, MethodCard, Need, Option, OptionValue
from bench.methods.distill import register_derived_methods
from bench.methods.twin import JOINT_OPTIONS, TWIN_DEVIATIONS, TWIN_NEEDS, Twin, sub_options
from bench.registry import add_method
from bench.stages import StageSpec
from bench.training.encoder_options import check_train_pooling
from bench.training.recipe import training_options

HALF = -1
PAPER = "Zong, Yi, Shi, Wang, Xu 2025, JTCSE: Joint Tensor-Modulus Constraints and Cross-Attention"


@add_method
class JTCSE(Twin):
    """JTCSE."""

    card = MethodCard(
        name="jtcse",
        printed="JTCSE",
        family="contrastive",
        adds="TNCSE's two encoders and norm loss; in training their attention also reads each other's values",
        cites=("zong-etal-2025-jtcse",),
        tags=("two towers", "translated text", "tensor norms", "cross-attention"),
        passes=12.1,
        encoders=2 * ONE_ENCODER,
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
        needs=(*TWIN_NEEDS, Need(LAYERS, "caels", (0,), unless=True, instead="caels=0")),
        options=(
            *JOINT_OPTIONS,
            Option(
                "caels", HALF, "cross-attention layers: a divisor of the layers, 0, or -1 for half of them"
            ),
            Option(
                "cross_stream",
                "carry",
                "the cross stream goes from CAEL to CAEL, or starts again at the last",
                ("carry", "last"),
            ),
            *training_options(
                lr=1.3e-6, eval_every=100, max_length=64, weight_decay=0.01, clip=0.0, schedule="constant"
            ),
            *sub_options(1.5e-5, 2e-5),
        ),
        deviations=(
            *TWIN_DEVIATIONS,
            "the cross stream between CAELs is our reading of Fig. 4 (cross_stream=carry)",
            "the dropout is the backbone's own 0.1 (the released encoder's is unknown)",
            "encoders other than BERT and RoBERTa: our reading of eqs. 8-10, in docs/backbones.md",
        ),
        published_names=(("jtcse", "as published: profile bert-base or roberta-base"),),
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for cross-attention layers that don't divide the backbone's."""
        if facts.layered and facts.layers is not None:
            self.caels(facts.layers, options)

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the stages; InputError: another pooling than [CLS] with cross-attention layers."""
        if int(options["caels"]):
            why = "has no cross stream: that of the cross-attention layers is of [CLS]"
            check_train_pooling(self.card.name, options, ("cls",), why, expected="cls, or caels=0")
        return super().stages(options)

    def caels(self, layers: int, config: Mapping[str, OptionValue]) -> tuple[int, ...]:
        """Layers with cross-attention; InputError: their number doesn't divide the layers."""
        count = int(config["caels"])
        return nn.list_cael_layers(layers, layers // 2 if count == HALF else count)


register_derived_methods("jtcse", "JTCSE", PAPER, JTCSE.card.cites, __name__)
