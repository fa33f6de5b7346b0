"""The loss of learning without negatives."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from bench.losses.argument_checks import check_same_shape


def byol_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return mean_i (2 - 2 cos(q_i, y_i)) (Grill et al. 2020, eq. 2; Zhang et al. 2021; Cagatan 2024).

    Gradient flows through both; :class:`bench.training.byol.Bootstrap` gives constant targets.

    Args:
        predictions: q, (B, H).
        targets: y, (B, H).

    Returns:
        Scalar, 0 (equal directions) to 4 (opposite ones); 2 where a vector is zero.

    Raises:
        ValueError: different shapes.

    Example:
        >>> import torch
        >>> predictions = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> byol_loss(predictions, torch.tensor([[1.0, 0.0], [1.0, 0.0]])).item()  # 0 and 2
        1.0
    """
    check_same_shape("(B, H)", predictions=predictions, targets=targets)
    unit, goal = (functional.normalize(x, dim=1, eps=1e-8) for x in (predictions, targets))
    return (2 - 2 * (unit * goal).sum(1)).mean()
