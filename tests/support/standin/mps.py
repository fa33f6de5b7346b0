"""What MPS has less than other devices: no float64, and fewer kernels than a CPU."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_OPERATIONS = "packaged/ATen/native/native_functions.yaml"
"""Torch's own list of operations and of the devices that have a kernel for each; a wheel brings it."""
_WIDE = (torch.float64, torch.complex128)
_COMPOSITE = "Composite"  # made of other operations, on every device


class MissingKernelError(NotImplementedError):
    """What torch raises for an operation that MPS doesn't have."""


def check_float64(made: Tensor) -> None:
    """Raise TypeError, as torch does, for a tensor of the device in float64."""
    if made.dtype in _WIDE:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")


def check_kernel(func: Any) -> None:
    """Raise MissingKernelError for an operation that torch's list gives no kernel on MPS."""
    name = func._schema.name.removeprefix("aten::")
    overload = func._schema.overload_name
    full = f"{name}.{overload}" if overload else name
    if func.namespace == "aten" and full in without_kernel():
        raise MissingKernelError(f"The operator 'aten::{full}' is not implemented for the MPS device")


@cache
def without_kernel() -> frozenset[str]:
    """Operations with kernels of some devices, MPS not among them."""
    yaml: Any = importlib.import_module("yaml")
    torchgen: Any = importlib.import_module("torchgen")
    text = (Path(torchgen.__file__).parent / _OPERATIONS).read_text()
    entries = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    known = {entry["func"].partition("(")[0]: entry for entry in entries}
    return frozenset(name for name in known if not _on_mps(known, name))


def _on_mps(known: dict[str, Any], name: str) -> bool:
    entry = known[name]
    kernels = entry.get("dispatch", {})
    devices = {device.strip() for keys in kernels for device in keys.split(",")}
    if "MPS" in devices or any(device.startswith(_COMPOSITE) for device in devices):
        return True
    if "structured_delegate" in entry:
        return _on_mps(known, entry["structured_delegate"])
    return not kernels
