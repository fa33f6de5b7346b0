"""ArcCSE: SimCSE with an angular margin on the positive, and triplets of one sentence masked ever more."""

from __future__ import annotations

from bench.baselines._trained import TrainedApart, usual_options
from bench.card import MASK_TOKEN, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import CLS_VIEWS


@add_method
class ArcCSE(TrainedApart):
    """ArcCSE, and with triplet=false ArcCon alone."""

    card = MethodCard(
        name="arccse",
        kind="baseline",
        summary="SimCSE with an angular margin (ArcCon) and triplets of nested maskings",
        version=1,
        paper="Zhang, Zhu, Wang, Xu, Li, Zhao 2022, A Contrastive Framework for Learning Sentence "
        "Representations from Pairwise and Triple-wise Perspective in Angular Space",
        code="BDBC-KG-NLP/UnderstandingCSE f3b2839 for ArcCon; none was released for the triplets",
        equations=(
            "z = tanh(W h_cls + b) in training; theta_ij = arccos cos(z_i, z'_j)",
            "L_arc = mean_i -log(e^(cos(theta_ii + u) / tau) / "
            "(e^(cos(theta_ii + u) / tau) + sum_{j != i} e^(cos(theta_ij) / tau)))",
            "x', x'': x with a span of 20% masked, and with a span of 40% around it; z_x', z_x'' of them",
            "L_tri = mean_i max(0, cos(z_i, z_x''_i) - cos(z_i, z_x'_i) + m), over long sentences",
            "L = L_arc + w L_tri; at inference h_cls of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(MASK_TOKEN, "triplet", (True,), instead="triplet=false")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("margin", 10.0, "u, the angular margin in degrees", minimum=0, maximum=180),
            Option("triplet", True, "false: ArcCon alone"),
            Option("triplet_weight", 0.1, "w, weight of the triplet loss", minimum=0),
            Option("triplet_margin", 0.0, "m, margin of the triplet loss", minimum=0),
            Option(
                "triplet_light", 0.2, "share of a sentence in the shorter masked span", minimum=0, maximum=1
            ),
            Option(
                "triplet_heavy", 0.4, "share of a sentence in the longer masked span", minimum=0, maximum=1
            ),
            Option("triplet_min_length", 25, "subwords that a sentence needs for a triplet", minimum=1),
            *usual_options(),
        ),
        deviations=(
            "float32 throughout; the original precision is not known",
            "the cosine under the angle's sine is clamped inside (-1, 1); the released arccos has no "
            "bound on its slope at equal views",
            "batch, rate and epochs of the original are not verified",
            "the triplets' code was not released, so this is unverified: spans of 20% and 40%, m = 0, "
            "w = 0.1, sentences of 25 subwords or more alone, head and dropout on all three, view 1 as "
            "anchor; profile mini, whose sentences are shorter, takes those of 15",
            "triplets are compared row by row; a re-implementation compares every anchor with every triplet",
        ),
        published_names=(
            ("arccse", "as published: profile bert-base"),
            ("arccon", "triplet=false, profile bert-base or roberta-base"),
        ),
    )
