"""PCL: two encoders learn from a group of edited views of each sentence, and from each other."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from bench import losses, nn, training
from bench.baselines.rankcse import off_diagonal
from bench.card import FIRST_TOKEN, MethodCard, Need, Option, OptionValue
from bench.errors import InputError
from bench.lazy import torch
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.recipe import ADAMW_EPS, TrainedOnce, init_linear, usual_options


def contrast_rows(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return [cos(z_i, p_is) for all s ; cos(z_i, n_j) for all j != i] / tau, (B, S + B - 1).

    Args:
        anchors: z, (B, H).
        positives: p, (B, S, H), the group of sentence i in row i.
        negatives: n, (B, H); its row i belongs to sentence i and is left out of row i.
        tau: Temperature, above 0.

    Raises:
        ValueError: shapes that don't fit, or a temperature that isn't above 0.

    Example:
        >>> z = torch.eye(2)
        >>> contrast_rows(z, z.unsqueeze(1), z, tau=0.5).tolist()  # own positive, the other anchor
        [[2.0, 0.0], [2.0, 0.0]]
    """
    batch, size = anchors.shape
    if positives.ndim != 3 or positives.shape[::2] != (batch, size) or negatives.shape != anchors.shape:
        raise ValueError(
            f"anchors {tuple(anchors.shape)} and negatives {tuple(negatives.shape)} must be (B, H), "
            f"positives {tuple(positives.shape)} (B, S, H)"
        )
    losses.check_tau(tau)
    unit, group = (torch.nn.functional.normalize(x, dim=-1, eps=1e-8) for x in (anchors, positives))
    own = torch.einsum("bh,bsh->bs", unit, group)
    return torch.cat([own, off_diagonal(losses.cosine_matrix(anchors, negatives))], dim=1) / tau


def group_contrast(rows: torch.Tensor, positives: int) -> torch.Tensor:
    """Binary cross-entropy "with logits" on p = softmax(r): PCL's peer-positive contrast as released.

    L = mean_{i,k} [-log s(p_ik) for k a positive, -log(1 - s(p_ik)) otherwise], s the logistic function, so a
    probability is squashed twice and s(p) stays between 1/2 and 0.731 (Wu et al. 2022).

    Args:
        rows: r, (B, K) of :func:`contrast_rows`, positives first.
        positives: S, how many of the K columns.

    Returns:
        Scalar, above ln(1 + 1/e) = 0.3133.

    Example:
        >>> rows = torch.tensor([[0.0, 3.0]]).log1p()  # probabilities 1/5 and 4/5
        >>> round(group_contrast(rows, positives=1).item(), 4)
        0.8846
    """
    shares = rows.softmax(1)
    signs = torch.ones_like(shares)
    signs[:, positives:].fill_(-1)
    return torch.nn.functional.softplus(-signs * shares).mean()


