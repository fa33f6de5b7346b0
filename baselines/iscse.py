"""IS-CSE: SimCSE with a second positive, smoothed over its neighbours in a memory of earlier vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec, planned_steps
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options


def smooth_anchors(
    anchors: torch.Tensor, keys: torch.Tensor, members: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return each unit anchor's self-attention over the keys (K, H) of its group, (B, H) (He et al. 2023).

    The members are (B, K), at least one a row. An infinite tau gives the mean of the group.
    """
    if anchors.ndim != 2 or members.shape != (len(anchors), len(keys)) or keys.shape[1:] != anchors.shape[1:]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (anchors, keys, members))
        raise ValueError(f"anchors, keys and members {shapes} must be (B, H), (K, H) and (B, K)")
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
    scores = (anchors @ keys.T / tau).masked_fill(~members, -math.inf)
    return scores.softmax(dim=1) @ keys


def find_memory_neighbours(anchors: torch.Tensor, memory: torch.Tensor, count: int) -> torch.Tensor:
    """Mark the memory's ``count`` nearest vectors of each anchor after the very nearest, (B, M)."""
    nearest = (anchors @ memory.T).topk(count + 1, dim=1).indices[:, 1:]
    marks = torch.zeros(len(anchors), len(memory), dtype=torch.bool, device=anchors.device)
    return marks.scatter(1, nearest, True)


def group_by_direction(vectors: torch.Tensor, count: int) -> torch.Tensor:
    """Label vectors (N, H) by principal direction divisive partitioning (Boley 1998, unverified).

    The vectors are centred once. ``count`` - 1 times the largest group is cut in two by the sign of its
    vectors' projection on its own first principal direction, the first left singular vector of the group as
    columns; the group's first vector keeps its label. Where all have one sign the cut changes nothing.
    """
    centred = vectors - vectors.mean(0)
    labels = torch.zeros(len(vectors), dtype=torch.long, device=vectors.device)
    numbers = torch.arange(count, device=vectors.device)[:, None]
    for fresh in range(1, count):
        largest = (labels == numbers).sum(1).argmax()
        inside = labels == largest
        group = centred * inside[:, None]
        gram = group.T @ group
        axes = torch.linalg.eigh(gram.to(nn.float64_device(gram.device)))  # MPS has no eigenvectors
        direction = axes.eigenvectors[:, -1].to(gram.device)
        above = group @ direction > 0
        first = above.gather(0, inside.long().argmax(0, keepdim=True))  # keeps its label, whatever the sign
        labels = labels.masked_fill(inside & (above != first), fresh)
    return labels


def smoothing_weight(step: int, steps: int, schedule: str, last: float, first: float) -> float:
    """Return the smoothed term's weight: constant, or a cosine from ``first`` to ``last`` at T / 2."""
    if schedule == "constant":
        return last
    return min(last, math.cos(math.pi * step / steps) * (first - last) + last)


class ISCSEStep(NamedTuple):
    """Inputs of a step: the sentences twice, and alpha_t as a scalar."""

    views: nn.TokenBatch
    weight: torch.Tensor


