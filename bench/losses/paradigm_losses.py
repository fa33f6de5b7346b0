"""Contrastive losses of the gradient paradigm, and its own loss with components to swap (Li et al. 2024).

A batch comes as two views with unit rows: h_i and h'_i belong to one sentence of N, s_ij = h_i . h'_j.
Distances are written with inner products, ||a - b||^2 = 2 - 2 a . b: so the gradient at h_i is as printed;
with a - b it differs by a multiple of h_i, which the normalisation removes. A bound on a value ("held") moves
only the value: the gradient is the closed form at the bound.

Every loss takes ``anchors`` h and ``positives`` h', (N, H) with unit rows; gradient flows to both. It returns
a scalar, 0 for N = 1, and raises ValueError for unmatched shapes and a temperature of 0 or less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

ANGLE = math.radians(10)
FORMS = ("released", "paper")
DISSIPATIONS = ("indicator", "infonce", "arccon", "mpt", "met", "none")
WEIGHTS = ("softmax", "infonce", "hardest", "met", "uniform", "power")
RATIOS = ("static", "arccon", "met")
_INSIDE = 1 - 1e-6
_LEAST_SQUARE = 1e-4
LEAST_BASE = 1e-4


@dataclass(frozen=True)
class Paradigm:
    """Components of :func:`paradigm_loss`; the defaults are the paper's baseline (section 3.2)."""

    gd: str = "indicator"  # gradient dissipation, see :func:`gradient_dissipation`
    w: str = "softmax"  # weights of the negatives, see :func:`negative_weights`
    r: str = "static"  # ratio of the positive, see :func:`positive_ratio`
    m: float = 0.3  # margin of gd "indicator"
    mpt_m: float = 0.23  # margin of gd "mpt"
    met_m: float = 0.45  # margin of gd "met"
    tau: float = 0.05  # temperature, above 0
    ratio: float = 1.0  # value of r "static"
    u: float = ANGLE  # ArcCon's margin in radians
    power: float = 1.0  # exponent of w "power"


def unit_info_nce(anchors: Tensor, positives: Tensor, tau: float = 0.05) -> Tensor:
    """InfoNCE of each anchor against all positives of the batch; its gradient is eq. 1.

    L = mean_i -log(e^(s_ii/tau) / sum_j e^(s_ij/tau)) in nats, one direction; ln N for equal rows.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> round(unit_info_nce(first, second, tau=1.0).item(), 4)
        0.4557
    """
    check_views(anchors, positives, tau)
    own = torch.arange(len(anchors), device=anchors.device)
    return functional.cross_entropy(anchors @ positives.T / tau, own)


def arccon(anchors: Tensor, positives: Tensor, tau: float = 0.05, u: float = ANGLE) -> Tensor:
    """ArcCon: InfoNCE with the margin u (radians) on the positive's angle; its gradient is eq. 2.

    As :func:`unit_info_nce` with cos(theta_ii + u) for s_ii, theta_ii = arccos s_ii, s_ii held within +-(1 -
    1e-6); the released arccos has an infinite slope at equal views. Beyond theta_ii + u = pi the cosine rises
    again.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> [round(arccon(first, second, tau=1.0, u=u).item(), 4) for u in (0.0, ANGLE)]
        [0.4557, 0.4848]
    """
    check_views(anchors, positives, tau)
    s = anchors @ positives.T
    own = s.diagonal()
    logits = s + torch.diag(_cosine_with_margin(own, u) - own)
    return functional.cross_entropy(logits / tau, torch.arange(len(s), device=s.device))


def mpt(anchors: Tensor, positives: Tensor, m: float = 0.23) -> Tensor:
    """MPT, the triplet loss on inner products: mean_i relu(max_{j != i} s_ij - s_ii + m), 0 to 2 + m (eq. 3).

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> round(mpt(first, second).item(), 4)  # (0 + (0.6 - 0.8 + 0.23)) / 2
        0.015
    """
    check_views(anchors, positives)
    if len(anchors) < 2:
        return zero_loss(anchors, positives)
    s = anchors @ positives.T
    return functional.relu(_find_hardest(s)[0] - s.diagonal() + m).mean()


def met(anchors: Tensor, positives: Tensor, m: float = 0.45) -> Tensor:
    """MET, the triplet loss on distances: mean_i relu(D_ii - min_{j != i} D_ij + m), 0 to 2 + m (eq. 3).

    D_ij^2 = 2 - 2 s_ij, held at 1e-4 or more. The printed inner max is a misprint for the min.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> round(met(first, second).item(), 4)  # (0 + (sqrt 0.4 - sqrt 0.8 + 0.45)) / 2
        0.094
    """
    check_views(anchors, positives)
    if len(anchors) < 2:
        return zero_loss(anchors, positives)
    s = anchors @ positives.T
    return functional.relu(unit_distance(s.diagonal()) - unit_distance(_find_hardest(s)[0]) + m).mean()


