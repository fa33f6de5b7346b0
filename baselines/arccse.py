"""ArcCSE: SimCSE with an angular margin on the positive, and triplets of one sentence masked ever more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import MASK_TOKEN, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import CLS_VIEWS, TrainedOnce, usual_options

_INSIDE = 1 - 1e-6


def arccon_nce(anchors: torch.Tensor, positives: torch.Tensor, tau: float, margin: float) -> torch.Tensor:
    """ArcCon: InfoNCE of (B, H) views with an angular margin on the positive pair (Zhang et al. 2022).

    The sine is taken of a cosine within +-(1 - 1e-6), which bounds the slope at equal views. Beyond
    theta + u = pi the cosine rises again, as released. The margin is 0 to pi radians.
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
    """ArcCSE's mean_i max(0, cos(h_i, h''_i) - cos(h_i, h'_i) + m) of (N, H) rows; 0 for N = 0."""
    losses.check_same_shape("(N, H)", whole=whole, light=light, heavy=heavy)
    unit, near, far = (torch.nn.functional.normalize(x, dim=1, eps=1e-8) for x in (whole, light, heavy))
    hinge = torch.nn.functional.relu((unit * far).sum(1) - (unit * near).sum(1) + margin)
    return hinge.sum() / max(1, len(hinge))


def mask_nested_spans(
    row: Sequence[int], mask_id: int, light: float, heavy: float, draw: torch.Generator
) -> tuple[list[int], list[int]] | None:
    """Mask round(light n) of n subwords in one span, round(heavy n) around it; None: empty or equal spans."""
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
    """Token rows to ArcCon, plus the weighted triplet loss of the long ones."""

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__(model, tokenizer.pad_token_id)
        config, self.mask_id = context.config, tokenizer.mask_token_id
        self.draw = training.generator(context.seed, f"mask/{context.role}")
        self.tau, self.margin = float(config["tau"]), math.radians(float(config["margin"]))
        self.shares = float(config["triplet_light"]), float(config["triplet_heavy"])
        self.weight, self.triplet_margin = float(config["triplet_weight"]), float(config["triplet_margin"])
        self.triplets, self.shortest = bool(config["triplet"]), int(config["triplet_min_length"])

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, torch.Tensor]:
        """Put both views of all rows before the maskings of the long ones; return their numbers too."""
        triplets = self.maskings(batch) if self.triplets else {}
        light = [pair[0] for pair in triplets.values()]
        heavy = [pair[1] for pair in triplets.values()]
        tokens = self.tokens([*batch, *batch, *light, *heavy])
        return tokens, torch.tensor(list(triplets), dtype=torch.long)

    def compute(self, prepared: tuple[nn.TokenBatch, torch.Tensor]) -> torch.Tensor:
        """Encode all views in one call: the views of a row differ only by their dropout masks."""
        tokens, chosen = prepared
        projected = self.projected(tokens)
        masked, count = len(chosen), (len(projected) - 2 * len(chosen)) // 2
        anchors, positives, near, far = projected.split_with_sizes([count, count, masked, masked])
        loss = arccon_nce(anchors, positives, self.tau, self.margin)
        if not masked:
            return loss
        return loss + self.weight * triplet_loss(anchors[chosen], near, far, self.triplet_margin)

    def maskings(self, rows: Sequence[list[int]]) -> dict[int, tuple[list[int], list[int]]]:
        """Mask each row that is long enough; by the row's number."""
        pairs = {}
        for number, row in enumerate(rows):
            if len(row) - 2 >= self.shortest and (
                pair := mask_nested_spans(row, self.mask_id, *self.shares, self.draw)
            ):
                pairs[number] = pair
        return pairs


@add_method
class ArcCSE(TrainedOnce):
    """ArcCSE; ArcCon with triplet=false."""

    card = MethodCard(
        name="arccse",
        printed="ArcCSE",
        family="contrastive",
        adds="an angular margin on the positive; a small masked span must stay closer than a large one",
        cites=("zhang-etal-2022-contrastive",),
        tags=("dropout views", "angular margin", "masked spans"),
        passes=12.0,
        kind="baseline",
        summary="SimCSE with an angular margin (ArcCon) and triplets of nested maskings",
        version=1,
        paper="Zhang, Zhu, Wang, Xu, Li, Zhao 2022, A Contrastive Framework for Learning Sentence "
        "Representations from Pairwise and Triple-wise Perspective in Angular Space",
        code="BDBC-KG-NLP/UnderstandingCSE f3b2839 for ArcCon; the triplets are unreleased",
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
            Option("triplet", True, "false: only ArcCon"),
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
            "the cosine under the angle's sine is clamped inside (-1, 1); the released arccos has an "
            "unbounded slope at equal views",
            "batch, rate and epochs of the original are not verified",
            "triplets are our reading, their code is unreleased: spans of 20% and 40%, m = 0, w = 0.1, "
            "sentences of at least 25 subwords (mini: 15), head and dropout on all three, view 1 as anchor",
            "triplets are compared row by row; a re-implementation compares every anchor with every triplet",
        ),
        published_names=(
            ("arccse", "as published: profile bert-base"),
            ("arccon", "triplet=false, profile bert-base or roberta-base"),
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a prompt's mask with masked spans."""
        if options["triplet"]:
            why = "reads the first mask token, which may be a masked span's"
            check_train_pooling(self.card.name, options, PROMPTLESS, why, expected="triplet=false with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with ArcCon and triplets, as :func:`bench.training.train_towers`."""
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
                    hint="set arccse.triplet=false for plain ArcCon",
                )
        return training.train_towers(
            context, [tower], lambda model, _: ArcCSEObjective(model, tower[1], context)
        )
