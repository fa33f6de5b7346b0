"""Contrastive tension: two independent encoders that start equal agree on a sentence, not on two."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import DROPOUT, HeldEncoder, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, refuse_batch_size
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options

PAPER = (
    "Carlsson, Gyllensten, Gogoulou, Hellqvist, Sahlgren 2021, Semantic Re-tuning with Contrastive Tension, "
    "ICLR"
)
INFERENCE = "at inference v of the second encoder"


def arrange_pairs(count: int, negatives: int, form: str = "released") -> list[tuple[int, int, bool]]:
    """Return pairs of ``count`` sentences: place in the first encoder's, in the second's, and equality.

    A group is one sentence with itself, then K = ``negatives`` pairs of two. "released": each of them has two
    sentences of its own, 1 + 2 K a group; "paper": the first is the group's, 1 + K. The last group may have
    fewer pairs; "released" leaves out a single sentence there.

    >>> arrange_pairs(6, 2, "paper")
    [(0, 0, True), (0, 1, False), (0, 2, False), (3, 3, True), (3, 4, False), (3, 5, False)]
    >>> arrange_pairs(8, 2)
    [(0, 0, True), (1, 3, False), (2, 4, False), (5, 5, True), (6, 7, False)]
    """
    width = 1 + negatives if form == "paper" else 1 + 2 * negatives
    pairs = []
    for start in range(0, count, width):
        pairs.append((start, start, True))
        rest = range(start + 1, min(start + width, count))
        if form == "paper":
            pairs += [(start, place, False) for place in rest]
            continue
        half = len(rest) // 2
        pairs += [(rest[number], rest[half + number], False) for number in range(half)]
    return pairs


class TensionObjective(training.Objective):
    """Two encoders without shared weights, the first a copy that is trained too and not kept."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        self.config, self.pad_id = context.config, pad_id
        self.encoder = model
        self.first = copy.deepcopy(model)


