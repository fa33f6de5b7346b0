"""Activation checkpointing: a layer keeps its input, and computes the rest again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from bench.errors import InputError

Encode = Callable[[], Tensor]


def checkpoint_layers(model: nn.Module, encode: Encode, where: str) -> None:
    """Let a transformer's layers compute again what the backward pass needs, with the same dropout.

    These are the layers that transformers marks, as ``gradient_checkpointing_enable`` does. ``encode`` calls
    the model, in training mode, on a few tokens. Raises InputError with ``where`` if that keeps as much as
    before.
    """
    plain = count_saved_bytes(encode)
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            vars(module)["gradient_checkpointing"] = True
            vars(module)["_gradient_checkpointing_func"] = partial(checkpoint, use_reentrant=False)
    if count_saved_bytes(encode) >= plain:
        what = f"checkpoint_layers saves no memory in {type(model).__name__}"
        raise InputError(what, where=where, expected="checkpoint_layers=false, or another architecture")


def count_saved_bytes(encode: Encode) -> int:
    """Count the bytes that a call keeps for its backward pass, weights included, each tensor once."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
        result = encode()
    del result
    return sum(kept.values())


def run_checkpointed(layer: Any, compute: Callable[..., Any], *inputs: Any) -> Any:
    """Return ``compute(*inputs)``, of a layer's weights; computed again in backward if the layer is marked.

    For parts of a layer that are called instead of it.
    """
    marked = getattr(layer, "gradient_checkpointing", False) and layer.training
    if not marked or not torch.is_grad_enabled():
        return compute(*inputs)
    return layer._gradient_checkpointing_func(compute, *inputs)
