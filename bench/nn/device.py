"""Devices: whether this machine has one, and where float64 is computed.

MPS, the GPU of a Mac, has no float64. What needs float64 is computed on the CPU there: a tensor is copied
to the CPU before it is widened, and its gradient takes the same way back. On other devices it stays.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from bench.errors import InputError

Module = TypeVar("Module", bound=nn.Module)


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


def to_float64(tensor: Tensor) -> Tensor:
    """Return the numbers in float64, on :func:`float64_device` of the tensor's; gradient flows through."""
    return tensor.to(float64_device(tensor.device)).double()


def move(module: Module, device: torch.device | str) -> Module:
    """Send a module to a device; its tensors in float64 go to :func:`float64_device` of it."""
    if has_float64(device):
        return module.to(device)

    def moved(tensor: Tensor) -> Tensor:
        return tensor.cpu() if tensor.dtype == torch.float64 else tensor.to(device)

    module._apply(moved)  # type: ignore[no-untyped-call]
    return module
