"""Non-contrastive losses made contrastive in three steps (Li et al. 2024, section 4 and appendix E).

A batch comes as two views with unit rows, h_i and h'_i; both views' rows are anchors. s_ij = h_i . h_j and
s'_ij = h'_i . h'_j stay within a view. Without any step a loss is the original one, with all three the
modified one: gd drops anchors, w gives the negatives exponential weights, r the positive a static ratio. The
``paper`` form is the gradient-equivalent loss, summed over the anchors, all but the anchor h_i constant:

    L_i = d_i (sum_{j != i} w_ij h_i . h_j - p_i h_i . h'_i)
    d_i = 1[h_i . h'_i - max_{k != i} h_i . h'_k < m] with gd, else 1
    p_i = ratio W_i, W_i = sum_{j != i} w_ij, with r, else 2 / N

Distances are written with inner products; gradients of the ``released`` forms are the released code's up to a
multiple of h_i, which the normalisation removes. There gd is d_i = 1[1 - max_{k != i} s_ik < m] within each
view, fewer anchors than the paper's, and a dropped row gets no gradient in any role.

Every loss takes ``first`` h and ``second`` h', (N, H) with unit rows, ``steps`` and the form "released" or
"paper". It returns a scalar, 0 for N = 1, and raises ValueError for unmatched shapes, a temperature of 0 or
less, and unknown names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.losses.paradigm_losses import (
    LEAST_BASE,
    check_form,
    check_views,
    fill_diagonal,
    unit_distance,
    zero_loss,
)

FACTORS = ("nearest", "farthest")
KERNELS = ("exponential", "power")
_ADDED_SQUARE = 1e-4


@dataclass(frozen=True)
class ModifiedSteps:
    """The three steps, and their constants."""

    gd: bool = False  # drop anchors whose positive is far nearer than any negative
    w: bool = False  # exponential weights of the negatives (MHS keeps its own)
    r: bool = False  # a static ratio of the positive
    m: float = 0.3  # margin of gd
    tau: float = 0.05  # temperature of w, above 0
    ratio: float = 1.0  # ratio of r
    nu: float = 1.0  # weight of the negatives until step w (MHS: until step r)
    # row whose distance weights MHS's positive with r in the paper form: "nearest", so that the gradient is
    # eq. 17, or "farthest" as eq. 15's factor is printed
    factor: str = "nearest"
    nu_after: float = 1.0  # the same from that step on
    # weights of step w in barlow and vicreg by the cosine s: "exponential", e^(s/tau), or "power", max(s,
    # 1e-4)^kernel_power
    kernel: str = "exponential"
    kernel_power: float = 4.0  # exponent of "power"


def mhe(first: Tensor, second: Tensor, steps: ModifiedSteps, form: str = "released") -> Tensor:
    """Alignment and minimum hyperspherical energy; with all steps eq. 14 with the gradient of eq. 16.

    ``paper``: w_ij = e^(s_ij/tau) / (tau sum_{k<l} e^(s_kl/tau)) with w; else tau = 1/2, times nu (eq. 8).
    ``released``: lambda (U(h) + U(h')) + sum_i a_i (p_i + p'_i) / 2, U = log sum_{k<l} e^(s_kl/t), gradient
    through both members of a pair, a_i = 2 - 2 h_i . h'_i. t = 1 and p = p' = 1/N; with w t = tau, p_i = W_i
    and p'_i = W'_i of the two views; with r both times the ratio. lambda is nu, nu_after with w.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)
        >>> every = ModifiedSteps(gd=True, w=True, r=True, tau=1.0)
        >>> [round(mhe(first, second, steps).item(), 4) for steps in (ModifiedSteps(), every)]
        [0.8, 1.0]
    """
    if _is_single_sentence(first, second, steps, form):
        return zero_loss(first, second)
    strength = steps.nu_after if steps.w else steps.nu
    if form == "paper":
        t = steps.tau if steps.w else 0.5
        return _sum_over_anchors(first, second, steps, lambda h, _: strength * _energy_weights(h, t))
    first, second = (_detach_dropped(view, steps) for view in (first, second))
    t = steps.tau if steps.w else 1.0
    views = (first, second)
    energies = torch.stack([_select_off_diagonal(h @ h.T / t).logsumexp(0) - math.log(2) for h in views])
    weight: Tensor | float = 2 / len(first)
    if steps.w:
        weight = sum(_energy_weights(h.detach(), t).sum(1) for h in views)
    align = (1 - (first * second).sum(1)) * weight * (steps.ratio if steps.r else 1.0)
    return strength * energies.sum() + align.sum()


def mhs(first: Tensor, second: Tensor, steps: ModifiedSteps, form: str = "released") -> Tensor:
    """Alignment and maximum hyperspherical separation; with gd and r eq. 15 with the gradient of eq. 17.

    ``paper``: w_ij = nu / ||h_i - h_j|| at the nearest j (square held at 1e-4 or more), else 0 (eq. 9).
    ``released``: mean_i -lambda min_{j != i} D_ij in both directions + mean_i a_i, a_i = 2 - 2 h_i . h'_i and
    D_ij^2 = ||h_i - h'_j||^2 + 1e-4 to the other view's rows as constants; with r a_i is multiplied by
    ratio (1/D_i + 1/D'_i) / 2, D_i the nearest. lambda is nu, nu_after with r: the paper's nu is lambda / N.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)
        >>> every = ModifiedSteps(gd=True, w=True, r=True, tau=1.0)
        >>> [round(mhs(first, second, steps).item(), 4) for steps in (ModifiedSteps(), every)]
        [-2.1087, -2.1262]
    """
    if steps.factor not in FACTORS:
        raise ValueError(f"factor '{steps.factor}' must be one of {', '.join(FACTORS)}")
    if _is_single_sentence(first, second, steps, form):
        return zero_loss(first, second)
    strength = steps.nu_after if steps.r else steps.nu
    if form == "paper":
        farthest = _farthest_weight if steps.factor == "farthest" else None
        return _sum_over_anchors(
            first, second, steps, lambda h, _: strength * _nearest_weights(h), total=farthest
        )
    first, second = (_detach_dropped(view, steps) for view in (first, second))
    nearest = [_nearest_in_other(a, b) for a, b in ((first, second), (second, first))]
    align = 1 - (first * second).sum(1)
    weight = steps.ratio * sum(1 / d.detach() for d in nearest) if steps.r else 2.0
    return (align * weight - strength * (nearest[0] + nearest[1])).mean()


def modified_barlow(first: Tensor, second: Tensor, steps: ModifiedSteps, form: str = "released") -> Tensor:
    """Barlow Twins in its gradient-equivalent form on unit vectors (eq. 10); with all steps eq. 6, 18.

    w_ij = 2 nu s'_ij / N^2 by the other view's cosines, with w e^(s'_ij/tau) / sum_{k != l} e^(s'_kl/tau) or
    with :class:`ModifiedSteps`' other kernel, times nu_after. Without r the positive is (2/N) h_i . A h'_i, A
    = I - (1 - nu) diag(h^T h' / N); with w nu is nu_after, so A is I at its 1.
    ``released``: the same, summed over i and both views, with j = i left in; here without its gradient, which
    acts along h_i only and would drown the rest in rounding where tau is small. With r the positive
    ratio W_i h_i . h'_i carries gradient to both views.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)
        >>> every = ModifiedSteps(gd=True, w=True, r=True, tau=1.0)
        >>> [round(modified_barlow(first, second, steps).item(), 4) for steps in (ModifiedSteps(), every)]
        [-1.6, 3.0101]
    """
    return _correlation_loss(first, second, steps, form, by_other_view=True)


def modified_vicreg(first: Tensor, second: Tensor, steps: ModifiedSteps, form: str = "released") -> Tensor:
    """VICReg in its gradient-equivalent form on unit vectors (eq. 11); with all steps eq. 13, 19.

    As :func:`modified_barlow` with the own view's s_ij for s'_ij and A = I.

    Example:
        >>> first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2)
        >>> every = ModifiedSteps(gd=True, w=True, r=True, tau=1.0)
        >>> [round(modified_vicreg(first, second, steps).item(), 4) for steps in (ModifiedSteps(), every)]
        [-1.24, 3.0101]
    """
    return _correlation_loss(first, second, steps, form, by_other_view=False)


LOSSES: dict[str, Callable[..., Tensor]] = {
    **{"mhe": mhe, "mhs": mhs},
    **{"barlow": modified_barlow, "vicreg": modified_vicreg},
}


def _correlation_loss(
    first: Tensor, second: Tensor, steps: ModifiedSteps, form: str, *, by_other_view: bool
) -> Tensor:
    if _is_single_sentence(first, second, steps, form):
        return zero_loss(first, second)
    count, strength = len(first), steps.nu_after if steps.w else steps.nu

    def weights(h: Tensor, other: Tensor) -> Tensor:  # with j = i, which the sums leave out
        view = other if by_other_view else h
        s = view @ view.T
        return strength * _exponential_weights(s, steps) if steps.w else 2 * strength * s / count**2

    def pulled(h: Tensor, other: Tensor) -> Tensor:  # the positive side without r, 2/N A h'_i, (N, H)
        if not by_other_view:
            return 2 / count * other
        return 2 / count * (1 - (1 - strength) * (h * other).mean(0)) * other

    if form == "paper":
        return _sum_over_anchors(first, second, steps, lambda h, o: fill_diagonal(weights(h, o)), pulled)
    first, second = (_detach_dropped(view, steps) for view in (first, second))
    losses = []
    for h, other in ((first, second), (second, first)):
        constant, positive = h.detach(), other.detach()
        w = weights(constant, positive)
        push = (fill_diagonal(w) * (h @ constant.T)).sum() + (w.diagonal() * (constant**2).sum(1)).sum()
        if steps.r:
            pull = (steps.ratio * fill_diagonal(w).sum(1) * (h * other).sum(1)).sum()
        else:
            pull = (h * pulled(constant, positive)).sum()
        losses.append(push - pull)
    return torch.stack(losses).sum()


def _exponential_weights(s: Tensor, steps: ModifiedSteps) -> Tensor:
    """Return step w's weights, (N, N): their sum off the diagonal is 1; the diagonal has weights too."""
    if steps.kernel == "power":
        weights = s.clamp_min(LEAST_BASE) ** steps.kernel_power
        return weights / _select_off_diagonal(weights).sum()
    return (s / steps.tau - _select_off_diagonal(s / steps.tau).logsumexp(0)).exp()


