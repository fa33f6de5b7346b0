"""VaSCL: contrastive learning with a virtual view, a vector moved to where its neighbours confuse it."""

from __future__ import annotations

from dataclasses import replace

from bench.baselines._trained import TrainedApart
from bench.card import DROPOUT, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, training_options


@add_method
class VaSCL(TrainedApart):
    """VaSCL."""

    card = MethodCard(
        name="vascl",
        kind="baseline",
        summary="VaSCL: a virtual view of each vector, perturbed against its neighbours in the batch",
        version=1,
        paper="Zhang, Xiao, Zhu, Ma, Arnold 2022, Virtual Augmentation Supported Contrastive Learning of "
        "Sentence Representations, Findings of ACL",
        code="amazon-science/sentence-representations 93aae2e, folder VaSCL",
        equations=(
            "e, e': mean of the last layer's states of two dropout views; g(e) = norm(W2 ReLU(W1 e))",
            "L_1: mean over the 2B vectors of -log[pos / (pos + sum of the 2B - 2 others)], exp(cos / tau)",
            "N(i): the K sentences of the batch with the largest e_i . e_j; c = g(e), constant",
            "l(d)_i = -log[p_i / (p_i + sum_{j in N(i)} exp(g(e_i + xi d_i) . c_j / tau))], "
            "p_i = exp(g(e_i + xi d_i) . c_i / tau)",
            "d <- unit gradient of mean_i l(d)_i, power_steps times, from a random direction",
            "L_2: of c and v = g(e + radius d) as L_1, but with the others of N(i) alone; e constant",
            "L = L_1 + L_2; at inference e",
        ),
        needs=(Need(DROPOUT),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("neighbours", 16, "K, neighbours of a sentence in its batch", minimum=1),
            Option("radius", 15.0, "length of the perturbation, 0: no perturbed view", minimum=0),
            Option("xi", 0.0, "length at which the gradient is taken; 0: radius (released)", minimum=0),
            Option("power_steps", 1, "gradients taken for a direction, 0: a random one", minimum=0),
            Option(
                "perturbed_gradient",
                "head",
                "what the perturbed view's loss trains: the head alone (released), or the encoder too",
                ("head", "encoder"),
            ),
            Option("features", 128, "size of the head's vectors", minimum=1),
            Option("head_rate", 100.0, "the head's learning rate, as a multiple of lr", minimum=0),
            *training_options(
                lr=5e-6, batch_size=1024, epochs=5, eval_every=500, clip=0.0, schedule="constant"
            ),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
        ),
        deviations=(
            "settings are the released program's defaults, dev evaluation every 500 steps its command's; "
            "that command has head_rate=100000 and steps=100 besides, with a dev evaluation at their end",
            "the paper's settings are not verified: released code alone was read",
            "released: the perturbed view's loss reads detached vectors, so it trains the head alone; "
            "perturbed_gradient=encoder lets its gradient through the perturbed vector, not through c",
            "released: sentences that occur twice in wiki1m are dropped first; here the text is as it is",
            "in a batch of K sentences or fewer all others are neighbours, where the released code fails",
            "Adam as AdamW without weight decay",
        ),
        published_names=(("vascl", "as published: profile bert-base or roberta-base"),),
    )
