"""Training in less than float32: the transformers alone; weights, losses and optimiser keep float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor

_current: ContextVar[str] = ContextVar("training precision", default="fp32")


@contextmanager
def training_at(precision: str) -> Iterator[None]:
    """Train at a precision within the block.

    Args:
        precision: "fp32"; "bf16", torch's autocast to bfloat16 in what :func:`lowered` encloses; "tf32",
            float32 whose products round their factors to 10 bits, on CUDA devices.
    """
    before = torch.get_float32_matmul_precision()
    token = _current.set(precision)
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        _current.reset(token)


@contextmanager
def in_float32() -> Iterator[None]:
    """Evaluate within a training: products take float32 as it is."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def lowered(device: torch.device | str) -> AbstractContextManager[object]:
    """Where a transformer is called in training; its results may be bfloat16, see :func:`widened`."""
    if _current.get() != "bf16":
        return nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def widened(states: Tensor) -> Tensor:
    """What came out of :func:`lowered`, for a loss: bfloat16 as float32, others as they are."""
    return states.float() if states.dtype == torch.bfloat16 else states
