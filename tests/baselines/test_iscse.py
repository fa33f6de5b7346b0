"""IS-CSE: groups, smoothing, the weight's schedule, steps against an independent transcription, training."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.baselines.iscse import find_memory_neighbours, group_by_direction, smooth_anchors, smoothing_weight
from bench.method_card import OptionValue
from tests.support.steps import (
    count_losses,
    descend,
    nce_by_loops,
    objective_of,
    same_step,
    simcse_loss,
    under_head,
)
from tests.support.training import SENTENCES, options_of, random

TEXT = [
    *SENTENCES,
    "a woman is reading a song on the hill",
    "The farmer and the doctor sing to a child.",
    "two",
    "the man is singing",
    "a child and a farmer and a book",
]


def units(*shape: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(random(*shape, seed=seed), dim=-1)


def smoothed_by_loops(anchor: Tensor, group: list[Tensor], tau: float) -> Tensor:
    weights = [torch.exp((anchor * member).sum() / tau) for member in group]
    total = sum(weights)
    return sum(weight / total * member for weight, member in zip(weights, group, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("tau", [2.0, 0.1, math.inf])
def test_smoothing_is_the_formula(tau: float) -> None:
    anchors, keys = units(4, 5), units(7, 5, seed=1)
    groups = [[0, 1, 2, 3, 4, 5, 6], [0, 3, 5], [6], [1, 2]]
    members = torch.tensor([[k in group for k in range(7)] for group in groups])
    found = smooth_anchors(anchors, keys, members, tau)
    for i, group in enumerate(groups):
        torch.testing.assert_close(found[i], smoothed_by_loops(anchors[i], [keys[k] for k in group], tau))
    torch.testing.assert_close(found[2], keys[6])  # alone in its group
    assert bool((found.norm(dim=1) <= 1 + 1e-12).all())
    leaves = [units(2, 4).requires_grad_(), units(3, 4, seed=1).requires_grad_()]
    few = torch.tensor([[True, False, True], [True, True, True]])
    assert torch.autograd.gradcheck(partial(smooth_anchors, members=few, tau=tau), leaves)


def test_neighbours_are_the_nearest_but_one() -> None:
    anchors, memory = units(5, 4), units(12, 4, seed=3)
    found = find_memory_neighbours(anchors, memory, 3)
    for i, anchor in enumerate(anchors):
        order = sorted(range(12), key=lambda k: -float(anchor @ memory[k]))
        assert found[i].nonzero()[:, 0].tolist() == sorted(order[1:4])
    own = find_memory_neighbours(memory[4:6], memory, 11)  # everything but its own copy
    assert own.tolist() == [[k != i for k in range(12)] for i in (4, 5)]


def groups_by_lists(vectors: Tensor, count: int) -> list[list[int]]:
    """As it is described: lists of numbers, the largest one replaced by its halves."""
    points = vectors.numpy() - vectors.numpy().mean(axis=0)
    groups = [list(range(len(points)))]
    for _ in range(count - 1):
        largest = max(groups, key=len)
        above = np.linalg.svd(points[largest].T)[2][0] > 0  # the first right singular vector
        halves = [[n for n, x in zip(largest, above, strict=True) if x == side] for side in (True, False)]
        groups = [group for group in groups if group is not largest] + [half for half in halves if half]
    return groups


@pytest.mark.parametrize(("points", "count"), [(9, 2), (20, 3), (33, 5), (4, 1)])
def test_divisive_groups_equal_those_of_lists(points: int, count: int) -> None:
    vectors = random(points, 5, seed=points)
    labels = group_by_direction(vectors, count).tolist()
    found = sorted([n for n, own in enumerate(labels) if own == label] for label in set(labels))
    assert found == sorted(groups_by_lists(vectors, count))
    assert len(found) == (count if points < 33 else 4)  # a cut of vectors on one side does nothing
    assert len(set(group_by_direction(torch.ones(6, 3), 3).tolist())) == 1


def test_the_weights_schedule() -> None:
    found = [smoothing_weight(t, 10, "cosine", 0.05, 0.005) for t in range(10)]
    assert found[0] == pytest.approx(0.005)
    assert found[2] == pytest.approx(0.05 - 0.045 * math.cos(math.pi / 5))
    assert found[:5] == sorted(found[:5])
    assert found[5:] == [0.05] * 5
    assert [smoothing_weight(t, 10, "constant", 0.1, 0.005) for t in (0, 9)] == [0.1, 0.1]


def group_of(own: int, batch: list[Tensor], memory: list[Tensor], settings: dict[str, Any]) -> list[Tensor]:
    """The group of a second view: the released description, a vector at a time."""
    size, held = settings["neighbours"], [vector.detach() for vector in memory]
    if settings["grouping"] == "knn":
        order = sorted(range(len(held)), key=lambda k: -float(batch[own].detach() @ held[k]))
        return [batch[own], *(held[k] for k in order[1 : size + 1])]
    keys = [*batch, *held[: -len(batch)]]
    groups = groups_by_lists(torch.stack([key.detach() for key in keys]), len(keys) // size)
    return [keys[k] for group in groups if own in group for k in group]


BASE: dict[str, OptionValue] = {"buffer": 9, "neighbours": 3, "alpha": 0.7}
CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"aggregation": "mean"},
    {"attention_tau": 0.2},
    {"neighbours": 2},
    {"buffer": 6},
    {"alpha": 0.2},
    {"buffer": 6, "alpha_schedule": "cosine", "alpha_start": 0.1},
    {"buffer": 6, "alpha_schedule": "cosine", "alpha_start": 0.3},
    {"grouping": "pddp"},
    {"grouping": "pddp", "aggregation": "mean"},
    {"tau": 0.2},
]
BATCHES = ([0, 1, 2, 3], [4, 5, 6, 7], [8], [0, 2, 4, 6], [8, 1, 3])


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_steps_equal_a_transcription(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Losses and gradients of five batches of several sizes, between which the weights move."""
    made, rows, _ = objective_of("iscse", tiny_bert, TEXT, **{**BASE, **changes})
    settings: dict[str, Any] = {**options_of("iscse"), **BASE, **changes}
    memory: list[Tensor] = []
    smooth = 0
    for step, batch in enumerate(BATCHES):
        loss = made([rows[i] for i in batch])
        anchors, views = ([under_head(made, rows[i]) for i in batch] for _ in range(2))  # dropout 0
        expected = nce_by_loops(anchors, views, settings["tau"])
        unit = [view / view.norm() for view in views]
        memory = [*memory, *(vector.detach() for vector in unit)][-settings["buffer"] :]
        if len(memory) == settings["buffer"]:
            tau = settings["attention_tau"] if settings["aggregation"] == "attention" else 1e12
            groups = [group_of(i, unit, memory, settings) for i in range(len(batch))]
            positives = [smoothed_by_loops(unit[i], group, tau) for i, group in enumerate(groups)]
            alpha = settings["alpha"]
            if settings["alpha_schedule"] == "cosine":  # 9 sentences in batches of 2: 5 steps
                low = settings["alpha_start"]
                alpha = min(alpha, alpha + (low - alpha) * math.cos(math.pi * step / 5))
            expected = expected + alpha * nce_by_loops(anchors, positives, settings["tau"])
            smooth += 1
        got = same_step(made, loss, expected, rel=1e-8)
        torch.testing.assert_close(made.memory.vectors, torch.stack(memory), rtol=1e-9, atol=1e-9)
        assert not made.memory.vectors.requires_grad
        descend(made, got)
    assert smooth == (3 if settings["buffer"] == 9 else 4)


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    changes = [BASE | change for change in CHANGES]
    assert count_losses(partial(objective_of, "iscse", tiny_bert, TEXT), changes, BATCHES) == len(CHANGES)


