"""PCL: two encoders learn from a group of edited views of each sentence, and from each other."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.rankcse import off_diagonal
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import (
    FIRST_TOKEN,
    FROZEN,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import ADAMW_EPS, TrainedOnce, init_linear, usual_options


def contrast_rows(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return [cos(z_i, p_is) for all s ; cos(z_i, n_j) for j != i] / tau, (B, S + B - 1); p is (B, S, H)."""
    batch, size = anchors.shape
    if positives.ndim != 3 or positives.shape[::2] != (batch, size) or negatives.shape != anchors.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (anchors, negatives, positives))
        raise ValueError(f"anchors, negatives, positives {shapes} must be (B, H), (B, H) and (B, S, H)")
    losses.check_tau(tau)
    unit, group = (torch.nn.functional.normalize(x, dim=-1, eps=1e-8) for x in (anchors, positives))
    own = torch.einsum("bh,bsh->bs", unit, group)
    return torch.cat([own, off_diagonal(losses.cosine_matrix(anchors, negatives))], dim=1) / tau


def group_contrast(rows: torch.Tensor, positives: int) -> torch.Tensor:
    """Binary cross-entropy "with logits" on p = softmax(r): PCL's peer-positive contrast as released.

    A probability is squashed twice, so s(p) stays between 1/2 and 0.731 (Wu et al. 2022). The rows (B, K) of
    :func:`contrast_rows` begin with the positives.
    """
    shares = rows.softmax(1)
    signs = torch.ones_like(shares)
    signs[:, positives:].fill_(-1)
    return torch.nn.functional.softplus(-signs * shares).mean()


def row_divergence(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence of softmax(target) from softmax(student), a mean over all B K cells."""
    p, q = student.log_softmax(1), target.log_softmax(1)
    return (q.exp() * (q - p)).mean()


def pcl_loss(
    own: torch.Tensor, peer: torch.Tensor | None, tau: float, *, contrast: bool = True, fixed: bool = False
) -> torch.Tensor:
    """PCL's loss on the vectors of both encoders (V, B, H), the anchor's first: six terms, all of weight 1.

    Without a peer its four terms are dropped, without ``contrast`` :func:`group_contrast`; a ``fixed`` peer
    has no InfoNCE and no contrast.
    """
    both = [own] if peer is None else [own, peer]
    if own.shape != both[-1].shape or own.ndim != 3 or len(own) < 2:
        shapes = tuple(own.shape), tuple(both[-1].shape)
        raise ValueError(f"vectors {shapes[0]} and {shapes[1]} must be (V, B, H), V at least 2")

    def rows(anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return contrast_rows(anchors[0], others[1:].transpose(0, 1), others[0], tau)

    within = [rows(vectors, vectors) for vectors in both]
    learning = 1 if fixed else 2
    terms = [losses.info_nce(vectors[0], vectors[1], tau) for vectors in both[:learning]]
    if contrast:
        terms += [group_contrast(logits, len(own) - 1) for logits in within[:learning]]
    if peer is not None:
        terms += [row_divergence(rows(own, peer), rows(peer, own)), row_divergence(*within)]
    return sum(terms[1:], start=terms[0])


class PCLObjective(training.Objective):
    """Token rows to the loss of both encoders.

    The peer starts as a copy of the model, with the backbone's pooler, or a fresh one. With ``fix_peer`` it
    stays so, and its vectors are constants; ``peer_coop=false`` drops it.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        config, size, self.pad_id = context.config, nn.state_size(model), pad_id
        self.edits = training.generator(context.seed, f"augment/{context.role}")
        self.tau, self.share = float(config["tau"]), float(config["share"])
        self.augs, self.longest = parse_edits(config) * int(config["rounds"]), int(config["max_length"])
        self.peer_mask, self.fixed = bool(config["peer_mask"]), bool(config["fix_peer"])
        self.contrast = bool(config["posi_cst"])
        self.encoder, self.peer = model, copy.deepcopy(model) if config["peer_coop"] else None
        self.head = init_linear(size)
        if self.peer is None:
            return
        pooler = getattr(self.peer, "pooler", None)
        self.peer_pooler = init_linear(size) if pooler is None else pooler.dense
        for module in (self.peer, self.peer_pooler):
            if self.fixed or not nn.has_lora(self.peer):  # under adapters the copy is frozen as the model is
                module.requires_grad_(not self.fixed)

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, nn.TokenBatch | nn.Chunk | None]:
        """Put the first views of all sentences first; pad them for a peer that attends to padding."""
        groups = [self.views(row) for row in batch]
        views = [row for view in zip(*groups, strict=True) for row in view]
        tokens = training.token_batch(views, self.pad_id, self.encoder)
        if self.peer_mask or self.peer is None:
            return tokens, None
        ids = nn.pad_chunk(views, self.pad_id).ids  # the released peer attends to padding
        if training.get_chunk_rows():
            return tokens, training.token_batch(ids.tolist(), self.pad_id, self.encoder)
        return tokens, nn.Chunk(ids, torch.ones_like(ids), None)

    def compute(self, prepared: tuple[nn.TokenBatch, nn.TokenBatch | nn.Chunk | None]) -> torch.Tensor:
        """Encode all views in one call of each encoder."""
        tokens, padded = prepared
        other = None
        if self.peer is not None:
            other = self.peer_vectors(tokens if padded is None else padded)
        own = self.by_view(training.batch_states(self.encoder, tokens))
        return pcl_loss(own, other, self.tau, contrast=self.contrast, fixed=self.fixed)

    def peer_vectors(self, views: nn.TokenBatch | nn.Chunk) -> torch.Tensor:
        """Y of all views, (V, B, H); a fixed peer makes the head constant here too."""
        with torch.set_grad_enabled(not self.fixed):
            return self.by_view(torch.tanh(self.peer_pooler(self.peer_states(views))))

    def by_view(self, states: torch.Tensor) -> torch.Tensor:
        """Vectors under the shared head, (V, B, H)."""
        z: torch.Tensor = torch.tanh(self.head(states))
        return z.view(2 + len(self.augs), -1, z.shape[1])

    def views(self, row: list[int]) -> list[list[int]]:
        """Repeat the sentence twice, then add its edited views."""
        return [row, row, *training.edit_views(row, self.share, self.longest, self.edits, self.augs)]

    def peer_states(self, views: nn.TokenBatch | nn.Chunk) -> torch.Tensor:
        """The peer's [CLS] of each view."""
        if isinstance(views, nn.TokenBatch):
            return training.batch_states(self.peer, views)
        with training.autocast_towers(views.ids.device):
            states = nn.compute_last_states(self.peer, views)
        return training.to_float32(states[:, 0])


