"""What every loss of the baselines does: its gradient, zero vectors, and the arguments that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.angle import complex_angle, cosent_loss
from bench.baselines.arccse import arccon_nce, triplet_loss
from bench.baselines.dclr import debiased_nce
from bench.baselines.diffcse import rtd_loss
from bench.baselines.edfse import distillation_loss
from bench.baselines.iscse import smooth_anchors
from bench.baselines.mixcse import mixed_nce
from bench.baselines.pcl import contrast_rows, group_contrast, pcl_loss, row_divergence
from bench.baselines.rankcse import consistency_loss, list_mle, list_net
from bench.baselines.sncse import bidirectional_margin_loss
from bench.baselines.vascl import find_batch_neighbours
from bench.baselines.whitenedcse import multi_positive_nce
from bench.losses.contrastive import hard_negative_nce, info_nce, near_nce, queue_nce
from bench.losses.decorrelation import byol_loss
from bench.losses.masked_lm import masked_lm_loss
from bench.losses.modified_noncontrastive import LOSSES as MODIFIED
from bench.losses.modified_noncontrastive import ModifiedSteps
from bench.losses.paradigm_losses import Paradigm, paradigm_loss, unit_info_nce
from bench.losses.twin_losses import cross_nce, ltn, tower_nce
from bench.training.group_whitening import whiten_views
from tests.support.messages import missing_facts
from tests.support.training import random

Loss = Callable[..., Tensor]
PLAIN = (4, 3)
FIXED = random(4, 3, seed=9)
TWO_VIEWS: list[tuple[Loss, tuple[Any, ...]]] = [
    (info_nce, (0.05,)),
    (arccon_nce, (0.05, 0.1)),
    (byol_loss, ()),
    (mixed_nce, (0.05,)),
]


def smooth(anchors: Tensor, keys: Tensor, members: Tensor, tau: float) -> Tensor:
    return smooth_anchors(anchors, keys, members.bool(), tau)


STEPS = ModifiedSteps(True, True, True)
SOFTMAX, COLD = replace(STEPS, kernel="softmax"), replace(STEPS, tau=0.0)
NO_TARGETS = [((3,), (3,)), ((3, 2), (2,)), ((3, 2), (3, 1))]


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
        (lambda x, y: complex_angle(x, y).sum(), [(3, 4)] * 2),
        (partial(cosent_loss, scale=2.0), [(3,)] * 2),
    ],
)
def test_gradients_reach_every_row_and_are_finite(loss: Loss, shapes: list[tuple[int, ...]]) -> None:
    given = [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    leaves = [matrix.clone().requires_grad_() for matrix in given]
    assert torch.autograd.gradcheck(loss, tuple(leaves))
    for gradient in torch.autograd.grad(loss(*leaves), leaves):
        assert bool((gradient.abs().sum(-1, keepdim=True) > 0).all())
    for place in range(len(given)):
        leaves = [matrix.clone().requires_grad_() for matrix in given]
        zeroed = [leaf * (0 if i == place else 1) for i, leaf in enumerate(leaves)]
        parts = torch.autograd.grad(loss(*zeroed), zeroed, materialize_grads=True)
        assert all(bool(part.isfinite().all()) for part in parts)


# a loss, the shapes of its tensors, its other arguments, and what the error has to name
REFUSED: list[Any] = [
    *((loss, [(2, 3), (3, 3)], args, ("(2, 3)", "(3, 3)", "(B, H)")) for loss, args in TWO_VIEWS),
    *((loss, [(3,), (3,)], args, ("(B, H)",)) for loss, args in TWO_VIEWS),
    *(
        (loss, [(2, 3), (2, 3)], (0.0, *args[1:]), ("tau 0.0", "above 0"))
        for loss, args in TWO_VIEWS
        if loss is not byol_loss
    ),
    (complex_angle, [(2, 3), (2, 3)], (), ("3 numbers", "halves")),
    (cosent_loss, [(5,), (4,)], (0.0,), ("scale 0.0", "above 0")),
    (debiased_nce, [(2, 3), (3, 3), (1, 3)], (None, 0.1), ("(2, 3)", "(3, 3)", "(B, H)")),
    (debiased_nce, [(2, 3), (2, 3), (1, 3)], (torch.ones(2, 3).bool(), 0.1), ("alike (2, 3)", "(B, B)")),
    (debiased_nce, [(2, 3), (2, 3), (1, 3)], (None, 0.0), ("tau 0.0", "above 0")),
    (partial(debiased_nce, form="x"), [(2, 3), (2, 3), (1, 3)], (None, 0.1), ("'x'", "released", "paper")),
    (hard_negative_nce, [(5, 4), (5, 4), (4, 4)], (0.3,), ("negatives (4, 4)", "(B, H)")),
    (hard_negative_nce, [(5, 4), (5, 4), (5, 4)], (0.0,), ("tau 0.0", "above 0")),
    (near_nce, [(2, 3), (2, 3)], (torch.ones(2, 3) > 0, 0.05), ("near (2, 3)", "(B, B)", "2 rows")),
    (find_batch_neighbours, [(4, 2)], (0,), ("count 0", "at least 1")),
    (smooth, [(3,), (2, 3), (1, 2)], (1.0,), ("(3,), (2, 3), (1, 2)", "(B, H)")),
    (smooth, [(2, 3), (4, 3), (2, 4)], (0.0,), ("tau 0.0", "above 0")),
    (arccon_nce, [(2, 3), (2, 3)], (0.05, 10.0), ("margin 10.0", "0 to pi")),  # degrees
    (triplet_loss, [(2, 4), (6, 4), (6, 4)], (0.0,), ("whole (2, 4)", "light (6, 4)", "(N, H)")),
    (distillation_loss, [(2, 3), (3, 3)], ("mse", 0.05), ("student (2, 3)", "teacher (3, 3)")),
    (distillation_loss, [(2, 3), (2, 3)], ("kl", 0.05), ("'kl'", "contrastive", "mse")),
    (queue_nce, [(2, 3), (3, 3), (1, 3)], (0.05,), ("anchors (2, 3)", "positives (3, 3)")),
    (queue_nce, [(2, 3), (2, 3), (1, 3)], (0.0,), ("tau 0.0", "above 0")),
    (partial(mixed_nce, mix=1.5), [(2, 3), (2, 3)], (0.05,), ("mix 1.5", "0 to 1")),
    (partial(mixed_nce, form="x"), [(2, 3), (2, 3)], (0.05,), ("'x'", "released", "paper")),
    (rtd_loss, [(2, 3), (2, 3), (2, 3)], (), ("(2, 3)", "(N, L, 2)")),
    (rtd_loss, [(2, 3, 2), (2, 3), (2, 3)], ("mean",), ("'mean'", "cells", "sentence")),
    *((masked_lm_loss, [states, targets], (), ("(K, V)", "(K,)")) for states, targets in NO_TARGETS),
    (pcl_loss, [(1, 3, 4), (1, 3, 4)], (0.05,), ("V at least 2",)),
    (pcl_loss, [(2, 3, 4), (2, 3, 4)], (0.0,), ("tau 0.0", "above 0")),
    (contrast_rows, [(3, 4), (3, 2, 4), (2, 4)], (0.05,), ("(3, 2, 4)", "(2, 4)", "(B, S, H)")),
    (contrast_rows, [(3, 4), (3, 2, 4), (3, 4)], (-1,), ("tau -1", "above 0")),
    (consistency_loss, [(2, 3)], (), ("(2, 3)", "(B, B)")),
    (consistency_loss, [(2, 2)], ("x",), ("'x'", "js", "neg_entropy")),
    (list_net, [(2, 3), (3, 3)], (), ("(2, 3)", "(3, 3)", "(R, K)")),
    (partial(list_mle, eps=-1), [(1, 2), (1, 2)], (), ("eps -1", "at least 0")),
    (bidirectional_margin_loss, [(2, 3), (2, 3), (3, 3)], (0.1, 0.3), ("negatives (3, 3)", "(B, H)")),
    (bidirectional_margin_loss, [(2, 3)] * 3, (0.4, 0.3), ("alpha 0.4", "beta 0.3")),
    (near_nce, [(2, 3), (2, 3)], (None, 0.0), ("tau 0.0", "above 0")),
    (lambda view, tau: multi_positive_nce([view], tau), [(2, 3)], (0.05,), ("1 view", "at least 2")),
    (lambda *given: multi_positive_nce(given[:2], given[2]), [(2, 3), (3, 3)], (0.05,), ("(B, H)",)),
    (unit_info_nce, [(3, 6)] * 2, (0.0,), ("tau 0.0",)),
    (partial(paradigm_loss, parts=Paradigm(tau=-1)), [(3, 6)] * 2, (), ("tau -1",)),
    (partial(paradigm_loss, parts=Paradigm(), form="x"), [(3, 6)] * 2, (), ("form 'x'", "released", "paper")),
    (partial(paradigm_loss, parts=Paradigm(gd="mat")), [(3, 6)] * 2, (), ("gd 'mat'", "indicator")),
    (partial(paradigm_loss, parts=Paradigm(w="mat")), [(3, 6)] * 2, (), ("w 'mat'", "softmax")),
    (partial(paradigm_loss, parts=Paradigm(r="mat")), [(3, 6)] * 2, (), ("r 'mat'", "static")),
    *((loss, [(3, 6)] * 2, (STEPS, "x"), ("form 'x'",)) for loss in MODIFIED.values()),
    *((loss, [(3, 6)] * 2, (SOFTMAX, "paper"), ("kernel 'softmax'",)) for loss in MODIFIED.values()),
    *((MODIFIED[name], [(3, 6)] * 2, (COLD, "paper"), ("tau 0.0",)) for name in ("mhe", "barlow", "vicreg")),
    (cross_nce, [(4, 3), (6, 3)], (0.05,), ("(2N, H)",)),
    (cross_nce, [(4, 3), (6, 3)], (0.05, "paper"), ("(2N, H)",)),
    (tower_nce, [(3, 3)], (0.05,), ("(3, 3)", "(2N, H)")),
    (tower_nce, [(4, 3)], (0.0,), ("tau 0.0", "above 0")),
    (tower_nce, [(4, 3)], (0.05, "x"), ("'x'", "released", "paper")),
    (ltn, [(4, 3), (4, 3), (6, 3), (4, 3)], (), ("(2N, H)",)),
    (ltn, [(4, 3), (6, 3)] * 2, (), ("4 [CLS] rows", "6 pooler rows")),
    (partial(ltn, angle="x"), [(4, 3)] * 4, (), ("'x'", "cross", "paper")),
    (lambda x: whiten_views([x], torch.arange(5)[None], 2), [(3, 4)], (), ("(3, 4)", "order (5,)", "(B, H)")),
    (lambda x: whiten_views([x], torch.arange(4)[None], 3), [(3, 4)], (), ("3 groups", "4 channels")),
    (lambda x: whiten_views([x], torch.arange(4)[None], 2, eps=0.0), [(3, 4)], (), ("eps 0.0", "above 0")),
]


@pytest.mark.parametrize(("loss", "shapes", "more", "facts"), REFUSED)
def test_refused_arguments(
    loss: Loss, shapes: list[tuple[int, ...]], more: tuple[Any, ...], facts: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - its facts are compared
        loss(*(torch.ones(shape) for shape in shapes), *more)
    assert not missing_facts(error.value, *facts)
