"""DCLR: the noise, its loss, steps against an independent transcription, its complement, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from bench.baselines.dclr import ascend_noise, cell_cross_entropy, debiased_nce
from bench.losses.contrastive import info_nce
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.registry import discover
from bench.training.randomness import generator
from tests.support.steps import cls_of, gradients_of, nce_by_loops, objective_of, same_step, without_pooler
from tests.support.training import SENTENCES, options_of, plan_on_toy, random, train_alone

FORMS = ("released", "paper")
NONE = torch.empty(0, 4, dtype=torch.float64)


def cosine(one: Tensor, two: Tensor) -> Tensor:
    return torch.cosine_similarity(one, two, dim=0)


@pytest.mark.parametrize(("steps", "rate"), [(1, 0.5), (4, 1e-3), (3, 0.2)])
def test_noise_climbs_as_autograd_says(steps: int, rate: float) -> None:
    """The released loop: the gradient of InfoNCE, each vector's divided by its norm."""
    z, near, noise = random(5, 4), random(5, 4, seed=1), random(3, 4, seed=2)
    climbing, losses = noise.clone(), []
    for _ in range(steps):
        climbing.requires_grad_()
        loss = nce_by_loops(z, near, 0.3, climbing)
        (gradient,) = torch.autograd.grad(loss, climbing)
        climbing = climbing.detach() + rate * torch.stack([row / row.norm() for row in gradient])
        losses.append(float(loss.detach()))
    got = ascend_noise(noise, z.requires_grad_(), near, 0.3, steps=steps, rate=rate)
    torch.testing.assert_close(got, climbing, rtol=1e-9, atol=1e-11)
    assert not got.requires_grad
    assert sorted(losses) == losses
    assert float(nce_by_loops(z, near, 0.3, got).detach()) > losses[-1]


def test_noise_that_has_no_gradient_or_no_steps_stays() -> None:
    z, noise = torch.eye(2, dtype=torch.float64), random(3, 2)
    assert torch.equal(ascend_noise(noise, z, z, 0.05, steps=0, rate=1.0), noise)
    assert torch.equal(ascend_noise(noise, 0 * z, z, 0.05, steps=2, rate=1.0), noise)
    assert ascend_noise(NONE[:, :2], z, z, 0.05, steps=2, rate=1.0).shape == (0, 2)
    ones = torch.ones(1, 2)  # float32: a share of the softmax is 0
    assert bool(ascend_noise(-5 * ones, ones, ones, 1e-3, steps=1, rate=1.0).isfinite().all())


