"""SentEval's own fitting procedure: mini-batch Adam with early stopping on a validation set, in float32.

On CUDA the host waits once a round, for the stopped fits, and for the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.errors import InputError
from bench.nn.tokens import send_tensor

_VALIDATION_SHARE = 0.05  # of the training rows, where a fit has no validation set
_BETAS = (0.9, 0.999)
_ALPHA = 0.99
_EPSILON = 1e-8

Rows = NDArray[np.intp]
Update = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class ClassifierSettings:
    """SentEval's ``classifier`` settings, with the values of its full mode."""

    optim: str = "adam"  # "adam" (learning rate 1e-3) or "rmsprop" (1e-2)
    batch_size: int = 64  # rows of a step
    tenacity: int = 5  # allowed evaluations without a better accuracy, over the whole fit
    epoch_size: int = 4  # passes over the data between evaluations
    max_epoch: int = 200  # passes after which the last round begins


def fit_sgd(
    features: NDArray[np.floating] | Tensor,
    labels: NDArray[np.integer],
    classes: int,
    rows: Rows,
    validation: Rows | None,
    regs: tuple[float, ...],
    *,
    settings: ClassifierSettings = ClassifierSettings(),
    seed: int = 1111,
) -> NDArray[np.float64]:
    """Fit a logistic regression for each regularisation, side by side: float64 (regs, classes, dim + 1).

    SentEval seeds every fit alike, so fits that differ only in regularisation start from the same weights
    and see the same batches. A step descends along the gradient of mean cross-entropy + reg (W, b). After
    every ``epoch_size`` passes the validation accuracy is measured; the best weights are kept, the bias last.

    Features are (n, dim), and a float32 tensor's device computes the fits; labels are 0 to classes - 1.
    By default a random 5% of the training rows validate. An unknown optimiser raises
    InputError.
    """
    order = np.random.RandomState(seed)  # SentEval's stream of permutations
    if validation is None:
        shuffled, cut = order.permutation(len(rows)), int(_VALIDATION_SHARE * len(rows))
        rows, validation = rows[shuffled[cut:]], rows[shuffled[:cut]]
    (x, y), (valid_x, valid_y) = (_select_tensors(features, labels, part) for part in (rows, validation))
    onehot = (y[:, None] == torch.arange(classes, device=x.device)).float()
    weights = send_tensor(_initial_weights(x.shape[1] - 1, classes, seed), x.device).repeat(len(regs), 1, 1)
    decay = send_tensor(torch.tensor(regs), x.device).view(-1, 1, 1)
    update = _make_optimiser(settings.optim, weights)
    best, best_accuracy = weights.clone(), torch.full((len(regs),), -1.0, device=x.device)
    patience, stopped = torch.zeros_like(best_accuracy), torch.zeros_like(best_accuracy, dtype=torch.bool)
    for _ in range(0, settings.max_epoch + 1, settings.epoch_size):
        for _ in range(settings.epoch_size):
            sequence = send_tensor(torch.from_numpy(order.permutation(len(rows))), x.device)
            for batch in torch.split(sequence, settings.batch_size):
                inputs = x[batch]
                p = (weights @ inputs.T).softmax(1)  # (regs, classes, batch)
                gradient = (p - onehot[batch].T) @ inputs / len(batch)
                update(weights, gradient.addcmul_(decay, weights))
        accuracy = ((weights @ valid_x.T).argmax(1) == valid_y).float().mean(1)
        better = (accuracy > best_accuracy) & ~stopped
        best = torch.where(better.view(-1, 1, 1), weights, best)
        best_accuracy = torch.where(better, accuracy, best_accuracy)
        stopped |= ~better & (patience >= settings.tenacity)
        patience += ~better
        if stopped.all():
            break
    return best.double().cpu().numpy()


def _select_tensors(
    features: NDArray[np.floating] | Tensor, labels: NDArray[np.integer], rows: Rows
) -> tuple[Tensor, Tensor]:
    if isinstance(features, Tensor):
        x = features[send_tensor(torch.from_numpy(rows), features.device)]
    else:
        x = torch.from_numpy(np.asarray(features[rows], dtype=np.float32))
    y = send_tensor(torch.from_numpy(labels[rows].astype(np.int64)), x.device)
    return torch.cat([x, torch.ones(len(x), 1, device=x.device)], dim=1), y


def _initial_weights(dim: int, classes: int, seed: int) -> Tensor:
    """Draw weights and bias as torch's linear layer does, (classes, dim + 1)."""
    generator = torch.Generator().manual_seed(seed)
    bound = dim**-0.5
    weight = torch.empty(classes, dim).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator)
    return torch.cat([weight, bias[:, None]], dim=1)


def _make_optimiser(name: str, weights: Tensor) -> Update:
    """Return Adam or RMSprop with torch's defaults."""
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    steps = 0

    def adam(parameters: Tensor, gradient: Tensor) -> None:
        nonlocal steps
        steps += 1
        first.lerp_(gradient, 1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        scale = (second / (1 - _BETAS[1] ** steps)).sqrt_().add_(_EPSILON)
        parameters.addcdiv_(first, scale, value=-1e-3 / (1 - _BETAS[0] ** steps))

    def rmsprop(parameters: Tensor, gradient: Tensor) -> None:
        second.mul_(_ALPHA).addcmul_(gradient, gradient, value=1 - _ALPHA)
        parameters.addcdiv_(gradient, second.sqrt().add_(_EPSILON), value=-1e-2)

    known: dict[str, Update] = {"adam": adam, "rmsprop": rmsprop}
    if name not in known:
        what = f"optimiser '{name}'"
        raise InputError(what, where="classifier settings", expected=f"one of {', '.join(known)}")
    return known[name]
