"""Learning without negatives: an online encoder predicts the vectors of its own moving average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.nn.backbone import IndexedRows
from bench.nn.tokens import TokenBatch
from bench.training.batch_encoding import batch_states, token_batch
from bench.training.momentum import MomentumCopy
from bench.training.two_phase_step import Objective

WIDTH = 10
"""Hidden units of a block, in multiples of its input."""
PairLoss = Callable[[Tensor, Tensor], Tensor]
Batch = Sequence[tuple[int, list[int]]]


def build_predictor(size: int, blocks: int) -> nn.Sequential:
    """Return q: blocks [Linear(H, 10H), BatchNorm, ReLU, Linear(10H, 10H), ReLU, Linear(10H, H)] in sequence.

    Initial weights are torch's own, drawn from its state. In training a BatchNorm's statistics are those of
    the rows of one call.
    """
    wide = WIDTH * size
    layers: list[nn.Module] = []
    for _ in range(blocks):
        layers += [nn.Linear(size, wide), nn.BatchNorm1d(wide), nn.ReLU()]
        layers += [nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, size)]
    return nn.Sequential(*layers)


class _ViewPair(Objective):
    """An encoder under a head, and a loss between two views of a sentence."""

    least = 2  # batch statistics need two

    def __init__(
        self, encoder: Any, head: nn.Module, pad_id: int, *, loss: PairLoss, pooling: str = "avg"
    ) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.pad_id, self.loss, self.pooling = pad_id, loss, pooling

    def tokens(self, *views: Sequence[list[int]]) -> TokenBatch:
        """Build the rows of both views, one after the other."""
        return token_batch([row for view in views for row in view], self.pad_id, self.encoder)

    def vectors(self, model: Any, tokens: TokenBatch) -> tuple[Tensor, ...]:
        """Compute the vectors of the two views in one call, (B, H) each."""
        return batch_states(model, tokens, self.pooling).chunk(2)


class Bootstrap(_ViewPair):
    """The step of a method with a target network: L = d(q(e1), t2) + d(q(e2), t1).

    e and t are a view's vectors under the online encoder and under the target, its moving average (Grill et
    al. 2020, BYOL). q gets each view separately. The target is constant, keeps its dropout, and moves at the
    start of the next step.

    Args:
        encoder: The online transformer; the target starts with its weights.
        head: q, see :func:`build_predictor`.
        pad_id: Padding id.
        loss: d, from two (B, H) to a scalar; its second argument is constant.
        decay: m of the moving average, 0 to 1.
        partners: Token row of each sentence's other view; None: the sentence itself, with other dropout.
        pooling: "avg" or "cls".
        target_head: The target's vectors pass q too; they stay constant.
    """

    def __init__(
        self,
        encoder: Any,
        head: nn.Module,
        pad_id: int,
        *,
        loss: PairLoss,
        decay: float,
        partners: IndexedRows | None = None,
        pooling: str = "avg",
        target_head: bool = False,
    ) -> None:
        super().__init__(encoder, head, pad_id, loss=loss, pooling=pooling)
        self.partners, self.target_head = partners, target_head
        self.target = MomentumCopy(encoder, decay)
        self.target.model.train()
        self.started = False

    def prepare(self, batch: Batch) -> tuple[TokenBatch, bool]:
        """Build both views of (sentence number, token row) pairs; and whether the target moves first."""
        first = [row for _, row in batch]
        second = first if self.partners is None else [self.partners[number] for number, _ in batch]
        tokens, moves = self.tokens(first, second), self.started
        self.started = True
        return tokens, moves

    def compute(self, prepared: tuple[TokenBatch, bool]) -> Tensor:
        """Compute the loss in both directions."""
        tokens, moves = prepared
        if moves:
            self.target.update(self.encoder)
        online = self.vectors(self.encoder, tokens)
        with torch.no_grad():
            target = self.vectors(self.target.model, tokens)
            if self.target_head:
                target = tuple(map(self.head, target))
        return self.loss(self.head(online[0]), target[1]) + self.loss(self.head(online[1]), target[0])


class Projections(_ViewPair):
    """Two dropout views of one encoder under one head, both with gradient: L = d(q(e1), q(e2)), no target."""

    def prepare(self, batch: Sequence[list[int]]) -> TokenBatch:
        """Build both views of token rows."""
        return self.tokens(batch, batch)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """Compute the loss between the views."""
        return self.loss(*map(self.head, self.vectors(self.encoder, prepared)))