def parse_edits(config: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Read the edits of a round; InputError: an unknown one."""
    edits = tuple(str(config["augs"]).split("+"))
    if unknown := [edit for edit in edits if edit not in training.EDITS]:
        expected = f"some of {', '.join(training.EDITS)}, joined by +"
        raise InputError(f"unknown edit '{unknown[0]}'", where="pcl.augs", expected=expected)
    return edits


@add_method
class PCL(TrainedOnce):
    """PCL."""

    card = MethodCard(
        name="pcl",
        printed="PCL",
        family="contrastive",
        adds="views by shuffled, reversed, deleted and repeated subwords; a peer encoder that must agree",
        cites=("wu-etal-2022-pcl",),
        tags=("edited views", "peers"),
        passes=60.0,
        encoders=(
            HeldEncoder(views=10, returned=True),
            HeldEncoder(views=10, when=(("peer_coop", True), ("fix_peer", False))),
            HeldEncoder(FROZEN, views=0, when=(("peer_coop", True), ("fix_peer", True))),
        ),
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
            "peer_coop=false: only InfoNCE(z) + C(R(z, z))",
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
            Option("share", 0.2, "share of subwords deleted or repeated, 0 to 1", minimum=0, maximum=1),
            Option("peer_mask", False, "the peer's attention leaves padding out (released: false)"),
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
            "a batch of one sentence has InfoNCE 0",
            "rate and batch for roberta-base are unverified",
            ADAMW_EPS,
        ),
        published_names=(("pcl", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a pooling that its edits or its peer's padding would change."""
        name = self.card.name
        check_train_pooling(name, options, PROMPTLESS, "has its prompt's tokens edited too")
        if options["peer_coop"] and not options["peer_mask"]:
            why = "would pool the padding that the peer attends to"
            check_train_pooling(name, options, ("cls",), why, expected="cls, or peer_mask=true with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on edited views, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(PCLObjective, context=context))
