"""ESimCSE: SimCSE with repeated subwords in the positive and a momentum queue of further negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    TRAINING_OPTIONS,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
)

if TYPE_CHECKING:
    from torch import Tensor


def queue_nce(anchors: Tensor, positives: Tensor, queue: Tensor | None, tau: float) -> Tensor:
    """ESimCSE's loss: cross-entropy of each anchor against all positives of the batch and the queue.

    S_ij = cos(z_i, z'_j) / tau, N_ik = cos(z_i, q_k) / tau; loss = mean_i -log softmax([S_i ; N_i])_i, and
    without a queue :func:`bench.train.recipe.info_nce`. Only the anchors meet the queue; gradient flows
    through anchors and positives (Wu et al. 2022, momentum contrast).

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        queue: q, (M, H) without gradient, or None.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; ln(B + M) for equal rows; a further row of the queue never makes it smaller.

    Raises:
        ValueError: shapes that don't fit, or a temperature that isn't above 0.
    """
    import torch
    from torch.nn import functional

    from bench.train.teachers import cosine_matrix

    if queue is None:
        return info_nce(anchors, positives, tau)
    if anchors.shape != positives.shape or anchors.ndim != 2 or queue.shape[1:] != anchors.shape[1:]:
        raise ValueError(
            f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must be (B, H), "
            f"the queue {tuple(queue.shape)} (M, H)"
        )
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
    similarity = cosine_matrix(anchors, torch.cat([positives, queue])) / tau
    return functional.cross_entropy(similarity, torch.arange(len(anchors), device=anchors.device))


@dataclass(frozen=True)
class Run:
    """What the repetition's draws and the epochs depend on: seed, stage role, sentences of the text."""

    seed: int
    role: str
    sentences: int


def make_objective(model: Any, pad_id: int, config: Mapping[str, OptionValue], run: Run) -> Any:
    """Return the module: (sentence number, token row) pairs to the loss of a step.

    The momentum copy moves in the forward pass, before the optimiser step; its vectors of this batch join the
    queue after the loss, so a batch never meets its own.

    Args:
        model: The transformer.
        pad_id: Padding id.
        config: tau, queue, momentum, momentum_init, repetition_rate, repetition_rule, repetition_resample.
        run: The run.
    """
    import torch
    from torch import nn

    from bench.train.augment import repeat_subwords
    from bench.train.chunks import cls_states
    from bench.train.momentum import MomentumCopy, VectorQueue
    from bench.train.streams import generator

    tau, size = float(config["tau"]), int(config["queue"])
    rate, rule = float(config["repetition_rate"]), str(config["repetition_rule"])
    anew = config["repetition_resample"] == "per_epoch"

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size)
            start = random_start(model) if config["momentum_init"] == "random" and size else None
            self.slow = MomentumCopy(model, float(config["momentum"]), start=start) if size else None
            self.queue = VectorQueue(size) if size else None
            self.seen = 0

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            epoch, place = divmod(self.seen, run.sentences)
            self.seen += len(batch)
            rows = [row for _, row in batch]
            repeated = [self.positive(number, row, epoch if anew else 0) for number, row in batch]
            vectors = self.project(model, [*rows, *repeated])
            anchors, positives = vectors[: len(rows)], vectors[len(rows) :]
            if self.slow is None or self.queue is None:
                return info_nce(anchors, positives, tau)
            self.slow.update(model)
            if place == 0:
                self.queue.clear()
            loss = queue_nce(anchors, positives, self.queue.vectors, tau)
            with torch.no_grad():
                self.queue.push(self.project(self.slow.model, rows))
            return loss

        def project(self, network: Any, rows: list[list[int]]) -> Tensor:
            return torch.tanh(self.head(cls_states(network, rows, pad_id)))

        def positive(self, number: int, row: list[int], epoch: int) -> list[int]:
            """A sentence's draw has its own stream: the same whenever and in whatever order it comes."""
            draw = generator(run.seed, f"augment/{run.role}/{epoch}/{number}")
            return repeat_subwords(row, rate, draw, rule)

    return Objective()


