"""PCL: two encoders learn from a group of edited views of each sentence, and from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.baselines.rankcse import off_diagonal
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def contrast_rows(anchors: Tensor, positives: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """Return [cos(z_i, p_is) for all s ; cos(z_i, n_j) for all j != i] / tau, (B, S + B - 1).

    Args:
        anchors: z, (B, H).
        positives: p, (B, S, H), the group of sentence i in row i.
        negatives: n, (B, H); its row i belongs to sentence i and is left out of row i.
        tau: Temperature, above 0.

    Raises:
        ValueError: shapes that don't fit, or a temperature that isn't above 0.
    """
    import torch
    from torch.nn import functional

    from bench.train.teachers import cosine_matrix

    batch, size = anchors.shape
    if positives.ndim != 3 or positives.shape[::2] != (batch, size) or negatives.shape != anchors.shape:
        raise ValueError(
            f"anchors {tuple(anchors.shape)} and negatives {tuple(negatives.shape)} must be (B, H), "
            f"positives {tuple(positives.shape)} (B, S, H)"
        )
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
    unit, group = (functional.normalize(x, dim=-1, eps=1e-8) for x in (anchors, positives))
    own = torch.einsum("bh,bsh->bs", unit, group)
    return torch.cat([own, off_diagonal(cosine_matrix(anchors, negatives))], dim=1) / tau


def group_contrast(rows: Tensor, positives: int) -> Tensor:
    """Binary cross-entropy "with logits" on p = softmax(r): PCL's peer-positive contrast as released.

    L = mean_{i,k} [-log s(p_ik) for k a positive, -log(1 - s(p_ik)) otherwise], s the logistic function, so a
    probability is squashed twice and s(p) stays between 1/2 and 0.731 (Wu et al. 2022).

    Args:
        rows: r, (B, K) of :func:`contrast_rows`, positives first.
        positives: S, how many of the K columns.

    Returns:
        Scalar, above ln(1 + 1/e) = 0.3133.
    """
    import torch
    from torch.nn import functional

    shares = rows.softmax(1)
    signs = torch.ones_like(shares)
    signs[:, positives:] = -1
    return functional.softplus(-signs * shares).mean()


def row_divergence(student: Tensor, target: Tensor) -> Tensor:
    """Kullback-Leibler divergence of softmax(target) from softmax(student), a mean over all B K cells.

    L = 1 / (B K) sum_{i,k} q_ik (log q_ik - log p_ik), q of the target's rows and p of the student's.
    Gradient flows to both (Wu et al. 2022, peer-network cooperation).

    Args:
        student: (B, K) rows over the temperature.
        target: (B, K).

    Returns:
        Scalar, at least 0; 0 for equal rows.
    """
    p, q = student.log_softmax(1), target.log_softmax(1)
    return (q.exp() * (q - p)).mean()


def pcl_loss(own: Tensor, peer: Tensor, tau: float) -> Tensor:
    """PCL's loss on the vectors of both encoders: six terms, all of weight 1.

    With z_v and y_v view v under the two encoders, v = 0 the anchor and v = 1 ... S its positives,
    R(a, b) = :func:`contrast_rows` of a_0 against b's positives and b_0, and D :func:`row_divergence`:
    L = InfoNCE(z_0, z_1) + InfoNCE(y_0, y_1) + C(R(z, z)) + C(R(y, y)) + D(R(z, y), R(y, z)) + D(R(z, z),
    R(y, y)), C :func:`group_contrast`.

    Args:
        own: z, (V, B, H), V = 1 + S at least 2.
        peer: y, (V, B, H).
        tau: Temperature, above 0.

    Raises:
        ValueError: other shapes, fewer than two views, or a temperature that isn't above 0.
    """
    if own.shape != peer.shape or own.ndim != 3 or len(own) < 2:
        raise ValueError(
            f"vectors {tuple(own.shape)} and {tuple(peer.shape)} must be (V, B, H), V at least 2"
        )

    def rows(anchors: Tensor, others: Tensor) -> Tensor:
        return contrast_rows(anchors[0], others[1:].transpose(0, 1), others[0], tau)

    positives = len(own) - 1
    within, within_peer = rows(own, own), rows(peer, peer)
    loss = info_nce(own[0], own[1], tau) + info_nce(peer[0], peer[1], tau)
    loss = loss + group_contrast(within, positives) + group_contrast(within_peer, positives)
    return loss + row_divergence(rows(own, peer), rows(peer, own)) + row_divergence(within, within_peer)


def make_objective(model: Any, pad_id: int, config: Mapping[str, OptionValue], edits: torch.Generator) -> Any:
    """Return the module: token rows to the loss of both encoders.

    The peer starts as a copy of the model, with the backbone's pooler; where it has none, with a fresh one.

    Args:
        model: The transformer that is kept.
        pad_id: Padding id.
        config: The method's options.
        edits: Draws the edited views, in every epoch anew.
    """
    import copy

    import torch
    from torch import nn

    from bench.nn.backbone import padded
    from bench.train.chunks import cls_states
    from bench.train.edits import edited_views
    from bench.train.precision import lowered, widened

    tau, share, longest = float(config["tau"]), float(config["share"]), int(config["max_length"])

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            size = model.config.hidden_size
            self.encoder, self.peer = model, copy.deepcopy(model)
            self.head = fresh_linear(size)
            pooler = getattr(self.peer, "pooler", None)
            self.peer_pooler = fresh_linear(size) if pooler is None else pooler.dense

        def forward(self, rows: list[list[int]]) -> Tensor:
            groups = [self.views(row) for row in rows]
            views = [row for view in zip(*groups, strict=True) for row in view]
            peer = torch.tanh(self.peer_pooler(self.peer_states(views)))
            vectors = [torch.tanh(self.head(h)) for h in (cls_states(model, views, pad_id), peer)]
            own, other = (z.view(-1, len(rows), z.shape[1]) for z in vectors)
            return pcl_loss(own, other, tau)

        def views(self, row: list[int]) -> list[list[int]]:
            """The sentence twice, then its edited views."""
            rounds = (edited_views(row, share, longest, edits) for _ in range(int(config["rounds"])))
            return [row, row, *(view for made in rounds for view in made)]

        def peer_states(self, views: list[list[int]]) -> Tensor:
            """Its [CLS]; as released it sees the padding of a step, which the longest view determines."""
            if config["peer_mask"]:
                return cls_states(self.peer, views, pad_id)
            ids, mask = padded(views, pad_id, str(model.device))
            with lowered(mask.device):
                states = self.peer(input_ids=ids, attention_mask=torch.ones_like(mask)).last_hidden_state
            return widened(states[:, 0])

    return Objective()


def train_pcl(context: StageContext) -> dict[str, Any]:
    """Train on views whose texts differ in their words: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: ``share`` above 1.
    """
    from bench.train.sentence_encoder import train_sentence_encoder
    from bench.train.streams import generator

    share = float(context.config["share"])
    if share > 1:
        raise InputError(f"share {share}", where="pcl.share", expected="0 to 1")
    edits = generator(context.seed, f"augment/{context.role}")
    return train_sentence_encoder(
        context, lambda model, pad_id: make_objective(model, pad_id, context.config, edits)
    )


@add_method
class PCL:
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
            "at inference E(x)_cls of the last layer; head and F are dropped",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("rounds", 2, "times that each of the four edits is made of a sentence", minimum=1),
            Option("share", 0.2, "share of the subwords that are deleted or repeated, 0 to 1", minimum=0),
            Option("peer_mask", False, "the peer's attention leaves padding out (released: it doesn't)"),
            *training_options(batch_size=256),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "batch 256 as in the released script; the README says 64 (batch_size=64)",
            "an earlier commit of the released code takes one round of edits (rounds=1)",
            "a backbone without a pooler gets a fresh one in the peer",
            "a batch of one sentence has no negatives and its InfoNCE is 0",
            "rate and batch for roberta-base are not verified",
        ),
        published_names=(("pcl", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_pcl)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "pcl")
