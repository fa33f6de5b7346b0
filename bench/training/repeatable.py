"""Kernels that add up in one order, where a device has them: the same seed, the same weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_MEMORY: Any = torch.utils.deterministic


@contextmanager
def repeatable(device: torch.device | str) -> Iterator[None]:
    """Train on CUDA with deterministic kernels within the block; elsewhere nothing is changed.

    An operation that has none runs as it is, and torch's warning about it is shown once. cuBLAS gets the
    workspace that its repeatable products need, unless the environment names one: it reads that when a
    process first multiplies.

    Args:
        device: Where the training is.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = _MEMORY.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    _MEMORY.fill_uninitialized_memory = False  # nothing here reads what it hasn't written
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("once", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        _MEMORY.fill_uninitialized_memory = filled
