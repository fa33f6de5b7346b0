"""Cross-entropy over a batch's similarities by blocks of rows, without the whole (B, B) matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_asked: list[int] = []  # innermost last


@contextmanager
def split_similarities(rows: int) -> Iterator[None]:
    """Compute InfoNCE within the block by at most so many rows at a time; 0 for all at once.

    A batch of B otherwise holds about six (B, B) matrices: 400 MB at B = 4,096. Losses and gradients stay the
    same up to rounding.

    Example:
        >>> from bench.losses.contrastive import info_nce
        >>> views = torch.eye(4)
        >>> with split_similarities(2):
        ...     round(info_nce(views, views, tau=1.0).item(), 4)  # ln(1 + 3 / e)
        0.7437
    """
    _asked.append(rows)
    try:
        yield
    finally:
        _asked.pop()


def classify_rows(
    anchors: Tensor, candidates: Tensor, targets: Tensor, tau: float, *, without_own: bool = False
) -> Tensor | None:
    """Return the mean cross-entropy of each row's similarities a_i . c_j / tau, a scalar.

    None where all rows are wanted at once: the caller then has the plain way.

    Args:
        anchors: a, (B, H).
        candidates: c, (C, H).
        targets: Right candidate of each anchor, (B,).
        tau: Temperature, above 0.
        without_own: Leave candidate i out for anchor i.
    """
    rows = _asked[-1] if _asked else 0
    if not rows or len(anchors) <= rows:
        return None
    apply: Callable[..., Tensor] = _BlockedCrossEntropy.apply
    return apply(anchors, candidates, targets, (tau, rows, without_own))


class _BlockedCrossEntropy(torch.autograd.Function):
    """Computes the gradient of each block with its loss, so that a block's similarities are dropped at once.

    With p = softmax(a_i . c / tau) and y = one-hot(target) a row's gradient to its similarities is
    (p - y) / (tau B).
    """

    @staticmethod
    def forward(
        ctx: Any, anchors: Tensor, candidates: Tensor, targets: Tensor, given: tuple[float, int, bool]
    ) -> Tensor:
        """Map (B, H) and (C, H) to a scalar."""
        tau, size, without_own = given
        total = anchors.new_zeros(())
        to_anchors, to_candidates = torch.empty_like(anchors), torch.zeros_like(candidates)
        numbers = torch.arange(len(anchors), device=anchors.device)
        for block in torch.split(numbers, size):
            rows, right, places = anchors[block], targets[block], numbers[: len(block)]
            logits = (rows @ candidates.T).div_(tau)
            if without_own:
                logits[places, block] = -torch.inf
            shares = logits.log_softmax(1)
            total -= shares[places, right].sum()
            shares.exp_()
            shares[places, right] -= 1
            shares.div_(tau * len(anchors))
            to_anchors[block] = shares @ candidates
            to_candidates += shares.T @ rows
        ctx.save_for_backward(to_anchors, to_candidates)
        return total / len(anchors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the gradients."""
        to_anchors, to_candidates = ctx.saved_tensors
        return gradient * to_anchors, gradient * to_candidates, None, None
