"""WhitenedCSE: SimCSE whose training head whitens randomly drawn groups of channels, anew for every view."""

from __future__ import annotations

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import MethodCard, Option
from bench.registry import add_method
from bench.train.recipe import CLS_VIEWS


@add_method
class WhitenedCSE(TrainedApart):
    """WhitenedCSE."""

    card = MethodCard(
        name="whitenedcse",
        kind="baseline",
        summary="SimCSE with shuffled group whitening in the training head and several positives",
        version=1,
        paper="Zhuo, Sun, Wang, Zhu, Yang 2023, WhitenedCSE: Whitening-based Contrastive Learning of "
        "Sentence Embeddings",
        code="SupstarZh/WhitenedCSE 65fe70a, which does not run as released",
        equations=(
            "SGW: channels in random order, in G groups; X: a group, centred over the batch of one view; "
            "S = X^T X / B; X (S + eps I)^(-1/2); channels back in place; S is constant",
            "z_k = tanh(W SGW_k(h_k) + b), k = 1, 2, 3: dropout views, each with an order of its own",
            "engine=cholesky: X L^(-T), L L^T = S + eps I; engine=lowrank: X U (l + eps)^(-1/2) U^T with the "
            "6 largest eigenvalues l of S",
            "L = InfoNCE(z_1, z_2) + InfoNCE(z_1, z_3), S_ij = cos(z_1i, z_kj) / tau",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "groups",
                128,
                "G, groups of channels, a divisor of the hidden size H; 0: the smallest from 2 H / (V B) on",
                minimum=0,
            ),
            Option("views", 3, "views of a sentence, the anchor and its positives", minimum=2),
            Option("shuffle", True, "draw the channels' order anew for each view of each step"),
            Option(
                "engine",
                "zca",
                "how a group is whitened: zca (released symeig, svd), cholesky, lowrank (svd_, pca_lowrank)",
                ("zca", "cholesky", "lowrank"),
            ),
            Option("eps", 1e-5, "added to the covariances' eigenvalues", minimum=1e-12),
            Option(
                "grad_through_whitening",
                False,
                "gradient also through the whitening matrices; in the released code they are constant",
            ),
            Option(
                "repetition_rate",
                0.0,
                "repeat subwords in the positives as esimcse does; 0: no repetition",
                minimum=0,
                maximum=1,
            ),
            *usual_options(lr=1e-5, batch_size=128),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the released command runs on two GPUs: a step is 2 x 128 sentences, each half whitened and "
            "contrasted by itself, their losses averaged, and 125 steps between dev evaluations are 32,000 "
            "sentences; here a step is 128, and batch_size=256 whitens and contrasts all 256 together",
            "each view is whitened apart; the released code cuts the batch into thirds that mix the views",
            "released: nothing is added to the eigenvalues, so that B <= H / G is not a number",
            "automatic groups (groups=0) fail in the released code where 2 H / (V B), rounded up, doesn't "
            "divide H; here the next divisor is taken",
            "released: cholesky's gradient flows through its matrices (grad_through_whitening=true), and "
            "lowrank finds its directions by a random sketch; here they are exact",
            "the released command asks for a duplication of subwords, whose code is missing: off here, "
            "repetition_rate=0.32 is esimcse's",
            "the number of groups is the code's; that of the published rows and all settings for "
            "roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("whitenedcse", "as published: profile bert-base or roberta-base"),),
    )
