"""Non-contrastive losses (UNSEE's, BYOL's): agreement of two views, and spread against collapse."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.losses.contrastive import check_same_shape
from bench.nn.device import to_float64

BARLOW_OFF_DIAGONAL = 0.0051
VICREG_WEIGHTS = (25.0, 25.0, 1.0)
"""Of invariance, variance, covariance."""
CORINFOMAX_WEIGHTS = (0.2, 2000.0)
"""Of the covariance term, of the mean squared error."""


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
        >>> predictions = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> byol_loss(predictions, torch.tensor([[1.0, 0.0], [1.0, 0.0]])).item()  # 0 and 2
        1.0
    """
    check_same_shape("(B, H)", predictions=predictions, targets=targets)
    unit, goal = (functional.normalize(x, dim=1, eps=1e-8) for x in (predictions, targets))
    return (2 - 2 * (unit * goal).sum(1)).mean()


def barlow_twins(z: Tensor, y: Tensor, off_diagonal: float = BARLOW_OFF_DIAGONAL) -> Tensor:
    """Return sum_k (C_kk - 1)^2 + w sum_{k != l} C_kl^2 with C = z^T y / N (Zbontar et al. 2021, eq. 1).

    Args:
        z: (N, d), standardised over the batch; y likewise.
        y: See z.
        off_diagonal: w.

    Returns:
        Scalar, at least 0; 0 where C is the identity.

    Raises:
        ValueError: different shapes.

    Example:
        >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # C is the identity
        >>> barlow_twins(z, z).item()
        0.0
        >>> round(barlow_twins(z, z[:, [0, 0]]).item(), 4)  # C = [[1, 1], [0, 0]]
        1.0051
    """
    check_same_shape("(N, d)", z=z, y=y)
    c = z.T @ y / len(z)
    diagonal = c.diagonal()
    off = c.square().sum() - diagonal.square().sum()
    return (diagonal - 1).square().sum() + off_diagonal * off


def vicreg(z: Tensor, y: Tensor) -> Tensor:
    """Return 25 MSE(z, y) + 25 (v(z) + v(y)) / 2 + c(z) + c(y) (Bardes et al. 2022, eqs. 1-6).

    v = mean_k relu(1 - sqrt(var_k + 1e-4)), c = sum_{k != l} Cov_kl^2 / d; var and Cov with divisor N - 1,
    the mean squared error over all N d elements.

    Args:
        z: (N, d), N at least 2.
        y: (N, d).

    Returns:
        Scalar, at least 0; up to 25 (0.99 of it for constant, equal rows).

    Raises:
        ValueError: different shapes, or one row.

    Example:
        >>> spread = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> [round(vicreg(z, z).item(), 2) for z in (spread, torch.ones(4, 2))]
        [0.0, 24.75]
    """
    check_same_shape("(N, d)", z=z, y=y)
    if len(z) < 2:
        raise ValueError("variance of one row")
    invariance, variance, covariance = VICREG_WEIGHTS
    spread = (_variance_hinge(z) + _variance_hinge(y)) / 2
    return (
        invariance * (z - y).square().mean()
        + variance * spread
        + covariance * (_covariance_penalty(z) + _covariance_penalty(y))
    )


def _variance_hinge(x: Tensor) -> Tensor:
    return torch.relu(1 - (x.var(0) + 1e-4).sqrt()).mean()


def _covariance_penalty(x: Tensor) -> Tensor:
    centred = x - x.mean(0)
    covariance = centred.T @ centred / (len(x) - 1)
    off = covariance.square().sum() - covariance.diagonal().square().sum()
    return off / x.shape[1]


class BarlowTwins(nn.Module):
    """:func:`barlow_twins` of both arguments after one batch normalisation, each with its own statistics.

    Args:
        size: d.

    Example:
        >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> round(BarlowTwins(2)(3 * z + 1, z).item(), 4)
        0.0
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size, eps=1e-5)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """Compute the loss, a scalar."""
        return barlow_twins(self.norm(z), self.norm(y))


class CorInfoMax(nn.Module):
    """0.2 cov + 2000 MSE(z, y), cov = -(logdet(R_z + eps I) + logdet(R_y + eps I)) / d (Ozsoy et al. 2022).

    Running mean and covariance of each argument move at every call: mu <- 0.01 mu + 0.99 mean(z), then R <-
    0.01 R + 0.99 (z - mu)^T (z - mu) / N with the new mu. Their old values are constants; gradient passes
    through the present batch, its mean included. In float64.

    Args:
        size: d.

    Example:
        >>> z = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
        >>> loss = CorInfoMax(2)
        >>> [round(loss(z, z).item(), 4) for _ in range(2)]  # the running covariance moves towards 2 I
        [-0.2753, -0.2772]
    """

    keep, eps = 0.01, 1e-6

    def __init__(self, size: int) -> None:
        super().__init__()
        for name in ("z", "y"):
            self.register_buffer(f"mu_{name}", torch.zeros(size, dtype=torch.float64))
            self.register_buffer(f"r_{name}", torch.eye(size, dtype=torch.float64))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """Return a float64 scalar, below 0 for large determinants; raises ValueError for different shapes."""
        check_same_shape("(N, d)", z=z, y=y)
        spread, invariance = CORINFOMAX_WEIGHTS
        z64, y64 = to_float64(z), to_float64(y)
        logdets = self._update_logdet("z", z64) + self._update_logdet("y", y64)
        return -spread * logdets / z.shape[1] + invariance * (z64 - y64).square().mean()

    def _update_logdet(self, name: str, x: Tensor) -> Tensor:
        mu = self.keep * self.get_buffer(f"mu_{name}") + (1 - self.keep) * x.mean(0)
        centred = x - mu
        r = self.keep * self.get_buffer(f"r_{name}") + (1 - self.keep) * centred.T @ centred / len(x)
        for kept, value in ((f"mu_{name}", mu), (f"r_{name}", r)):
            self.get_buffer(kept).copy_(value.detach())
        identity = torch.eye(len(r), dtype=r.dtype, device=r.device)
        logdet: Tensor = torch.linalg.slogdet(r + self.eps * identity).logabsdet
        return logdet
