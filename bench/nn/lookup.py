"""One lookup of the word embeddings for all chunks of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def looked_up_once(model: Any, known: Tensor | None) -> Iterator[None]:
    """While the block calls the model, its word embeddings come out of one lookup of the known ids.

    The gradient of a lookup is as large as the table, whatever it looked up: this way there is one such a
    batch, not one a chunk, which are added. States are the same to the bit; a gradient up to rounding.

    Args:
        model: A transformer; one that names no input embeddings stays as it is.
        known: The ids that the calls will name, ascending, (K,); None leaves the model as it is.
    """
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if known is None or not isinstance(embeddings, nn.Embedding):
        yield
        return
    vars(embeddings)["forward"] = partial(_take, known, embeddings(known))
    try:
        yield
    finally:
        del vars(embeddings)["forward"]


def _take(known: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Stands in for the embeddings' forward call: rows of the batch's own table."""
    return nn.functional.embedding(torch.searchsorted(known, ids), table)