def mat(anchors: Tensor, positives: Tensor, m: float = 0.15) -> Tensor:
    """MAT, the triplet loss on angles: mean_i relu(theta_ii - min_{j != i} theta_ij + m pi) (released code).

    theta_ij = arccos s_ij, s_ij held within +-(1 - 1e-6); the released slope is infinite at equal views. The
    loss lies in 0 to (1 + m) pi.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> round(mat(first, second).item(), 4)  # (0 + (arccos 0.8 - arccos 0.6 + 0.15 pi)) / 2
        0.0937
    """
    check_views(anchors, positives)
    if len(anchors) < 2:
        return zero_loss(anchors, positives)
    s = anchors @ positives.T
    return functional.relu(_angle(s.diagonal()) - _angle(_find_hardest(s)[0]) + m * math.pi).mean()


PLAIN_LOSSES = {"infonce": unit_info_nce, "arccon": arccon, "mpt": mpt, "met": met, "mat": mat}
"""Losses of the paper's methods, by method id."""


def gradient_dissipation(s: Tensor, parts: Paradigm) -> Tensor:
    """Gradient dissipation of every anchor (Table 1, first column), (N,) within [0, 1], by s (N, N), N >= 2.

    "infonce", "arccon": 1 / (1 + e^(c_i/tau) / sum_{k != i} e^(s_ik/tau)), c_i = s_ii or cos(theta_ii + u).
    "indicator", "mpt": 1[s_ii - max_{k != i} s_ik < m]. "met": 1[min_{k != i} D_ik - D_ii < m]. "none": 1.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> s = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        >>> gradient_dissipation(s, Paradigm(gd="indicator", m=0.3)).tolist()  # gaps 1 and 0.2
        [0.0, 1.0]
    """
    own = s.diagonal()
    if parts.gd in ("infonce", "arccon"):
        positive = own if parts.gd == "infonce" else _cosine_with_margin(own, parts.u)
        return (fill_diagonal(s / parts.tau, -math.inf).logsumexp(1) - positive / parts.tau).sigmoid()
    hardest = _find_hardest(s)[0]
    if parts.gd in ("indicator", "mpt"):
        return (own - hardest < (parts.m if parts.gd == "indicator" else parts.mpt_m)).to(s.dtype)
    if parts.gd == "met":
        return (unit_distance(hardest) - unit_distance(own) < parts.met_m).to(s.dtype)
    if parts.gd == "none":
        return torch.ones_like(own)
    raise ValueError(f"gd '{parts.gd}' must be one of {', '.join(DISSIPATIONS)}")


def negative_weights(s: Tensor, parts: Paradigm) -> Tensor:
    """Weights of every anchor's negatives (Table 1, second column).

    "softmax" over j != i of s_ij/tau; "infonce" (ArcCon's too) the same over tau; "hardest" (MPT's) 1 at the
    largest s_ij; "met" 1/D_ij there; "power" max(s_ij, 1e-4)^p over its row's sum; "uniform" its p = 0.

    Args:
        s: (N, N), rows are anchors, N at least 2.
        parts: Which, with its temperature or power.

    Returns:
        (N, N), at least 0, diagonal 0; rows add up to 1, but for "infonce" to 1/tau and "met" to 1/D.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> s = torch.tensor([[0.9, 0.2, 0.2], [0.1, 0.8, 0.3], [0.0, 0.5, 0.7]])
        >>> [[round(weight, 2) for weight in row] for row in negative_weights(s, Paradigm(tau=0.2)).tolist()]
        [[0.0, 0.5, 0.5], [0.27, 0.0, 0.73], [0.08, 0.92, 0.0]]
    """
    if parts.w in ("softmax", "infonce"):
        weights = fill_diagonal(s / parts.tau, -math.inf).softmax(1)
        return weights if parts.w == "softmax" else weights / parts.tau
    if parts.w in ("hardest", "met"):
        values, places = _find_hardest(s)
        at_hardest = torch.ones_like(values) if parts.w == "hardest" else 1 / unit_distance(values)
        return torch.zeros_like(s).scatter(1, places[:, None], at_hardest[:, None])
    if parts.w in ("uniform", "power"):
        power = 0.0 if parts.w == "uniform" else parts.power
        weights = fill_diagonal(s.clamp_min(LEAST_BASE).pow(power))
        return weights / weights.sum(1, keepdim=True)
    raise ValueError(f"w '{parts.w}' must be one of {', '.join(WEIGHTS)}")


