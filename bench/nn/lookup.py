"""One lookup of the word embeddings for all chunks of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.nn.backbone import sent


@contextmanager
def looked_up_once(model: Any, rows: Sequence[list[int]], pad_id: int) -> Iterator[None]:
    """While the block calls the model on chunks of ``rows``, each takes its embeddings from one lookup.

    The gradient of a lookup is as large as the table, whatever it looked up: this way there is one such a
    batch, not one a chunk, which are added. States are the same to the bit; a gradient up to rounding.

    Args:
        model: A transformer; one that names no input embeddings stays as it is.
        rows: Token rows of the whole batch.
        pad_id: Id that they are padded with.
    """
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if not isinstance(embeddings, nn.Embedding):
        yield
        return
    known = sorted({pad_id}.union(*rows))
    ids = sent(torch.tensor(known), str(embeddings.weight.device))
    vars(embeddings)["forward"] = partial(_take, ids, embeddings(ids))
    try:
        yield
    finally:
        del vars(embeddings)["forward"]


def _take(known: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Stands in for the embeddings' forward call: rows of the batch's own table."""
    return nn.functional.embedding(torch.searchsorted(known, ids), table)
