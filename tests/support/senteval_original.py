"""SentEval's procedures written down a second time, with torch's own layers and optimisers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
Scores = Sequence[float] | Array


def draw_layers(seed: int, *sizes: int) -> list[nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [nn.Linear(a, b) for a, b in pairwise(sizes)]


def fit_rounds(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
    rows: tuple[Array, Array],
    score: Callable[[Any], float],
    order: np.random.RandomState,
    *,
    rounds: int,
    passes: int,
    batch: int,
    tenacity: int,
) -> tuple[float, Any]:
    """Best score after a round, and the model then; worse rounds beyond the tenacity end the fit."""
    x, y = map(torch.from_numpy, rows)
    best, worse = (-1.0, model), 0
    for _ in range(rounds):
        for _ in range(passes):
            for part in torch.split(torch.from_numpy(order.permutation(len(x))), batch):
                optimiser.zero_grad()
                loss(model(x[part]), y[part]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        with torch.no_grad():
            found = score(model)
        worse += found <= best[0]
        if found > best[0]:
            best = found, copy.deepcopy(model)
        elif worse > tenacity:
            break
    return best


def soft_labels(scores: Scores) -> Array:
    """A score between two grades counts for each what it is near it; 0 is no grade."""
    near: Array = 1 - np.abs(np.array(scores)[:, None] - np.arange(1, 6))
    return near.clip(min=0)


def pair_features(u: Array, v: Array) -> Array:
    return np.hstack([np.abs(u - v), u * v])


def regression(
    train: tuple[Array, Array],
    valid: tuple[Array, Scores],
    test: Array,
    correlation: Callable[[Array, Scores], float],
    seed: int = 1111,
) -> tuple[float, Array]:
    """Soft labels by softmax(x W + b), mean of squares over rows and grades, Adam, 21 rounds of 50 passes."""
    model = nn.Sequential(*draw_layers(seed, train[0].shape[1], 5), nn.Softmax(-1)).double()

    def scores(model: nn.Module, features: Array) -> Array:
        found: Array = model(torch.from_numpy(features)).detach().numpy() @ np.arange(1, 6)
        return found

    best, model = fit_rounds(
        model, torch.optim.Adam(model.parameters()), nn.functional.mse_loss, train,
        lambda model: correlation(scores(model, valid[0]), valid[1]), np.random.RandomState(seed),
        rounds=21, passes=50, batch=64, tenacity=3,
    )  # fmt: skip
    return best, scores(model, test)


def hidden_layer(
    train: tuple[Array, Array], valid: tuple[Array, Array], units: int, rate: float, reg: float
) -> tuple[float, Array]:
    """Best validation accuracy and its classes: sigmoids, SGD, 30 rounds of a pass, batches of 32."""
    first, second = draw_layers(1111, train[0].shape[1], units, int(train[1].max()) + 1)
    model = nn.Sequential(first, nn.Sigmoid(), second)
    optimiser = torch.optim.SGD(model.parameters(), rate, weight_decay=reg)

    def classes(model: nn.Module) -> Array:
        found: Array = model(torch.from_numpy(valid[0])).argmax(1).numpy()
        return found

    best, model = fit_rounds(
        model, optimiser, nn.functional.cross_entropy, train,
        lambda model: float((classes(model) == valid[1]).mean()), np.random.RandomState(1111),
        rounds=30, passes=1, batch=32, tenacity=99,
    )  # fmt: skip
    return best, classes(model)
