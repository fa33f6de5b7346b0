"""Losses of the twin encoders (TNCSE, JTCSE): contrast within and across towers, and the tensor norm.

A batch comes interleaved: the two dropout views of sentence i are rows 2i and 2i + 1. ``form`` is "released"
or "paper". Every loss raises ValueError for unmatched shapes, an odd number of rows or none, a temperature of
0 or less, and unknown names.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from bench.losses.contrastive import check_same_shape, check_tau, info_nce
from bench.losses.similarity_blocks import classify_rows

FORMS = ("released", "paper")
ANGLES = ("cross", "paper")
NEGATIVE_COSINE = 1e-4
SMALLEST = 1e-8


def nce_released(anchors: Tensor, others: Tensor, tau: float) -> Tensor:
    """NCE(A, B): cross-entropy of every view against all other columns, its own left out.

    S_rc = cos(A_r, B_c) / tau, S_rr = -inf; loss = mean_r -log softmax(S_r)_p(r) with p(2i) = 2i + 1 and
    p(2i + 1) = 2i. So 2N - 2 negatives a row, and across towers the same dropout view never counts. Rows
    belong to A: NCE(A, B) is not NCE(B, A). Gradient flows through both sides and both norms (TNCSE eq. 4 and
    5 as the released code computes them; the printed form is :func:`bench.losses.contrastive.info_nce`).

    Args:
        anchors: A, (2N, H) interleaved.
        others: B, (2N, H) interleaved; A itself within a tower.
        tau: Temperature, above 0.

    Returns:
        Scalar in nats, at least 0; ln(2N - 1) for equal rows; 0 for N = 1.

    Example:
        >>> views = torch.eye(2).repeat_interleave(2, dim=0)  # two sentences, their views equal
        >>> round(nce_released(views, views, tau=1.0).item(), 4)  # ln((e + 1 + 1) / e)
        0.5514
    """
    _check_interleaved(anchors, others)
    check_tau(tau)
    rows = torch.arange(len(anchors), device=anchors.device)
    unit_a = functional.normalize(anchors, dim=1, eps=SMALLEST)
    unit_b = functional.normalize(others, dim=1, eps=SMALLEST)
    blocked = classify_rows(unit_a, unit_b, rows ^ 1, tau, without_own=True)
    if blocked is not None:
        return blocked
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    similarity = (unit_a @ unit_b.T / tau).masked_fill(own, -torch.inf)
    return functional.cross_entropy(similarity, rows ^ 1)


def tower_nce(states: Tensor, tau: float, form: str = "released") -> Tensor:
    """Contrast within a tower, NCE(H, H), of states H, (2N, H) interleaved; a scalar in nats, at least 0.

    ``released``: :func:`nce_released` of H with itself. ``paper`` (eq. 4): first views against second views,
    N x N, N - 1 negatives.

    Example:
        >>> views = torch.eye(2).repeat_interleave(2, dim=0)
        >>> [round(tower_nce(views, 1.0, form).item(), 4) for form in FORMS]  # paper: ln((e + 1) / e)
        [0.5514, 0.3133]
    """
    if _is_paper_form(form, FORMS, "form"):
        _check_interleaved(states)
        return info_nce(states[0::2], states[1::2], tau)
    return nce_released(states, states, tau)


def cross_nce(first: Tensor, second: Tensor, tau: float, form: str = "released") -> Tensor:
    """Contrast across towers, NCE(H_I, H_II), (2N, H) interleaved each; rows belong to the first argument.

    ``released``: :func:`nce_released`. ``paper`` (eq. 5, which carries no +): the first views of both, N x N,
    N - 1 negatives.

    Example:
        >>> first = torch.eye(2).repeat_interleave(2, dim=0)
        >>> [round(cross_nce(first, first.flip(0), 1.0, form).item(), 4) for form in FORMS]
        [1.862, 1.3133]
    """
    if _is_paper_form(form, FORMS, "form"):
        _check_interleaved(first, second)
        return info_nce(first[0::2], second[0::2], tau)
    return nce_released(first, second, tau)


def ltn(
    cls_a: Tensor,
    pooled_a: Tensor,
    cls_b: Tensor,
    pooled_b: Tensor,
    *,
    scale: float = 0.5,
    angle: str = "cross",
) -> Tensor:
    """Loss with tensor norm, LTN(a -> b) (TNCSE eq. 6): the norm factor weighted by the angle.

    L = scale * mean_i -log c_i * ||P_a[2i] - P_b[2i+1]|| / (||P_a[2i]|| + ||P_b[2i+1]||), where

    - angle "cross": c_i = cos(H_a[2i], H_b[2i+1]), the released code's;
    - angle "paper": c_i = cos(H_a[2i], H_b[2i]), the same in both directions (for one tower against itself it
      is always 1, hence the loss 0).

    A negative c_i is replaced by the constant 1e-4: no gradient through c_i there, the norm factor keeps its
    own. Otherwise both factors carry gradient. c_i is held within [1e-8, 1], its gradient 0 outside.

    Differs from the released code, which is infinite at c_i = 0, slightly negative where rounding gives
    c_i > 1, and NaN for two zero poolers. Its scale is 1/2, the paper's 1.

    Args:
        cls_a: H_a, (2N, H) interleaved [CLS] states of the tower whose first views count.
        pooled_a: P_a, (2N, D) interleaved pooler outputs.
        cls_b: H_b, (2N, H) interleaved, of the tower whose second views count.
        pooled_b: P_b, (2N, D) interleaved.
        scale: Constant factor.
        angle: "cross" or "paper".

    Returns:
        Scalar, within [0, 18.42 scale] up to rounding; loss and gradients are finite for zero vectors too. A
        row adds 0 where its poolers are equal or c_i = 1.

    Example:
        >>> cls_a, cls_b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])  # two views of one sentence
        >>> pooled_a, pooled_b = torch.tensor([[2.0, 0.0]] * 2), torch.tensor([[1.0, 0.0]] * 2)
        >>> round(ltn(cls_a, pooled_a, cls_b, pooled_b).item(), 4)  # 1/2 * ln(sqrt 2) * (2 - 1) / (2 + 1)
        0.0578
        >>> ltn(cls_a, pooled_a, cls_b, pooled_b, angle="paper").item()
        0.0
    """
    _check_interleaved(cls_a, cls_b)
    _check_interleaved(pooled_a, pooled_b)
    if len(cls_a) != len(pooled_a):
        raise ValueError(f"{len(cls_a)} [CLS] rows and {len(pooled_a)} pooler rows must be as many")
    view = cls_b[0::2] if _is_paper_form(angle, ANGLES, "angle") else cls_b[1::2]
    cosine = functional.cosine_similarity(cls_a[0::2], view, dim=1, eps=SMALLEST)
    # masked before the logarithm: a NaN or infinity there would reach the gradient even of rows not used
    cosine = cosine.masked_fill(cosine < 0, NEGATIVE_COSINE).clamp(SMALLEST, 1)
    return scale * (-cosine.log() * tensor_norm_ratio(pooled_a[0::2], pooled_b[1::2])).mean()


def tensor_norm_ratio(a: Tensor, b: Tensor) -> Tensor:
    """Norm factor of each row of two (N, D), l_TN = ||a - b|| / (||a|| + ||b||) (TNCSE eq. 1).

    Symmetric, and the same for (s a, s b). The denominator is at least 1e-8, and the gradient of a norm at 0
    is 0: equal vectors, zero vectors too, give exactly 0 and gradient 0.

    Returns:
        (N,), within [0, 1] up to rounding; 0 only where a = b, 1 where they point in opposite directions.

    Example:
        >>> a, b = torch.tensor([[1.0], [1.0], [3.0]]), torch.tensor([[1.0], [-1.0], [1.0]])
        >>> tensor_norm_ratio(a, b).tolist()
        [0.0, 1.0, 0.5]
    """
    check_same_shape("(N, D)", a=a, b=b)
    norms = torch.linalg.vector_norm(a, dim=1) + torch.linalg.vector_norm(b, dim=1)
    ratio: Tensor = torch.linalg.vector_norm(a - b, dim=1) / norms.clamp_min(SMALLEST)
    return ratio


def _is_paper_form(value: str, known: tuple[str, ...], name: str) -> bool:
    if value not in known:
        raise ValueError(f"{name} '{value}' must be one of {', '.join(known)}")
    return value == "paper"


def _check_interleaved(*matrices: Tensor) -> None:
    shape = matrices[0].shape
    if len(shape) != 2 or shape[0] == 0 or shape[0] % 2 or any(m.shape != shape for m in matrices):
        shapes = " and ".join(str(tuple(matrix.shape)) for matrix in matrices)
        raise ValueError(f"{shapes} must be (2N, H), two views of each sentence one after the other")
