"""ArcCSE: ArcCon and the triplet loss, nested maskings, steps against a transcription, training."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines._arccse import ArcCSEObjective, arccon, nested_maskings, triplet_loss
from bench.card import OptionValue
from bench.errors import InputError
from bench.nn.backbone import load_backbone, padded, token_rows
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import set_dropout
from bench.train.streams import generator
from tests.support.training import SENTENCES, options_of, random, train_alone

TEN = math.radians(10)


options = partial(options_of, "arccse")


# ArcCon


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
    assert float(arccon(a, p, 0.3, margin)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_arccon_by_hand() -> None:
    """Right angles: cos(90 degrees + 30 degrees) = -1/2 for anchor 1; cos(45 + 30) for anchor 2."""
    a = torch.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    p = torch.tensor([[0.0, 1.0], [4.0, 4.0]], dtype=torch.float64)
    rows = [(-0.5, math.sqrt(0.5)), (math.cos(math.radians(75)), 1.0)]
    expected = sum(math.log(1 + math.exp(other - own)) for own, other in rows) / 2
    assert float(arccon(a, p, 1.0, math.radians(30))) == pytest.approx(expected)


def test_arccon_without_a_margin_is_info_nce() -> None:
    a, p = random(6, 5), random(6, 5, seed=1)
    for positives in (p, a, -a):
        assert float(arccon(a, positives, 0.05, 0.0)) == float(info_nce(a, positives, 0.05))


def test_a_margin_never_makes_it_smaller_up_to_pi() -> None:
    a, p = random(40, 5), random(40, 5, seed=1)
    angles = torch.nn.functional.cosine_similarity(a, p).arccos()
    losses = [float(arccon(a, p, 0.5, float(u))) for u in torch.linspace(0, math.pi - float(angles.max()), 9)]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0]
    opposite = random(4, 5)  # theta + u beyond pi: the cosine rises again, as released
    assert float(arccon(opposite, -opposite, 0.5, 0.5)) < float(info_nce(opposite, -opposite, 0.5))


def test_the_margin_moves_the_own_logit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    whole = torch.nn.functional.cross_entropy

    def note(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(logits)
        return whole(logits, labels)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", note)
    a, p = random(5, 4), random(5, 4, seed=1)
    for margin in (0.0, TEN):
        arccon(a, p, 0.05, margin)
    others = ~torch.eye(5, dtype=torch.bool)
    assert torch.equal(seen[0][others], seen[1][others])
    cosines = torch.nn.functional.cosine_similarity(a, p)
    torch.testing.assert_close(seen[1].diagonal(), (cosines.arccos() + TEN).cos() / 0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["identical", "opposite", "zero", "orthogonal"])
def test_arccon_limits(kind: str, dtype: torch.dtype) -> None:
    a = torch.eye(6, 8, dtype=dtype) if kind == "orthogonal" else random(6, 8).to(dtype)
    a = (a * (0 if kind == "zero" else 1)).requires_grad_()
    p = {"opposite": -a}.get(kind, a) * 1.0
    loss = arccon(a, p, 0.05, TEN)
    torch.autograd.backward(loss)
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())
    value = float(loss.detach())
    if kind == "orthogonal":  # cos 10 degrees against five right angles
        mild = float(arccon(a, p, 0.5, TEN).detach())
        assert mild == pytest.approx(math.log(1 + 5 * math.exp(-math.cos(TEN) / 0.5)), rel=1e-3)
    if kind == "zero":
        assert value == pytest.approx(math.log(1 + 5 * math.exp(math.sin(TEN) / 0.05)), rel=1e-4)
    alone = arccon(a[:1], p[:1], 0.05, TEN)
    assert float(alone.detach()) == 0


def test_arccon_gradient() -> None:
    a, p = random(4, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: arccon(x, y, 0.3, TEN), (a, p))
    order = torch.tensor([2, 0, 3, 1])
    base = arccon(a, p, 0.3, TEN)
    assert float(arccon(a[order] * 3, p[order], 0.3, TEN).detach()) == pytest.approx(float(base.detach()))


def test_the_positive_is_weighted_by_a_ratio_of_sines() -> None:
    """dL/dh_i of unit vectors: sum_j w_ij (h'_j - sin(theta + u) / sin(theta) h'_i), its tangent part."""
    a, p = (torch.nn.functional.normalize(random(5, 4, seed=s), dim=1) for s in (0, 1))
    a = a.requires_grad_()
    torch.autograd.backward(arccon(a, p, 0.3, TEN) * 5)
    assert a.grad is not None
    with torch.no_grad():
        cosines = a @ p.T
        theta = cosines.diagonal().arccos()
        logits = torch.where(torch.eye(5, dtype=torch.bool), (theta + TEN).cos(), cosines) / 0.3
        weights = logits.softmax(1) / 0.3
        for i in range(5):
            ratio = (theta[i] + TEN).sin() / theta[i].sin()
            expected = torch.zeros(4, dtype=torch.float64)
            for j in range(5):
                if j != i:
                    expected += weights[i, j] * (p[j] - ratio * p[i])
            expected -= (expected @ a[i]) * a[i]
            torch.testing.assert_close(a.grad[i], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("a", "p", "tau", "margin", "message"),
    [
        ((2, 3), (3, 3), 0.05, 0.1, r"anchors \(2, 3\) and positives \(3, 3\) must be \(B, H\)"),
        ((3,), (3,), 0.05, 0.1, r"must be \(B, H\)"),
        ((2, 3), (2, 3), 0.0, 0.1, r"tau 0\.0 must be above 0"),
        ((2, 3), (2, 3), 0.05, -0.1, r"margin -0\.1 must be 0 to pi"),
        ((2, 3), (2, 3), 0.05, 10.0, r"margin 10\.0 must be 0 to pi"),  # degrees
    ],
)
def test_arccon_bad_input(
    a: tuple[int, ...], p: tuple[int, ...], tau: float, margin: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        arccon(torch.ones(a), torch.ones(p), tau, margin)


# triplets


def test_triplet_loss_by_hand_and_formula() -> None:
    whole = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    light = torch.tensor([[3.0, 4.0], [0.0, 5.0]], dtype=torch.float64)  # cosines 0.6 and 1
    heavy = torch.tensor([[4.0, 3.0], [1.0, 0.0]], dtype=torch.float64)  # 0.8 and 0
    assert float(triplet_loss(whole, light, heavy, 0.0)) == pytest.approx(0.2 / 2)
    assert float(triplet_loss(whole, light, heavy, 1.5)) == pytest.approx((1.7 + 0.5) / 2)
    h, near, far = (random(6, 4, seed=s) for s in range(3))
    expected = 0.0
    for i in range(6):
        one, two = (float(h[i] @ x[i] / (h[i].norm() * x[i].norm())) for x in (near, far))
        expected += max(0.0, two - one + 0.1) / 6
    assert float(triplet_loss(h, near, far, 0.1)) == pytest.approx(expected)
    assert float(triplet_loss(h, near, near, 0.0)) == 0
    assert float(triplet_loss(h[:0], near[:0], far[:0], 0.3)) == 0
    assert float(triplet_loss(h, h, -h, 0.0)) == 0
    assert float(triplet_loss(h, -h, h, 0.25)) == pytest.approx(2.25)
    inputs = tuple(x.requires_grad_() for x in (h, near, far))
    assert torch.autograd.gradcheck(lambda x, y, z: triplet_loss(x, y, z, 0.1), inputs)
    zero = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(triplet_loss(zero, near[:2], far[:2], 0.1))
    assert zero.grad is not None
    assert bool(zero.grad.isfinite().all())
    with pytest.raises(
        ValueError, match=r"whole \(2, 4\), light \(6, 4\) and heavy \(6, 4\) must be \(N, H\)"
    ):
        triplet_loss(zero, near, far, 0.0)


@pytest.mark.parametrize(
    ("subwords", "short", "long"), [(30, 6, 12), (25, 5, 10), (10, 2, 4), (5, 1, 2), (4, 1, 2)]
)
def test_maskings_are_nested_spans(subwords: int, short: int, long: int) -> None:
    row, draw = [101, *range(1000, 1000 + subwords), 102], generator(1, "mask")
    starts = set()
    for _ in range(2000):
        found = nested_maskings(row, 7, 0.2, 0.4, draw)
        assert found is not None
        places = []
        for masked, length in zip(found, (short, long), strict=True):
            assert len(masked) == len(row)
            where = [i for i, token in enumerate(masked) if token == 7]
            assert where == list(range(where[0], where[0] + length))
            assert all(masked[i] == row[i] for i in range(len(row)) if i not in where)
            assert 1 <= where[0] <= where[-1] <= subwords
            places.append(set(where))
        assert places[0] <= places[1]
        starts.add((min(places[0]), min(places[1])))
    assert len(starts) == (subwords - long + 1) * (long - short + 1)  # each pair of spans came


@pytest.mark.parametrize("subwords", [0, 1, 2])
def test_sentences_too_short_for_two_spans_have_none(subwords: int) -> None:
    row = [101, *range(1000, 1000 + subwords), 102]
    assert nested_maskings(row, 7, 0.2, 0.4, generator(1, "mask")) is None


# the objective

TEXT = [*SENTENCES, "a man is playing a guitar for the children on the hill"]


def objective_of(folder: Path, **changes: OptionValue) -> tuple[Any, Any]:
    """(objective, tokenizer) in float64 without dropout."""
    model, tokenizer = load_backbone(folder)
    set_dropout(model, 0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = ArcCSEObjective(model, tokenizer, options(**changes), generator(3, "mask/arccse"))
    return made.double().train(), tokenizer


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
def test_a_step_equals_a_transcription(
    tiny_bert: Path, changes: dict[str, OptionValue], chosen: Sequence[int]
) -> None:
    """Loss and gradient, each kind of view in a forward of its own, padded to the longest."""
    config = options(**changes)
    objective, tokenizer = objective_of(tiny_bert, **changes)
    rows = token_rows(tokenizer, TEXT, 20)
    loss = objective(rows)
    torch.autograd.backward(loss)
    got = {name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None}

    objective.zero_grad()

    def project(views: list[list[int]]) -> Tensor:
        ids, mask = padded(views, tokenizer.pad_token_id, "cpu")
        cls = objective.encoder(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        projected: Tensor = torch.tanh(cls @ objective.head.weight.T + objective.head.bias)
        return projected

    z = project(rows)
    # without dropout both views are equal: the clamped sine
    sine = math.sqrt(1 - (1 - 1e-6) ** 2)
    u = math.radians(float(config["margin"]))
    similarity = torch.nn.functional.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=-1)
    own = math.cos(u) * similarity.diagonal() - sine * math.sin(u)
    logits = torch.where(torch.eye(5, dtype=torch.bool), torch.diag(own), similarity) / 0.05
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(5))
    if chosen:
        draw = generator(3, "mask/arccse")
        pairs = [nested_maskings(rows[i], tokenizer.mask_token_id, 0.2, 0.4, draw) for i in chosen]
        near, far = (project([pair[k] for pair in pairs if pair is not None]) for k in (0, 1))
        terms = [
            torch.relu(
                torch.nn.functional.cosine_similarity(z[i], far[n], dim=0)
                - torch.nn.functional.cosine_similarity(z[i], near[n], dim=0)
                + float(config["triplet_margin"])
            )
            for n, i in enumerate(chosen)
        ]
        triplets = torch.stack(terms).mean()
        assert float(triplets.detach()) > 0
        expected = expected + float(config["triplet_weight"]) * triplets
    torch.autograd.backward(expected)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    compared = 0
    for name, parameter in objective.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(got[name], parameter.grad, rtol=1e-6, atol=1e-9)
            compared += 1
    assert compared > 40


@pytest.mark.parametrize("sentences", [["two"], ["two", "a"], ["", "the farmer"], TEXT[4:]])
def test_short_batches_and_one_word_sentences(tiny_bert: Path, sentences: list[str]) -> None:
    objective, tokenizer = objective_of(tiny_bert, triplet_min_length=1, triplet_margin=2.5)
    set_dropout(objective, 0.3)
    loss = objective(token_rows(tokenizer, sentences, 20))
    torch.autograd.backward(loss)
    assert math.isfinite(float(loss.detach()))
    grads = [p.grad for p in objective.parameters() if p.grad is not None]
    assert all(bool(g.isfinite().all()) for g in grads)
    if sentences == TEXT[4:]:  # alone in its batch a long sentence still learns from its maskings
        assert max(float(g.abs().max()) for g in grads) > 0


# training


def test_margin_and_triplets_change_the_training(tmp_path: Path, tiny_bert: Path) -> None:
    train = partial(train_alone, "arccse", tiny_bert, tmp_path, triplet_min_length=8)
    whole, arc, plain = train(), train(triplet=False), train(triplet=False, margin=0.0)
    assert arc.losses[0] > plain.losses[0]  # one dropout stream, one start: the margin alone
    assert len({tuple(each.losses) for each in (whole, arc, plain)}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": 200.0}, "margin 200.0; expected 0 to 180 degrees"),
        ({"triplet_heavy": 0.1}, "triplet_light 0.2, triplet_heavy 0.1; expected shares above 0"),
    ],
)
def test_bad_settings(tmp_path: Path, tiny_bert: Path, changes: dict[str, OptionValue], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        train_alone("arccse", tiny_bert, tmp_path, **changes)
