"""PCL: two encoders learn from a group of edited views of each sentence, and from each other."""

from __future__ import annotations

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import FIRST_TOKEN, MethodCard, Need, Option
from bench.registry import add_method


@add_method
class PCL(TrainedApart):
    """PCL."""

    card = MethodCard(
        name="pcl",
        kind="baseline",
        summary="two encoders on groups of edited views: group contrast, and each other's similarities",
        version=1,
        paper="Wu, Tao, Shen, Xu, Geng, Jiang 2022, PCL: Peer-Contrastive Learning with Diverse "
        "Augmentations for Unsupervised Sentence Embeddings",
        code="qiyuw/PeerCL 5e40ea5",
        equations=(
            "views: x, x, then twice {shuffled, backwards, round(0.2 n) of n subwords deleted, repeated}",
            "z = tanh(W E(x)_cls + b); y = tanh(W pooler(F(x)_cls) + b), F attends to padding",
            "R(a, b)_i = [cos(a_i0, b_is), s = 1 ... 9 ; cos(a_i0, b_j0), j != i] / tau; p = softmax(R)",
            "C(R) = mean of -log s(p) over positives and -log(1 - s(p)) over negatives, s logistic",
            "D(R, Q) = mean over cells of softmax(Q) (log softmax(Q) - log softmax(R))",
            "L = InfoNCE(z_0, z_1) + InfoNCE(y_0, y_1) + C(R(z, z)) + C(R(y, y)) + D(R(z, y), R(y, z)) + "
            "D(R(z, z), R(y, y))",
            "posi_cst=false: without both C; fix_peer: y constant, without InfoNCE(y) and C(R(y, y)); "
            "peer_coop=false: InfoNCE(z) + C(R(z, z)) alone",
            "at inference E(x)_cls of the last layer; head and F are dropped",
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "augs",
                "sf+rv+de+rp",
                "edits of a round, joined by +: sf shuffled, rv backwards, de deleted, rp repeated, dp none",
            ),
            Option("rounds", 2, "times that each edit is made of a sentence", minimum=1),
            Option(
                "share",
                0.2,
                "share of the subwords that are deleted or repeated, 0 to 1",
                minimum=0,
                maximum=1,
            ),
            Option("peer_mask", False, "the peer's attention leaves padding out (released: it doesn't)"),
            Option("posi_cst", True, "the group contrast C (released: peer positive contrast)"),
            Option("peer_coop", True, "the peer, its own losses and both divergences"),
            Option("fix_peer", False, "the peer stays the backbone, and its vectors are constants"),
            *usual_options(batch_size=256),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "batch 256 as in the released script; the README says 64 (batch_size=64)",
            "an earlier commit of the released code takes one round of edits (rounds=1)",
            "a backbone without a pooler gets a fresh one in the peer",
            "released: fix_peer takes the released SimCSE of bert-base as the peer; here it is the backbone",
            "a batch of one sentence has no negatives and its InfoNCE is 0",
            "rate and batch for roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("pcl", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
    )