def random_start(model: Any) -> Any:
    """Return a network like the model with weights as before any pretraining, from torch's random state."""
    import copy

    network = type(model)(copy.deepcopy(model.config))
    if getattr(model, "pooler", True) is None:
        network.pooler = None
    return network.to(device=model.device, dtype=model.dtype)


def train_esimcse(context: StageContext) -> dict[str, Any]:
    """Train on repeated words with a momentum queue: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: a ``max_length`` that repeated words make longer than the model's longest input.
    """
    from bench.nn.backbone import TransformerEncoder, load_backbone
    from bench.train.augment import repetition_bound
    from bench.train.sentence_encoder import train_towers

    config = context.config
    backbone = load_backbone(context.model)
    kept, room = int(config["max_length"]), TransformerEncoder(backbone).max_length
    longest = kept + repetition_bound(kept, float(config["repetition_rate"]), str(config["repetition_rule"]))
    if longest > room:
        raise InputError(
            f"max_length {kept} grows to {longest} tokens with the repeated ones, the model takes {room}",
            expected=f"a max_length below {room}",
            hint="set a smaller esimcse.max_length or esimcse.repetition_rate",
        )
    run = Run(context.seed, context.role, len(context.sentences))
    return train_towers(
        context, [backbone], lambda model, pad_id: make_objective(model, pad_id, config, run), numbered=True
    )


@add_method
class ESimCSE:
    """ESimCSE."""

    card = MethodCard(
        name="esimcse",
        kind="baseline",
        summary="SimCSE with repeated subwords in the positive and a momentum queue of negatives",
        version=1,
        paper="Wu, Gao, Zang, Han, Wang, Hu 2022, ESimCSE: Enhanced Sample Building Method for Contrastive "
        "Learning of Unsupervised Sentence Embedding",
        code="caskcsg/sentemb 5eeec55, ESimCSE",
        equations=(
            "x+: r subwords of x twice in a row, r uniform on 0 ... c - 1, c = min(10, floor(rate n))",
            "z = tanh(W h_cls(x) + b), z' of x+; S_ij = cos(z_i, z'_j) / tau; N_ik = cos(z_i, q_k) / tau",
            "L = mean_i -log softmax([S_i ; N_i])_i",
            "phi <- m phi + (1 - m) theta; q: the newest vectors tanh(W h_cls(x; phi) + b), without dropout",
            "at inference h_cls of the last layer, without the head",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("queue", 160, "vectors of earlier batches that are negatives, 0 for none", minimum=0),
            Option("momentum", 0.995, "m of the momentum encoder, 0 to 1", minimum=0),
            Option(
                "momentum_init",
                "random",
                "what the momentum encoder starts from: random weights (released numbers) or the backbone",
                ("random", "pretrained"),
            ),
            Option("repetition_rate", 0.32, "duplication rate, 0 for no repetition", minimum=0),
            Option(
                "repetition_rule",
                "released",
                "most repetitions: min(10, floor(rate n)) - 1 (released) or max(2, floor(rate N)) (paper)",
                ("released", "paper"),
            ),
            Option(
                "repetition_resample",
                "never",
                "draw a sentence's repetition once (released) or in every epoch",
                ("never", "per_epoch"),
            ),
            *TRAINING_OPTIONS,
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "released: the momentum encoder starts from random weights, a share of momentum^t after t steps; "
            "paper: from the backbone (momentum_init=pretrained); so do the short profiles mini and minilm",
            "released: another bound of the repetition than the paper's (repetition_rule=paper, unverified)",
            "each sentence's repetition is drawn from its own stream of the seed",
            "the mode that repeats whole words is not implemented (off in the released run)",
        ),
        published_names=(("esimcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_esimcse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "esimcse")
