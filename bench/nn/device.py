"""Devices: what is there, what they can hold, threads, and memory that is freed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from bench.errors import InputError
from bench.lazy import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_LARGEST = 2**31 - 1  # mallopt takes an int


@cache
def keep_freed_memory() -> bool:
    """Let glibc's malloc keep what is freed, instead of giving large blocks back to the system at once.

    A step frees and asks again for the same blocks. Those above 32 MB, as the gradient of a BERT's word
    embeddings (one a chunk) and AdamW's temporaries, come from the system each time, page by page: 1 to 10%
    of a step of all-MiniLM-L6-v2, by machine (docs/speed.md). No number changes, nor does the peak; what is
    freed after it stays with the process. Without glibc this does nothing.

    Returns:
        True where it took effect.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; no C library by that way
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))


@contextmanager
def torch_threads(count: int, *, needs_torch: bool) -> Iterator[None]:
    """Set torch's threads for a cell and put them back."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false" if count == 1 else "true")
    if not needs_torch:
        yield
        return

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Module = TypeVar("Module", bound="torch.nn.Module")


def check_available(device: str, where: str) -> None:
    """Raise InputError where torch sees no device of this kind.

    Args:
        device: "cpu", "cuda" or "mps", with or without a number.
        where: What named it, for the error.
    """
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device", where=where, hint="use --device cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError(
            "torch sees no MPS device", where=where, expected="a Mac's GPU", hint="use --device cpu"
        )


def has_float64(device: torch.device | str) -> bool:
    """False for MPS.

    >>> [has_float64(device) for device in ("cpu", "cuda:0", "mps")]
    [True, True, False]
    """
    return torch.device(device).type != "mps"


def float64_device(device: torch.device | str) -> torch.device | str:
    """Return where float64 of a device is computed: there, or on the CPU in place of MPS.

    Decompositions without a kernel for MPS are computed there too, such as eigenvectors.

    >>> float64_device("cuda"), float64_device("mps")
    ('cuda', 'cpu')
    """
    return device if has_float64(device) else "cpu"


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers in float64, on :func:`float64_device` of the tensor's; gradient flows through."""
    return tensor.to(float64_device(tensor.device)).double()


def move_module(module: Module, device: torch.device | str) -> Module:
    """Send a module to a device; its tensors in float64 go to :func:`float64_device` of it."""
    if has_float64(device):
        return module.to(device)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu() if tensor.dtype == torch.float64 else tensor.to(device)

    module._apply(moved)  # type: ignore[no-untyped-call]
    return module