def slow_loss(
    z: Sequence[Tensor], near: Sequence[Tensor], noise: Tensor, alike: Any, tau: float, form: str
) -> Tensor:
    """Cell by cell, as the code and the paper have it."""
    size, rows, cells = len(z), [], []
    for i in range(size):
        scores = [cosine(z[i], other) / tau for other in (*near, *noise)]
        false = [j < size and j != i and bool(alike[i][j]) for j in range(len(scores))]
        if form == "paper":
            kept = [score for score, gone in zip(scores, false, strict=True) if not gone]
            rows.append(torch.logsumexp(torch.stack(kept), 0) - scores[i])
            continue
        p = torch.stack([score * (not gone) for score, gone in zip(scores, false, strict=True)]).softmax(0)
        cells += [p[j].log() if j == i else (1 - p[j]).log() for j in range(len(scores))]
    return torch.stack(rows).mean() if form == "paper" else -torch.stack(cells).mean()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_loss_is_the_formula(form: str, count: int) -> None:
    z, near = (random(5, 4, seed=seed).requires_grad_() for seed in (1, 2))
    noise, alike = random(4, 4, seed=3)[:count], random(5, 5, seed=4) > 0
    assert 0 < int((alike & ~torch.eye(5).bool()).sum()) < 20
    assert 0 < int(alike.diagonal().sum()) < 5  # which doesn't count
    loss = debiased_nce(z, near, noise, alike, 0.3, form=form)
    expected = slow_loss(list(z), list(near), noise, alike, 0.3, form)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    for got, wanted in zip(*(torch.autograd.grad(x, [z, near]) for x in (loss, expected)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradcheck(lambda a, p: debiased_nce(a, p, noise, alike, 0.3, form=form), (z, near))


def test_limits() -> None:
    ones = torch.ones(4, 4, dtype=torch.float64)
    loss = partial(debiased_nce, ones, ones, tau=0.5)
    assert float(loss(ones, None, form="paper")) == pytest.approx(math.log(8))
    assert float(loss(ones, None)) == pytest.approx((math.log(8) + 7 * math.log(8 / 7)) / 8)  # p = 1/8
    everything = ones.bool()
    assert float(loss(NONE, everything, form="paper")) == 0
    p = math.exp(2) / (math.exp(2) + 3)  # three logits of 0
    others = [-math.log1p(-(1 - p) / 3)] * 3
    assert float(loss(NONE, everything)) == pytest.approx((-math.log(p) + sum(others)) / 4)
    z, near = random(3, 4), random(3, 4, seed=1)
    for alike in (None, torch.zeros(3, 3).bool(), torch.eye(3).bool()):
        found = float(debiased_nce(z, near, NONE, alike, 0.3, form="paper"))
        assert found == pytest.approx(float(info_nce(z, near, 0.3)))
    for form in FORMS:
        one = z[:1].clone().requires_grad_()
        single = debiased_nce(one, near[:1], NONE, None, 0.05, form=form)
        assert float(single.detach()) == 0
        assert float(torch.autograd.grad(single, one)[0].abs().max()) == 0


def test_cells_keep_their_digits_where_p_rounds_to_1() -> None:
    """float32: 1 - p would be 0 in the row's largest cell, right (first row) or wrong (second)."""
    logits = torch.tensor([[40.0, 0.0, 1.0], [60.0, 0.0, 1.0]]).requires_grad_()
    loss = cell_cross_entropy(logits)
    small = math.log1p(math.e)
    expected = (math.exp(-40) * 2 * (1 + math.e) + 60 + (60 - small)) / 6
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(gradient.isfinite().all())
    assert float(gradient[1, 0]) == pytest.approx(2 / 6)
    wide = random(3, 7).requires_grad_()
    assert torch.autograd.gradcheck(cell_cross_entropy, (wide,))
    p = wide.softmax(1)
    wanted = torch.eye(3, 7, dtype=torch.float64)
    torch.testing.assert_close(cell_cross_entropy(wide), torch.nn.functional.binary_cross_entropy(p, wanted))


def made_of(
    folder: Path, complement: Any = None, sentences: Sequence[str] = SENTENCES, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    given = {"complement": ""} if complement is None else {}
    members = {} if complement is None else {"members": {"complement": complement}}
    return objective_of("dclr", folder, sentences, members, **(given | changes))


def vector(made: Any, row: list[int], head: str) -> Tensor:
    """One row alone in a forward of its own, its ids as they are: padding, if any, is attended to."""
    h = cls_of(made.encoder, row)
    if head == "stacked":
        dense = made.encoder.pooler.dense
        h = torch.tanh(dense.weight @ h + dense.bias)
    return torch.tanh(made.head.weight @ h + made.head.bias)


@pytest.mark.parametrize(
    ("changes", "weighed"),
    [
        ({}, True),
        ({"loss": "paper", "phi": 0.5, "tau": 0.2}, True),
        ({"head": "tanh", "mask_padding": True, "phi": 0.3}, True),
        ({"noise_times": 2.5, "noise_steps": 2, "noise_rate": 0.4, "tau": 0.3}, False),
        ({"noise_times": 0.0, "loss": "paper", "head": "tanh"}, False),
    ],
)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue], weighed: bool) -> None:
    """Loss and gradient; phi lies amid the complement's cosines, whatever it is on the card."""
    encoder = TransformerEncoder(tiny_bert, "avg") if weighed else None
    given = options_of("dclr", **changes)
    known = torch.from_numpy(TransformerEncoder(tiny_bert, "avg").encode(SENTENCES)).double()
    likeness = torch.stack([torch.stack([cosine(one, two) for two in known]) for one in known])
    amid = float(likeness.flatten().sort().values[2:10].mean()) if weighed else 0.9
    made, batch, _ = made_of(tiny_bert, encoder, SENTENCES, **(changes | {"phi": amid}))
    alike = [[weighed and float(likeness[i, j]) > amid for j in range(4)] for i in range(4)]
    assert not weighed or 4 < sum(map(sum, alike)) < 16
    rows = [row for _, row in batch]
    if not given["mask_padding"]:
        rows = [row + [0] * (max(map(len, rows)) - len(row)) for row in rows]
        assert len({len(row) for _, row in batch}) > 1
    z = [vector(made, row, str(given["head"])) for row in rows]
    tau, count = float(given["tau"]), int(4 * float(given["noise_times"]))
    noise = torch.randn(count, 16, generator=generator(1, "noise/dclr")).double()
    for _ in range(int(given["noise_steps"]) if count else 0):
        noise.requires_grad_()
        fixed = [x.detach() for x in z]
        (g,) = torch.autograd.grad(nce_by_loops(fixed, fixed, tau, noise), noise)
        noise = noise.detach() + float(given["noise_rate"]) * g / g.norm(dim=1, keepdim=True)
    expected = slow_loss(z, z, noise, alike, tau, str(given["loss"]))
    got = same_step(made, made(batch), expected, rel=1e-8, rtol=1e-5, atol=1e-8)
    assert float(got["head.weight"].abs().max()) > 1e-4
    pooled = {name for name in got if "pooler" in name}
    assert bool(pooled) == (given["head"] == "stacked")


def test_padding_matters_unless_it_is_masked(tiny_bert: Path) -> None:
    assert discover().get("dclr").card.padding_matters
    for masked in (False, True):
        made, batch, _ = made_of(tiny_bert, mask_padding=masked)
        with torch.no_grad():
            wide, narrow = (made.projected(made.prepare(part).views) for part in (batch, batch[1:2]))
        assert torch.allclose(wide[1], narrow[0]) == masked


def test_without_a_complement_nothing_is_alike(tiny_bert: Path) -> None:
    complement = TransformerEncoder(tiny_bert, "avg")
    steps = made_of(tiny_bert), made_of(tiny_bert, complement, phi=1.1), made_of(tiny_bert, complement)
    none, above, below = (float(made(batch).detach()) for made, batch, _ in steps)
    assert none == pytest.approx(above, rel=1e-12)
    assert none != pytest.approx(below)


def test_noise_is_drawn_anew_each_step_and_counts_with_the_batch(tiny_bert: Path) -> None:
    made, batch, _ = made_of(tiny_bert, noise_times=2.5)
    first, second = (made.prepare(batch).noise for _ in range(2))
    assert first.shape == second.shape == (10, 16)
    assert not torch.equal(first, second)
    assert made.prepare(batch[:1]).noise.shape == (2, 16)
    assert float(first.std()) == pytest.approx(1, abs=0.2)


def test_a_backbone_without_a_pooler_gets_a_fresh_one(tiny_bert: Path, tmp_path: Path) -> None:
    made, batch, _ = made_of(without_pooler(tiny_bert, tmp_path))
    assert "pooler.weight" in gradients_of(made, made(batch))
    own, _, _ = made_of(tiny_bert)
    assert own.pooler is own.encoder.pooler.dense


def test_the_complement_is_a_member_that_is_trained_once(tmp_path: Path, tiny_bert: Path) -> None:
    methods = "simcse,dclr,other=dclr[complement=untrained:avg],none=dclr[complement=]"
    jobs = plan_on_toy(methods, tmp_path, backbone=str(tiny_bert)).jobs
    stages = {job.record.method.split("[")[0]: job.record.training["stages"] for job in jobs}
    assert {name: set(found) for name, found in stages.items()} == {
        "simcse": {"simcse"}, "dclr": {"complement/simcse", "dclr"}, "other": {"dclr"}, "none": {"dclr"},
    }  # fmt: skip
    assert stages["dclr"]["complement/simcse"]["key"] == stages["simcse"]["simcse"]["key"]
    assert len({stages[name]["dclr"]["key"] for name in ("dclr", "other", "none")}) == 3


def test_training_keeps_the_encoder_with_the_pooler_that_learnt(tmp_path: Path, tiny_bert: Path) -> None:
    for head, moves in (("stacked", True), ("tanh", False)):
        found = train_alone("dclr", tiny_bert, tmp_path, complement="", head=head)
        before, after = AutoModel.from_pretrained(tiny_bert).state_dict(), found.kept()
        assert after.keys() == before.keys()
        pooler = "pooler.dense.weight"
        assert torch.equal(after[pooler], before[pooler]) != moves
