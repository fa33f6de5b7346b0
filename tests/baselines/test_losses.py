"""What every loss of the baselines does: its gradient, zero vectors, and the arguments that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.arccse import arccon_nce, triplet_loss
from bench.baselines.dclr import debiased_nce
from bench.baselines.diffcse import rtd_loss
from bench.baselines.edfse import distillation_loss
from bench.baselines.mixcse import mixed_nce
from bench.baselines.pcl import contrast_rows, group_contrast, pcl_loss, row_divergence
from bench.baselines.rankcse import consistency_loss, list_mle, list_net
from bench.baselines.sncse import bidirectional_margin_loss
from bench.baselines.vascl import near_nce
from bench.baselines.whitenedcse import multi_positive_nce
from bench.losses.bootstrap import byol_loss
from bench.losses.contrastive import hard_negative_nce, info_nce, queue_nce
from bench.losses.masked_lm import masked_lm_loss
from tests.support.training import random

Loss = Callable[..., Tensor]
PLAIN = (4, 3)
FIXED = random(4, 3, seed=9)


@pytest.mark.parametrize(
    ("loss", "shapes"),
    [
        (partial(info_nce, tau=0.3), [PLAIN] * 2),
        (partial(arccon_nce, tau=0.3, margin=0.17), [PLAIN] * 2),
        (partial(triplet_loss, margin=2.5), [PLAIN] * 3),  # no row is at 0
        (byol_loss, [PLAIN] * 2),
        (lambda s: distillation_loss(s, FIXED, "contrastive", 0.3), [PLAIN]),
        (lambda s: distillation_loss(s, FIXED, "mse", 0.3), [PLAIN]),
        (lambda a, p: queue_nce(a, p, FIXED, 0.3), [PLAIN] * 2),
        (lambda a, p: debiased_nce(a, p, FIXED, FIXED @ FIXED.T > 0, 0.3), [PLAIN] * 2),
        (partial(hard_negative_nce, tau=0.3, weight=0.5), [PLAIN] * 3),
        (partial(bidirectional_margin_loss, alpha=2.5, beta=3.0), [PLAIN] * 3),
        (lambda *views: multi_positive_nce(views, 0.3), [PLAIN] * 3),
        (partial(near_nce, near=None, tau=0.3), [PLAIN] * 2),
        (partial(near_nce, near=torch.eye(4).roll(1, 1) > 0, tau=0.3), [PLAIN] * 2),
        (partial(pcl_loss, tau=0.5), [(3, 3, 4)] * 2),
        (partial(group_contrast, positives=2), [PLAIN]),
        (row_divergence, [PLAIN] * 2),
    ],
)
def test_gradients_reach_every_row_and_are_finite_at_zero_vectors(
    loss: Loss, shapes: list[tuple[int, ...]]
) -> None:
    given = [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    leaves = [matrix.clone().requires_grad_() for matrix in given]
    assert torch.autograd.gradcheck(loss, tuple(leaves))
    for gradient in torch.autograd.grad(loss(*leaves), leaves):
        assert bool((gradient.abs().sum(-1) > 0).all())
    for place in range(len(given)):
        leaves = [matrix.clone().requires_grad_() for matrix in given]
        zeroed = [leaf * (0 if i == place else 1) for i, leaf in enumerate(leaves)]
        parts = torch.autograd.grad(loss(*zeroed), zeroed, materialize_grads=True)
        assert all(bool(part.isfinite().all()) for part in parts)


REFUSED: list[tuple[Loss, list[tuple[int, ...]], tuple[Any, ...], str]] = [
    (info_nce, [(2, 3), (3, 3)], (0.05,), r"anchors \(2, 3\) and positives \(3, 3\) must be \(B, H\)"),
    (info_nce, [(3,), (3,)], (0.05,), r"must be \(B, H\)"),
    (info_nce, [(2, 3), (2, 3)], (0.0,), "tau 0.0 must be above 0"),
    (arccon_nce, [(2, 3), (3, 3)], (0.05, 0.1), r"anchors \(2, 3\) and positives \(3, 3\) must be \(B, H\)"),
    (arccon_nce, [(3,), (3,)], (0.05, 0.1), r"must be \(B, H\)"),
    (arccon_nce, [(2, 3), (2, 3)], (0.0, 0.1), r"tau 0\.0 must be above 0"),
    (arccon_nce, [(2, 3), (2, 3)], (0.05, -0.1), r"margin -0\.1 must be 0 to pi"),
    (arccon_nce, [(2, 3), (2, 3)], (0.05, 10.0), r"margin 10\.0 must be 0 to pi"),  # degrees
    (
        triplet_loss,
        [(2, 4), (6, 4), (6, 4)],
        (0.0,),
        r"whole \(2, 4\), light \(6, 4\) and heavy \(6, 4\) must be \(N, H\)",
    ),
    (byol_loss, [(2, 3), (3, 3)], (), r"predictions \(2, 3\) and targets \(3, 3\) must be \(B, H\)"),
    (byol_loss, [(3,), (3,)], (), r"must be \(B, H\)"),
    (distillation_loss, [(2, 3), (3, 3)], ("mse", 0.05), r"student \(2, 3\) and teacher \(3, 3\) must be"),
    (distillation_loss, [(2, 3), (3, 3)], ("contrastive", 0.05), r"must be \(B, H\)"),
    (distillation_loss, [(2, 3), (2, 3)], ("kl", 0.05), "form 'kl'; expected contrastive or mse"),
    (
        queue_nce,
        [(2, 3), (3, 3), (1, 3)],
        (0.05,),
        r"anchors \(2, 3\) and positives \(3, 3\) must be \(B, H\), the queue",
    ),
    (queue_nce, [(2, 3), (2, 3), (1, 4)], (0.05,), r"the queue \(1, 4\) \(M, H\)"),
    (queue_nce, [(2, 3), (2, 3), (1, 3)], (0.0,), "tau 0.0 must be above 0"),
    (mixed_nce, [(2, 3), (3, 3)], (0.05,), r"anchors \(2, 3\) and positives \(3, 3\) must be \(B, H\)"),
    (mixed_nce, [(2, 3), (2, 3)], (0.0,), "tau 0.0 must be above 0"),
    (partial(mixed_nce, mix=1.5), [(2, 3), (2, 3)], (0.05,), "mix 1.5 must be 0 to 1"),
    (partial(mixed_nce, form="x"), [(2, 3), (2, 3)], (0.05,), "form 'x'; expected one of released, paper"),
    (rtd_loss, [(2, 3), (2, 3), (2, 3)], (), r"logits \(2, 3\), labels \(2, 3\) and mask \(2, 3\) must be"),
    (rtd_loss, [(2, 3, 2), (2, 4), (2, 4)], (), r"must be \(N, L, 2\), \(N, L\) and \(N, L\)"),
    (rtd_loss, [(2, 3, 2), (2, 3), (2, 4)], (), r"and mask \(2, 4\) must be"),
    (rtd_loss, [(2, 3, 2), (2, 3), (2, 3)], ("mean",), "reduction 'mean' must be 'cells' or 'sentence'"),
    (masked_lm_loss, [(3,), (3,)], (), r"must be \(K, V\) and \(K,\)"),
    (masked_lm_loss, [(3, 2), (2,)], (), r"must be \(K, V\) and \(K,\)"),
    (masked_lm_loss, [(3, 2), (3, 1)], (), r"must be \(K, V\) and \(K,\)"),
    (pcl_loss, [(2, 3, 4), (2, 3, 5)], (0.05,), r"\(2, 3, 4\) and \(2, 3, 5\) must be \(V, B, H\), V"),
    (pcl_loss, [(1, 3, 4), (1, 3, 4)], (0.05,), "V at least 2"),
    (pcl_loss, [(3, 4), (3, 4)], (0.05,), r"must be \(V, B, H\)"),
    (pcl_loss, [(2, 3, 4), (2, 3, 4)], (0.0,), "tau 0.0 must be above 0"),
    (
        contrast_rows,
        [(3, 4), (3, 2, 4), (2, 4)],
        (0.05,),
        r"anchors \(3, 4\) and negatives \(2, 4\) must be \(B, H\), positives \(3, 2, 4\) \(B, S, H\)",
    ),
    (contrast_rows, [(3, 4), (2, 2, 4), (3, 4)], (0.05,), "must be"),
    (contrast_rows, [(3, 4), (3, 2, 4), (3, 4)], (-1,), "tau -1 must be above 0"),
    (consistency_loss, [(2, 3)], (), r"lists \(2, 3\) must be \(B, B\)"),
    (consistency_loss, [(2, 2)], ("x",), "form 'x'; expected js or neg_entropy"),
    (list_net, [(2, 3), (3, 3)], (), r"student's \(2, 3\) and teacher's \(3, 3\)"),
    (list_net, [(1, 0), (1, 0)], (), "R and K at least 1"),
    (list_mle, [(3,), (3,)], (), r"lists must be \(R, K\)"),
    (partial(list_mle, eps=-1), [(1, 2), (1, 2)], (), "eps -1 must be at least 0"),
    (
        bidirectional_margin_loss,
        [(2, 3), (2, 3), (3, 3)],
        (0.1, 0.3),
        r"anchors \(2, 3\), positives \(2, 3\) and negatives \(3, 3\) must be",
    ),
    (bidirectional_margin_loss, [(3,), (3,), (3,)], (0.1, 0.3), r"must be \(B, H\)"),
    (bidirectional_margin_loss, [(2, 3)] * 3, (0.4, 0.3), r"alpha 0\.4 must be at most beta 0\.3"),
    (near_nce, [(2, 3), (3, 3)], (None, 0.05), r"first \(2, 3\) and second \(3, 3\) must be \(B, F\)"),
    (near_nce, [(2, 3), (2, 3)], (None, 0.0), "tau 0.0 must be above 0"),
    (lambda view, tau: multi_positive_nce([view], tau), [(2, 3)], (0.05,), r"1 view\(s\): a positive needs"),
    (lambda *given: multi_positive_nce(given[:2], given[2]), [(2, 3), (3, 3)], (0.05,), r"must be \(B, H\)"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "shapes", "more", "message"), REFUSED)
def test_refused_arguments(
    loss: Loss, shapes: list[tuple[int, ...]], more: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loss(*(torch.ones(shape) for shape in shapes), *more)
