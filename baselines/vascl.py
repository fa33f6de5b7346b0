"""VaSCL: contrastive learning with a virtual view, a vector moved to where its neighbours confuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import DROPOUT, MethodCard, Need, Option
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options


def find_batch_neighbours(vectors: torch.Tensor, count: int) -> torch.Tensor:
    """Mark the ``count`` other rows j with the largest e_i . e_j, at most all others; (B, B)."""
    if vectors.ndim != 2 or count < 1:
        raise ValueError(f"vectors {tuple(vectors.shape)} must be (B, H), count {count} at least 1")
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    products = (vectors @ vectors.T).masked_fill(own, float("-inf"))
    nearest = products.topk(min(count, len(vectors) - 1), dim=1).indices
    return torch.zeros_like(own).scatter(1, nearest, True)


def scale_to_unit(rows: torch.Tensor) -> torch.Tensor:
    """Divide rows by their lengths plus 1e-8, as released: a zero row stays zero."""
    unit: torch.Tensor = rows / (rows.norm(dim=1, keepdim=True) + 1e-8)
    return unit


def find_worst_direction(
    head: training.ContrastHead,
    vectors: torch.Tensor,
    near: torch.Tensor,
    start: torch.Tensor,
    *,
    xi: float,
    tau: float,
    steps: int,
) -> torch.Tensor:
    """Find the direction (B, H) in which a vector is confused most with its neighbours, by power iteration.

    Released: VaSCL_NUniDir, VaSCL_Pturb. It is zero where the gradient is; ``steps`` 0 gives the start's.
    """
    with torch.no_grad():
        clean, direction = head(vectors), scale_to_unit(start)
        asked = near | torch.eye(len(near), dtype=torch.bool, device=near.device)
        for _ in range(steps):
            moved = vectors + xi * direction
            scores = (head(moved) @ clean.T / tau).masked_fill(~asked, float("-inf"))
            towards = (scores.softmax(1) @ clean - clean) / (tau * len(clean))
            direction = scale_to_unit(xi * head.pulled_back(moved, towards))
        return direction


class VaSCLStep(NamedTuple):
    """Inputs of a step: first views before second ones, and the start of the search (B, H) or None."""

    views: nn.TokenBatch
    start: torch.Tensor | None


class VaSCLObjective(training.Objective):
    """Token rows to the contrast of two dropout views, and of a vector with its perturbed copy."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        config, self.pad_id = context.config, pad_id
        self.encoder, self.size = model, nn.state_size(model)
        self.head = training.ContrastHead(self.size, int(config["features"]), float(config["head_rate"]))
        self.tau, self.radius, xi = (float(config[name]) for name in ("tau", "radius", "xi"))
        self.xi = xi or self.radius
        self.count, self.steps = int(config["neighbours"]), int(config["power_steps"])
        self.through = config["perturbed_gradient"] == "encoder"
        self.draws = training.generator(context.seed, f"direction/{context.role}")

    def prepare(self, batch: Sequence[list[int]]) -> VaSCLStep:
        """Put both views into a batch; draw the directions uniformly from [-0.5, 0.5)."""
        views = training.token_batch([*batch, *batch], self.pad_id, self.encoder)
        if not self.radius:
            return VaSCLStep(views, None)
        return VaSCLStep(views, torch.rand(len(batch), self.size, generator=self.draws) - 0.5)

    def compute(self, prepared: VaSCLStep) -> torch.Tensor:
        """Encode in one call; the perturbed view passes only the head."""
        first, second = training.batch_states(self.encoder, prepared.views, "avg").chunk(2)
        loss = losses.near_nce(self.head(first), self.head(second), None, self.tau)
        if prepared.start is None:
            return loss
        fixed = first.detach()
        near, start = find_batch_neighbours(fixed, self.count), prepared.start.to(fixed.dtype)
        clean = self.head(fixed).detach()
        direction = find_worst_direction(
            self.head, fixed, near, start, xi=self.xi, tau=self.tau, steps=self.steps
        )
        moved = (first if self.through else fixed) + self.radius * direction
        return loss + losses.near_nce(clean, self.head(moved), near, self.tau)


@add_method
class VaSCL(TrainedOnce):
    """VaSCL."""

    card = MethodCard(
        name="vascl",
        printed="VaSCL",
        family="contrastive",
        adds="a virtual view, the vector moved to where its neighbours in the batch confuse it most",
        cites=("zhang-etal-2022-virtual",),
        tags=("dropout views", "adversarial noise"),
        passes=6.0,
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
            "L_2: of c and v = g(e + radius d) as L_1, but with the others of N(i); e constant",
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
                "the perturbed view's loss trains the head (released), or the encoder too",
                ("head", "encoder"),
            ),
            Option("features", 128, "size of the head's vectors", minimum=1),
            Option("head_rate", 100.0, "the head's learning rate, as a multiple of lr", minimum=0),
            *training_options(
                lr=5e-6, batch_size=1024, epochs=5, eval_every=500, clip=0.0, schedule="constant"
            ),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "settings are the released program's defaults, dev evaluation every 500 steps its command's; "
            "that command also has head_rate=100000 and steps=100, with a dev evaluation at their end",
            "the paper's settings are unverified: only the released code was read",
            "released: the perturbed view's loss reads detached vectors, so it trains only the head; "
            "perturbed_gradient=encoder lets its gradient through the perturbed vector (c stays constant)",
            "released: duplicate sentences of wiki1m are dropped first; here the text is as it is",
            "in a batch of K sentences or fewer all others are neighbours (released: an error)",
            "Adam as AdamW without weight decay",
        ),
        published_names=(("vascl", "as published: profile bert-base or roberta-base"),),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the virtual view, as :func:`bench.training.train_towers`."""
        objective = partial(VaSCLObjective, context=context)
        return training.train_towers(context, [nn.load_backbone(context.model)], objective, pooling="avg")
