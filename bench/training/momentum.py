"""A slow copy of a network, and the queue of vectors that it made: negatives of earlier batches."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.lora import has_lora, is_adapter_weight
from bench.training.mixed_precision import get_master


class MomentumCopy:
    """A network that follows another one: phi <- m phi + (1 - m) theta (He et al. 2020, MoCo, eq. 2).

    A plain object, so that modules leave it out of training and saving. Its mode (evaluation at
    first) is the user's; its parameters are constant.

    Args:
        source: The network to follow; its copy starts with its weights.
        momentum: m, from 0 (the copy equals the source) to 1 (it never moves).
        start: Another network of the same parameters to start from, itself.

    Raises:
        InputError: a momentum outside [0, 1].
        ValueError: a start with other parameters.
    """

    def __init__(self, source: nn.Module, momentum: float, *, start: nn.Module | None = None) -> None:
        if not 0 <= momentum <= 1:
            raise InputError(f"momentum {momentum}", expected="0 to 1")
        self.momentum = momentum
        self._adapted = has_lora(source)
        self.model = _copy_network(source) if start is None else start
        if _parameter_shapes(source) != _parameter_shapes(self.model):
            raise ValueError("the start has other parameters than the network to follow")
        self.model.requires_grad_(False).eval()
        self.model.zero_grad(set_to_none=True)

    @torch.no_grad()
    def update(self, source: nn.Module) -> None:
        """Move every parameter towards the source's present value; buffers stay."""
        own, followed = dict(self.model.named_parameters()), dict(source.named_parameters())
        if self._adapted:  # the frozen weights are the source's
            followed = {name: value for name, value in followed.items() if is_adapter_weight(name)}
        slow: list[Tensor] = [own[name] for name in followed]
        torch._foreach_mul_(slow, self.momentum)
        torch._foreach_add_(slow, [get_master(value) for value in followed.values()], alpha=1 - self.momentum)


def _copy_network(source: nn.Module) -> nn.Module:
    """Copy a network; one with LoRA adapters shares its frozen weights."""
    shared: dict[int, Any] = {}
    if has_lora(source):
        shared = {id(value): value for value in source.parameters() if not value.requires_grad}
    return copy.deepcopy(source, shared)


def _parameter_shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in network.named_parameters()}


class VectorQueue:
    """The newest vectors, first in first out.

    Args:
        size: Vectors it keeps, at least 1. A first push is kept whole until the next one, as in ESimCSE's
            code.
        first_rows: Keep the first rows of a batch that is cut instead of its last, and cut a first push too,
            as DistilCSE's code does.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, size: int, *, first_rows: bool = False) -> None:
        if size < 1:
            raise ValueError(f"size {size} must be at least 1")
        self.size, self._first_rows = size, first_rows
        self.vectors: Tensor | None = None
        """(n, H) in order of arrival (with ``first_rows`` the newest batch first), or None while empty."""

    def push(self, vectors: Tensor) -> None:
        """Add a batch (B, H), dropping the oldest beyond the size."""
        new = vectors.detach()
        if self._first_rows:
            old = [] if self.vectors is None else [self.vectors]
            self.vectors = torch.cat([new, *old])[: self.size]
            return
        self.vectors = new if self.vectors is None else torch.cat([self.vectors, new])[-self.size :]

    def clear(self) -> None:
        """Empty it."""
        self.vectors = None
