"""The twin encoders' losses: by hand, against the printed formulas as plain loops, at their limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bench.losses.twin_losses import cross_nce, ltn, nce_released, tensor_norm_ratio, tower_nce
from tests.support.training import random

TAU = 0.05


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cos(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def released_by_loops(a: Tensor, b: Tensor, tau: float) -> float:
    """NCE(A, B) as the specification states it, on lists."""
    left, right = a.tolist(), b.tolist()
    total = 0.0
    for r in range(len(left)):
        target = r + 1 if r % 2 == 0 else r - 1
        denominator = sum(math.exp(cos(left[r], right[c]) / tau) for c in range(len(right)) if c != r)
        total -= math.log(math.exp(cos(left[r], right[target]) / tau) / denominator)
    return total / len(left)


def paper_by_loops(anchors: list[list[float]], positives: list[list[float]], tau: float) -> float:
    """Eq. 4: the positive in the denominator, and the other sentences of the batch."""
    total = 0.0
    for i, anchor in enumerate(anchors):
        positive = math.exp(cos(anchor, positives[i]) / tau)
        negatives = sum(math.exp(cos(anchor, other) / tau) for j, other in enumerate(positives) if j != i)
        total -= math.log(positive / (positive + negatives))
    return total / len(anchors)


def ltn_by_loops(h_a: Tensor, p_a: Tensor, h_b: Tensor, p_b: Tensor, scale: float, angle: str) -> float:
    """LTN(a -> b) as the specification states it, on lists."""
    ha, pa, hb, pb = (matrix.tolist() for matrix in (h_a, p_a, h_b, p_b))
    total = 0.0
    for i in range(0, len(ha), 2):
        c = cos(ha[i], hb[i + 1] if angle == "cross" else hb[i])
        c = 1e-4 if c < 0 else min(max(c, 1e-8), 1.0)
        factor = math.dist(pa[i], pb[i + 1]) / (math.hypot(*pa[i]) + math.hypot(*pb[i + 1]))
        total += -math.log(c) * factor * scale
    return total / (len(ha) // 2)


def backward(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs, materialize_grads=True))


def test_nce_by_hand() -> None:
    # cosines of row 0 with the others: 0, 1, c; of 1: 0, 0, c; of 2: 1, 0, c; of 3: c, c, c; c = 1 / sqrt 2
    h = rows((1, 0), (0, 2), (3, 0), (1, 1))
    e = math.exp(1 / math.sqrt(2))
    losses = [
        math.log(1 + math.e + e),  # target is column 1, cosine 0
        math.log(1 + 1 + e),  # target column 0
        math.log(math.e + 1 + e) - math.log(e),  # target column 3
        math.log(3 * e) - math.log(e),  # target column 2
    ]
    assert float(tower_nce(h, 1.0)) == pytest.approx(sum(losses) / 4, rel=1e-12)
    # first views (1, 0), (3, 0) against second (0, 2), (1, 1): both rows 0, c with targets 0 and c
    paper = (math.log(1 + e) + math.log(1 + e) - math.log(e)) / 2
    assert float(tower_nce(h, 1.0, "paper")) == pytest.approx(paper, rel=1e-12)
    # first views of both towers: (1, 0), (3, 0) against (0, 1), (1, 0): rows 0, 1 with targets 0 and 1
    other = rows((0, 1), (5, 5), (1, 0), (5, 5))
    paper = (math.log(1 + math.e) + math.log(1 + math.e) - 1) / 2
    assert float(cross_nce(h, other, 1.0, "paper")) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize("sentences", [1, 2, 5])
@pytest.mark.parametrize("tau", [0.05, 0.7])
def test_nce_is_the_formula(sentences: int, tau: float) -> None:
    a, b = random(2 * sentences, 6), random(2 * sentences, 6, seed=1)
    expected = {
        "released": (released_by_loops(a, a, tau), released_by_loops(a, b, tau)),
        "paper": (
            paper_by_loops(a[0::2].tolist(), a[1::2].tolist(), tau),
            paper_by_loops(a[0::2].tolist(), b[0::2].tolist(), tau),
        ),
    }
    for form, (within, across) in expected.items():
        assert float(tower_nce(a, tau, form)) == pytest.approx(within, rel=1e-9, abs=1e-12)
        assert float(cross_nce(a, b, tau, form)) == pytest.approx(across, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sentences", [1, 2, 8])
def test_nce_of_orthogonal_and_equal_rows(sentences: int) -> None:
    size = 2 * sentences
    unit = torch.eye(size, dtype=torch.float64)
    assert float(nce_released(unit, unit, TAU)) == pytest.approx(math.log(size - 1))
    paired = unit[torch.arange(size) ^ 1]  # each row meets itself at its target
    closed = math.log(1 + (size - 2) * math.exp(-1 / TAU))
    assert float(nce_released(unit, paired, TAU)) == pytest.approx(closed, rel=1e-6)
    assert float(tower_nce(unit, TAU, "paper")) == pytest.approx(math.log(sentences))
    closed = math.log(1 + (sentences - 1) * math.exp(-1 / TAU))
    assert float(cross_nce(unit, unit, TAU, "paper")) == pytest.approx(closed, rel=1e-6)
    equal = torch.ones(size, 3, dtype=torch.float64)
    assert float(nce_released(equal, equal, TAU)) == pytest.approx(math.log(size - 1))


def test_nce_of_one_sentence_is_0() -> None:
    a, b = random(2, 4).requires_grad_(), random(2, 4, seed=1).requires_grad_()
    loss = nce_released(a, b, TAU)
    assert float(loss.detach()) == 0
    assert all(float(part.abs().max()) == 0 for part in backward(loss, a, b))


def test_nce_invariances() -> None:
    a, b = random(8, 5), random(8, 5, seed=1)
    for form in ("released", "paper"):
        base = float(cross_nce(a, b, TAU, form))
        assert float(cross_nce(b, a, TAU, form)) != pytest.approx(base, rel=1e-3)
        assert float(cross_nce(a * 7, b * 0.1, TAU, form)) == pytest.approx(base)
        order = torch.tensor([4, 5, 0, 1, 6, 7, 2, 3])  # sentences, their views together
        assert float(cross_nce(a[order], b[order], TAU, form)) == pytest.approx(base)
        shifted = torch.tensor([1, 2, 3, 4, 5, 6, 7, 0])  # views of different sentences paired
        assert float(cross_nce(a[shifted], b[shifted], TAU, form)) != pytest.approx(base, rel=1e-3)
    swapped = torch.arange(8) ^ 1
    assert float(nce_released(a[swapped], b[swapped], TAU)) == pytest.approx(float(nce_released(a, b, TAU)))


def test_nce_gradients() -> None:
    a, b = random(6, 3).requires_grad_(), random(6, 3, seed=1).requires_grad_()
    for form in ("released", "paper"):
        assert torch.autograd.gradcheck(lambda x, f=form: tower_nce(x, 0.5, f), (a,))
        assert torch.autograd.gradcheck(lambda x, y, f=form: cross_nce(x, y, 0.5, f), (a, b))
    zero, one = torch.zeros(4, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    for left, right in ((zero, one), (one, zero), (zero, zero), (one, one), (one, -one)):
        loss = nce_released(left, right, TAU)
        assert bool(loss.isfinite())
        assert all(bool(part.isfinite().all()) for part in backward(loss, zero, one))


def test_norm_ratio_by_hand() -> None:
    a = rows((3, 4), (1, 0), (1, 0), (2, 0), (0, 0), (0, 0))
    b = rows((3, 4), (0, 1), (-1, 0), (1, 0), (0, 5), (0, 0))
    ratios = tensor_norm_ratio(a, b).tolist()
    assert ratios == pytest.approx([0, math.sqrt(2) / 2, 1, 1 / 3, 1, 0], rel=1e-15)
    assert ratios[0] == ratios[5] == 0


NUMBERS = st.floats(-100, 100).filter(lambda x: x == 0 or abs(x) > 1e-3)
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3)


@given(VECTORS, VECTORS, st.floats(1e-2, 1e3))
def test_norm_ratio_properties(x: list[float], y: list[float], factor: float) -> None:
    a, b = rows(tuple(x)), rows(tuple(y))
    value, lengths = float(tensor_norm_ratio(a, b)), math.hypot(*x) + math.hypot(*y)
    assert 0 <= value <= 1 + 1e-12
    assert (value == 0) == (x == y)
    assert float(tensor_norm_ratio(b, a)) == value
    assert float(tensor_norm_ratio(a * factor, b * factor)) == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert value == pytest.approx(math.dist(x, y) / (lengths or 1), rel=1e-12)


def test_norm_ratio_gradients() -> None:
    a, b = random(5, 3).requires_grad_(), random(5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(tensor_norm_ratio, (a, b))
    for left, right in ((a, a.detach()), (a * 0, b), (a * 0, b * 0), (a, -a.detach())):
        parts = backward(tensor_norm_ratio(left, right).sum(), a, b)
        assert all(bool(part.isfinite().all()) for part in parts)
    assert float(backward(tensor_norm_ratio(a, a.detach().clone()).sum(), a)[0].abs().max()) == 0
    with pytest.raises(ValueError, match=r"\(5, 3\) .*\(4, 3\)"):
        tensor_norm_ratio(a, b[:4])


def test_ltn_by_hand() -> None:
    h_a, h_b = rows((1, 0), (9, 9), (1, 0), (9, 9)), rows((1, 0), (1, 1), (1, 2), (-1, 3))
    p_a, p_b = rows((2, 0), (8, 8), (1, 0), (8, 8)), rows((8, 8), (1, 0), (8, 8), (0, 1))
    # sentence 0: c = 1/sqrt 2, factor 1/3; sentence 1: c < 0, so 1e-4, factor sqrt 2 / 2
    released = (math.log(2) / 2 / 3 - math.log(1e-4) * math.sqrt(2) / 2) / 2 * 0.5
    assert float(ltn(h_a, p_a, h_b, p_b)) == pytest.approx(released, rel=1e-12)
    # first views: sentence 0 c = 1, so 0; sentence 1 c = 1/sqrt 5
    paper = math.log(5) / 2 * math.sqrt(2) / 2 / 2
    assert float(ltn(h_a, p_a, h_b, p_b, scale=1, angle="paper")) == pytest.approx(paper, rel=1e-12)
    assert -math.log(1e-4) == pytest.approx(9.21, abs=0.001)


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("angle", ["cross", "paper"])
@pytest.mark.parametrize("sentences", [1, 2, 9])
def test_ltn_is_the_formula(scale: float, angle: str, sentences: int) -> None:
    h_a, h_b = (random(2 * sentences, 3, seed=seed) for seed in (0, 1))
    p_a, p_b = (random(2 * sentences, 4, seed=seed) for seed in (2, 3))
    for one, two in (((h_a, p_a), (h_b, p_b)), ((h_b, p_b), (h_a, p_a)), ((h_a, p_a), (h_a, p_a))):
        value = float(ltn(*one, *two, scale=scale, angle=angle))
        assert value == pytest.approx(ltn_by_loops(*one, *two, scale, angle), rel=1e-9, abs=1e-12)
        assert value >= 0
    if sentences == 9:  # both branches were taken
        cosines = [cos(h_a[2 * i].tolist(), h_b[2 * i + 1].tolist()) for i in range(9)]
        assert min(cosines) < 0 < max(cosines)


def test_ltn_gradients() -> None:
    given_rows = tuple(random(8, 3, seed=seed).requires_grad_() for seed in range(4))
    cosines = torch.cosine_similarity(given_rows[0][0::2], given_rows[2][1::2])
    assert float(cosines.detach().min()) < -0.05 < 0.05 < float(cosines.detach().max())
    for angle, place in (("cross", 1), ("paper", 0)):
        assert torch.autograd.gradcheck(lambda *parts, form=angle: ltn(*parts, angle=form), given_rows)
        # first views of a, h_b's second (cross) or first (paper), second views of p_b
        parts = backward(ltn(*given_rows, angle=angle), *given_rows)
        for part, used in zip(parts, (0, 0, place, 1), strict=True):
            assert float(part[1 - used :: 2].abs().max()) == 0 < float(part[used::2].abs().max())


def test_negative_cosine_is_a_constant() -> None:
    h_a, h_b = rows((1, 0), (0, 0)).requires_grad_(), rows((0, 0), (-1, 0.5)).requires_grad_()
    p_a, p_b = rows((2, 0), (0, 0)).requires_grad_(), rows((0, 0), (1, 0)).requires_grad_()
    loss = ltn(h_a, p_a, h_b, p_b, scale=1)
    assert float(loss.detach()) == pytest.approx(-math.log(1e-4) / 3)
    gradients = backward(loss, h_a, p_a, h_b, p_b)
    assert [bool(part.abs().max() > 0) for part in gradients] == [False, True, False, True]


def both(*values: tuple[float, ...]) -> Tensor:
    """Each vector as both views of its sentence, float32."""
    return torch.tensor(values).repeat_interleave(2, dim=0)


@pytest.mark.parametrize("angle", ["cross", "paper"])
def test_ltn_limits(angle: str) -> None:
    axis, other, zero, big = (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (1e6, 1e6)
    skew, minus = (0.3, 0.7), (-1.0, 0.0)
    table: list[tuple[Any, Any, Any, Any, float]] = [
        # H_a, H_b, P_a, P_b, expected at scale 1
        (axis, axis, skew, other, 0.0),  # c = 1
        (axis, minus, skew, skew, 0.0),  # equal poolers
        (axis, minus, skew, tuple(-x for x in skew), -math.log(1e-4)),  # all opposite
        (axis, other, axis, minus, -math.log(1e-8)),  # c exactly 0
        (zero, axis, axis, minus, -math.log(1e-8)),
        (zero, zero, zero, zero, 0.0),
        (skew, skew, skew, skew, 0.0),
        (axis, other, zero, zero, 0.0),
        (big, axis, zero, big, math.log(2) / 2),
    ]
    for h_a, h_b, p_a, p_b, expected in table:
        given_rows = [both(v).requires_grad_() for v in (h_a, p_a, h_b, p_b)]
        loss = ltn(*given_rows, scale=1, angle=angle)
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert float(loss.detach()) >= 0
        assert all(bool(part.isfinite().all()) for part in backward(loss, *given_rows))


def test_cosines_rounded_above_one_are_no_negative_loss() -> None:
    states = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0)).repeat_interleave(2, dim=0)
    above = torch.cosine_similarity(states[0::2], states[1::2]) > 1
    assert bool(above.any())
    kept = states[above.repeat_interleave(2)]
    assert float(ltn(kept, torch.ones_like(kept), kept, -torch.ones_like(kept))) == 0
