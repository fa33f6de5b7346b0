"""What VaSCL trains: two dropout views, and a virtual one, perturbed against a sentence's neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines._checks import check_alike, check_tau
from bench.nn.architecture import state_size
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator


def near_nce(first: Tensor, second: Tensor, near: Tensor | None, tau: float) -> Tensor:
    """Contrast of two views from both sides, against all others of the batch or against neighbours alone.

    With z the 2B rows of both views, i' the other view of row i and M(i) the rows of both views of the
    sentences in N(i): L = mean_i -log[exp(cos(z_i, z_i') / tau) / (exp(cos(z_i, z_i') / tau)
    + sum_{m in M(i)} exp(cos(z_i, z_m) / tau))]. Gradient flows through both views (Zhang et al. 2022,
    instance discrimination; released ContrastiveLoss and VaSCL_NBiDir).

    Args:
        first: (B, F).
        second: (B, F), row i belongs to row i of the first.
        near: N, (B, B), True where sentence j is one of i's neighbours, nowhere on the diagonal; None: all
            others are.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; ln(2K + 1) for equal rows and K neighbours each; 0 without others.

    Raises:
        ValueError: shapes that don't fit, or a temperature that isn't above 0.

    Example:
        >>> view = torch.eye(2)
        >>> round(near_nce(view, view, None, tau=1.0).item(), 4)  # ln(e + 2) - 1
        0.5514
        >>> near_nce(view, view, torch.zeros(2, 2, dtype=torch.bool), tau=1.0).item()  # nobody is near
        0.0
    """
    check_alike("(B, F)", first=first, second=second)
    check_tau(tau)
    count = len(first)
    if near is None:
        near = ~torch.eye(count, dtype=torch.bool, device=first.device)
    if near.shape != (count, count):
        raise ValueError(f"near {tuple(near.shape)} must be (B, B), with views of {count} rows")
    own, other = (functional.normalize(view, dim=1, eps=1e-8) for view in (first, second))
    both = torch.cat([own, other])
    positive = (own * other).sum(1).repeat(2) / tau
    negative = (both @ both.T / tau).masked_fill(~near.repeat(2, 2), float("-inf"))
    return (torch.cat([positive.unsqueeze(1), negative], dim=1).logsumexp(1) - positive).mean()


def neighbourhoods(vectors: Tensor, count: int) -> Tensor:
    """Return True where row j is among the ``count`` rows but i with the largest e_i . e_j; (B, B).

    In a batch of ``count`` rows or fewer all others are neighbours.

    Args:
        vectors: e, (B, H), without gradient.
        count: K, at least 1.

    Raises:
        ValueError: no matrix, or no neighbour.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.5, 1.0]])
        >>> neighbourhoods(vectors, 1).long().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    """
    if vectors.ndim != 2 or count < 1:
        raise ValueError(f"vectors {tuple(vectors.shape)} must be (B, H), count {count} at least 1")
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    products = (vectors @ vectors.T).masked_fill(own, float("-inf"))
    nearest = products.topk(min(count, len(vectors) - 1), dim=1).indices
    return torch.zeros_like(own).scatter(1, nearest, True)


def unit(rows: Tensor) -> Tensor:
    """Rows divided by their lengths plus 1e-8, as in the released code: a zero row stays zero."""
    found: Tensor = rows / (rows.norm(dim=1, keepdim=True) + 1e-8)
    return found


class ContrastHead(nn.Module):
    """g(e) = norm(W2 ReLU(W1 e)), without biases; weights normal with std 0.02 from torch's state.

    Args:
        size: H.
        features: F, size of its vectors.
        rate_scale: Multiple of the learning rate that its weights have, see
            :func:`bench.train.loop.parameter_groups`.
    """

    def __init__(self, size: int, features: int, rate_scale: float = 1.0) -> None:
        super().__init__()
        self.rate_scale = rate_scale
        self.inner, self.outer = nn.Linear(size, size, bias=False), nn.Linear(size, features, bias=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=0.02)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, H) to unit vectors (B, F)."""
        hidden = functional.relu(self.inner(vectors))
        found: Tensor = functional.normalize(self.outer(hidden), dim=1, eps=1e-8)
        return found

    @torch.no_grad()
    def pulled_back(self, vectors: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with respect to ``vectors`` of what has ``gradient`` with respect to g of them.

        Written out: a step's second half is one graph, which a gradient within it would break.

        Args:
            vectors: e, (B, H).
            gradient: (B, F).

        Returns:
            (B, H).
        """
        hidden = functional.relu(self.inner(vectors))
        out = self.outer(hidden)
        length = out.norm(dim=1, keepdim=True).clamp(min=1e-8)
        normed = out / length
        along = (gradient * normed).sum(1, keepdim=True)
        inward = (gradient - along * normed) / length @ self.outer.weight
        found: Tensor = (inward * (hidden > 0)) @ self.inner.weight
        return found


@torch.no_grad()
def worst_direction(
    head: ContrastHead, vectors: Tensor, near: Tensor, start: Tensor, *, xi: float, tau: float, steps: int
) -> Tensor:
    """The direction in which a vector is confused most with its neighbours, by power iteration.

    With c = g(e) and u = g(e + xi d): l = mean_i -log[exp(u_i . c_i / tau) / sum_{j in {i} + N(i)}
    exp(u_i . c_j / tau)], d <- the unit row of dl/dd (released VaSCL_NUniDir, VaSCL_Pturb).

    Args:
        head: g.
        vectors: e, (B, H).
        near: N, (B, B); see :func:`neighbourhoods`.
        start: d at first, (B, H), of any length but 0.
        xi: Length at which the gradient is taken.
        tau: Temperature.
        steps: Gradients taken; 0: the start's direction.

    Returns:
        d, (B, H): unit rows, zero where the gradient is zero (as without neighbours).
    """
    clean, direction = head(vectors), unit(start)
    asked = near | torch.eye(len(near), dtype=torch.bool, device=near.device)
    for _ in range(steps):
        moved = vectors + xi * direction
        scores = (head(moved) @ clean.T / tau).masked_fill(~asked, float("-inf"))
        towards = (scores.softmax(1) @ clean - clean) / (tau * len(clean))
        direction = unit(xi * head.pulled_back(moved, towards))
    return direction


class Started(NamedTuple):
    """What a step of VaSCL reads.

    Args:
        views: All first views, then all second ones.
        start: Where the search for the directions begins, (B, H); None: no perturbed view.
    """

    views: TokenBatch
    start: Tensor | None


class VaSCLObjective(Objective):
    """Token rows to the contrast of two dropout views, and that of a vector with its perturbed copy.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, and the stream of the directions.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        config, self.pad_id = context.config, pad_id
        self.encoder, self.size = model, state_size(model)
        self.head = ContrastHead(self.size, int(config["features"]), float(config["head_rate"]))
        self.tau, self.radius, xi = (float(config[name]) for name in ("tau", "radius", "xi"))
        self.xi = xi or self.radius
        self.count, self.steps = int(config["neighbours"]), int(config["power_steps"])
        self.through = config["perturbed_gradient"] == "encoder"
        self.draws = generator(context.seed, f"direction/{context.role}")

    def prepare(self, batch: Sequence[list[int]]) -> Started:
        """Both views, and uniform draws from [-0.5, 0.5) for the directions."""
        views = token_batch([*batch, *batch], self.pad_id, self.encoder)
        if not self.radius:
            return Started(views, None)
        return Started(views, torch.rand(len(batch), self.size, generator=self.draws) - 0.5)

    def compute(self, prepared: Started) -> Tensor:
        """One call of the transformer; the perturbed view costs the head alone."""
        first, second = batch_states(self.encoder, prepared.views, "avg").chunk(2)
        loss = near_nce(self.head(first), self.head(second), None, self.tau)
        if prepared.start is None:
            return loss
        fixed = first.detach()
        near, start = neighbourhoods(fixed, self.count), prepared.start.to(fixed.dtype)
        clean = self.head(fixed).detach()
        direction = worst_direction(self.head, fixed, near, start, xi=self.xi, tau=self.tau, steps=self.steps)
        moved = (first if self.through else fixed) + self.radius * direction
        return loss + near_nce(clean, self.head(moved), near, self.tau)


def train(context: StageContext) -> dict[str, Any]:
    """Train with the virtual view: the stage, as :func:`bench.train.sentence_encoder.train_towers`."""

    def objective(model: Any, pad_id: int) -> VaSCLObjective:
        return VaSCLObjective(model, pad_id, context)

    return train_towers(context, [load_backbone(context.model)], objective, pooling="avg")