@pytest.mark.parametrize("grouping", ["knn", "pddp"])
def test_first_views_are_anchors_and_second_ones_are_smoothed(tiny_bert: Path, grouping: str) -> None:
    """Two steps of views that differ, as under dropout: the gradient of every vector."""
    settings: dict[str, Any] = {"buffer": 6, "neighbours": 2, "alpha": 0.7, "grouping": grouping}
    made, rows, _ = objective_of("iscse", tiny_bert, TEXT, **settings)
    memory: list[Tensor] = []
    for step in range(2):
        both = random(8, 5, seed=step).requires_grad_()
        made.projected = lambda _, both=both: both
        loss = made(rows[:4])
        anchors, views = both.chunk(2)
        unit = [view / view.norm() for view in views]
        memory = [*memory, *(vector.detach() for vector in unit)][-6:]
        expected = nce_by_loops(anchors, views)
        if step:
            groups = [group_of(i, unit, memory, settings) for i in range(4)]
            smooth = [smoothed_by_loops(unit[i], group, 2.0) for i, group in enumerate(groups)]
            expected = expected + 0.7 * nce_by_loops(anchors, smooth)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(*(torch.autograd.grad(each, both)[0] for each in (loss, expected)))


def test_until_the_memory_is_full_and_without_weight_it_is_simcse(tiny_bert: Path) -> None:
    for changes in ({"buffer": 19}, {"buffer": 5, "neighbours": 2, "alpha": 0.0}):
        made, rows, _ = objective_of("iscse", tiny_bert, TEXT, **{**BASE, **changes})
        losses = [float(made(rows).detach()) for _ in range(2)]
        assert losses == [simcse_loss(made, tiny_bert, TEXT)] * 2
    assert len(made.memory.vectors) == 5
    full, _, _ = objective_of("iscse", tiny_bert, TEXT, **{**BASE, "buffer": 18})
    losses = [float(full(rows).detach()) for _ in range(2)]  # the memory is kept over epochs
    assert losses[1] > losses[0]
