"""Devices: availability, float64, threads, and freed memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TypeVar

from bench.errors import InputError
from bench.lazy import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_LARGEST = 2**31 - 1  # mallopt takes an int


@cache
def keep_freed_memory() -> bool:
    """Let glibc's malloc keep freed memory; return True where it took effect.

    A step frees and requests the same blocks. Those above 32 MB, such as the gradient of a BERT's word
    embeddings, come from the system page by page: 1 to 10% of a step of all-MiniLM-L6-v2 (docs/speed.md).
    Numbers and peak stay the same; freed memory stays with the process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))


@contextmanager
def torch_threads(count: int, *, needs_torch: bool) -> Iterator[None]:
    """Set torch's threads for a cell and put them back.

    What the caller's session changed besides (autocast, gradients, the default type) is off meanwhile.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false" if count == 1 else "true")
    if not needs_torch:
        yield
        return

    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_num_threads(count)
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


Module = TypeVar("Module", bound="torch.nn.Module")


def check_available(device: str, where: str) -> None:
    """Raise InputError where torch lacks a device of this kind; ``where`` names the option."""
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device", where=where, hint="use --device cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        hint = "use --device cpu"
        raise InputError("torch sees no MPS device", where=where, expected="a Mac's GPU", hint=hint)


def has_float64(device: torch.device | str) -> bool:
    """False for MPS.

    >>> [has_float64(device) for device in ("cpu", "cuda:0", "mps")]
    [True, True, False]
    """
    return torch.device(device).type != "mps"


def float64_device(device: torch.device | str) -> torch.device | str:
    """Return the device for float64 and for decompositions, such as eigenvectors: MPS lacks both.

    >>> float64_device("cuda"), float64_device("mps")
    ('cuda', 'cpu')
    """
    return device if has_float64(device) else "cpu"


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64 on its :func:`float64_device`; gradient flows through."""
    return tensor.to(float64_device(tensor.device)).double()


def move_module(module: Module, device: torch.device | str) -> Module:
    """Send a module to a device; its tensors in float64 go to :func:`float64_device` of it."""
    if has_float64(device):
        return module.to(device)

    def move_tensor(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu() if tensor.dtype == torch.float64 else tensor.to(device)

    module._apply(move_tensor)  # type: ignore[no-untyped-call]
    return module
