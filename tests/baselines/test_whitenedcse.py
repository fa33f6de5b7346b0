"""WhitenedCSE: group whitening, its loss, one step against a transcription, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from torch import Tensor

from bench.baselines.whitenedcse import automatic_groups, multi_positive_nce
from bench.method_card import OptionValue
from bench.training.augmentation import repeat_subwords
from bench.training.group_whitening import inverse_root, inverse_root_by_products, whiten_views
from bench.training.randomness import generator
from tests.support.steps import cls_of, gradients_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, by_loops, options_of, random, toy_sentences

EPS = 1e-5


def group_whiten(features: Tensor, order: Tensor, groups: int, **how: Any) -> Tensor:
    return whiten_views([features], order[None], groups, **how)[0]


def shuffle(size: int, seed: int = 0) -> Tensor:
    return torch.randperm(size, generator=generator(seed, "order"))


@pytest.mark.parametrize(("groups", "batch"), [(4, 7), (3, 20), (12, 3), (1, 40)])
def test_every_group_is_white(groups: int, batch: int) -> None:
    features, order = random(batch, 12) * 3 + 5, shuffle(12)
    white = group_whiten(features, order, groups, eps=1e-10)
    assert float(white.mean(0).abs().max()) < 1e-9
    unit, close = torch.eye(12, dtype=torch.float64), partial(torch.testing.assert_close, rtol=0, atol=1e-7)
    everything = white.T @ white / batch
    for group in order.view(groups, 12 // groups):
        close(everything[group][:, group], unit[group][:, group])
    places = torch.randperm(batch, generator=generator(1, "rows"))  # a sentence's place doesn't matter
    moved = group_whiten(features[places], order, groups, eps=1e-10)
    close(moved, white[places])
    if 1 < groups < 12:  # only groups are white: channels of two groups may go together
        assert float((everything - unit).abs().max()) > 0.01


def zca(features: Tensor) -> Tensor:
    """Full ZCA by scipy's power of the covariance."""
    centred = (features - features.mean(0)).numpy()
    matrix = centred.T @ centred / len(features) + EPS * np.eye(features.shape[1])
    return torch.from_numpy(centred @ fractional_matrix_power(matrix, -0.5))


@pytest.mark.parametrize(
    ("order", "groups", "together"),
    [
        (range(6), 1, [[0, 1, 2, 3, 4, 5]]),
        ([4, 1, 0, 5, 3, 2], 1, [[0, 1, 2, 3, 4, 5]]),  # ZCA turns with its input
        (range(6), 3, [[0, 1], [2, 3], [4, 5]]),
        ([0, 5, 1, 4, 2, 3], 3, [[0, 5], [1, 4], [2, 3]]),
        ([4, 1, 0, 5, 3, 2], 6, [[0], [1], [2], [3], [4], [5]]),  # a batch norm without weights
    ],
)
def test_groups_are_zca_and_the_channels_go_back(
    order: Sequence[int], groups: int, together: list[list[int]]
) -> None:
    features = random(30, 6)
    white = group_whiten(features, torch.tensor(order), groups, eps=EPS)
    for channels in together:
        assert torch.allclose(white[:, channels], zca(features[:, channels]), rtol=1e-6, atol=1e-8)
    views, orders = [features, random(30, 6, seed=1)], torch.stack([torch.tensor(order), shuffle(6)])
    for part, view, own in zip(whiten_views(views, orders, groups), views, orders, strict=True):
        assert torch.equal(part, group_whiten(view, own, groups))


def released(features: Tensor, engine: str) -> Tensor:
    """One group as the released engines whiten it, with nothing added to the eigenvalues."""
    centred = features - features.mean(0)
    covariance = centred.T @ centred / len(features)
    if engine == "cholesky":
        triangular: Tensor = centred @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
        return triangular
    base, values, _ = torch.linalg.svd(covariance)
    if engine == "svd_lowrank":
        base, values = base[:, :6], values[:6]
    white: Tensor = centred @ base @ torch.diag(values**-0.5) @ base.T
    return white


@pytest.mark.parametrize(
    ("engine", "theirs"), [("zca", "svd"), ("cholesky", "cholesky"), ("lowrank", "svd_lowrank")]
)
@pytest.mark.parametrize("size", [4, 8])
def test_engines_are_the_released_ones(engine: str, theirs: str, size: int) -> None:
    features = random(30, size) @ random(size, size, seed=1)
    white = group_whiten(features, torch.arange(size), 1, eps=1e-12, engine=engine)
    torch.testing.assert_close(white, released(features, theirs), rtol=1e-6, atol=1e-6)
    spectrum = torch.linalg.eigvalsh(white.T @ white / 30).tolist()
    kept = min(size, 6) if engine == "lowrank" else size
    assert spectrum == pytest.approx([0.0] * (size - kept) + [1.0] * kept, abs=1e-6)
    if engine == "cholesky":  # triangular: the first channel alone keeps its direction
        first = features[:, 0] - features[:, 0].mean()
        torch.testing.assert_close(white[:, 0], first / first.pow(2).mean().sqrt())
    plain = group_whiten(features.float(), torch.arange(size), 1, engine=engine)
    assert plain.dtype == torch.float32
    single = group_whiten(torch.full((5, size), 3e3), torch.arange(size), 1, engine=engine)
    assert float(single.abs().max()) == 0  # equal rows: finite, as float32 rounds them too


