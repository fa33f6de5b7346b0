"""Shuffled group whitening: each group of a batch's channels gets mean 0 and covariance 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bench.nn.device import to_float64

ENGINES = ("zca", "cholesky", "lowrank")
"""Whitening by the symmetric root, a triangular one, or in the largest directions only."""
RANK = 6
"""Directions that "lowrank" keeps, the default of torch's randomised decompositions."""
_STEPS = 40


def whiten_views(
    views: Sequence[Tensor],
    orders: Tensor,
    groups: int,
    *,
    eps: float = 1e-5,
    through: bool = False,
    engine: str = "zca",
) -> list[Tensor]:
    """Whiten groups of channels over the batch by ZCA each (Zhuo et al. 2023, WhitenedCSE), (B, H) a view.

    The channels are reordered and split into G groups; with X (B, H / G) a group's centred rows and S = X^T X
    / B its covariance the group becomes X (S + eps I)^(-1/2), the symmetric root; then the channels go back
    to their places. Covariances are I up to eps for B > H / G; fewer rows leave directions with variance 0,
    which stay 0. One row gives 0. All views share one decomposition.

    Args:
        views: (B, H) each.
        orders: Permutation of the H channels for each view, (V, H).
        groups: G, a divisor of H; 1 whitens all channels together.
        eps: Added to the eigenvalues, above 0.
        through: Gradient also flows through the whitening matrices (exact, at equal eigenvalues too);
            otherwise only through the centred features.
        engine: "zca"; "cholesky" takes X L^(-T) instead, L L^T = S + eps I with L lower triangular; "lowrank"
            X U (l + eps)^(-1/2) U^T with only the :data:`RANK` largest eigenvalues l.

    Raises:
        ValueError: unmatched shapes, groups that leave a rest of H, an eps of 0 or less, an unknown engine,
            or a gradient through "lowrank", which jumps where eigenvalues change places.
    """
    if engine not in ENGINES or (through and engine == "lowrank"):
        raise ValueError(f"engine {engine!r}, gradient through it: {through}")
    centred: list[Tensor] = []
    covariances: list[Tensor] = []
    for features, order in zip(views, orders, strict=True):
        _check_arguments(features, order, groups, eps)
        batch, size = features.shape
        shuffled = features[:, order].view(batch, groups, size // groups).transpose(0, 1)
        centred.append(shuffled - shuffled.mean(1, keepdim=True))
        rows = centred[-1]
        if engine == "cholesky" or not rows.is_cpu:  # in float64 no eigenvalue is below -eps
            rows = to_float64(rows)
        covariances.append(rows.transpose(1, 2) @ rows / rows.shape[1])
    covariance = torch.cat(covariances)
    root = _compute_root(covariance if through else covariance.detach(), eps, engine).to(centred[0])
    white = [part @ matrix for part, matrix in zip(centred, root.chunk(len(views)), strict=True)]
    inverse = zip(white, views, orders.argsort(dim=1), strict=True)
    return [part.transpose(0, 1).reshape(view.shape)[:, order] for part, view, order in inverse]


def _check_arguments(features: Tensor, order: Tensor, groups: int, eps: float) -> None:
    if features.ndim != 2 or order.shape != features.shape[1:]:
        shapes = f"features {tuple(features.shape)} and order {tuple(order.shape)}"
        raise ValueError(f"{shapes} must be (B, H), (H,)")
    if groups < 1 or features.shape[1] % groups:
        raise ValueError(f"{groups} groups don't divide {features.shape[1]} channels")
    if eps <= 0:
        raise ValueError(f"eps {eps} must be above 0")


def _compute_root(covariance: Tensor, eps: float, engine: str) -> Tensor:
    """Return W of each group, (G, n, n): W^T (S + eps I) W = I, for "lowrank" in its directions."""
    if engine == "cholesky":
        eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
        lower = torch.linalg.cholesky_ex(covariance + eps * eye).L  # in float64 eps keeps it from failing
        inverse: Tensor = torch.linalg.solve_triangular(lower, eye.expand(lower.shape), upper=False)
        return inverse.transpose(1, 2)
    if engine == "lowrank":
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = values[:, -RANK:].clamp(min=0) + eps, vectors[:, :, -RANK:]
        kept: Tensor = (vectors * values.rsqrt().unsqueeze(1)) @ vectors.transpose(1, 2)
        return kept
    return inverse_root(covariance, eps)


def inverse_root(covariance: Tensor, eps: float) -> Tensor:
    """Return (S + eps I)^(-1/2) of symmetric matrices, (G, n, n), with an exact gradient.

    With S = U diag(l) U^T and a = l + eps a change dS changes the result by U (K * U^T dS U) U^T,
    K_ij = -1 / (sqrt(a_i a_j) (sqrt(a_i) + sqrt(a_j))) (Daleckii and Krein 1965): the divided differences of
    a^(-1/2), finite at equal eigenvalues, where eigenvectors lack a gradient.

    CUDA uses :func:`inverse_root_by_products`: the host would wait to check a decomposition.
    """
    if covariance.is_cuda:
        return inverse_root_by_products(covariance, eps)
    fixed = covariance.detach()
    values, vectors = torch.linalg.eigh(fixed)
    roots = (values.clamp(min=0) + eps).sqrt()
    rows, columns, turn = roots.unsqueeze(-1), roots.unsqueeze(-2), vectors.transpose(-1, -2)
    change = turn @ (covariance - fixed) @ vectors  # 0, with the gradient of the covariance
    slope = change / (rows * columns * (rows + columns))
    root: Tensor = (vectors / columns - vectors @ slope) @ turn
    return root


def inverse_root_by_products(covariance: Tensor, eps: float) -> Tensor:
    """Compute :func:`inverse_root` by matrix products only, in float64; gradient through all of them.

    The coupled iteration of Newton and Schulz (Higham 2008, Functions of Matrices, chapter 6) with A =
    (S + eps I) / s, s the Frobenius norm: Y_0 = A, Z_0 = I, T = (3 I - Z Y) / 2, Y <- Y T, Z <- T Z; Z tends
    to A^(-1/2). Eigenvalues far below 1 grow by 9/4 a step, which is enough for those above 1e-12. A negative
    one, from rounding a covariance in float32, has no root: give S in float64.
    """
    eye = torch.eye(covariance.shape[-1], dtype=torch.float64, device=covariance.device)
    identity = eye.expand(covariance.shape)
    matrix = covariance.double() + eps * identity
    scale: Tensor = torch.linalg.matrix_norm(matrix, keepdim=True)
    y, z = matrix / scale, identity
    for _ in range(_STEPS):
        turn = torch.baddbmm(identity, z, y, beta=1.5, alpha=-0.5)
        y, z = y @ turn, turn @ z
    return (z / scale.sqrt()).to(covariance.dtype)