def _sum_over_anchors(
    first: Tensor,
    second: Tensor,
    steps: ModifiedSteps,
    weights: Callable[[Tensor, Tensor], Tensor],
    pulled: Callable[[Tensor, Tensor], Tensor] | None = None,
    *,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the paper form's loss.

    Args:
        first: h.
        second: h'.
        steps: The steps taken.
        weights: From an anchors' view and the other one to w, (N, N) with diagonal 0.
        pulled: From the same to the positive side without r, (N, H); None for 2/N h'.
        total: From the anchors' view to a replacement of W_i, (N,).
    """
    losses = []
    for h, other in ((first, second), (second, first)):
        constant, positive = h.detach(), other.detach()
        w = weights(constant, positive)
        if steps.r:
            pull = steps.ratio * (total(constant) if total else w.sum(1))[:, None] * positive
        else:
            pull = pulled(constant, positive) if pulled else 2 / len(h) * positive
        rows = (w * (h @ constant.T)).sum(1) - (h * pull).sum(1)
        if steps.gd:
            s = constant @ positive.T
            rows = rows * (s.diagonal() - fill_diagonal(s, -math.inf).amax(1) < steps.m)
        losses.append(rows.sum())
    return torch.stack(losses).sum()


def _is_single_sentence(first: Tensor, second: Tensor, steps: ModifiedSteps, form: str) -> bool:
    """Check the arguments; return True for a single sentence."""
    check_views(first, second, steps.tau)
    if steps.kernel not in KERNELS:
        raise ValueError(f"kernel '{steps.kernel}' must be one of {', '.join(KERNELS)}")
    check_form(form)
    return len(first) < 2


def _detach_dropped(view: Tensor, steps: ModifiedSteps) -> Tensor:
    """Apply the released gd: rows with a margin of m to all others of their view become constants."""
    if not steps.gd:
        return view
    constant = view.detach()
    kept = 1 - fill_diagonal(constant @ constant.T, -math.inf).amax(1) < steps.m
    return torch.where(kept[:, None], view, constant)


def _energy_weights(h: Tensor, t: float) -> Tensor:
    """e^(s_ij/t) / (t sum_{k<l} e^(s_kl/t)), diagonal 0; they add up to 2/t."""
    s = h @ h.T / t
    return fill_diagonal((s - _select_off_diagonal(s).logsumexp(0)).exp()) * 2 / t


def _nearest_weights(h: Tensor) -> Tensor:
    """1 / ||h_i - h_j|| at the nearest j of the same view, else 0."""
    nearest = fill_diagonal(h @ h.T, -math.inf).max(dim=1)
    values = 1 / unit_distance(nearest.values)
    zeros = torch.zeros(len(h), len(h), dtype=h.dtype, device=h.device)
    return zeros.scatter(1, nearest.indices[:, None], values[:, None])


def _farthest_weight(h: Tensor) -> Tensor:
    """1 / max_{j != i} ||h_i - h_j||."""
    return 1 / unit_distance(fill_diagonal(h @ h.T, math.inf).amin(1))


def _nearest_in_other(anchors: Tensor, others: Tensor) -> Tensor:
    """min_{j != i} sqrt(||h_i - h'_j||^2 + 1e-4), h'_j constant, (N,)."""
    hardest = fill_diagonal(anchors @ others.detach().T, -math.inf).max(dim=1).values
    return (2 - 2 * hardest + _ADDED_SQUARE).sqrt()


def _select_off_diagonal(matrix: Tensor) -> Tensor:
    """Return all entries with k != l, row by row, (N^2 - N,)."""
    # N others lie between two entries of the diagonal; the host would have to wait for the count of a mask
    between = matrix.flatten()[:-1].view(len(matrix) - 1, len(matrix) + 1)
    return between[:, 1:].flatten()
