"""MixCSE: SimCSE with hard negatives that are mixed of a positive and a negative."""

from __future__ import annotations

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import MethodCard, Option
from bench.registry import add_method
from bench.train.recipe import CLS_VIEWS


@add_method
class MixCSE(TrainedApart):
    """MixCSE."""

    card = MethodCard(
        name="mixcse",
        kind="baseline",
        summary="SimCSE with hard negatives mixed of the positive and another sentence",
        version=1,
        paper="Zhang, Zhang, Mensah, Liu, Mao 2022, Unsupervised Sentence Representation via Contrastive "
        "Learning with Mixing Negatives",
        code="BDBC-KG-NLP/MixCSE_AAAI2022 884145e",
        equations=(
            "z = tanh(W h_cls + b), z' of the second dropout view; S_ij = cos(z_i, z'_j) / tau",
            "m_i = a z'_i + (1 - a) z'_{i+1}, n_i = a z_i + (1 - a) z_{i+1}, after the last the first; both "
            "without gradient",
            "M_ij = cos(z_i, m_j) / tau, 0 for j = i - 1; N_ij = cos(n_i, z'_j) / tau, 0 for j = i + 1",
            "released: L = mean_i -log softmax([S_i ; M_i ; N_i])_i; paper: softmax([S_i ; M_ii])",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("mix", 0.2, "a, share of the positive in a mixed negative, 0 to 1", minimum=0, maximum=1),
            Option(
                "mixed",
                "released",
                "an anchor's mixed negatives: all, of both views (released), or its own positive's (paper)",
                ("released", "paper"),
            ),
            *usual_options(),
        ),
        deviations=(
            "paper: one mixed negative an anchor (mixed=paper, unverified: the code alone was read)",
            "released: M and N too, and a logit of 0, not of minus infinity, where most of a mixed vector is "
            "the anchor's own positive (M) or the positive's own anchor (N)",
            "vectors are mixed as they leave the head, as released, and the cosine normalises the mixture; "
            "whether the paper mixes unit vectors is not verified",
            "the other sentence is the next one of the batch, as released; batches are drawn at random",
            "released: a weight of mixed negatives, 0 in all runs, is no option here",
            "a batch of one sentence has no other to mix; with mixed=paper its loss is 0",
            "the settings for roberta-base are not documented: those of bert-base",
            ADAMW_EPS,
        ),
        published_names=(("mixcse", "as published: profile bert-base or roberta-base"),),
    )
