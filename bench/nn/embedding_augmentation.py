"""Cutoffs of a transformer's embeddings: chosen elements are 0 in a forward pass (ConSERT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.tokens import Chunk


def find_embeddings(model: nn.Module) -> nn.Module:
    """Return the module before the first layer: the model's ``embeddings``, otherwise its word embeddings.

    An output of ``embeddings`` has passed LayerNorm and dropout, and has absolute positions in it.
    """
    whole = getattr(model, "embeddings", None)
    words: Any = getattr(model, "get_input_embeddings", None)
    found = whole if isinstance(whole, nn.Module) else words and words()
    if not isinstance(found, nn.Module):
        what = f"no embeddings are found in {type(model).__name__}, whose output a cutoff changes"
        raise InputError(what, expected="a transformer with embeddings of its tokens")
    return found


@torch.no_grad()
def count_embedding_features(model: Any) -> int:
    """Return the features of the embeddings' output, in ALBERT fewer than of the states."""
    shapes: list[torch.Size] = []
    hook = find_embeddings(model).register_forward_hook(lambda _, __, output: shapes.append(output.shape))
    was_training = model.training
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        model.eval()(input_ids=token, attention_mask=torch.ones_like(token))
    finally:
        model.train(was_training)
        hook.remove()
    return shapes[0][-1]


def attach_zeros(
    chunks: Sequence[Chunk], order: Sequence[int], zeros: Sequence[Tensor | None]
) -> tuple[Chunk, ...]:
    """Return the chunks with the elements of the embeddings' output that are 0.

    Args:
        chunks: Padded rows.
        order: Numbers of their rows.
        zeros: Of each row, True where an element is 0, (n, E) for n tokens; None for no element.
    """
    numbers = iter(order)
    attached = []
    for chunk in chunks:
        own = [zeros[number] for number in islice(numbers, len(chunk.ids))]
        attached.append(chunk._replace(zeros=_pad_zeros(own, chunk.ids.shape[1])))
    return tuple(attached)


def _pad_zeros(rows: Sequence[Tensor | None], length: int) -> Tensor | None:
    """Put the rows into one tensor, (b, L, E); None where no row has any."""
    features = [row.shape[1] for row in rows if row is not None]
    if not features:
        return None
    padded = torch.zeros(len(rows), length, features[0], dtype=torch.bool)
    for target, row in zip(padded, rows, strict=True):
        if row is not None:
            target[: len(row)] = row
    return padded


@contextmanager
def cut_embeddings(model: nn.Module, zeros: Tensor | None) -> Iterator[None]:
    """Set elements of the embeddings' output to 0 while the block calls the model; None sets none.

    ``zeros`` is True at these elements, (b, L, E).
    """
    if zeros is None:
        yield
        return
    hook = find_embeddings(model).register_forward_hook(lambda _, __, output: output.masked_fill(zeros, 0.0))
    try:
        yield
    finally:
        hook.remove()
