"""SentEval's procedures written down a second time, in numpy and float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
Scores = Sequence[float] | Array


def drawn_layers(seed: int, *sizes: int) -> list[tuple[Array, Array]]:
    """Weights (in, out) and biases as torch draws linear layers of these sizes, one after the other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    return [
        (f.weight.detach().double().numpy().T.copy(), f.bias.detach().double().numpy().copy()) for f in layers
    ]


def softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    found: Array = shifted / shifted.sum(1, keepdims=True)
    return found


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
    """Soft labels by softmax(x W + b), mean of squares over rows and grades, Adam, in batches of 64.

    At most 21 rounds of 50 passes; the fourth round without a better correlation ends it.
    """
    x, y = train
    ((weights, bias),) = drawn_layers(seed, x.shape[1], 5)
    theta = np.vstack([weights, bias])
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    order, steps, worse, best = np.random.RandomState(seed), 0, 0, (-1.0, theta)
    grades = np.arange(1, 6)

    def scores(features: Array, with_theta: Array) -> Array:
        found: Array = softmax(features @ with_theta[:-1] + with_theta[-1]) @ grades
        return found

    for _ in range(21):
        for _ in range(50):
            permutation = order.permutation(len(x))
            for begin in range(0, len(x), 64):
                rows = permutation[begin : begin + 64]
                p = softmax(x[rows] @ theta[:-1] + theta[-1])
                slope = 2 * (p - y[rows]) / p.size
                inner = p * (slope - (slope * p).sum(1, keepdims=True))
                gradient = np.vstack([x[rows].T @ inner, inner.sum(0)])
                steps += 1
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                scaled = np.sqrt(second / (1 - 0.999**steps)) + 1e-8
                theta = theta - 1e-3 * first / (1 - 0.9**steps) / scaled
        found = correlation(scores(valid[0], theta), valid[1])
        if found > best[0]:
            best = found, theta
        else:
            worse += 1
            if worse == 4:
                break
    return best[0], scores(test, best[1])


def hidden_layer(
    x: Array,
    y: Array,
    valid: tuple[Array, Array],
    units: int,
    rate: float,
    reg: float,
    rounds: int,
    batch: int,
) -> tuple[float, Array]:
    """Best validation accuracy and the classes found with it: sigmoids, SGD, a pass a round."""
    classes = int(y.max()) + 1
    (a, b), (c, d) = drawn_layers(1111, x.shape[1], units, classes)
    order, best = np.random.RandomState(1111), (-1.0, y)
    for _ in range(rounds):
        permutation = order.permutation(len(x))
        for begin in range(0, len(x), batch):
            rows = permutation[begin : begin + batch]
            hidden = 1 / (1 + np.exp(-(x[rows] @ a + b)))
            slope = (softmax(hidden @ c + d) - np.eye(classes)[y[rows]]) / len(rows)
            back = (slope @ c.T) * hidden * (1 - hidden)
            moves = [x[rows].T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
            a, b, c, d = (
                part - rate * (move + reg * part) for part, move in zip((a, b, c, d), moves, strict=True)
            )
        classes_found = ((1 / (1 + np.exp(-(valid[0] @ a + b)))) @ c + d).argmax(1)
        accuracy = float((classes_found == valid[1]).mean())
        if accuracy > best[0]:
            best = accuracy, classes_found
    return best
