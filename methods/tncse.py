"""TNCSE: two encoders trained together, with a loss on the difference of their tensor norms."""

from __future__ import annotations

from bench.method_card import ONE_ENCODER, MethodCard
from bench.methods.distill import register_derived_methods
from bench.methods.twin import JOINT_OPTIONS, TWIN_DEVIATIONS, TWIN_NEEDS, Twin, sub_options
from bench.registry import add_method
from bench.training.recipe import training_options

PAPER = "Zong, Shi, Yi, Xu 2025, TNCSE: Tensor's Norm Constraints for Unsupervised Contrastive Learning"


@add_method
class TNCSE(Twin):
    """TNCSE."""

    card = MethodCard(
        name="tncse",
        printed="TNCSE",
        family="contrastive",
        adds="two encoders, pretrained on two translations, trained together; positives agree in norm too",
        cites=("zong-etal-2025-tncse",),
        tags=("two towers", "translated text", "tensor norms"),
        passes=12.0,
        encoders=2 * ONE_ENCODER,
        kind="method",
        summary="two SimCSE towers on two translations, trained together with a tensor-norm loss",
        version=1,
        paper=f"{PAPER}, eqs. 4-8",
        code="tianyuzong/TNCSE",
        equations=(
            "L = NCE(H_I, H_I) + NCE(H_II, H_II) + NCE(H_I, H_II) + LTN(I -> II) + LTN(II -> I)",
            "LTN(a -> b) = s mean_i -log c_i ||P_a - P_b|| / (||P_a|| + ||P_b||), c_i the views' cosine",
            "at inference h_cls of tower I + h_cls of tower II",
        ),
        needs=TWIN_NEEDS,
        options=(
            *JOINT_OPTIONS,
            *training_options(
                lr=1e-6,
                eval_every=100,
                max_length=64,
                dropout=2.5e-4,
                weight_decay=0.01,
                clip=0.0,
                schedule="constant",
            ),
            *sub_options(1.5e-5, 2e-5),
        ),
        deviations=TWIN_DEVIATIONS,
        published_names=(("tncse", "as published: profile bert-base or roberta-base"),),
    )


register_derived_methods("tncse", "TNCSE", PAPER, TNCSE.card.cites, __name__)
