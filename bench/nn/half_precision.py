"""Encoders that compute in bfloat16 or float16; their vectors stay float32."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LOWER = frozenset(DTYPES.values())
_asked: list[str] = []  # innermost last


@contextmanager
def build_at_precision(precision: str) -> Iterator[None]:
    """Load the weights of encoders that are built within the block in "fp32", "bf16" or "fp16"."""
    _asked.append(precision)
    try:
        yield
    finally:
        _asked.pop()


def get_build_dtype() -> torch.dtype:
    """Return the type of weights that :func:`build_at_precision` asks for; float32 outside of it."""
    return DTYPES.get(_asked[-1], torch.float32) if _asked else torch.float32


def cast_encoder(encoder: Encoder | PairScorer, precision: str) -> Any:
    """Return a transformer, or a sum, with weights and activations in "bf16" or "fp16".

    It is the encoder itself where its weights have the type, as within :func:`build_at_precision`, and with
    "fp32"; otherwise a copy. Raises BenchError for an encoder of another kind.
    """
    if precision == "fp32":
        return encoder
    lowered: Any = copy.copy(encoder)
    if hasattr(encoder, "parts"):
        lowered.parts = tuple(cast_encoder(part, precision) for part in encoder.parts)
        same = all(new is old for new, old in zip(lowered.parts, encoder.parts, strict=True))
        return encoder if same else lowered
    model = getattr(encoder, "model", None)
    if not isinstance(model, nn.Module):
        what = f"an encoder of the kind {type(encoder).__name__} computes in fp32 only"
        raise BenchError(what, hint="without --precision")
    if _list_dtypes(model) <= {DTYPES[precision]}:
        return encoder
    lowered.model = copy.deepcopy(model).to(DTYPES[precision])
    return lowered


def _list_dtypes(model: nn.Module) -> set[torch.dtype]:
    """Return the floating-point types of a model's weights and buffers."""
    tensors = (*model.parameters(), *model.buffers())
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}


def compute_in_float32(model: nn.Module) -> AbstractContextManager[object]:
    """Compute with a model's weights as float32 numbers within the block, one operation's at a time.

    Measurements of a model's traits are thereby the same for every type of its weights.
    """
    return _Float32Arithmetic() if _list_dtypes(model) & _LOWER else nullcontext()


class _Float32Arithmetic(TorchFunctionMode):
    """Gives float32 copies of lower tensors to every function of torch, and float32 for lower types."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch."""
        if func in _LOOKUPS:  # its rows are raised, in place of the whole table
            return _raise_to_float32(func(*args, **(kwargs or {})))
        return _raise_to_float32(func(*_raise_to_float32(args), **_raise_to_float32(kwargs or {})))


_LOOKUPS = frozenset({functional.embedding, torch.Tensor.__getitem__})


def _raise_to_float32(value: Any) -> Any:
    """Return a value with float32 for lower tensors and types, in tuples, lists and dictionaries too."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _LOWER else value
    if isinstance(value, torch.dtype):
        return torch.float32 if value in _LOWER else value
    if isinstance(value, dict):
        return {name: _raise_to_float32(each) for name, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_raise_to_float32, value))
    return value
