"""What WhitenedCSE trains: several views, whitened in groups of channels under the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.architecture import state_size
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.augment import repeat_subwords
from bench.train.chunks import batch_states
from bench.train.group_whitening import whiten_views
from bench.train.heads import EncoderWithHead
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_sentence_encoder
from bench.train.streams import generator


def multi_positive_nce(views: Sequence[Tensor], tau: float) -> Tensor:
    """WhitenedCSE's loss: L = sum_k InfoNCE(z_1, z_k), k = 2 ... K (Zhuo et al. 2023).

    InfoNCE is :func:`bench.train.recipe.info_nce`. The first view's rows are the anchors of every term;
    gradient flows through all views.

    Args:
        views: z_1 ... z_K, (B, H) each, row i of all belongs to sentence i.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; (K - 1) ln B for equal rows; 0 for B = 1.

    Raises:
        ValueError: fewer than two views, different shapes, or a temperature that isn't above 0.

    Example:
        >>> view = torch.ones(4, 2)
        >>> round(multi_positive_nce([view, view, view], tau=0.05).item(), 4)  # 2 ln 4
        2.7726
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} view(s): a positive needs a second one")
    return torch.stack([info_nce(views[0], view, tau) for view in views[1:]]).sum()


def automatic_groups(channels: int, rows: int) -> int:
    """Groups that leave each at most half as many channels as a step has rows: G >= 2 H / N, G divides H.

    Args:
        channels: H.
        rows: N, of all views together.

    Example:
        >>> automatic_groups(768, 3 * 128)  # 192 channels each
        4
        >>> automatic_groups(768, 3 * 100)  # 5.12, of which the released code makes 6
        6
        >>> automatic_groups(768, 4)
        384
    """
    return next((g for g in range(-(-2 * channels // rows), channels) if channels % g == 0), channels)


class WhitenedCSEObjective(EncoderWithHead):
    """Token rows to the loss on z = tanh(W SGW(h) + b) of several views.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, and the streams of the channels' orders and of repeated subwords.

    Raises:
        InputError: groups that don't divide the channels.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config = context.config
        self.size, self.groups = state_size(model), int(config["groups"])
        self.views = int(config["views"])
        self.tau, self.eps, self.rate = (float(config[name]) for name in ("tau", "eps", "repetition_rate"))
        self.through, self.engine = bool(config["grad_through_whitening"]), str(config["engine"])
        # released: one group keeps its order, which a triangular root alone notices
        self.shuffle = bool(config["shuffle"]) and (self.engine, self.groups) != ("cholesky", 1)
        self.orders, self.repetitions = (
            generator(context.seed, f"{name}/{context.role}") for name in ("order", "augment")
        )
        if self.groups and self.size % self.groups:
            raise InputError(
                f"{self.groups} groups don't divide the backbone's {self.size} channels",
                where="whitenedcse.groups",
                expected=f"a divisor of {self.size}",
            )
        if self.through and self.engine == "lowrank":
            raise InputError(
                "the gradient through lowrank's matrices jumps where eigenvalues change places",
                where="whitenedcse.grad_through_whitening",
                expected="engine=zca or engine=cholesky with it",
            )

    def prepare(self, batch: Sequence[list[int]]) -> tuple[TokenBatch, Tensor]:
        """All first views before all second ones, and so on; and each view's order of channels."""
        others = [
            repeat_subwords(row, self.rate, self.repetitions) for _ in range(self.views - 1) for row in batch
        ]
        return self.tokens([*batch, *others]), torch.stack([self.order() for _ in range(self.views)])

    def compute(self, prepared: tuple[TokenBatch, Tensor]) -> Tensor:
        """One call of the transformer; each view is whitened apart."""
        tokens, orders = prepared
        states = batch_states(self.encoder, tokens).chunk(self.views)
        groups = self.groups or automatic_groups(self.size, len(states) * len(states[0]))
        whitened = whiten_views(
            states, orders, groups, eps=self.eps, through=self.through, engine=self.engine
        )
        return multi_positive_nce([torch.tanh(self.head(view)) for view in whitened], self.tau)

    def order(self) -> Tensor:
        """The channels as the groups are cut from them, drawn anew for each view unless switched off."""
        return torch.randperm(self.size, generator=self.orders) if self.shuffle else torch.arange(self.size)


def train(context: StageContext) -> dict[str, Any]:
    """Train with shuffled group whitening: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: ``groups`` that don't divide the backbone's channels.
    """
    return train_sentence_encoder(context, lambda model, pad_id: WhitenedCSEObjective(model, pad_id, context))
