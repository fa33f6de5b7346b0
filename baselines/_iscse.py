"""What IS-CSE trains: dropout views, and a positive smoothed over its group in a memory of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bench.nn.device import float64_device
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext, planned_steps
from bench.train.heads import EncoderWithHead
from bench.train.momentum import VectorQueue
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_sentence_encoder


def smoothed(anchors: Tensor, keys: Tensor, members: Tensor, tau: float) -> Tensor:
    """Return the vector of each anchor's group: its self-attention over it (He et al. 2023).

    s_i = sum_k softmax_k(a_i k / tau) k over the keys k of i's group. Gradient flows through both.

    Args:
        anchors: a, (B, H), of length 1.
        keys: k, (K, H), of length 1.
        members: (B, K), True where a key is in an anchor's group; no group may be empty.
        tau: What the scores are divided by, above 0; infinite for the mean of the group.

    Returns:
        (B, H), within the unit ball; the anchor where it is alone in its group.

    Raises:
        ValueError: shapes that don't fit, or a temperature that isn't above 0.

    Example:
        >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> group = torch.tensor([[True, True]])
        >>> smoothed(keys[:1], keys, group, tau=2.0)  # e^0.5 : 1
        tensor([[0.6225, 0.3775]])
        >>> smoothed(keys[:1], keys, group, tau=math.inf)
        tensor([[0.5000, 0.5000]])
    """
    if anchors.ndim != 2 or members.shape != (len(anchors), len(keys)) or keys.shape[1:] != anchors.shape[1:]:
        raise ValueError(
            f"anchors {tuple(anchors.shape)}, keys {tuple(keys.shape)} and members {tuple(members.shape)} "
            "must be (B, H), (K, H) and (B, K)"
        )
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
    scores = (anchors @ keys.T / tau).masked_fill(~members, -math.inf)
    return scores.softmax(dim=1) @ keys


def neighbours(anchors: Tensor, memory: Tensor, count: int) -> Tensor:
    """Return where the memory's vectors are the nearest of each anchor, the very nearest left out.

    Args:
        anchors: (B, H), of length 1.
        memory: (M, H), of length 1.
        count: How many, less than M.

    Returns:
        (B, M), ``count`` True in a row.

    Example:
        >>> memory = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
        >>> neighbours(memory[1:2], memory, 1)
        tensor([[ True, False, False]])
    """
    nearest = (anchors @ memory.T).topk(count + 1, dim=1).indices[:, 1:]
    return torch.zeros(len(anchors), len(memory), dtype=torch.bool, device=anchors.device).scatter(
        1, nearest, True
    )


def principal_groups(vectors: Tensor, count: int) -> Tensor:
    """Return a group of each vector: principal direction divisive partitioning (Boley 1998, unverified).

    The vectors are centred once. ``count`` - 1 times the largest group is cut in two by the sign of its
    vectors' projection on its own first principal direction, the first left singular vector of the group as
    columns; the group's first vector keeps its label. Where all have one sign the cut does nothing.

    Args:
        vectors: (N, H), without gradient.
        count: Groups, at most.

    Returns:
        (N,), labels 0 to count - 1.

    Example:
        >>> principal_groups(torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]), 2).tolist()
        [0, 0, 1]
    """
    centred = vectors - vectors.mean(0)
    labels = torch.zeros(len(vectors), dtype=torch.long, device=vectors.device)
    numbers = torch.arange(count, device=vectors.device)[:, None]
    for fresh in range(1, count):
        largest = (labels == numbers).sum(1).argmax()
        inside = labels == largest
        group = centred * inside[:, None]
        gram = group.T @ group
        found = torch.linalg.eigh(gram.to(float64_device(gram.device)))  # MPS has no eigenvectors
        direction = found.eigenvectors[:, -1].to(gram.device)
        above = group @ direction > 0
        first = above.gather(0, inside.long().argmax(0, keepdim=True))  # keeps its label, whatever the sign
        labels = labels.masked_fill(inside & (above != first), fresh)
    return labels


def weight_at(step: int, steps: int, schedule: str, last: float, first: float) -> float:
    """The smoothed term's weight at a step, counted from 0, of so many.

    ``constant``: ``last``. ``cosine``: min(last, cos(pi t / T) (first - last) + last), ``first`` at t = 0 and
    ``last`` from T / 2 on.

    >>> [round(weight_at(t, 8, "cosine", 0.05, 0.005), 4) for t in (0, 2, 4, 7)]
    [0.005, 0.0182, 0.05, 0.05]
    """
    if schedule == "constant":
        return last
    return min(last, math.cos(math.pi * step / steps) * (first - last) + last)


class Smoothing(NamedTuple):
    """What a step of IS-CSE reads.

    Args:
        views: The sentences twice.
        weight: alpha_t, a scalar.
    """

    views: TokenBatch
    weight: Tensor


class ISCSEObjective(EncoderWithHead):
    """Token rows to InfoNCE between two dropout views, and to the weighted one with smoothed positives.

    The second views join the memory before the groups are looked for, so a vector's own copy is in it.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, and its text's length for the weight's schedule.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config = context.config
        self.tau, self.config = float(config["tau"]), config
        attends = config["aggregation"] == "attention"
        self.attention_tau = float(config["attention_tau"]) if attends else math.inf
        self.count, self.by_neighbours = int(config["neighbours"]), config["grouping"] == "knn"
        self.memory = VectorQueue(int(config["buffer"]))
        self.step, self.steps = 0, planned_steps(config, len(context.sentences))

    def prepare(self, batch: Sequence[list[int]]) -> Smoothing:
        """Both views, which differ by their dropout masks alone, and the step's weight."""
        schedule, last, first = (self.config[name] for name in ("alpha_schedule", "alpha", "alpha_start"))
        weight = weight_at(self.step, self.steps, str(schedule), float(last), float(first))
        self.step += 1
        return Smoothing(self.tokens([*batch, *batch]), torch.tensor(weight, dtype=torch.float64))

    def compute(self, prepared: Smoothing) -> Tensor:
        """The smoothed term counts from the step on that fills the memory."""
        anchors, positives = self.projected(prepared.views).chunk(2)
        loss = info_nce(anchors, positives, self.tau)
        unit = functional.normalize(positives, dim=1)
        self.memory.push(unit)
        memory = self.memory.vectors
        if memory is None or len(memory) < self.memory.size:
            return loss
        smooth = info_nce(anchors, self.smooth(unit, memory), self.tau)
        return loss + prepared.weight.to(loss) * smooth

    def smooth(self, unit: Tensor, memory: Tensor) -> Tensor:
        """The smoothed positives; their newest copies are the memory's last ones."""
        batch = len(unit)
        if self.by_neighbours:
            own = torch.eye(batch, dtype=torch.bool, device=unit.device)
            members = torch.cat([own, neighbours(unit.detach(), memory, self.count)], dim=1)
            return smoothed(unit, torch.cat([unit, memory]), members, self.attention_tau)
        keys = torch.cat([unit, memory[:-batch]])
        labels = principal_groups(keys.detach(), len(keys) // self.count)
        return smoothed(unit, keys, labels[:batch, None] == labels, self.attention_tau)


def train(context: StageContext) -> dict[str, Any]:
    """Train with a smoothed positive: the stage, as :func:`bench.train.sentence_encoder.train_towers`."""
    return train_sentence_encoder(context, lambda model, pad_id: ISCSEObjective(model, pad_id, context))
