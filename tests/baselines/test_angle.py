"""AnglE: its losses, and a step against a transcription of formats C and B."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.angle import complex_angle, cosent_loss
from bench.nn.backbone import tokenize_rows
from tests.support.steps import cls_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random

POSITIVES = ["A doctor reads.", "one", "Children sing on a hill.", "a man who farms"]
NEGATIVES = ["Nobody reads a book.", "two words", "Two children sleep.", "the doctor"]
TRIPLETS = {"partners": POSITIVES, "negatives": NEGATIVES}


def angle_by_loops(x: Tensor, y: Tensor) -> Tensor:
    """The division of complex numbers as the paper writes it, number by number."""
    half = len(x) // 2
    size = (x @ x).sqrt() / (y @ y).sqrt()
    total = x.new_zeros(())
    for k in range(half):
        a, b, c, d = x[k], x[half + k], y[k], y[half + k]
        total = total + (a * c + b * d) / (y @ y) / size + (b * c - a * d) / (y @ y) / size
    return total.abs()


def order_by_loops(positives: list[Tensor], negatives: list[Tensor], scale: float) -> Tensor:
    total = torch.ones((), dtype=torch.float64)
    for negative in negatives:
        for positive in positives:
            total = total + (scale * (negative - positive)).exp()
    return total.log()


def test_the_angle_is_the_formula_and_its_limits() -> None:
    x, y = random(6, 8), random(6, 8, seed=1)
    found = complex_angle(x, y)
    for i in range(6):
        assert float(found[i]) == pytest.approx(float(angle_by_loops(x[i], y[i])), rel=1e-12)
    z = torch.complex(x[:, :4], x[:, 4:]) * torch.complex(y[:, :4], y[:, 4:]).conj()
    z = z.sum(1) / (x.norm(dim=1) * y.norm(dim=1))
    torch.testing.assert_close(found, (z.real + z.imag).abs())
    ones, turned = (
        torch.ones(6, dtype=torch.float64),
        torch.cat([-x[:, 4:], x[:, :4]], dim=1) + x,
    )  # (1 + i) x
    for other, expected in ((x, ones), (-2 * x, ones), (turned, math.sqrt(2) * ones)):
        torch.testing.assert_close(complex_angle(other, x), expected)
    assert complex_angle(torch.zeros(1, 4), torch.zeros(1, 4)).tolist() == [0.0]


def test_the_order_is_the_formula_and_far_from_its_ends() -> None:
    p, n, ones = random(5), random(4, seed=1), torch.ones(3)
    assert float(cosent_loss(p, n, 3.0)) == pytest.approx(float(order_by_loops(list(p), list(n), 3.0)))
    assert float(cosent_loss(ones, ones, 20.0)) == pytest.approx(math.log(10), rel=1e-6)
    assert float(cosent_loss(ones, -ones, 1e4)) == 0.0
    assert float(cosent_loss(-ones[:2], ones[:2], 1e4)) == pytest.approx(2e4, rel=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cosine_weight": 0.7, "cosine_scale": 5.0},
        {"angle_weight": 2.0, "angle_scale": 3.0},
        {"ibn_weight": 0.0, "cln_weight": 3.0},
        {"ibn_weight": 0.5, "cln_weight": 0.0, "ibn_scale": 7.0},
        {"ibn_weight": 0.0, "cln_weight": 0.0, "angle_weight": 1.0},
    ],
)
def test_a_step_equals_a_transcription(tiny_bert: Path, changes: dict[str, float]) -> None:
    """Formats C and B; of pairs contrast alone, and no weight counts."""
    made, batch, tokenizer = objective_of("angle", tiny_bert, SENTENCES, TRIPLETS, **changes)
    values = {**options_of("angle"), **changes}
    w = {name: float(value) for name, value in values.items() if isinstance(value, float)}

    def vectors(objective: Any, texts: list[str]) -> list[Tensor]:
        return [cls_of(objective.encoder, row) for row in tokenize_rows(tokenizer, texts, 20)]

    x, p, n = (vectors(made, texts) for texts in (SENTENCES, POSITIVES, NEGATIVES))
    tau = 1 / w["ibn_scale"]
    expected = w["ibn_weight"] * nce_by_loops(x, p, tau) + w["cln_weight"] * nce_by_loops(x, p, tau, n)
    expected = expected / 2
    for near, name in ((angle_by_loops, "angle"), (partial(torch.cosine_similarity, dim=0), "cosine")):
        with_p, with_n = ([near(a, b) for a, b in zip(x, other, strict=True)] for other in (p, n))
        order = order_by_loops(with_p, with_n, w[f"{name}_scale"])
        expected = expected + w[f"{name}_weight"] * order
    same_step(made, made(batch), expected, rtol=1e-5, least=30)
    pairs, batch, _ = objective_of("angle", tiny_bert, SENTENCES, {"partners": POSITIVES}, **changes)
    expected = nce_by_loops(vectors(pairs, SENTENCES), vectors(pairs, POSITIVES), tau)
    same_step(pairs, pairs(batch), expected, rtol=1e-5, least=30)