def row_divergence(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence of softmax(target) from softmax(student), a mean over all B K cells.

    L = 1 / (B K) sum_{i,k} q_ik (log q_ik - log p_ik), q of the target's rows and p of the student's.
    Gradient flows to both (Wu et al. 2022, peer-network cooperation).

    Args:
        student: (B, K) rows over the temperature.
        target: (B, K).

    Returns:
        Scalar, at least 0; 0 for equal rows.

    Example:
        >>> uniform, sure = torch.zeros(1, 2), torch.tensor([[3.0, 1.0]]).log()
        >>> round(row_divergence(uniform, sure).item(), 4)
        0.0654
        >>> row_divergence(sure, sure).item()
        0.0
    """
    p, q = student.log_softmax(1), target.log_softmax(1)
    return (q.exp() * (q - p)).mean()


def pcl_loss(
    own: torch.Tensor, peer: torch.Tensor | None, tau: float, *, contrast: bool = True, fixed: bool = False
) -> torch.Tensor:
    """PCL's loss on the vectors of both encoders: six terms, all of weight 1.

    With z_v and y_v view v under the two encoders, v = 0 the anchor and v = 1 ... S its positives,
    R(a, b) = :func:`contrast_rows` of a_0 against b's positives and b_0, and D :func:`row_divergence`:
    L = InfoNCE(z_0, z_1) + InfoNCE(y_0, y_1) + C(R(z, z)) + C(R(y, y)) + D(R(z, y), R(y, z)) + D(R(z, z),
    R(y, y)), C :func:`group_contrast`.

    Args:
        own: z, (V, B, H), V = 1 + S at least 2.
        peer: y, (V, B, H); None leaves its four terms out.
        tau: Temperature, above 0.
        contrast: False leaves C out (released ``posi_cst``).
        fixed: The peer doesn't learn: its InfoNCE and its C are left out.

    Raises:
        ValueError: other shapes, fewer than two views, or a temperature that isn't above 0.

    Example:
        >>> views = torch.eye(2).repeat(3, 1, 1)  # anchor and two positives of two sentences, all equal
        >>> round(pcl_loss(views, views, tau=1.0).item(), 4)
        1.8146
    """
    both = [own] if peer is None else [own, peer]
    if own.shape != both[-1].shape or own.ndim != 3 or len(own) < 2:
        raise ValueError(
            f"vectors {tuple(own.shape)} and {tuple(both[-1].shape)} must be (V, B, H), V at least 2"
        )

    def rows(anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return contrast_rows(anchors[0], others[1:].transpose(0, 1), others[0], tau)

    within = [rows(vectors, vectors) for vectors in both]
    learning = 1 if fixed else 2
    terms = [losses.info_nce(vectors[0], vectors[1], tau) for vectors in both[:learning]]
    if contrast:
        terms += [group_contrast(each, len(own) - 1) for each in within[:learning]]
    if peer is not None:
        terms += [row_divergence(rows(own, peer), rows(peer, own)), row_divergence(*within)]
    return sum(terms[1:], start=terms[0])


class PCLObjective(training.Objective):
    """Token rows to the loss of both encoders.

    The peer starts as a copy of the model, with the backbone's pooler, or a fresh one where it has none. With
    ``fix_peer`` it stays so, and its vectors are constants; with ``peer_coop`` off there is none.

    Args:
        model: The transformer that is kept.
        pad_id: Padding id.
        context: The stage: its options, and the stream of the edited views, in every epoch other ones.
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
            module.requires_grad_(not self.fixed)

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, nn.Chunk | None]:
        """All views, the first ones of all sentences first; and as the peer reads them, if not so."""
        groups = [self.views(row) for row in batch]
        views = [row for view in zip(*groups, strict=True) for row in view]
        alike = self.peer_mask or self.peer is None
        return self.tokens(views), None if alike else self.padded(views)

    def compute(self, prepared: tuple[nn.TokenBatch, nn.Chunk | None]) -> torch.Tensor:
        """All views go through one call of each encoder."""
        tokens, alike = prepared
        other = None if self.peer is None else self.peer_vectors(tokens if alike is None else alike)
        own = self.by_view(training.batch_states(self.encoder, tokens))
        return pcl_loss(own, other, self.tau, contrast=self.contrast, fixed=self.fixed)

    def peer_vectors(self, views: nn.TokenBatch | nn.Chunk) -> torch.Tensor:
        """Y of all views, (V, B, H); where the peer is fixed, the head is constant here too."""
        with torch.set_grad_enabled(not self.fixed):
            return self.by_view(torch.tanh(self.peer_pooler(self.peer_states(views))))

    def by_view(self, states: torch.Tensor) -> torch.Tensor:
        """Vectors under the shared head, (V, B, H)."""
        z: torch.Tensor = torch.tanh(self.head(states))
        return z.view(2 + len(self.augs), -1, z.shape[1])

    def views(self, row: list[int]) -> list[list[int]]:
        """The sentence twice, then its edited views."""
        return [row, row, *training.edit_views(row, self.share, self.longest, self.edits, self.augs)]

    def tokens(self, views: Sequence[list[int]]) -> nn.TokenBatch:
        """Views as the encoder reads them."""
        return training.token_batch(views, self.pad_id, self.encoder)

    def padded(self, views: Sequence[list[int]]) -> nn.Chunk:
        """Views as the released peer sees them: it attends to the padding, which the longest determines."""
        ids = nn.pad_chunk(views, self.pad_id).ids
        return nn.Chunk(ids, torch.ones_like(ids), None)

    def peer_states(self, views: nn.TokenBatch | nn.Chunk) -> torch.Tensor:
        """Its [CLS] of each view."""
        if isinstance(views, nn.TokenBatch):
            return training.batch_states(self.peer, views)
        with training.autocast_towers(views.ids.device):
            states = nn.compute_last_states(self.peer, views)
        return training.to_float32(states[:, 0])


def parse_edits(config: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """The edits of a round.

    Raises:
        InputError: one that there isn't.
    """
    found = tuple(str(config["augs"]).split("+"))
    if unknown := [edit for edit in found if edit not in training.EDITS]:
        raise InputError(
            f"there is no edit '{unknown[0]}'",
            where="pcl.augs",
            expected=f"of {', '.join(training.EDITS)}, joined by +",
        )
    return found


@add_method
class PCL(TrainedOnce):
    """PCL."""

    card = MethodCard(
        name="pcl",
        printed="PCL",
        family="contrastive",
        tags=("edited views", "peers"),
        passes=60.0,
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

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on views whose texts differ in their words: the stage.

        Argument and result are those of :func:`bench.training.train_towers`, which has more errors.

        Raises:
            InputError: ``share`` above 1, or an unknown edit.
        """
        share = float(context.config["share"])
        if share > 1:
            raise InputError(f"share {share}", where="pcl.share", expected="0 to 1")
        return training.train_sentence_encoder(
            context, lambda model, pad_id: PCLObjective(model, pad_id, context)
        )
