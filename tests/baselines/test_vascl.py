"""VaSCL: its loss by hand and by loops, neighbours, the perturbation against autograd, a whole step."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines.vascl import find_batch_neighbours, find_worst_direction, scale_to_unit
from bench.losses import near_nce
from bench.method_card import OptionValue
from bench.training.loop import TrainSettings, parameter_groups, train
from bench.training.randomness import generator, own_random_state
from bench.training.training_heads import ContrastHead
from tests.support.steps import count_losses, gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random

TEXT = [*SENTENCES, "the doctor is on the hill", "children are singing"]


def slow_contrast(first: Tensor, second: Tensor, near: list[list[int]], tau: float) -> Tensor:
    """As it is printed: each of the 2B vectors against its other view and both views of its neighbours."""
    terms = []
    for own, other in ((first, second), (second, first)):
        for i, vector in enumerate(own):
            cosine = partial(torch.cosine_similarity, vector, dim=0)
            positive = (cosine(other[i]) / tau).exp()
            others = [(cosine(view[j]) / tau).exp() for j in near[i] for view in (first, second)]
            terms.append(-torch.log(positive / (positive + sum(others))))
    return torch.stack(terms).mean()


def table(near: list[list[int]]) -> Tensor:
    found = torch.zeros(len(near), len(near), dtype=torch.bool)
    for i, row in enumerate(near):
        found[i, row] = True
    return found


def test_loss_is_the_formula() -> None:
    first, second = random(5, 4), random(5, 4, seed=1)
    everyone = [[j for j in range(5) if j != i] for i in range(5)]
    expected = slow_contrast(first, second, everyone, 0.3)
    assert float(near_nce(first, second, None, 0.3)) == pytest.approx(float(expected), rel=1e-12)
    near = [[1, 4], [0, 2], [3, 1], [4, 0], [2, 3]]
    expected = slow_contrast(first, second, near, 0.3)
    assert float(near_nce(first, second, table(near), 0.3)) == pytest.approx(float(expected), rel=1e-12)
    assert float(near_nce(3 * first, second / 2, table(near), 0.3)) == pytest.approx(float(expected))


def test_loss_by_hand_and_limits() -> None:
    first, second = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 3.0], [0.0, 1.0]])
    e = math.e
    # first_0: positive 0, others 0 and 0; second_0: 0, others 1 and 1; both others: 1, others 0 and 1
    rows = [math.log(3), math.log(1 + 2 * e), *[math.log((2 * e + 1) / e)] * 2]
    assert float(near_nce(first, second, None, 1.0)) == pytest.approx(sum(rows) / 4, rel=1e-6)
    equal = torch.ones(6, 3, dtype=torch.float64)
    near = table([[(i + 1) % 6, (i + 2) % 6] for i in range(6)])
    assert float(near_nce(equal, equal, near, 0.05)) == pytest.approx(math.log(5))
    assert float(near_nce(equal, equal, None, 0.05)) == pytest.approx(math.log(11))
    assert float(near_nce(equal[:1], random(1, 3), None, 0.05)) == 0


def test_neighbours_are_those_with_the_largest_products() -> None:
    vectors = random(7, 4)
    for count in (1, 3, 6, 16):
        found = find_batch_neighbours(vectors, count)
        for i in range(7):
            products = {j: float(vectors[i] @ vectors[j]) for j in range(7) if j != i}
            best = sorted(products, key=products.__getitem__)[-count:]
            assert found[i].nonzero().flatten().tolist() == sorted(best)
    long = torch.tensor([[1.0, 0.0], [1.0, 0.1], [5.0, 5.0]])  # a product, not a cosine
    assert find_batch_neighbours(long, 1)[0].tolist() == [False, False, True]
    assert find_batch_neighbours(vectors[:1], 3).tolist() == [[False]]


def made_head(size: int = 6, features: int = 3) -> ContrastHead:
    with own_random_state(1, "head"):
        head = ContrastHead(size, features).double()
    with torch.no_grad():  # or all vectors are nearly alike
        head.inner.weight.mul_(30)
        head.outer.weight.mul_(30)
    return head


def test_gradient_through_the_head_is_autograds() -> None:
    head, leaf, given = made_head(), random(5, 6).requires_grad_(), random(5, 3, seed=1)
    (expected,) = torch.autograd.grad((head(leaf) * given).sum(), leaf)
    torch.testing.assert_close(head.pulled_back(leaf.detach(), given), expected, rtol=1e-10, atol=1e-12)
    zeros = head.pulled_back(torch.zeros(2, 6, dtype=torch.float64), given[:2])
    assert not bool(zeros.any())


def slow_direction(
    head: Any, e: Tensor, near: list[list[int]], start: Tensor, *, xi: float, tau: float, steps: int
) -> Tensor:
    """The released loop: autograd on the perturbed view's loss, with clean vectors as the others."""

    def g(vectors: Tensor) -> Tensor:
        hidden = (vectors @ head.inner.weight.T).clamp(min=0)
        return functional.normalize(hidden @ head.outer.weight.T, dim=1)

    clean = g(e).detach()
    d = (start / start.norm(dim=1, keepdim=True)).detach()
    for _ in range(steps):
        d = d.detach().requires_grad_()
        u, terms = g(e + xi * d), []
        for i, neighbours in enumerate(near):
            positive = (u[i] @ clean[i] / tau).exp()
            others = torch.stack([(u[i] @ clean[j] / tau).exp() for j in neighbours]).sum()
            terms.append(-torch.log(positive / (positive + others)))
        (found,) = torch.autograd.grad(torch.stack(terms).mean(), d)
        d = found / (found.norm(dim=1, keepdim=True) + 1e-8)
    last: Tensor = d.detach()
    return last


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("xi", [0.1, 2.0])
def test_direction_is_the_released_loops(steps: int, xi: float) -> None:
    head, e, start = made_head(), random(5, 6), random(5, 6, seed=2)
    near = [[1, 2], [0, 4], [3, 4], [1, 0], [2, 3]]
    find = partial(find_worst_direction, head, xi=xi, tau=0.5, steps=steps)
    found = find(e, table(near), start)
    expected = slow_direction(head, e, near, start, xi=xi, tau=0.5, steps=steps)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
    assert not found.requires_grad
    if steps:  # without neighbours nothing is moved
        assert not bool(find(e[:1], find_batch_neighbours(e[:1], 3), start[:1]).any())


