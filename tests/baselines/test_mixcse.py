"""MixCSE: its loss, steps against an independent transcription, what is constant in it, training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.baselines.mixcse import mixed_nce
from bench.losses.contrastive import info_nce
from bench.method_card import OptionValue
from tests.support.steps import objective_of, same_step, under_head
from tests.support.training import options_of, random

FORMS = ("released", "paper")


def slow_loss(z: list[Tensor], near: list[Tensor], tau: float, share: float, form: str) -> Tensor:
    """Sentence by sentence; mixtures are constants."""
    size, rows = len(z), []

    def mixed(vectors: list[Tensor], i: int) -> Tensor:
        after = vectors[0] if i == size - 1 else vectors[i + 1]
        return (share * vectors[i] + (1 - share) * after).detach()

    for i in range(size):
        pairs: list[tuple[Tensor, Tensor] | None] = [(z[i], other) for other in near]
        if form == "paper":
            pairs.append((z[i], mixed(near, i)))
        else:
            before, after = (i - 1) % size, (i + 1) % size
            pairs += [None if j == before else (z[i], mixed(near, j)) for j in range(size)]
            pairs += [None if j == after else (mixed(z, i), near[j]) for j in range(size)]
        nothing = torch.zeros((), dtype=torch.float64)
        scores = [nothing if p is None else torch.cosine_similarity(*p, dim=0) / tau for p in pairs]
        rows.append(torch.logsumexp(torch.stack(scores), 0) - scores[i])
    return torch.stack(rows).mean()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("size", "tau", "share"), [(2, 0.05, 0.2), (3, 0.7, 0.0), (5, 0.3, 0.6)])
def test_the_loss_is_the_formula(form: str, size: int, tau: float, share: float) -> None:
    """Value and gradient of both sides; lengths differ, so where vectors are mixed matters."""
    lengths = 1 + torch.arange(size).unsqueeze(1)
    z, near = ((random(size, 4, seed=seed) * lengths).requires_grad_() for seed in (1, 2))
    loss = mixed_nce(z, near, tau, mix=share, form=form)
    expected = slow_loss(list(z), list(near), tau, share, form)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    for got, wanted in zip(*(torch.autograd.grad(x, [z, near]) for x in (loss, expected)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_limits(form: str) -> None:
    ones = torch.ones(4, 3, dtype=torch.float64)
    cells = {"paper": math.log(5), "released": math.log(4 + 6 + 2 * math.exp(-2))}  # 2 logits of 0, not of 2
    assert float(mixed_nce(ones, ones, 0.5, form=form)) == pytest.approx(cells[form])
    z, near = random(6, 4), random(6, 4, seed=1)
    base, cosines = float(mixed_nce(z, near, 0.3, form=form)), torch.cosine_similarity(z, near)
    assert base > float(info_nce(z, near, 0.3))  # further negatives
    assert float(mixed_nce(2 * z, 3 * near, 0.3, form=form)) == pytest.approx(base)
    assert float(mixed_nce(z.roll(2, 0), near.roll(2, 0), 0.3, form=form)) == pytest.approx(base)
    closer = float(mixed_nce(near, near, 0.3, mix=0.8, form="paper"))
    assert closer > float(mixed_nce(near, near, 0.3, mix=0.2, form="paper"))  # a harder negative
    alone = mixed_nce(z[:1].requires_grad_(), near[:1], 0.05, form=form)
    expected = {"paper": 0.0, "released": math.log1p(2 * math.exp(-20 * float(cosines[0])))}
    assert float(alone.detach()) == pytest.approx(expected[form])
    # mix=1 mixes nothing in: the paper's negative is the positive itself
    plain = torch.cosine_similarity(z.unsqueeze(1), near.unsqueeze(0), dim=-1) / 0.3
    whole = (torch.logaddexp(plain.logsumexp(1), cosines / 0.3) - cosines / 0.3).mean()
    assert float(mixed_nce(z, near, 0.3, mix=1.0, form="paper")) == pytest.approx(float(whole))
    for place in (0, 1):
        given = [random(4, 3, seed=seed).requires_grad_() for seed in (1, 2)]
        zeroed = [each * (0 if i == place else 1) for i, each in enumerate(given)]
        for part in torch.autograd.grad(mixed_nce(zeroed[0], zeroed[1], 0.3, form=form), zeroed):
            assert bool(part.isfinite().all())


@pytest.mark.parametrize(
    "changes", [{}, {"mixed": "paper"}, {"mix": 0.7, "tau": 0.2}, {"mix": 0.7, "tau": 0.2, "mixed": "paper"}]
)
def test_a_step_equals_a_transcription(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Each row alone in a forward of its own; without dropout both views are one vector."""
    given = options_of("mixcse", **changes)
    made, rows, _ = objective_of("mixcse", tiny_bert, **changes)
    z, near = ([under_head(made, row) for row in rows] for _ in range(2))
    expected = slow_loss(z, near, float(given["tau"]), float(given["mix"]), str(given["mixed"]))
    got = same_step(made, made(rows), expected, rtol=1e-5, atol=1e-8)
    assert float(got["head.weight"].abs().max()) > 0.01
