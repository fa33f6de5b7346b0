"""What objectives on labelled pairs share: the token rows of their columns, and the contrastive loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike, check_tau
from bench.nn.backbone import TokenRows
from bench.stages import StageContext
from bench.train.recipe import info_nce


class Columns:
    """Token rows of the positives and, where there are any, of the hard negatives.

    Args:
        tokenizer: The model's.
        context: The stage.
    """

    def __init__(self, tokenizer: Any, context: StageContext) -> None:
        longest = int(context.config["max_length"])
        others = filter(None, (context.partners, context.negatives))
        self._others = [TokenRows(tokenizer, column, longest) for column in others]

    @property
    def count(self) -> int:
        """Columns, the sentences' own among them: 2 of pairs, 3 of triplets."""
        return 1 + len(self._others)

    def rows(self, batch: Sequence[tuple[int, list[int]]]) -> list[list[int]]:
        """Return a batch's sentences, then their positives, then their hard negatives."""
        own = [row for _, row in batch]
        return [*own, *(column[number] for column in self._others for number, _ in batch)]


def hard_negative_nce(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None, tau: float, weight: float = 0.0
) -> Tensor:
    """Supervised SimCSE's loss: cross-entropy against all positives and all hard negatives of the batch.

    S_ij = cos(z_i, z^+_j) / tau, N_ij = cos(z_i, z^-_j) / tau + w [i = j];
    loss = mean_i -log softmax([S_i ; N_i])_i, w the logarithm of alpha, the weight of an anchor's own hard
    negative. Without hard negatives :func:`bench.train.recipe.info_nce`. Gradient flows through all of them
    (Gao et al. 2021, eq. 5, and the weight of its appendix).

    Args:
        anchors: z, (B, H).
        positives: z^+, (B, H).
        negatives: z^-, (B, H), or None.
        tau: Temperature, above 0.
        weight: w, any number.

    Returns:
        Scalar, at least 0; ln 2B for equal rows and w = 0.

    Raises:
        ValueError: different shapes, or a temperature that isn't above 0.

    Example:
        >>> anchors, positives = torch.eye(2), torch.eye(2)
        >>> round(hard_negative_nce(anchors, positives, torch.eye(2), tau=1.0).item(), 4)  # ln(2 + 2 / e)
        1.0064
        >>> round(hard_negative_nce(anchors, positives, torch.eye(2), tau=1.0, weight=-100.0).item(), 4)
        0.5514
    """
    if negatives is None:
        return info_nce(anchors, positives, tau)
    check_alike("(B, H)", anchors=anchors, positives=positives, negatives=negatives)
    check_tau(tau)
    a, p, n = (functional.normalize(x, dim=1, eps=1e-8) for x in (anchors, positives, negatives))
    own = torch.eye(len(a), dtype=a.dtype, device=a.device)
    logits = torch.cat([a @ p.T / tau, a @ n.T / tau + weight * own], dim=1)
    return functional.cross_entropy(logits, torch.arange(len(a), device=a.device))
