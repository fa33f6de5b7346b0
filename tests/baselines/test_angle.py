"""AnglE: its losses, a step against a transcription of formats C and B, training."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.baselines.angle import complex_angle, cosent_loss
from bench.nn.backbone import tokenize_rows
from bench.stages import PAIRS
from tests.support.steps import cls_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random, stages_of, toy_sentences, train_alone

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


# the losses


def test_the_angle_is_the_formula() -> None:
    x, y = random(6, 8), random(6, 8, seed=1)
    found = complex_angle(x, y)
    for i in range(6):
        assert float(found[i]) == pytest.approx(float(angle_by_loops(x[i], y[i])), rel=1e-12)
    z = torch.complex(x[:, :4], x[:, 4:]) * torch.complex(y[:, :4], y[:, 4:]).conj()
    z = z.sum(1) / (x.norm(dim=1) * y.norm(dim=1))
    torch.testing.assert_close(found, (z.real + z.imag).abs())


def test_limits_of_the_angle() -> None:
    x = random(3, 4)
    torch.testing.assert_close(complex_angle(x, x), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(complex_angle(x, -2 * x), torch.ones(3, dtype=torch.float64))
    half = torch.cat([-x[:, 2:], x[:, :2]], dim=1) + x  # (1 + i) x
    torch.testing.assert_close(complex_angle(half, x), torch.full((3,), math.sqrt(2), dtype=torch.float64))
    assert complex_angle(torch.zeros(1, 4), torch.zeros(1, 4)).tolist() == [0.0]
    with pytest.raises(ValueError, match="vectors of 3 numbers have no halves"):
        complex_angle(random(2, 3), random(2, 3))
    with pytest.raises(ValueError, match=r"must be \(B, H\)"):
        complex_angle(random(2, 4), random(3, 4))


def test_the_order_is_the_formula_and_far_from_its_ends() -> None:
    p, n = random(5), random(4, seed=1)
    assert float(cosent_loss(p, n, 3.0)) == pytest.approx(float(order_by_loops(list(p), list(n), 3.0)))
    assert float(cosent_loss(torch.ones(3), torch.ones(3), 20.0)) == pytest.approx(math.log(10), rel=1e-6)
    assert float(cosent_loss(torch.ones(3), -torch.ones(3), 1e4)) == 0.0
    assert float(cosent_loss(-torch.ones(2), torch.ones(2), 1e4)) == pytest.approx(2e4, rel=1e-3)
    for bad in ((random(2, 2), n, 1.0), (p, n, 0.0)):
        with pytest.raises(ValueError, match=r"scale .* expected \(B,\)"):
            cosent_loss(*bad)


@pytest.mark.parametrize("loss", [complex_angle, lambda x, y: cosent_loss(x[:, 0], y[:, 0], 2.0)])
def test_gradients(loss: partial[Tensor]) -> None:
    given = tuple(random(3, 4, seed=seed).requires_grad_() for seed in (3, 4))
    assert torch.autograd.gradcheck(loss, given)


# one step


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
    made, batch, tokenizer = objective_of("angle", tiny_bert, SENTENCES, TRIPLETS, **changes)
    values = {**options_of("angle"), **changes}
    w = {name: float(value) for name, value in values.items() if isinstance(value, float)}
    x, p, n = (
        [cls_of(made.encoder, row) for row in tokenize_rows(tokenizer, texts, 20)]
        for texts in (SENTENCES, POSITIVES, NEGATIVES)
    )
    tau = 1 / w["ibn_scale"]
    expected = w["ibn_weight"] * nce_by_loops(x, p, tau) + w["cln_weight"] * nce_by_loops(x, p, tau, n)
    expected = expected / 2
    for near, name in ((angle_by_loops, "angle"), (partial(torch.cosine_similarity, dim=0), "cosine")):
        with_p = [near(a, b) for a, b in zip(x, p, strict=True)]
        with_n = [near(a, b) for a, b in zip(x, n, strict=True)]
        order = order_by_loops(with_p, with_n, w[f"{name}_scale"])
        expected = expected + w[f"{name}_weight"] * order
    same_step(made, made(batch), expected, rtol=1e-5, least=30)


def test_pairs_have_contrast_alone(tiny_bert: Path) -> None:
    """Format B: no weight counts."""
    given = {"partners": POSITIVES}
    made, batch, tokenizer = objective_of("angle", tiny_bert, SENTENCES, given, ibn_weight=9.0)
    x, p = (
        [cls_of(made.encoder, row) for row in tokenize_rows(tokenizer, texts, 20)]
        for texts in (SENTENCES, POSITIVES)
    )
    same_step(made, made(batch), nce_by_loops(x, p, 0.05), least=30)


# training


def test_training_repeats_and_every_option_counts(tiny_bert: Path, tmp_path: Path) -> None:
    texts = toy_sentences()
    given = {"partners": texts[1:] + texts[:1], "negatives": texts[2:] + texts[:2]}
    run = partial(train_alone, "angle", tiny_bert, tmp_path)
    one, same = run(given), run(given)
    assert one.losses == same.losses
    assert all(torch.equal(value, same.kept()[name]) for name, value in one.kept().items())
    found = [one, run({**given, "seed": 2}), run({"partners": given["partners"]})]
    assert one.score() == pytest.approx(one.facts["selected_dev"])
    assert len({tuple(each.losses) for each in found}) == 3


def test_the_stage_reads_pairs() -> None:
    (stage,) = stages_of("angle", options_of("angle"))
    assert stage.text == PAIRS
