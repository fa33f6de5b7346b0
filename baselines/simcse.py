"""Unsupervised SimCSE: two dropout views of a sentence against the rest of its batch."""

from __future__ import annotations

from typing import Any

from bench.baselines._trained import ADAMW_EPS, TrainedApart
from bench.card import MLM_HEAD, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import (
    CLS_VIEWS,
    POOLING_OPTION,
    TEXT_OPTION,
    TRAINING_OPTIONS,
    TrainedOnce,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

__all__ = [  # plug-ins may take from here what methods share
    "POOLING_OPTION",
    "TEXT_OPTION",
    "TRAINING_OPTIONS",
    "SimCSE",
    "TrainedOnce",
    "fresh_linear",
    "info_nce",
    "make_objective",
    "one_stage",
    "trained_encoder",
    "training_options",
]


def make_objective(model: Any, pad_id: int, tau: float, *, head: bool = True) -> Any:
    """Return a :class:`bench.baselines._simcse.SimCSEObjective`; torch is imported here, not above."""
    from bench.baselines._simcse import SimCSEObjective

    return SimCSEObjective(model, pad_id, tau, head=head)


@add_method
class SimCSE(TrainedApart):
    """Unsupervised SimCSE."""

    card = MethodCard(
        name="simcse",
        kind="baseline",
        summary="unsupervised SimCSE: dropout views, InfoNCE, [CLS]",
        version=1,
        paper="Gao, Yao, Chen 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings, eq. 4",
        code="princeton-nlp/SimCSE 49fa580; caskcsg/sentemb 5eeec55, gsInfoNCE",
        equations=(
            "z = tanh(W h_cls + b) in training; S_ij = cos(z_i, z'_j) / tau; L = mean_i -log softmax(S_i)_i",
            "mlm_term w: L + w mean over masked tokens CE(V(E(mask(x; q))), the token), over both views",
            "noise_negatives M: L = mean_i -log softmax([S_i ; cos(z_i, g_k) / tau])_i, g_1...g_M ~ N(0, I)",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(MLM_HEAD, "mlm_term", (0.0,), unless=True, instead="mlm_term=0")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            *TRAINING_OPTIONS,
            Option("mlm_term", 0.0, "w, weight of a masked-LM term (released: off, 0.1 where on)", minimum=0),
            Option("mlm_share", 0.15, "q, share of tokens masked for it", minimum=0, maximum=1),
            Option(
                "noise_negatives",
                0,
                "M, Gaussian vectors that are every anchor's negatives: gsInfoNCE (released there: 192)",
                minimum=0,
            ),
            Option("match", "", "a method whose stages' sentences it sees in all, in place of steps"),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "masked-LM term: V starts from the backbone's own masked-LM head, as released, so the backbone "
            "must have one; a batch without a masked token has no such loss (released: 0 / 0)",
            "gsInfoNCE: released with dropout 0.2 for bert-base, and with lr 1e-5 and batches of 64 for "
            "roberta-base; its noise's deviation (0.5 and 0.1) is no option, the cosine doesn't see it",
            ADAMW_EPS,
        ),
        published_names=(("simcse", "as published: profile bert-base or roberta-base"),),
        known_as=(("gsinfonce", "simcse[noise_negatives=192]"),),
    )
