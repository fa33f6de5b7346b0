"""Training in less than float32: the transformers alone; losses, optimiser and what it steps keep float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

LOWERED = "bf16-weights"
_asked: list[str] = []  # innermost last; a plain list, which a compiled step can read


@contextmanager
def training_at(precision: str) -> Iterator[None]:
    """Train at a precision within the block.

    Args:
        precision: "fp32"; "bf16", torch's autocast to bfloat16 in what :func:`lowered` encloses;
            "bf16-weights", the towers' weights in bfloat16 (:mod:`bench.training.masters`) without autocast;
            "tf32", float32 whose products round their factors to 10 bits, on CUDA devices.
    """
    _asked.append(precision)
    try:
        with _products("high") if precision == "tf32" else nullcontext():
            yield
    finally:
        _asked.pop()


def in_float32() -> AbstractContextManager[object]:
    """Evaluate within a training: products take float32 as it is."""
    return _products("highest")


@contextmanager
def _products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def lowered(device: torch.device | str) -> AbstractContextManager[object]:
    """Where a transformer is called in training; its results may be bfloat16, see :func:`widened`."""
    if _asked[-1:] != ["bf16"]:
        return nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def weights_lowered() -> bool:
    """True where towers step in bfloat16 weights."""
    return _asked[-1:] == [LOWERED]


def widened(states: Tensor) -> Tensor:
    """What came out of :func:`lowered`, for a loss: bfloat16 as float32, others as they are."""
    return states.float() if states.dtype == torch.bfloat16 else states
