"""ArcCSE: SimCSE with an angular margin on the positive, and triplets of one sentence masked ever more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench import losses, nn, training
from bench.card import MASK_TOKEN, MethodCard, Need, Option
from bench.errors import InputError
from bench.lazy import torch
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.recipe import CLS_VIEWS, TrainedOnce, usual_options

_INSIDE = 1 - 1e-6


def arccon_nce(anchors: torch.Tensor, positives: torch.Tensor, tau: float, margin: float) -> torch.Tensor:
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
        margin: u in radians, 0 to pi; 0 gives :func:`bench.losses.contrastive.info_nce`.

    Returns:
        Scalar, at least 0; 0 for B = 1; never less than InfoNCE where theta + u <= pi.

    Raises:
        ValueError: different shapes, a temperature that isn't above 0, a margin outside its range.

    Example:
        >>> views = torch.eye(3, 4)
        >>> round(arccon_nce(views, views, tau=0.5, margin=0.0).item(), 4)
        0.2395
        >>> round(arccon_nce(views, views, tau=0.5, margin=math.radians(30)).item(), 4)
        0.3033
    """
    losses.check_same_shape("(B, H)", anchors=anchors, positives=positives)
    losses.check_tau(tau)
    if not 0 <= margin <= math.pi:
        raise ValueError(f"margin {margin} must be 0 to pi")
    cosines = losses.cosine_matrix(anchors, positives)
    own = cosines.diagonal()
    sines = (1 - own.clamp(-_INSIDE, _INSIDE) ** 2).sqrt()
    pushed = own * math.cos(margin) - sines * math.sin(margin)
    logits = (cosines + torch.diag(pushed - own)) / tau
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device))


def triplet_loss(
    whole: torch.Tensor, light: torch.Tensor, heavy: torch.Tensor, margin: float
) -> torch.Tensor:
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
    losses.check_same_shape("(N, H)", whole=whole, light=light, heavy=heavy)
    unit, near, far = (torch.nn.functional.normalize(x, dim=1, eps=1e-8) for x in (whole, light, heavy))
    hinge = torch.nn.functional.relu((unit * far).sum(1) - (unit * near).sum(1) + margin)
    return hinge.sum() / max(1, len(hinge))


def mask_nested_spans(
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


class ArcCSEObjective(training.EncoderWithHead):
    """Token rows to ArcCon, plus the weighted triplet loss of the long ones.

    Args:
        model: The transformer.
        tokenizer: Names mask and padding.
        context: The stage: its options, and the stream of the spans.
    """

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__(model, tokenizer.pad_token_id)
        config, self.mask_id = context.config, tokenizer.mask_token_id
        self.draw = training.generator(context.seed, f"mask/{context.role}")
        self.tau, self.margin = float(config["tau"]), math.radians(float(config["margin"]))
        self.shares = float(config["triplet_light"]), float(config["triplet_heavy"])
        self.weight, self.triplet_margin = float(config["triplet_weight"]), float(config["triplet_margin"])
        self.triplets, self.shortest = bool(config["triplet"]), int(config["triplet_min_length"])

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, torch.Tensor]:
        """Both views of all rows, then the maskings of the long ones; and the numbers of these."""
        triplets = self.maskings(batch) if self.triplets else {}
        light, heavy = ([pair[i] for pair in triplets.values()] for i in (0, 1))
        tokens = self.tokens([*batch, *batch, *light, *heavy])
        return tokens, torch.tensor(list(triplets), dtype=torch.long)

    def compute(self, prepared: tuple[nn.TokenBatch, torch.Tensor]) -> torch.Tensor:
        """All views go through one call, so a row's two views differ by their dropout masks alone."""
        tokens, chosen = prepared
        projected = self.projected(tokens)
        masked, count = len(chosen), (len(projected) - 2 * len(chosen)) // 2
        anchors, positives, near, far = projected.split_with_sizes([count, count, masked, masked])
        loss = arccon_nce(anchors, positives, self.tau, self.margin)
        if not masked:
            return loss
        return loss + self.weight * triplet_loss(anchors[chosen], near, far, self.triplet_margin)

    def maskings(self, rows: Sequence[list[int]]) -> dict[int, tuple[list[int], list[int]]]:
        """Both maskings of each row that is long enough, by the row's number."""
        found = {
            number: mask_nested_spans(row, self.mask_id, *self.shares, self.draw)
            for number, row in enumerate(rows)
            if len(row) - 2 >= self.shortest
        }
        return {number: pair for number, pair in found.items() if pair is not None}


