"""From token states to one vector a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def mean_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the attended token states, [CLS] and [SEP] included, padding excluded.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding; every row has at least one token.

    Returns:
        (B, H).
    """
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def last_token(states: Tensor, mask: Tensor) -> Tensor:
    """State of each row's last token that is no padding, (B, H); padding stands on the right.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding.
    """
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


def weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    """sum_i (i / sum_j j) h_i over a row's tokens i = 1 ... n (Muennighoff 2022, SGPT), (B, H).

    In a causal model later tokens have read more. Padding, on the right, weighs nothing.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding.
    """
    positions = torch.arange(1, mask.shape[1] + 1, dtype=torch.float32, device=mask.device) * mask
    weights = positions / positions.sum(1, keepdim=True)
    return (states * weights.to(states.dtype).unsqueeze(-1)).sum(1)


def pool(states: Sequence[Tensor], mask: Tensor, pooling: str, *, first_layer: str = "embedding") -> Tensor:
    """Pool the hidden states of a transformer (Gao et al. 2021, SimCSE, and its evaluation.py).

    Args:
        states: (B, L, H) each: the embedding output, then every layer's output. For "cls" and "avg" the
            last alone is enough.
        mask: (B, L), 1 on tokens and 0 on padding.
        pooling: "cls" the first token of the last layer, before any pooler; "avg" the mean of the last
            layer; "avg_first_last" the mean of the first and the last layer; "avg_last_two" that of the
            last two; "last" and "weighted_mean" see :func:`last_token` and :func:`weighted_mean`.
        first_layer: What "first" means: "embedding" (the embedding output, which gave the published rows
            56.70 and 56.57) or "layer1" (SimCSE's later correction).

    Returns:
        (B, H).

    Raises:
        ValueError: an unknown pooling.
    """
    if pooling == "cls":
        return states[-1][:, 0]
    if pooling == "avg":
        return mean_tokens(states[-1], mask)
    if pooling == "avg_first_last":
        return mean_tokens((states[0 if first_layer == "embedding" else 1] + states[-1]) / 2, mask)
    if pooling == "avg_last_two":
        return mean_tokens((states[-2] + states[-1]) / 2, mask)
    if pooling == "last":
        return last_token(states[-1], mask)
    if pooling == "weighted_mean":
        return weighted_mean(states[-1], mask)
    raise ValueError(f"pooling {pooling!r}")


def masked_token(states: Tensor, ids: Tensor, mask_id: int) -> Tensor:
    """State of the mask token (PromptBERT's embedding).

    Args:
        states: (B, L, H) last layer.
        ids: (B, L) token ids with at least one ``mask_id`` a row; the first counts.
        mask_id: Id of the mask token.

    Returns:
        (B, H).
    """
    position = (ids == mask_id).to(torch.uint8).argmax(1)
    return states[torch.arange(len(states), device=states.device), position]