def positive_ratio(s: Tensor, parts: Paradigm) -> Tensor:
    """Ratio of every anchor's positive (Table 1, third column) by s (N, N): (N, 1), or for "met" (N, N).

    "static" r; "arccon" sin(theta_ii + u) / sin(theta_ii), s_ii held within +-(1 - 1e-6); "met" D_ij / D_ii.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> s = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        >>> [[round(ratio, 2) for ratio in row] for row in positive_ratio(s, Paradigm(r="met")).tolist()]
        [[1.0, 141.42], [1.41, 1.0]]
    """
    own = s.diagonal()[:, None]
    if parts.r == "static":
        return torch.full_like(own, parts.ratio)
    if parts.r == "arccon":
        theta = _angle(own)
        return (theta + parts.u).sin() / theta.sin()
    if parts.r == "met":
        return unit_distance(s) / unit_distance(own)
    raise ValueError(f"r '{parts.r}' must be one of {', '.join(RATIOS)}")


def paradigm_loss(first: Tensor, second: Tensor, parts: Paradigm, form: str = "released") -> Tensor:
    """The paradigm's loss (eq. 5): L_i = GD_i sum_{j != i} W_ij (s_ij - R_ij s_ii), no gradient in GD, W, R.

    Both views' rows are anchors against the other view, a negative is a constant.

    - ``paper``: the positive is a constant too, so every anchor's gradient is eq. 4; mean over 2N anchors.
    - ``released``: the positive pair carries gradient to both views; each direction is divided by N times its
      number n of anchors with GD > 0. An anchor kept in both directions gets eq. 4 with the ratio r (1 +
      n/n'), that is 2r; one dropped whose partner is kept is still pulled. A direction of dropped anchors is
      0 (the released code: NaN).

    Raises:
        ValueError: also an unknown component or form.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)  # s = [[1, 0], [0.6, 0.8]]
        >>> [round(paradigm_loss(first, second, Paradigm(), form).item(), 4) for form in FORMS]
        [-0.1, -0.05]
    """
    check_views(first, second, parts.tau)
    check_form(form)
    if len(first) < 2:
        return zero_loss(first, second)
    losses = [_direction_loss(a, b, parts, form) for a, b in ((first, second), (second, first))]
    return torch.stack(losses).sum()


def _direction_loss(anchors: Tensor, others: Tensor, parts: Paradigm, form: str) -> Tensor:
    s = anchors @ others.detach().T
    constant = s.detach()
    kept = gradient_dissipation(constant, parts)
    weights, ratio = negative_weights(constant, parts), positive_ratio(constant, parts)
    own = s.diagonal() if form == "paper" else (anchors * others).sum(1)
    total = (kept[:, None] * weights * (s - ratio * own[:, None])).sum()
    if form == "paper":
        return total / (2 * len(anchors))
    return total / (len(anchors) * (kept > 0).sum().clamp_min(1))


def unit_distance(cosine: Tensor) -> Tensor:
    """Distance of unit vectors by their cosine, sqrt(2 - 2 c), of any shape; its square is at least 1e-4.

    >>> unit_distance(torch.tensor([0.5, -1.0])).tolist()
    [1.0, 2.0]
    """
    return _clamp_value(2 - 2 * cosine, _LEAST_SQUARE, math.inf).sqrt()


def check_views(first: Tensor, second: Tensor, tau: float = 1.0) -> None:
    """Raise ValueError unless there are two (N, H) of one shape, N at least 1, and tau is above 0."""
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise ValueError(f"{tuple(first.shape)} and {tuple(second.shape)} must be two (N, H) of one shape")
    if tau <= 0:
        raise ValueError(f"tau {tau} must be above 0")


def check_form(form: str) -> None:
    """Raise ValueError for an unknown form."""
    if form not in FORMS:
        raise ValueError(f"form '{form}' must be one of {', '.join(FORMS)}")


def zero_loss(first: Tensor, second: Tensor) -> Tensor:
    """Return a scalar 0 with gradient 0 in both views, (N, H) each."""
    return (first * 0).sum() + (second * 0).sum()


def _cosine_with_margin(cosine: Tensor, u: float) -> Tensor:
    """Return cos(theta + u) of the angle with this cosine."""
    held = _clamp_value(cosine, -_INSIDE, _INSIDE)
    return held * math.cos(u) - (1 - held**2).sqrt() * math.sin(u)


def _angle(cosine: Tensor) -> Tensor:
    """Return the angle of unit vectors by their cosine, in radians."""
    return _clamp_value(cosine, -_INSIDE, _INSIDE).acos()


def _clamp_value(values: Tensor, low: float, high: float) -> Tensor:
    """Clamp values; the gradient passes unchanged."""
    return values + (values.clamp(low, high) - values).detach()


def fill_diagonal(matrix: Tensor, value: float = 0.0) -> Tensor:
    """Return the matrix with another diagonal.

    >>> fill_diagonal(torch.ones(2, 2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return matrix.masked_fill(torch.eye(len(matrix), dtype=torch.bool, device=matrix.device), value)


def _find_hardest(s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest cosine with a negative and its place, each (N,)."""
    values, places = fill_diagonal(s, -math.inf).max(dim=1)
    return values, places