class PairObjective(TensionObjective):
    """Token rows to the binary cross-entropy of dot products: equal sentences or two."""

    def prepare(
        self, batch: Sequence[list[int]]
    ) -> tuple[nn.TokenBatch, nn.TokenBatch, torch.Tensor, torch.Tensor]:
        """Deal the sentences to both encoders; pair i has row ``places[i]`` of the first and row i."""
        pairs = arrange_pairs(len(batch), int(self.config["negatives"]), str(self.config["pairs"]))
        read = {place: row for row, place in enumerate(dict.fromkeys(first for first, _, _ in pairs))}
        first = training.token_batch([batch[place] for place in read], self.pad_id, self.first)
        second = training.token_batch([batch[place] for _, place, _ in pairs], self.pad_id, self.encoder)
        places = torch.tensor([read[place] for place, _, _ in pairs])
        return first, second, places, torch.tensor([float(equal) for _, _, equal in pairs])

    def compute(
        self, prepared: tuple[nn.TokenBatch, nn.TokenBatch, torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Encode each side in one call."""
        first, second, places, equal = prepared
        u = training.batch_states(self.first, first, "avg")[places]
        v = training.batch_states(self.encoder, second, "avg")
        scores = (u * v).sum(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, equal.to(scores.dtype))


class BatchObjective(TensionObjective):
    """Token rows to InfoNCE between both encoders, in both directions, at a scale that is learnt."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id, context)
        self.log_scale = torch.nn.Parameter(torch.tensor(math.log(float(self.config["scale"]))))

    def prepare(self, batch: Sequence[list[int]]) -> nn.TokenBatch:
        """Pad the sentences, which both encoders read."""
        return training.token_batch(batch, self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode with both, each at its own dropout."""
        u, v = (training.batch_states(model, prepared, "avg") for model in (self.first, self.encoder))
        similarity = losses.cosine_matrix(u, v) if self.config["similarity"] == "cos" else u @ v.T
        scores = similarity * self.log_scale.exp()
        right = torch.arange(len(scores), device=scores.device)
        entropy = torch.nn.functional.cross_entropy
        return (entropy(scores, right) + entropy(scores.T, right)) / 2


class Tension(TrainedOnce):
    """Base of both forms: a subclass adds the card and the objective."""

    objective: type[TensionObjective]

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train both encoders and keep the second, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        objective = partial(self.objective, context=context)
        return training.train_towers(context, [tower], objective, pooling="avg")


def tension_options(stairs: bool = False, **defaults: Any) -> tuple[Option, ...]:
    """Return the training options of both forms, with mean pooling."""
    options = training_options(**defaults)
    if stairs:
        names = ("linear", "constant", "stairs")
        text = "learning rate: linear decay to 0, constant, or a fifth less after each 500 of 2,000 steps"
        options = tuple(
            replace(option, choices=names, help=text) if option.name == "schedule" else option
            for option in options
        )
    return (*options, TEXT_OPTION, replace(POOLING_OPTION, default="avg"), *ENCODER_OPTIONS)


@add_method
class CT(Tension):
    """Contrastive tension."""

    objective = PairObjective
    card = MethodCard(
        name="ct",
        printed="CT",
        family="contrastive",
        adds="a second encoder in place of dropout views; dot products, each pair judged on its own",
        cites=("carlsson-etal-2021-semantic",),
        tags=("two towers",),
        passes=3.2,
        encoders=(HeldEncoder(views=16 / 30, returned=True), HeldEncoder(views=16 / 30)),
        kind="baseline",
        summary="contrastive tension: two encoders whose dot product tells equal sentences from two",
        version=1,
        paper=PAPER,
        code="FreddeFrallan/Contrastive-Tension 75293a8, and sentence-transformers 6.2.0, "
        "losses/contrastive_tension.py",
        equations=(
            "u = mean of F1's last states of x, v that of F2's of y, specials included; F1 = F2 at the start",
            "a group: (x, x), and K pairs (x, y) of different sentences",
            "L = mean over all pairs of -log sigma(u . v) where equal, -log(1 - sigma(u . v)) otherwise",
            "g2 <- 0.9 g2 + 0.1 g^2; w <- w - lr g / (sqrt(g2) + 1e-7), both encoders' weights",
            INFERENCE,
        ),
        needs=(),
        options=(
            Option("negatives", 7, "K, pairs of different sentences for each pair of equal ones", minimum=1),
            Option(
                "pairs",
                "released",
                "two different sentences: of their own for each pair (released), or the group's and another",
                ("released", "paper"),
            ),
            Option(
                "optimizer",
                "rmsprop",
                "RMSProp with TensorFlow's constants (published), or AdamW",
                ("rmsprop", "adamw"),
            ),
            *tension_options(
                stairs=True,
                **{"lr": 1e-5, "batch_size": 30, "steps": 5000, "eval_every": 500, "max_length": 75},
                **{"dropout": 0.0, "clip": 0.0, "schedule": "stairs"},
            ),
        ),
        deviations=(
            "batch_size counts sentences: 30 are the released 16 pairs at K=7; a last group may be smaller",
            "the paper's figure, by sentence-transformers' guide, pairs a sentence with all others of its "
            "group (pairs=paper: 16 sentences make 16 pairs); both released codes draw two for each pair",
            "steps: 5,000 of the authors' code, ten times 500; the paper's number is not verified",
            "released: sentences are drawn with replacement; here a permutation an epoch",
            "the mean of the pairs' losses, as in the authors' code; sentence-transformers: their sum",
            "no dropout, as in the authors' code (training=False); sentence-transformers: the backbone's own",
            "released: the better of both encoders on the dev set is kept; here the second one, as in "
            "sentence-transformers",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a batch without a pair of different sentences."""
        form = str(options["pairs"])
        least = 2 if form == "paper" else 3
        refuse_batch_size(options, "ct", least, f"no pair of different sentences with pairs={form}")
        return super().stages(options)


@add_method
class CTBatch(Tension):
    """Contrastive tension with in-batch negatives."""

    objective = BatchObjective
    card = MethodCard(
        name="ct_batch",
        printed="CT (in-batch)",
        family="contrastive",
        adds="a second encoder for the second view; a learned scale, both directions",
        cites=("carlsson-etal-2021-semantic",),
        tags=("two towers", "dropout views"),
        passes=6.0,
        encoders=(HeldEncoder(views=1, returned=True), HeldEncoder(views=1)),
        kind="baseline",
        summary="contrastive tension with in-batch negatives: InfoNCE between two encoders, both directions",
        version=1,
        paper=PAPER,
        code="sentence-transformers 6.2.0, losses/contrastive_tension.py, "
        "ContrastiveTensionLossInBatchNegatives",
        equations=(
            "u_i = mean of F1's last states of x_i, v_i that of F2's; F1 = F2 at the start, own dropout each",
            "S_ij = exp(a) u_i . v_j, a learnt from log scale; similarity=cos: exp(a) cos(u_i, v_j)",
            "L = (mean_i -log softmax_j(S_ij)_i + mean_j -log softmax_i(S_ij)_j) / 2",
            INFERENCE,
        ),
        needs=(Need(DROPOUT),),
        options=(
            Option(
                "similarity",
                "dot",
                "dot product (released example), or cosine (with scale 20)",
                ("dot", "cos"),
            ),
            Option("scale", 1.0, "exp(a) at the start", minimum=1e-4),
            Option("warmup", 0.128, "share of the steps over which the rate rises", minimum=0, maximum=1),
            Option("decay_all", False, "weight decay on biases and LayerNorms too"),
            Option("drop_last", True, "leave out an epoch's last batch where it is short"),
            *tension_options(lr=5e-5, batch_size=128, eval_every=1000, max_length=75, weight_decay=0.01),
        ),
        deviations=(
            "no paper: an improvement in sentence-transformers, settings of its example",
            "warm-up: 0.128 of the steps are the released 1,000 of 7,812",
            "float32 throughout; the released example uses fp16 autocast",
        ),
    )