@add_method
class ArcCSE(TrainedOnce):
    """ArcCSE, and with triplet=false ArcCon alone."""

    card = MethodCard(
        name="arccse",
        printed="ArcCSE",
        family="contrastive",
        tags=("dropout views", "angular margin", "masked spans"),
        passes=12.0,
        kind="baseline",
        summary="SimCSE with an angular margin (ArcCon) and triplets of nested maskings",
        version=1,
        paper="Zhang, Zhu, Wang, Xu, Li, Zhao 2022, A Contrastive Framework for Learning Sentence "
        "Representations from Pairwise and Triple-wise Perspective in Angular Space",
        code="BDBC-KG-NLP/UnderstandingCSE f3b2839 for ArcCon; none was released for the triplets",
        equations=(
            "z = tanh(W h_cls + b) in training; theta_ij = arccos cos(z_i, z'_j)",
            "L_arc = mean_i -log(e^(cos(theta_ii + u) / tau) / "
            "(e^(cos(theta_ii + u) / tau) + sum_{j != i} e^(cos(theta_ij) / tau)))",
            "x', x'': x with a span of 20% masked, and with a span of 40% around it; z_x', z_x'' of them",
            "L_tri = mean_i max(0, cos(z_i, z_x''_i) - cos(z_i, z_x'_i) + m), over long sentences",
            "L = L_arc + w L_tri; at inference h_cls of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(MASK_TOKEN, "triplet", (True,), instead="triplet=false")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("margin", 10.0, "u, the angular margin in degrees", minimum=0, maximum=180),
            Option("triplet", True, "false: ArcCon alone"),
            Option("triplet_weight", 0.1, "w, weight of the triplet loss", minimum=0),
            Option("triplet_margin", 0.0, "m, margin of the triplet loss", minimum=0),
            Option(
                "triplet_light", 0.2, "share of a sentence in the shorter masked span", minimum=0, maximum=1
            ),
            Option(
                "triplet_heavy", 0.4, "share of a sentence in the longer masked span", minimum=0, maximum=1
            ),
            Option("triplet_min_length", 25, "subwords that a sentence needs for a triplet", minimum=1),
            *usual_options(),
        ),
        deviations=(
            "float32 throughout; the original precision is not known",
            "the cosine under the angle's sine is clamped inside (-1, 1); the released arccos has no "
            "bound on its slope at equal views",
            "batch, rate and epochs of the original are not verified",
            "the triplets' code was not released, so this is unverified: spans of 20% and 40%, m = 0, "
            "w = 0.1, sentences of 25 subwords or more alone, head and dropout on all three, view 1 as "
            "anchor; profile mini, whose sentences are shorter, takes those of 15",
            "triplets are compared row by row; a re-implementation compares every anchor with every triplet",
        ),
        published_names=(
            ("arccse", "as published: profile bert-base"),
            ("arccon", "triplet=false, profile bert-base or roberta-base"),
        ),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with ArcCon and, unless switched off, triplets: the stage.

        Argument and result are those of :func:`bench.training.train_towers`, which has more errors.

        Raises:
            InputError: shares out of order, or triplets without a mask token.
        """
        config, tower = context.config, nn.load_backbone(context.model)
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
        return training.train_towers(
            context, [tower], lambda model, _: ArcCSEObjective(model, tower[1], context)
        )
