"""What DCLR trains: noise that climbs to where vectors crowd, and negatives that a frozen model may drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike, check_tau
from bench.nn.architecture import state_size
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states
from bench.train.heads import EncoderWithHead
from bench.train.recipe import fresh_linear
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator
from bench.train.teachers import Asked, Teacher, cosine_matrix

FORMS = ("released", "paper")


@torch.no_grad()
def ascended(
    noise: Tensor, anchors: Tensor, positives: Tensor, tau: float, *, steps: int, rate: float
) -> Tensor:
    """Noise after some steps of gradient ascent on InfoNCE, in which it is every anchor's negative.

    In each step g_k <- g_k + r d_k / ||d_k||, d_k the gradient to g_k of mean_i -log softmax([S_i ; N_i])_i,
    S_ij = cos(z_i, z'_j) / tau, N_ik = cos(z_i, g_k) / tau. But for a positive factor
    d_k = sum_i q_ik (z_i / ||z_i|| - cos(z_i, g_k) g_k / ||g_k||), q_ik = e^{N_ik} / Z_i over their sum over
    i, Z_i the sum of row i (Zhou et al. 2022). Nothing has a gradient.

    Args:
        noise: g, (M, H).
        anchors: z, (B, H).
        positives: z', (B, H).
        tau: Temperature, above 0.
        steps: How many, 0 or more.
        rate: r, the length of a step.

    Returns:
        (M, H); a row whose gradient is 0 stays.

    Example:
        >>> z, g = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
        >>> ascended(g, z, z, tau=0.05, steps=1, rate=0.5)  # towards the only anchor, along the circle
        tensor([[0.5000, 2.0000]])
    """
    unit, own = functional.normalize(anchors, dim=1, eps=1e-8), cosine_matrix(anchors, positives) / tau
    for _ in range(steps):
        cosines = cosine_matrix(anchors, noise)
        rows = torch.cat([own, cosines / tau], dim=1).logsumexp(1, keepdim=True)
        shares = (cosines / tau - rows).softmax(0)
        along = (shares * cosines).sum(0).unsqueeze(1) * functional.normalize(noise, dim=1, eps=1e-8)
        noise = noise + rate * functional.normalize(shares.T @ unit - along, dim=1)
    return noise


def cell_entropy(logits: Tensor) -> Tensor:
    """Binary cross-entropy of every cell of p = softmax(logits), column i of row i being right.

    L = -1 / (B K) sum_i [log p_ii + sum_{j != i} log(1 - p_ij)]. A row's largest 1 - p is summed of the other
    cells, so nothing is lost where p rounds to 1.

    Args:
        logits: (B, K), K at least B.

    Returns:
        Scalar, at least 0; 0 for K = 1.

    Example:
        >>> round(cell_entropy(torch.tensor([[1.0, 3.0]]).log()).item(), 4)  # -(log 1/4 + log 1/4) / 2
        1.3863
    """
    right = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    logs, top = logits.log_softmax(1), logits.argmax(1, keepdim=True)
    others = logits.scatter(1, top, torch.finfo(logits.dtype).min)
    largest = others.logsumexp(1, keepdim=True) - logits.logsumexp(1, keepdim=True)
    wrong = torch.log1p(-logs.exp().scatter(1, top, 0.0)).scatter(1, top, largest)
    return -torch.where(right, logs, wrong).mean()


def debiased_nce(
    anchors: Tensor,
    positives: Tensor,
    noise: Tensor,
    alike: Tensor | None,
    tau: float,
    *,
    form: str = "released",
) -> Tensor:
    """DCLR's loss: contrast with the batch and with noise, where some pairs are no negatives.

    s_i = [cos(z_i, z'_j) / tau ; cos(z_i, g_k) / tau]; w_ij = 0 where j != i and pair (i, j) is alike, else
    1. ``paper``: mean_i -log(e^{s_ii} / sum_j w_ij e^{s_ij}). ``released``: :func:`cell_entropy` of w s,
    where such a pair keeps a logit of 0 (Zhou et al. 2022). Gradient reaches z and z'.

    Args:
        anchors: z, (B, H).
        positives: z', (B, H).
        noise: g, (M, H), M from 0.
        alike: (B, B), True for pairs of like meaning; its diagonal doesn't count. None for none.
        tau: Temperature, above 0.
        form: "released" or "paper".

    Returns:
        Scalar, at least 0.

    Raises:
        ValueError: shapes that don't fit, a temperature that isn't above 0, another form.

    Example:
        >>> z, g = torch.eye(2), torch.empty(0, 2)
        >>> round(debiased_nce(z, z, g, None, tau=1.0, form="paper").item(), 4)  # ln(1 + 1 / e)
        0.3133
        >>> round(debiased_nce(z, z, g, torch.ones(2, 2).bool(), tau=1.0, form="paper").item(), 4)
        0.0
    """
    check_alike("(B, H)", anchors=anchors, positives=positives)
    check_tau(tau)
    size = len(anchors)
    if noise.shape[1:] != anchors.shape[1:] or (alike is not None and alike.shape != (size, size)):
        shape = None if alike is None else tuple(alike.shape)
        raise ValueError(f"noise {tuple(noise.shape)} must be (M, H), alike {shape} (B, B) or None")
    if form not in FORMS:
        raise ValueError(f"form {form!r}; expected one of {', '.join(FORMS)}")
    logits = cosine_matrix(anchors, torch.cat([positives, noise])) / tau
    if alike is not None:
        own = torch.eye(size, dtype=torch.bool, device=logits.device)
        dropped = functional.pad(alike & ~own, (0, len(noise)))
        logits = logits.masked_fill(dropped, -torch.inf if form == "paper" else 0.0)
    if form == "paper":
        return functional.cross_entropy(logits, torch.arange(size, device=logits.device))
    return cell_entropy(logits)


class Debiased(NamedTuple):
    """What a step of DCLR reads.

    Args:
        views: The sentences twice.
        noise: Gaussian vectors, (M, H).
        asked: What the complement is asked; None without one.
    """

    views: TokenBatch
    noise: Tensor
    asked: Asked | None


class DCLRObjective(EncoderWithHead):
    """(Sentence number, token row) pairs to :func:`debiased_nce`.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, its text, its member ``complement`` if any, the noise's stream.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config, members = context.config, context.members
        self.draws = generator(context.seed, f"noise/{context.role}")
        self.complement = Teacher(members["complement"], context.sentences) if members else None
        self.tau, self.phi, self.form = float(config["tau"]), float(config["phi"]), str(config["loss"])
        self.times, self.rate = float(config["noise_times"]), float(config["noise_rate"])
        self.steps, self.mask_padding = int(config["noise_steps"]), bool(config["mask_padding"])
        self.size = state_size(model)
        self.pooler: Any = None
        if config["head"] == "stacked":
            pooler = getattr(getattr(model, "pooler", None), "dense", None)
            self.pooler = fresh_linear(self.size) if pooler is None else pooler

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> Debiased:
        """Each step has noise of its own; padding that the encoder attends to becomes tokens here."""
        numbers, rows = [number for number, _ in batch], [row for _, row in batch]
        if not self.mask_padding:
            longest = max(map(len, rows))
            rows = [row + [self.pad_id] * (longest - len(row)) for row in rows]
        count = int(self.times * len(rows))
        noise = torch.randn(count, self.size, generator=self.draws)
        asked = None if self.complement is None else self.complement.prepare(numbers, self.device)
        return Debiased(self.tokens([*rows, *rows]), noise, asked)

    def compute(self, prepared: Debiased) -> Tensor:
        """Both views go through one call; the complement's vectors say which pairs are alike."""
        first, second = self.projected(prepared.views).chunk(2)
        noise = prepared.noise.to(first.dtype)
        noise = ascended(noise, first, second, self.tau, steps=self.steps, rate=self.rate)
        if self.complement is None or prepared.asked is None:
            return debiased_nce(first, second, noise, None, self.tau, form=self.form)
        known = self.complement.vectors(prepared.asked)
        alike = cosine_matrix(known, known) > self.phi
        loss = debiased_nce(first, second, noise, alike, self.tau, form=self.form)
        return loss + 0 * known.sum()  # a comparison alone would hide what is not a number

    def projected(self, batch: TokenBatch) -> Tensor:
        """Return z of each token row, (B, H)."""
        states = batch_states(self.encoder, batch)
        if self.pooler is not None:
            states = torch.tanh(self.pooler(states))
        return torch.tanh(self.head(states))

    def why_not_finite(self) -> str | None:
        """The complement's vectors, where they are why."""
        return None if self.complement is None else self.complement.why_not_finite()


def train(context: StageContext) -> dict[str, Any]:
    """Train with noise and weighted negatives; the member ``complement``, if any, weighs: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has the errors.
    """
    return train_towers(
        context,
        [load_backbone(context.model)],
        lambda model, pad_id: DCLRObjective(model, pad_id, context),
        numbered=True,
    )