def test_gradient_through_cholesky_and_none_through_lowrank() -> None:
    order = shuffle(4)
    assert torch.autograd.gradcheck(
        lambda x: group_whiten(x, order, 2, eps=EPS, through=True, engine="cholesky"),
        (random(9, 4).requires_grad_(),),
    )
    for engine, through in (("lowrank", True), ("newton", False)):
        with pytest.raises(ValueError, match=f"engine '{engine}', gradient through it: {through}"):
            group_whiten(random(9, 4), order, 2, engine=engine, through=through)


@pytest.mark.parametrize(
    ("channels", "rows", "groups"), [(768, 384, 4), (768, 192, 8), (768, 300, 6), (768, 310, 6), (16, 12, 4)]
)
def test_automatic_groups(channels: int, rows: int, groups: int) -> None:
    """ceil(2 H / N) as released, where it divides H; else the next divisor."""
    assert automatic_groups(channels, rows) == groups
    assert channels / groups <= rows / 2
    assert automatic_groups(channels, 10 * channels) == 1
    assert automatic_groups(channels, 1) == channels


def test_gradient_passes_by_the_matrix_or_through_it() -> None:
    features, order, weights = random(9, 4), shuffle(4), random(9, 4, seed=1)
    leaf = features.clone().requires_grad_()

    def gradient(white: Tensor) -> Tensor:
        return torch.autograd.grad((white * weights).sum(), leaf)[0]

    centred = (leaf - leaf.mean(0))[:, order].view(9, 2, 2).transpose(0, 1)
    matrices = inverse_root((centred.transpose(1, 2) @ centred / 9).detach(), EPS)
    expected = gradient((centred @ matrices).transpose(0, 1).reshape(9, 4)[:, order.argsort()])
    by, through = (gradient(group_whiten(leaf, order, 2, eps=EPS, through=t)) for t in (False, True))
    torch.testing.assert_close(by, expected, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(through, expected)
    # two rows of one group have equal eigenvalues, all of them 0 but one
    for rows, groups, eps in ((features, 2, EPS), (random(2, 4), 1, 0.1)):
        whiten = partial(group_whiten, order=order, groups=groups, eps=eps, through=True)
        assert torch.autograd.gradcheck(whiten, (rows.clone().requires_grad_(),))


def test_inverse_root_by_hand() -> None:
    matrix = torch.diag(torch.tensor([3.0, 8.0], dtype=torch.float64)).unsqueeze(0).requires_grad_()
    root = inverse_root(matrix, 1.0)
    torch.testing.assert_close(root[0], torch.diag(torch.tensor([0.5, 1 / 3], dtype=torch.float64)))
    # -1/2 a^(-3/2) on the diagonal; -1 / (2 * 3 * (2 + 3)) next to it
    expected = torch.tensor([[-1 / 16, -1 / 30], [-1 / 30, -1 / 54]], dtype=torch.float64)
    torch.testing.assert_close(torch.autograd.grad(root.sum(), matrix)[0][0], expected)


@pytest.mark.parametrize(("batch", "size"), [(40, 6), (9, 9), (3, 16), (1, 4)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_root_by_products_is_the_decompositions(batch: int, size: int, scale: float) -> None:
    rows = random(2, batch, size) * scale
    rows = (rows - rows.mean(1, keepdim=True)).requires_grad_()
    covariance, weights = rows.transpose(1, 2) @ rows / batch, random(2, size, size, seed=1)
    roots = inverse_root_by_products(covariance, EPS), inverse_root(covariance, EPS)
    white, expected = (rows @ root for root in roots)
    torch.testing.assert_close(white, expected, rtol=1e-6, atol=1e-7)
    got, wanted = (
        torch.autograd.grad((part @ weights).sum(), rows, retain_graph=True)[0] for part in (white, expected)
    )
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6 * float(wanted.abs().max()))
    assert inverse_root_by_products(covariance.detach().float(), 0.1).dtype == torch.float32


@pytest.mark.parametrize("through", [True, False])
def test_small_batches_and_equal_rows_are_finite(through: bool) -> None:
    for features in (random(1, 8), random(2, 8), torch.ones(5, 8, dtype=torch.float64)):
        leaf = features.clone().requires_grad_()
        white = group_whiten(leaf, shuffle(8), 2, eps=EPS, through=through)
        assert bool(torch.autograd.grad(white.pow(2).sum(), leaf)[0].isfinite().all())
        assert bool(white.isfinite().all())
        if len(features) != 2:
            assert float(white.detach().abs().max()) == 0


def test_loss_is_the_formula() -> None:
    views = [random(5, 4, seed=seed) for seed in range(3)]
    expected = by_loops(views[0], views[1], 0.05) + by_loops(views[0], views[2], 0.05)
    assert float(multi_positive_nce(views, 0.05)) == pytest.approx(expected, rel=1e-9)
    equal = torch.ones(16, 4, dtype=torch.float64)
    assert float(multi_positive_nce([equal] * 3, 0.05)) == pytest.approx(2 * math.log(16))
    assert float(multi_positive_nce([view[:1] for view in views], 0.05)) == 0


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, SENTENCES),
        ({"views": 2, "groups": 1, "shuffle": False}, SENTENCES),
        ({"repetition_rate": 0.6, "groups": 2}, [*SENTENCES, "a child and a farmer and a doctor"]),
        ({}, ["two", "a"]),  # one-word sentences in a batch smaller than a group
        ({"engine": "cholesky"}, SENTENCES),
        ({"engine": "cholesky", "grad_through_whitening": True}, SENTENCES),
        ({"engine": "cholesky", "groups": 1}, SENTENCES),
        ({"engine": "lowrank", "groups": 2}, toy_sentences()[:12]),  # fewer rows leave directions equal
        ({"groups": 0}, SENTENCES),  # 2 x 16 channels / (3 x 4) rows: 4 groups
    ],
)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue], sentences: Sequence[str]) -> None:
    changes = {"groups": 4} | changes
    config = options_of("whitenedcse", **changes)
    made, rows, _ = objective_of("whitenedcse", tiny_bert, sentences, **changes)
    orders, repetitions = (generator(1, f"{name}/whitenedcse") for name in ("order", "augment"))
    vectors: list[Tensor] = []
    texts = [rows]
    for _ in range(int(config["views"]) - 1):
        texts.append([repeat_subwords(row, float(config["repetition_rate"]), repetitions) for row in rows])
    for text in texts:
        states = torch.stack([cls_of(made.encoder, row) for row in text])
        shuffled = config["shuffle"] and (config["engine"], config["groups"]) != ("cholesky", 1)
        order = torch.randperm(16, generator=orders) if shuffled else torch.arange(16)
        pieces: list[Tensor | None] = [None] * 16
        for group in order.view(int(config["groups"]) or 4, -1).tolist():
            inside = states[:, group] - states[:, group].mean(0)
            with torch.set_grad_enabled(bool(config["grad_through_whitening"])):
                covariance = inside.T @ inside / len(rows)
                if config["engine"] == "cholesky":
                    shifted = covariance + EPS * torch.eye(len(group), dtype=torch.float64)
                    matrix = torch.linalg.inv(torch.linalg.cholesky(shifted)).T
                else:
                    values, base = torch.linalg.eigh(covariance)
                    weights = (values + EPS) ** -0.5
                    if config["engine"] == "lowrank":
                        weights = weights * (values >= values.sort().values[-6:][0])
                    matrix = base @ torch.diag(weights) @ base.T
            for place, column in zip(group, (inside @ matrix).T, strict=True):
                pieces[place] = column
        white = torch.stack([piece for piece in pieces if piece is not None], dim=1)
        vectors.append(torch.tanh(white @ made.head.weight.T + made.head.bias))
    expected = torch.stack([nce_by_loops(vectors[0], other) for other in vectors[1:]]).sum()
    same_step(made, made(rows), expected, rel=1e-6, rtol=1e-4, atol=1e-6)


def test_batch_of_one_learns_nothing_and_views_have_their_own_order(tiny_bert: Path) -> None:
    make = partial(objective_of, "whitenedcse", tiny_bert, ["the farmer"], groups=4)
    made, rows, _ = make()
    loss = made(rows)
    assert float(loss.detach()) == 0
    assert all(float(part.abs().max()) == 0 for part in gradients_of(made, loss).values())
    orders = [order.tolist() for _ in range(2) for order in made.prepare(rows)[1]]
    assert len({tuple(order) for order in orders}) == len(orders) == 6
    assert all(sorted(order) == list(range(16)) for order in orders)
    plain, _, _ = make(shuffle=False)
    assert plain.prepare(rows)[1].tolist() == [list(range(16))] * 3
    other, _, _ = make(shuffle=False, repetition_rate=0.5)
    assert torch.equal(plain.head.weight, other.head.weight)  # a switch changes only what it switches
