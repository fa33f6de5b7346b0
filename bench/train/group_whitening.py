"""Shuffled group whitening: each group of a batch's channels is given mean 0 and covariance 1."""

from __future__ import annotations

import torch
from torch import Tensor


def group_whiten(
    features: Tensor, order: Tensor, groups: int, *, eps: float = 1e-5, through: bool = False
) -> Tensor:
    """Whiten groups of channels over the batch, each group by its own ZCA (Zhuo et al. 2023, WhitenedCSE).

    The channels are put in the given order and cut into G groups; with X (B, H / G) a group's centred rows
    and S = X^T X / B its covariance the group becomes X (S + eps I)^(-1/2), the symmetric root; then the
    channels go back to their places. Covariances are I up to eps for B > H / G; fewer rows leave directions
    without variance, which stay 0. One row gives 0.

    Args:
        features: (B, H).
        order: Permutation of the H channels, (H,).
        groups: G, a divisor of H; 1 whitens all channels together.
        eps: Added to the eigenvalues, above 0.
        through: Gradient also flows through the whitening matrices (exact, at equal eigenvalues too); else
            they are constant and the centred features alone carry it.

    Returns:
        (B, H).

    Raises:
        ValueError: shapes that don't fit, a number of groups that doesn't divide H, or an eps not above 0.
    """
    if features.ndim != 2 or order.shape != features.shape[1:]:
        raise ValueError(
            f"features {tuple(features.shape)} and order {tuple(order.shape)} must be (B, H), (H,)"
        )
    batch, size = features.shape
    if groups < 1 or size % groups:
        raise ValueError(f"{groups} groups don't divide {size} channels")
    if eps <= 0:
        raise ValueError(f"eps {eps} must be above 0")
    shuffled = features[:, order].view(batch, groups, size // groups).transpose(0, 1)
    centred = shuffled - shuffled.mean(1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / batch
    matrix = inverse_root(covariance if through else covariance.detach(), eps)
    whitened = (centred @ matrix).transpose(0, 1).reshape(batch, size)
    return whitened[:, order.argsort()]


def inverse_root(covariance: Tensor, eps: float) -> Tensor:
    """Return (S + eps I)^(-1/2) of symmetric matrices, (G, n, n), with an exact gradient.

    With S = U diag(l) U^T and a = l + eps a change dS changes the result by U (K * U^T dS U) U^T,
    K_ij = -1 / (sqrt(a_i a_j) (sqrt(a_i) + sqrt(a_j))) (Daleckii and Krein 1965): the divided differences of
    a^(-1/2), in a form that equal eigenvalues leave finite where eigenvectors have no gradient.
    """
    fixed = covariance.detach()
    values, vectors = torch.linalg.eigh(fixed)
    roots = (values.clamp(min=0) + eps).sqrt()
    rows, columns, turn = roots.unsqueeze(-1), roots.unsqueeze(-2), vectors.transpose(-1, -2)
    change = turn @ (covariance - fixed) @ vectors  # 0, with the gradient of the covariance
    slope = change / (rows * columns * (rows + columns))
    root: Tensor = (vectors / columns - vectors @ slope) @ turn
    return root
