"""Checks of losses' arguments."""

from __future__ import annotations

from torch import Tensor


def check_same_shape(wanted: str, **matrices: Tensor) -> None:
    """Raise ValueError, with the arguments' names, unless all are matrices of one shape.

    ``wanted`` is the shape in letters.

    Example:
        >>> import torch
        >>> check_same_shape("(B, H)", anchors=torch.ones(2, 3), positives=torch.ones(3, 3))
        Traceback (most recent call last):
        ValueError: anchors (2, 3) and positives (3, 3) must be (B, H)
    """
    shapes = [matrix.shape for matrix in matrices.values()]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2:
        *others, last = (f"{name} {tuple(matrix.shape)}" for name, matrix in matrices.items())
        raise ValueError(f"{', '.join(others)} and {last} must be {wanted}")


def check_tau(tau: float) -> None:
    """Raise ValueError unless a temperature is above 0."""
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")
