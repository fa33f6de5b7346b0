"""Contrastive losses: InfoNCE, with a queue or hard negatives; checks of losses' arguments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from bench.losses.similarity_blocks import classify_rows


def check_same_shape(wanted: str, **matrices: Tensor) -> None:
    """Raise ValueError, with the arguments' names, unless all are matrices of one shape.

    ``wanted`` is the shape in letters.

    Example:
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


def info_nce(anchors: Tensor, positives: Tensor, tau: float) -> Tensor:
    """SimCSE's loss: cross-entropy of each anchor against all positives of the batch.

    S_ij = cos(z_i, z'_j) / tau; loss = mean_i -log softmax(S_i)_i. Rows only: B - 1 negatives an anchor, all
    from the second view. Gradient flows through both sides and both norms (Gao et al. 2021, eq. 4).

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; ln B for equal rows; 0 for B = 1.

    Raises:
        ValueError: different shapes, or a temperature of 0 or less.

    Example:
        >>> anchors, positives = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> round(info_nce(anchors, positives, tau=1.0).item(), 4)  # both rows equal: ln 2
        0.6931
        >>> round(info_nce(anchors, anchors, tau=0.05).item(), 4)
        0.0
    """
    check_same_shape("(B, H)", anchors=anchors, positives=positives)
    check_tau(tau)
    unit_a = functional.normalize(anchors, dim=1, eps=1e-8)
    unit_p = functional.normalize(positives, dim=1, eps=1e-8)
    right = torch.arange(len(anchors), device=anchors.device)
    blocked = classify_rows(unit_a, unit_p, right, tau)
    return functional.cross_entropy(unit_a @ unit_p.T / tau, right) if blocked is None else blocked


def cosine_matrix(first: Tensor, second: Tensor) -> Tensor:
    """Return cos(a_i, b_j) of a, b (B, H), (B, B) in [-1, 1]; norms have the floor 1e-8."""
    return functional.normalize(first, dim=1, eps=1e-8) @ functional.normalize(second, dim=1, eps=1e-8).T


def queue_nce(anchors: Tensor, positives: Tensor, queue: Tensor | None, tau: float) -> Tensor:
    """ESimCSE's loss: cross-entropy of each anchor against all positives of the batch and the queue.

    S_ij = cos(z_i, z'_j) / tau, N_ik = cos(z_i, q_k) / tau; loss = mean_i -log softmax([S_i ; N_i])_i.
    :func:`info_nce` for an empty queue. Only anchors meet the queue; gradient flows through anchors and
    positives (Wu et al. 2022, momentum contrast).

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        queue: q, (M, H), constant, or None.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; ln(B + M) for equal rows; a further row of the queue never makes it smaller.

    Raises:
        ValueError: unmatched shapes, or a temperature of 0 or less.

    Example:
        >>> view = torch.tensor([[1.0, 0.0]])
        >>> round(queue_nce(view, view, None, tau=1.0).item(), 4)  # no negatives
        0.0
        >>> round(queue_nce(view, view, torch.tensor([[0.0, 3.0]]), tau=1.0).item(), 4)  # ln(e + 1) - 1
        0.3133
    """
    if queue is None:
        return info_nce(anchors, positives, tau)
    check_same_shape("(B, H)", anchors=anchors, positives=positives)
    if queue.shape[1:] != anchors.shape[1:]:
        raise ValueError(f"queue {tuple(queue.shape)} must be (M, H) with the anchors' H {anchors.shape[1]}")
    check_tau(tau)
    unit_a = functional.normalize(anchors, dim=1, eps=1e-8)
    unit_c = functional.normalize(torch.cat([positives, queue]), dim=1, eps=1e-8)
    right = torch.arange(len(anchors), device=anchors.device)
    blocked = classify_rows(unit_a, unit_c, right, tau)
    return functional.cross_entropy(unit_a @ unit_c.T / tau, right) if blocked is None else blocked


def hard_negative_nce(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None, tau: float, weight: float = 0.0
) -> Tensor:
    """Supervised SimCSE's loss: cross-entropy against all positives and all hard negatives of the batch.

    S_ij = cos(z_i, z^+_j) / tau, N_ij = cos(z_i, z^-_j) / tau + w [i = j]; loss = mean_i -log softmax([S_i ;
    N_i])_i, w the logarithm of alpha, the weight of an anchor's own hard negative. :func:`info_nce` for
    pairs. Gradient flows through all (Gao et al. 2021, eq. 5 and appendix).

    Args:
        anchors: z, (B, H).
        positives: z^+, (B, H).
        negatives: z^-, (B, H), or None.
        tau: Temperature, above 0.
        weight: w, any number.

    Returns:
        Scalar, at least 0; ln 2B for equal rows and w = 0.

    Raises:
        ValueError: different shapes, or a temperature of 0 or less.

    Example:
        >>> anchors, positives = torch.eye(2), torch.eye(2)
        >>> round(hard_negative_nce(anchors, positives, torch.eye(2), tau=1.0).item(), 4)  # ln(2 + 2 / e)
        1.0064
        >>> round(hard_negative_nce(anchors, positives, torch.eye(2), tau=1.0, weight=-100.0).item(), 4)
        0.5514
    """
    if negatives is None:
        return info_nce(anchors, positives, tau)
    check_same_shape("(B, H)", anchors=anchors, positives=positives, negatives=negatives)
    check_tau(tau)
    a, p, n = (functional.normalize(x, dim=1, eps=1e-8) for x in (anchors, positives, negatives))
    own = torch.eye(len(a), dtype=a.dtype, device=a.device)
    logits = torch.cat([a @ p.T / tau, a @ n.T / tau + weight * own], dim=1)
    return functional.cross_entropy(logits, torch.arange(len(a), device=a.device))


def near_nce(first: Tensor, second: Tensor, near: Tensor | None, tau: float) -> Tensor:
    """NT-Xent: cross-entropy of each of 2B views against its other view, with both views of others.

    For all others (Chen et al. 2020; Yan et al. 2021, ConSERT) or for neighbours only (Zhang et al. 2022,
    VaSCL: ContrastiveLoss and VaSCL_NBiDir). Gradient flows through both sides and both norms.

    Args:
        first: z, (B, F).
        second: z', (B, F), row i belongs to row i of the first.
        near: True where row j is a negative of row i, (B, B) with a False diagonal; None: all others.
        tau: Temperature, above 0.

    Returns:
        Scalar, the mean over the 2B views, at least 0; ln(2B - 1) for equal rows and all others.

    Raises:
        ValueError: unmatched shapes, or a temperature of 0 or less.

    Example:
        >>> first = torch.eye(2)
        >>> round(near_nce(first, first, None, tau=1.0).item(), 4)  # ln(e + 2) - 1
        0.5514
        >>> near_nce(first, first, torch.zeros(2, 2, dtype=torch.bool), tau=1.0).item()  # no negatives
        0.0
    """
    check_same_shape("(B, F)", first=first, second=second)
    check_tau(tau)
    count = len(first)
    if near is None:
        near = ~torch.eye(count, dtype=torch.bool, device=first.device)
    if near.shape != (count, count):
        raise ValueError(f"near {tuple(near.shape)} must be (B, B), with views of {count} rows")
    own, other = (functional.normalize(view, dim=1, eps=1e-8) for view in (first, second))
    both = torch.cat([own, other])
    positive = (own * other).sum(1).repeat(2) / tau
    negative = (both @ both.T / tau).masked_fill(~near.repeat(2, 2), float("-inf"))
    return (torch.cat([positive.unsqueeze(1), negative], dim=1).logsumexp(1) - positive).mean()
