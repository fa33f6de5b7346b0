"""Supervised SimCSE: labelled positives against all positives and hard negatives of the batch."""

from __future__ import annotations

from bench.baselines._trained import ADAMW_EPS, TrainedOnPairs
from bench.card import POOLER_LAYER, SUPERVISED, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import training_options


@add_method
class SupSimCSE(TrainedOnPairs):
    """Supervised SimCSE."""

    card = MethodCard(
        name="sup_simcse",
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
            *training_options(lr=5e-5, batch_size=512, epochs=3),
            Option(
                "pooling",
                "pooler",
                "what the trained encoder's vectors are: pooler is the trained head (released)",
                ("pooler", "cls", "avg", "avg_first_last"),
            ),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "one process has the whole batch; released: four, each with its quarter, which exchange vectors",
            "the head takes the place of the backbone's pooler, so the backbone must have such a layer",
            "the released code's masked-LM term, which its supervised script leaves off, is not here",
            ADAMW_EPS,
        ),
    )
