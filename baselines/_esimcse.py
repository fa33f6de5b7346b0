"""What ESimCSE trains: repeated subwords or words in the positive, and a momentum queue of negatives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_tau
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone, token_rows
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.augment import repeat_subwords, repeat_words, repetition_bound
from bench.train.chunks import batch_states
from bench.train.heads import EncoderWithHead
from bench.train.momentum import MomentumCopy, VectorQueue
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator
from bench.train.teachers import cosine_matrix


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

    Example:
        >>> view = torch.tensor([[1.0, 0.0]])
        >>> round(queue_nce(view, view, None, tau=1.0).item(), 4)  # no negatives
        0.0
        >>> round(queue_nce(view, view, torch.tensor([[0.0, 3.0]]), tau=1.0).item(), 4)  # ln(e + 1) - 1
        0.3133
    """
    if queue is None:
        return info_nce(anchors, positives, tau)
    if anchors.shape != positives.shape or anchors.ndim != 2 or queue.shape[1:] != anchors.shape[1:]:
        raise ValueError(
            f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must be (B, H), "
            f"the queue {tuple(queue.shape)} (M, H)"
        )
    check_tau(tau)
    similarity = cosine_matrix(anchors, torch.cat([positives, queue])) / tau
    return functional.cross_entropy(similarity, torch.arange(len(anchors), device=anchors.device))


class Repeated(NamedTuple):
    """What a step of ESimCSE reads.

    Args:
        views: The sentences, and after them their repeated positives.
        sentences: The sentences alone, for the momentum copy.
        fresh: An epoch begins: the queue is emptied.
    """

    views: TokenBatch
    sentences: TokenBatch | None
    fresh: bool


class ESimCSEObjective(EncoderWithHead):
    """(Sentence number, token row) pairs to the loss of a step.

    The momentum copy moves in the forward pass, before the optimiser step; its vectors of this batch join the
    queue after the loss, so a batch never meets its own.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, its text, and the streams of the repetition.
        tokenizer: Reads sentences with repeated words.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext, tokenizer: Any) -> None:
        super().__init__(model, pad_id)
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer) if repeats_words(context) else None
        config, self.context = context.config, context
        self.tau, size = float(config["tau"]), int(config["queue"])
        self.rate, self.rule = float(config["repetition_rate"]), str(config["repetition_rule"])
        self.anew = config["repetition_resample"] == "per_epoch"
        start = random_start(model) if config["momentum_init"] == "random" and size else None
        self.slow = MomentumCopy(model, float(config["momentum"]), start=start) if size else None
        self.queue = VectorQueue(size) if size else None
        self.seen = 0

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> Repeated:
        """Draw the positives; without a queue the copy reads nothing."""
        epoch, place = divmod(self.seen, len(self.context.sentences))
        self.seen += len(batch)
        rows = [row for _, row in batch]
        repeated = [self.positive(number, row, epoch if self.anew else 0) for number, row in batch]
        copied = None if self.slow is None else self.tokens(rows)
        return Repeated(self.tokens([*rows, *repeated]), copied, place == 0)

    def compute(self, prepared: Repeated) -> Tensor:
        """Anchors and repeated positives go through one call."""
        anchors, positives = self.projected(prepared.views).chunk(2)
        if self.slow is None or self.queue is None or prepared.sentences is None:
            return info_nce(anchors, positives, self.tau)
        self.slow.update(self.encoder)
        if prepared.fresh:
            self.queue.clear()
        loss = queue_nce(anchors, positives, self.queue.vectors, self.tau)
        with torch.no_grad():
            states = batch_states(self.slow.model, prepared.sentences)
            self.queue.push(torch.tanh(self.head(states)))
        return loss

    def positive(self, number: int, row: list[int], epoch: int) -> list[int]:
        """A sentence's draw has its own stream: the same whenever and in whatever order it comes."""
        draw = generator(self.context.seed, f"augment/{self.context.role}/{epoch}/{number}")
        if self.tokenizer is not None:
            sentence = repeat_words(self.context.sentences[number], self.rate, draw)
            return token_rows(self.tokenizer, [sentence], int(self.context.config["max_length"]))[0]
        return repeat_subwords(row, self.rate, draw, self.rule)


def repeats_words(context: StageContext) -> bool:
    """True if whole words are repeated, before a sentence is cut into tokens."""
    return context.config.get("repetition_unit") == "word"


def random_start(model: Any) -> Any:
    """Return a network like the model with weights as before any pretraining, from torch's random state."""
    network = type(model)(copy.deepcopy(model.config))
    if getattr(model, "pooler", True) is None:
        network.pooler = None
    return network.to(device=model.device, dtype=model.dtype)


def train(context: StageContext) -> dict[str, Any]:
    """Train on repeated words with a momentum queue: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a ``max_length`` that repeated words make longer than the model's longest input.
    """
    config = context.config
    backbone = load_backbone(context.model)
    kept, room = int(config["max_length"]), TransformerEncoder(backbone).max_length
    longest = kept + repetition_bound(kept, float(config["repetition_rate"]), str(config["repetition_rule"]))
    if longest > room and not repeats_words(context):
        raise InputError(
            f"max_length {kept} grows to {longest} tokens with the repeated ones, the model takes {room}",
            expected=f"a max_length below {room}",
            hint="set a smaller esimcse.max_length or esimcse.repetition_rate",
        )
    return train_towers(
        context,
        [backbone],
        lambda model, pad_id: ESimCSEObjective(model, pad_id, context, backbone[1]),
        numbered=True,
    )
