"""ArcCSE: ArcCon and the triplet loss, nested maskings, steps against a transcription, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.baselines.arccse import arccon_nce, mask_nested_spans, triplet_loss
from bench.losses.contrastive import info_nce
from bench.method_card import OptionValue
from bench.training.randomness import generator
from tests.support.steps import gradients_of, objective_of, same_step, under_head
from tests.support.training import SENTENCES, options_of, random

TEN = math.radians(10)


def by_loops(anchors: Tensor, positives: Tensor, tau: float, margin: float) -> Tensor:
    """The formula as it is printed, with arccos."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(anchors)):
        cosines = [anchors[i] @ p / (anchors[i].norm() * p.norm()) for p in positives]
        own = ((cosines[i].arccos() + margin).cos() / tau).exp()
        others = [(c / tau).exp() for j, c in enumerate(cosines) if j != i]
        total = total - (own / (own + sum(others, torch.zeros((), dtype=torch.float64)))).log()
    return total / len(anchors)


@pytest.mark.parametrize("margin", [0.0, TEN, 1.0, 3.0])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_arccon_is_the_formula(batch: int, margin: float) -> None:
    a, p = random(batch, 5), random(batch, 5, seed=1)
    expected = float(by_loops(a, p, 0.3, margin))
    assert float(arccon_nce(a, p, 0.3, margin)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_arccon_by_hand_and_without_a_margin() -> None:
    """Right angles: cos(90 degrees + 30 degrees) = -1/2 for anchor 1; cos(45 + 30) for anchor 2."""
    a = torch.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    p = torch.tensor([[0.0, 1.0], [4.0, 4.0]], dtype=torch.float64)
    rows = [(-0.5, math.sqrt(0.5)), (math.cos(math.radians(75)), 1.0)]
    expected = sum(math.log(1 + math.exp(other - own)) for own, other in rows) / 2
    assert float(arccon_nce(a, p, 1.0, math.radians(30))) == pytest.approx(expected)
    a, p, order = random(6, 5), random(6, 5, seed=1), torch.tensor([2, 0, 3, 1, 5, 4])
    for positives in (p, a, -a):
        assert float(arccon_nce(a, positives, 0.05, 0.0)) == float(info_nce(a, positives, 0.05))
    base = float(arccon_nce(a, p, 0.3, TEN))  # directions count, their order and lengths don't
    assert float(arccon_nce(a[order] * 3, p[order], 0.3, TEN)) == pytest.approx(base)


def test_a_margin_never_makes_it_smaller_up_to_pi() -> None:
    a, p = random(40, 5), random(40, 5, seed=1)
    largest = float(torch.nn.functional.cosine_similarity(a, p).arccos().max())
    losses = [float(arccon_nce(a, p, 0.5, float(u))) for u in torch.linspace(0, math.pi - largest, 9)]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0]
    opposite = random(4, 5)  # theta + u beyond pi: the cosine rises again, as released
    assert float(arccon_nce(opposite, -opposite, 0.5, 0.5)) < float(info_nce(opposite, -opposite, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["identical", "opposite", "zero", "orthogonal"])
def test_arccon_limits(kind: str, dtype: torch.dtype) -> None:
    a = torch.eye(6, 8, dtype=dtype) if kind == "orthogonal" else random(6, 8).to(dtype)
    a = (a * (0 if kind == "zero" else 1)).requires_grad_()
    p = {"opposite": -a}.get(kind, a) * 1.0
    loss = arccon_nce(a, p, 0.05, TEN)
    assert bool(torch.autograd.grad(loss, a, retain_graph=True)[0].isfinite().all())
    if kind == "orthogonal":  # cos 10 degrees against five right angles
        mild = float(arccon_nce(a, p, 0.5, TEN).detach())
        assert mild == pytest.approx(math.log(1 + 5 * math.exp(-math.cos(TEN) / 0.5)), rel=1e-3)
    if kind == "zero":
        expected = math.log(1 + 5 * math.exp(math.sin(TEN) / 0.05))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert float(arccon_nce(a[:1], p[:1], 0.05, TEN).detach()) == 0


def test_the_positive_is_weighted_by_a_ratio_of_sines() -> None:
    """dL/dh_i of unit vectors: sum_j w_ij (h'_j - sin(theta + u) / sin(theta) h'_i), its tangent part."""
    a, p = (torch.nn.functional.normalize(random(5, 4, seed=s), dim=1) for s in (0, 1))
    a = a.requires_grad_()
    (gradient,) = torch.autograd.grad(arccon_nce(a, p, 0.3, TEN) * 5, a)
    with torch.no_grad():
        theta = (a @ p.T).diagonal().arccos()
        logits = torch.where(torch.eye(5, dtype=torch.bool), (theta + TEN).cos(), a @ p.T) / 0.3
        weights = logits.softmax(1) / 0.3
        for i in range(5):
            ratio = (theta[i] + TEN).sin() / theta[i].sin()
            terms = [weights[i, j] * (p[j] - ratio * p[i]) for j in range(5) if j != i]
            expected = torch.stack(terms).sum(0)
            expected = expected - (expected @ a[i]) * a[i]
            torch.testing.assert_close(gradient[i], expected, rtol=1e-7, atol=1e-9)


def test_triplet_loss_by_hand_and_formula() -> None:
    whole = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    light = torch.tensor([[3.0, 4.0], [0.0, 5.0]], dtype=torch.float64)  # cosines 0.6 and 1
    heavy = torch.tensor([[4.0, 3.0], [1.0, 0.0]], dtype=torch.float64)  # 0.8 and 0
    assert float(triplet_loss(whole, light, heavy, 0.0)) == pytest.approx(0.2 / 2)
    assert float(triplet_loss(whole, light, heavy, 1.5)) == pytest.approx((1.7 + 0.5) / 2)
    h, near, far = (random(6, 4, seed=s) for s in range(3))
    one, two = torch.cosine_similarity(h, near), torch.cosine_similarity(h, far)
    expected = sum(max(0.0, float(two[i] - one[i]) + 0.1) / 6 for i in range(6))
    assert float(triplet_loss(h, near, far, 0.1)) == pytest.approx(expected)
    assert float(triplet_loss(h, near, near, 0.0)) == 0
    assert float(triplet_loss(h[:0], near[:0], far[:0], 0.3)) == 0
    assert float(triplet_loss(h, h, -h, 0.0)) == 0
    assert float(triplet_loss(h, -h, h, 0.25)) == pytest.approx(2.25)


@pytest.mark.parametrize(
    ("subwords", "short", "long"), [(30, 6, 12), (25, 5, 10), (10, 2, 4), (5, 1, 2), (4, 1, 2)]
)
def test_maskings_are_nested_spans(subwords: int, short: int, long: int) -> None:
    row, draw = [101, *range(1000, 1000 + subwords), 102], generator(1, "mask")
    starts = set()
    for _ in range(2000):
        found = mask_nested_spans(row, 7, 0.2, 0.4, draw)
        assert found is not None
        places = []
        for masked, length in zip(found, (short, long), strict=True):
            where = [i for i, token in enumerate(masked) if token == 7]
            assert 1 <= where[0] <= subwords - length + 1
            assert masked == [*row[: where[0]], *[7] * length, *row[where[0] + length :]]
            places.append(set(where))
        assert places[0] <= places[1]
        starts.add((min(places[0]), min(places[1])))
    assert len(starts) == (subwords - long + 1) * (long - short + 1)  # each pair of spans came
    for subwords in range(3):  # too short for two spans
        assert mask_nested_spans([101, *range(subwords), 102], 7, 0.2, 0.4, draw) is None


# the objective

TEXT = [*SENTENCES, "a man is playing a guitar for the children on the hill"]


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({"triplet_min_length": 6}, [0, 2, 4]),
        ({"triplet_min_length": 6, "triplet_margin": 0.5, "triplet_weight": 2.0, "margin": 25.0}, [0, 2, 4]),
        ({"triplet_min_length": 11, "triplet_margin": 0.5}, [4]),
        ({}, []),  # none of 25 subwords
        ({"triplet": False, "triplet_min_length": 6}, []),
    ],
)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue], chosen: Sequence[int]) -> None:
    """Loss and gradient, each view of each sentence in a forward of its own."""
    config = options_of("arccse", **changes)
    made, rows, tokenizer = objective_of("arccse", tiny_bert, TEXT, **changes)
    z = torch.stack([under_head(made, row) for row in rows])
    # without dropout both views are equal: the clamped sine
    sine, u = math.sqrt(1 - (1 - 1e-6) ** 2), math.radians(float(config["margin"]))
    similarity = torch.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=-1)
    own = math.cos(u) * similarity.diagonal() - sine * math.sin(u)
    logits = torch.where(torch.eye(5, dtype=torch.bool), torch.diag(own), similarity) / 0.05
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(5))
    draw, terms = generator(1, "mask/arccse"), []
    for i in chosen:
        pair = mask_nested_spans(rows[i], tokenizer.mask_token_id, 0.2, 0.4, draw)
        assert pair is not None
        near, far = (torch.cosine_similarity(z[i], under_head(made, row), dim=0) for row in pair)
        terms.append(torch.relu(far - near + float(config["triplet_margin"])))
    if terms:
        triplets = torch.stack(terms).mean()
        assert float(triplets.detach()) > 0
        expected = expected + float(config["triplet_weight"]) * triplets
    same_step(made, made(rows), expected)
    alone, rows, _ = objective_of("arccse", tiny_bert, TEXT[4:], triplet_min_length=1, triplet_margin=2.5)
    assert max(float(part.abs().max()) for part in gradients_of(alone, alone(rows)).values()) > 0
