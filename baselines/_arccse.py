"""What ArcCSE trains: ArcCon, its triplets of nested maskings, and the module that joins them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike, check_tau
from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.heads import EncoderWithHead
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator
from bench.train.teachers import cosine_matrix

_INSIDE = 1 - 1e-6


def arccon(anchors: Tensor, positives: Tensor, tau: float, margin: float) -> Tensor:
    """ArcCon: InfoNCE whose positive pair is taken to be ``margin`` further apart than it is.

    theta_i = arccos cos(z_i, z'_i); L = mean_i -log(P_i / (P_i + sum_{j != i} exp(cos(z_i, z'_j) / tau))),
    P_i = exp(cos(theta_i + u) / tau), with cos(theta + u) = cos theta cos u - sin theta sin u. Rows only;
    gradient flows through both sides and both norms (Zhang et al. 2022, ArcCSE). The cosine under sin theta =
    sqrt(1 - cos^2) is clamped to +-(1 - 1e-6), as its slope has no bound at equal views; the released arccos
    has no clamp. Beyond theta + u = pi the cosine rises again, as released.

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        tau: Temperature, above 0.
        margin: u in radians, 0 to pi; 0 gives :func:`bench.train.recipe.info_nce`.

    Returns:
        Scalar, at least 0; 0 for B = 1; never less than InfoNCE where theta + u <= pi.

    Raises:
        ValueError: different shapes, a temperature that isn't above 0, a margin outside its range.

    Example:
        >>> views = torch.eye(3, 4)
        >>> round(arccon(views, views, tau=0.5, margin=0.0).item(), 4)
        0.2395
        >>> round(arccon(views, views, tau=0.5, margin=math.radians(30)).item(), 4)
        0.3033
    """
    check_alike("(B, H)", anchors=anchors, positives=positives)
    check_tau(tau)
    if not 0 <= margin <= math.pi:
        raise ValueError(f"margin {margin} must be 0 to pi")
    cosines = cosine_matrix(anchors, positives)
    own = cosines.diagonal()
    sines = (1 - own.clamp(-_INSIDE, _INSIDE) ** 2).sqrt()
    pushed = own * math.cos(margin) - sines * math.sin(margin)
    logits = (cosines + torch.diag(pushed - own)) / tau
    return functional.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device))


def triplet_loss(whole: Tensor, light: Tensor, heavy: Tensor, margin: float) -> Tensor:
    """ArcCSE's triplets: a sentence is nearer to itself masked lightly than to itself masked more.

    L = mean_i max(0, cos(h_i, h''_i) - cos(h_i, h'_i) + m), row by row; gradient flows through all three
    (Zhang et al. 2022, ArcCSE, triplet loss).

    Args:
        whole: h, (N, H).
        light: h', (N, H), of the lightly masked sentences.
        heavy: h'', (N, H), of the more masked ones.
        margin: m.

    Returns:
        Scalar, 0 to 2 + m; 0 for N = 0.

    Raises:
        ValueError: different shapes.

    Example:
        >>> whole, light = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]])  # cosine 0.6
        >>> round(triplet_loss(whole, light, torch.tensor([[4.0, 3.0]]), margin=0.0).item(), 4)  # 0.8 - 0.6
        0.2
    """
    check_alike("(N, H)", whole=whole, light=light, heavy=heavy)
    unit, near, far = (functional.normalize(x, dim=1, eps=1e-8) for x in (whole, light, heavy))
    losses = functional.relu((unit * far).sum(1) - (unit * near).sum(1) + margin)
    return losses.sum() / max(1, len(losses))


def nested_maskings(
    row: Sequence[int], mask_id: int, light: float, heavy: float, draw: torch.Generator
) -> tuple[list[int], list[int]] | None:
    """Mask a span of a row's subwords, and a longer span around it.

    The spans are round(light n) and round(heavy n) of the n subwords; the longer one starts anywhere, the
    shorter one anywhere in it, and every token in a span becomes the mask token.

    Args:
        row: Token ids, specials first and last.
        mask_id: Id of the mask token.
        light: Share of the shorter span.
        heavy: Share of the longer one.
        draw: A generator of the run's own.

    Returns:
        The lightly and the more masked row; None where the spans would be empty or of one length.
    """
    subwords = len(row) - 2
    short, long = (int(share * subwords + 0.5) for share in (light, heavy))
    if not 0 < short < long <= subwords:
        return None
    outer = 1 + int(torch.randint(subwords - long + 1, (), generator=draw))
    inner = outer + int(torch.randint(long - short + 1, (), generator=draw))

    def masked(start: int, length: int) -> list[int]:
        return [*row[:start], *[mask_id] * length, *row[start + length :]]

    return masked(inner, short), masked(outer, long)


class ArcCSEObjective(EncoderWithHead):
    """Token rows to ArcCon, plus the weighted triplet loss of the long ones.

    Args:
        model: The transformer.
        tokenizer: Names mask and padding.
        context: The stage: its options, and the stream of the spans.
    """

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__(model, tokenizer.pad_token_id)
        config, self.mask_id = context.config, tokenizer.mask_token_id
        self.draw = generator(context.seed, f"mask/{context.role}")
        self.tau, self.margin = float(config["tau"]), math.radians(float(config["margin"]))
        self.shares = float(config["triplet_light"]), float(config["triplet_heavy"])
        self.weight, self.triplet_margin = float(config["triplet_weight"]), float(config["triplet_margin"])
        self.triplets, self.shortest = bool(config["triplet"]), int(config["triplet_min_length"])

    def prepare(self, batch: Sequence[list[int]]) -> tuple[TokenBatch, Tensor]:
        """Both views of all rows, then the maskings of the long ones; and the numbers of these."""
        triplets = self.maskings(batch) if self.triplets else {}
        light, heavy = ([pair[i] for pair in triplets.values()] for i in (0, 1))
        tokens = self.tokens([*batch, *batch, *light, *heavy])
        return tokens, torch.tensor(list(triplets), dtype=torch.long)

    def compute(self, prepared: tuple[TokenBatch, Tensor]) -> Tensor:
        """All views go through one call, so a row's two views differ by their dropout masks alone."""
        tokens, chosen = prepared
        projected = self.projected(tokens)
        masked, count = len(chosen), (len(projected) - 2 * len(chosen)) // 2
        anchors, positives, near, far = projected.split_with_sizes([count, count, masked, masked])
        loss = arccon(anchors, positives, self.tau, self.margin)
        if not masked:
            return loss
        return loss + self.weight * triplet_loss(anchors[chosen], near, far, self.triplet_margin)

    def maskings(self, rows: Sequence[list[int]]) -> dict[int, tuple[list[int], list[int]]]:
        """Both maskings of each row that is long enough, by the row's number."""
        found = {
            number: nested_maskings(row, self.mask_id, *self.shares, self.draw)
            for number, row in enumerate(rows)
            if len(row) - 2 >= self.shortest
        }
        return {number: pair for number, pair in found.items() if pair is not None}


def train(context: StageContext) -> dict[str, Any]:
    """Train with ArcCon and, unless switched off, triplets: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: shares out of order, or triplets without a mask token.
    """
    config, tower = context.config, load_backbone(context.model)
    if config["triplet"]:
        if not 0 < float(config["triplet_light"]) < float(config["triplet_heavy"]) <= 1:
            raise InputError(
                f"triplet_light {config['triplet_light']}, triplet_heavy {config['triplet_heavy']}",
                expected="shares above 0 and up to 1, the first one smaller",
            )
        if tower[1].mask_token_id is None:
            raise InputError(
                "the model's tokenizer has no mask token, which triplets need",
                hint="set arccse.triplet=false for ArcCon alone",
            )
    return train_towers(context, [tower], lambda model, _: ArcCSEObjective(model, tower[1], context))