def test_the_direction_raises_the_loss_more_than_others_do() -> None:
    head, e, xi = made_head(), random(8, 6), 0.05
    near, starts = find_batch_neighbours(e, 3), [scale_to_unit(random(8, 6, seed=seed)) for seed in range(20)]
    worst = find_worst_direction(head, e, near, starts[0], xi=xi, tau=0.5, steps=5)
    losses = [
        float(near_nce(head(e), head(e + xi * d), near, 0.5).detach()) for d in (worst, -worst, *starts)
    ]
    assert losses.index(max(losses)) == 0


def slow_step(made: Any, rows: list[Any], config: dict[str, OptionValue], start: Tensor) -> Tensor:
    """Loss of a step from the formulas, each row alone in a forward of its own, without dropout."""
    tau, radius = float(config["tau"]), float(config["radius"])
    states = [made.encoder(input_ids=torch.tensor([row])).last_hidden_state[0].mean(0) for row in rows]
    e, count = torch.stack(states), len(rows)

    def g(vectors: Tensor) -> Tensor:
        hidden = (vectors @ made.head.inner.weight.T).clamp(min=0)
        return functional.normalize(hidden @ made.head.outer.weight.T, dim=1)

    everyone = [[j for j in range(count) if j != i] for i in range(count)]
    loss = slow_contrast(g(e), g(e), everyone, tau)
    if not radius:
        return loss
    near = []
    for i in range(count):
        others = sorted(everyone[i], key=lambda j: float((e[i] @ e[j]).detach()))
        near.append(others[-int(config["neighbours"]) :])
    fixed, xi = e.detach(), float(config["xi"]) or radius
    d = slow_direction(made.head, fixed, near, start, xi=xi, tau=tau, steps=int(config["power_steps"]))
    moved = (fixed if config["perturbed_gradient"] == "head" else e) + radius * d
    return loss + slow_contrast(g(fixed).detach(), g(moved), near, tau)


