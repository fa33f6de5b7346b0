"""Views, options and gradients of the gradient paradigm's losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.losses.modified_noncontrastive import LOSSES
from bench.losses.paradigm_losses import arccon, met, mpt, unit_info_nce
from bench.method_card import OptionValue
from bench.registry import discover

Loss = Callable[..., Tensor]


EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


CONTRASTIVE: dict[str, Loss] = {"infonce": unit_info_nce, "arccon": arccon, "mpt": mpt, "met": met}


def views(count: int, size: int = 6, spread: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views with unit rows, the second a moved copy of the first; a larger spread parts the sentences."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    first = normal(size) + spread * normal(count, size)
    second = first + 0.3 * spread * normal(count, size)
    return torch.nn.functional.normalize(first, dim=1), torch.nn.functional.normalize(second, dim=1)


BATCHES = [
    (count, spread, seed) for count in (2, 3, 9) for spread in (0.2, 1.0, 4.0) for seed in (0, 1, 2, 3)
]


def gradients(loss: Loss, *given: Tensor) -> list[Tensor]:
    leaves = [view.clone().requires_grad_() for view in given]
    return list(torch.autograd.grad(loss(*leaves), leaves, materialize_grads=True))


NAMES = (*CONTRASTIVE, "mat", "paradigm", *LOSSES, *(f"m_{name}" for name in LOSSES))


def options(name: str, **changes: OptionValue) -> dict[str, OptionValue]:
    return {option.name: option.default for option in discover().get(name).card.options} | changes
