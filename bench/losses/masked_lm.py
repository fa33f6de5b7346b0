"""The loss of a masked language model."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def masked_lm_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over the masked tokens, mean_k -log softmax(logits_k)_{targets_k}; 0 where there is none.

    Args:
        logits: (K, V), of the K masked tokens.
        targets: (K,), their original ids.

    Returns:
        Scalar, at least 0. For K = 0 the released mean is 0 / 0.

    Raises:
        ValueError: unmatched shapes.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 3.0]]).log1p()  # probabilities 1/2 and 1/2, 1/5 and 4/5
        >>> round(masked_lm_loss(logits, torch.tensor([1, 1])).item(), 4)
        0.4581
    """
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        shapes = f"logits {tuple(logits.shape)} and targets {tuple(targets.shape)}"
        raise ValueError(f"{shapes} must be (K, V) and (K,)")
    return functional.cross_entropy(logits, targets) if len(targets) else logits.sum()
