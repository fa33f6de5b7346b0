"""Read the weights of a folder into another type without mapping all of their file into memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import modeling_utils

from bench.nn.folder_checks import list_tensor_types

_OPENER = "safe_open"


@contextmanager
def read_converted_tensors(dtype: torch.dtype, *folders: Path) -> Iterator[None]:
    """Read safetensors tensor by tensor within the block, where a type in the folders isn't ``dtype``.

    transformers maps the files into memory. Weights of the type stay there and cost nothing more; those that
    are converted would stay there until the last one, next to their copies.
    """
    before = getattr(modeling_utils, _OPENER, None)
    if before is None or list_tensor_types(*folders).keys() <= {str(dtype).removeprefix("torch.")}:
        yield
        return
    setattr(modeling_utils, _OPENER, _open_unmapped)
    try:
        yield
    finally:
        setattr(modeling_utils, _OPENER, before)


def _open_unmapped(*given: Any, **options: Any) -> Any:
    """Open a file of safetensors to read tensors into memory of their own."""
    return safe_open(*given, **{**options, "backend": "pread"})
