"""torch's threads for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(count: int, *, needs_torch: bool) -> Iterator[None]:
    """Set torch's threads for a cell and put them back."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false" if count == 1 else "true")
    if not needs_torch:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