BASE: dict[str, OptionValue] = {"neighbours": 2, "radius": 1.5, "features": 7, "tau": 0.5}
CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"radius": 0.0},
    {"xi": 0.3},
    {"neighbours": 16},  # more than the batch has
    {"power_steps": 3},
    {"power_steps": 0},
    {"perturbed_gradient": "encoder"},
    {"features": 5},
    {"tau": 0.2},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    config = options_of("vascl", **BASE) | changes
    made, rows, _ = objective_of("vascl", tiny_bert, TEXT, **(BASE | changes))
    drawn = torch.rand(len(TEXT), 16, generator=generator(1, "direction/vascl")) - 0.5
    loss = made(rows)
    found = same_step(made, loss, slow_step(made, rows, config, drawn.double()), rel=1e-8)
    assert {"head.inner.weight", "head.outer.weight"} <= found.keys()


def test_every_option_changes_the_loss_or_its_gradient(tiny_bert: Path) -> None:
    step = partial(objective_of, "vascl", tiny_bert, TEXT)
    assert count_losses(step, [BASE | change for change in CHANGES]) == len(CHANGES) - 1
    found = []
    for changes in ({}, {"radius": 0.0}, {"perturbed_gradient": "encoder"}):
        made, rows, _ = step(**(BASE | changes))
        found.append(gradients_of(made, made(rows)))
    head, none, encoder = found
    for name, gradient in none.items():  # released: the perturbed view's gradient reaches only the head
        assert torch.equal(head[name], gradient) != name.startswith("head.")
    assert not torch.allclose(
        encoder["encoder.encoder.layer.0.output.dense.weight"],
        head["encoder.encoder.layer.0.output.dense.weight"],
    )


def test_the_head_learns_at_its_own_rate(tiny_bert: Path) -> None:
    """Adam's first step is the rate, whatever the gradient: weights move by lr, the head's by 50 lr."""
    made, rows, _ = objective_of("vascl", tiny_bert, TEXT, head_rate=50.0, tau=0.5, radius=1.0)
    before = {name: value.detach().clone() for name, value in made.named_parameters()}
    settings = TrainSettings(1e-4, len(rows), 1, 9, clip=0.0, schedule="constant")
    train(made, made.encoder, rows, settings, seed=1, corpus="c", dev_score=lambda: 0.0)
    after = made.named_parameters()
    moved = {name: float((value.detach() - before[name]).abs().max()) for name, value in after}
    assert moved["head.inner.weight"] == pytest.approx(50e-4, rel=1e-3)
    assert moved["head.outer.weight"] == pytest.approx(50e-4, rel=1e-3)
    assert max(far for name, far in moved.items() if not name.startswith("head.")) < 1.01e-4


def test_parameter_groups_of_two_rates(tiny_bert: Path) -> None:
    made, _, _ = objective_of("vascl", tiny_bert, TEXT, head_rate=50.0)
    settings = TrainSettings(1e-4, 2, 1, 1, weight_decay=0.1, decay_all=False)
    groups = parameter_groups(made.module, settings)
    assert [group["rate_scale"] for group in groups] == [1.0, 50.0, 1.0]
    assert [group.get("weight_decay") for group in groups] == [None, None, 0.0]
    assert sum(len(group["params"]) for group in groups) == len(list(made.parameters()))
    assert {id(p) for p in groups[1]["params"]} == {id(p) for p in made.head.parameters()}
    plain, _, _ = objective_of("simcse", tiny_bert, TEXT)
    assert all("rate_scale" not in group for group in parameter_groups(plain.module, settings))