class ISCSEObjective(training.EncoderWithHead):
    """Token rows to InfoNCE of two views, and with smoothed positives; the memory holds the second views."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config = context.config
        self.tau, self.config = float(config["tau"]), config
        attends = config["aggregation"] == "attention"
        self.attention_tau = float(config["attention_tau"]) if attends else math.inf
        self.count, self.by_neighbours = int(config["neighbours"]), config["grouping"] == "knn"
        self.memory = training.VectorQueue(int(config["buffer"]))
        self.step, self.steps = 0, planned_steps(config, len(context.sentences))

    def prepare(self, batch: Sequence[list[int]]) -> ISCSEStep:
        """Put both dropout views into a batch; compute the step's weight."""
        schedule, last, first = (self.config[name] for name in ("alpha_schedule", "alpha", "alpha_start"))
        weight = smoothing_weight(self.step, self.steps, str(schedule), float(last), float(first))
        self.step += 1
        return ISCSEStep(self.tokens([*batch, *batch]), torch.tensor(weight, dtype=torch.float64))

    def compute(self, prepared: ISCSEStep) -> torch.Tensor:
        """Add the smoothed term from the step on that fills the memory."""
        anchors, positives = self.projected(prepared.views).chunk(2)
        loss = losses.info_nce(anchors, positives, self.tau)
        unit = torch.nn.functional.normalize(positives, dim=1)
        self.memory.push(unit)
        memory = self.memory.vectors
        if memory is None or len(memory) < self.memory.size:
            return loss
        smooth = losses.info_nce(anchors, self.smooth(unit, memory), self.tau)
        return loss + prepared.weight.to(loss) * smooth

    def smooth(self, unit: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Smooth the positives; their newest copies are the memory's last ones."""
        batch = len(unit)
        if self.by_neighbours:
            own = torch.eye(batch, dtype=torch.bool, device=unit.device)
            members = torch.cat([own, find_memory_neighbours(unit.detach(), memory, self.count)], dim=1)
            return smooth_anchors(unit, torch.cat([unit, memory]), members, self.attention_tau)
        keys = torch.cat([unit, memory[:-batch]])
        labels = group_by_direction(keys.detach(), len(keys) // self.count)
        return smooth_anchors(unit, keys, labels[:batch, None] == labels, self.attention_tau)


@add_method
class ISCSE(TrainedOnce):
    """IS-CSE."""

    card = MethodCard(
        name="iscse",
        printed="IS-CSE",
        family="contrastive",
        adds="a second positive, the vector smoothed over its nearest vectors in a memory of earlier ones",
        cites=("he-etal-2023-instance",),
        tags=("dropout views", "buffer"),
        passes=6.0,
        kind="baseline",
        summary="SimCSE whose positive is also smoothed over its neighbours in a memory of earlier vectors",
        version=1,
        paper="He, Zhang, Lan, Zhang 2023, Instance Smoothed Contrastive Learning for Unsupervised Sentence "
        "Embedding",
        code="dll-wu/IS-CSE 10757da",
        equations=(
            "z = tanh(W h_cls + b), z' of the second dropout view; u' = z' / |z'|",
            "M: the newest `buffer` vectors u', this batch's among them, without gradient",
            "G_i = u'_i and `neighbours` vectors of M, those nearest to u'_i after the nearest one",
            "s_i = sum over g in G_i of softmax_g(u'_i g / attention_tau) g; aggregation=mean: their mean",
            "nce(a, b) = mean_i -log softmax_j(cos(a_i, b_j) / tau)_i",
            "L = nce(z, z') + alpha_t nce(z, s), the second term once M is full",
            "alpha_schedule=cosine: alpha_t = min(alpha, cos(pi t / T) (alpha_start - alpha) + alpha)",
            "grouping=pddp: G_i = the group of u'_i among this batch's u' and the rest of M, cut in two "
            "repeatedly, each time the largest group along its first principal direction",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("buffer", 1024, "vectors of the memory", minimum=2),
            Option("neighbours", 16, "vectors of the memory in a group; pddp: its mean size", minimum=1),
            Option(
                "grouping",
                "knn",
                "groups: nearest neighbours, or principal direction divisive partitioning (released, off)",
                ("knn", "pddp"),
            ),
            Option(
                "aggregation",
                "attention",
                "a group's vector: by self-attention, or its mean (released, off)",
                ("attention", "mean"),
            ),
            Option("attention_tau", 2.0, "temperature of the attention's scores", minimum=1e-4),
            Option("alpha", 0.1, "weight of the smoothed term; cosine: its last value", minimum=0),
            Option(
                "alpha_schedule",
                "constant",
                "the weight: constant (base models), or rising by a cosine over the first half of the steps "
                "(large ones, with alpha=0.05)",
                ("constant", "cosine"),
            ),
            Option("alpha_start", 0.005, "alpha_schedule=cosine: its first value", minimum=0),
            *usual_options(),
        ),
        deviations=(
            "read in the released code; differences from the paper are unverified",
            "released: a group leaves out the nearest vector of the memory, as a rule the own one's copy",
            "pddp: of equally large groups the oldest is cut next; released: another one may be",
            "pddp with aggregation=mean: the released code stops with an error",
            "left out: a masked-LM term, off in the released scripts (simcse has it)",
            ADAMW_EPS,
        ),
        published_names=(("iscse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: too small a memory, or a falling weight."""
        buffer, neighbours, batch = (int(options[n]) for n in ("buffer", "neighbours", "batch_size"))
        if buffer < max(batch, neighbours + 1):
            expected = f"at least a batch, {batch}, and a group, {neighbours + 1}"
            raise InputError(f"a memory of {buffer} vectors", where="iscse.buffer", expected=expected)
        if options["alpha_schedule"] == "cosine" and float(options["alpha_start"]) > float(options["alpha"]):
            message = f"alpha_start {options['alpha_start']} is above alpha {options['alpha']}"
            raise InputError(message, where="iscse.alpha_start", expected="a weight that rises")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with a smoothed positive, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(ISCSEObjective, context=context))
