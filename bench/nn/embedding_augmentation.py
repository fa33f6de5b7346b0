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

_ZEROS = "_bench_zeros"


def find_embeddings(model: nn.Module) -> nn.Module:
    """Return the module before the first layer: the model's ``embeddings``, otherwise its word embeddings.

    An output of ``embeddings`` has passed LayerNorm and dropout, and has absolute positions in it. Of a model
    with two sides they are the encoder's.
    """
    whole = getattr(model, "embeddings", None)
    if isinstance(whole, nn.Module):
        return whole
    side: Any = getattr(model, "encoder", model)
    if not hasattr(side, "get_input_embeddings"):
        side = model
    words: nn.Module = side.get_input_embeddings()
    return words


def prepare_cutoffs(model: Any) -> int:
    """Let :func:`cut_embeddings` change a model, and return the features of its embeddings' output.

    In ALBERT these are fewer than those of the states. The hook is registered here for good, as a compiled
    step can't register one; outside of :func:`cut_embeddings` it does nothing.
    """
    embeddings, shapes = find_embeddings(model), list[torch.Size]()
    if _ZEROS not in vars(embeddings):
        vars(embeddings)[_ZEROS] = []  # innermost last
        embeddings.register_forward_hook(_cut_output)
    hook = embeddings.register_forward_hook(lambda _, __, output: shapes.append(output.shape))
    was_training = model.training
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        with torch.no_grad():
            model.eval()(input_ids=token, attention_mask=torch.ones_like(token))
    finally:
        model.train(was_training)
        hook.remove()
    if not shapes:
        what = f"{type(model).__name__} does not call the embeddings that a cutoff changes"
        raise InputError(what, expected="views without a cutoff, or another architecture")
    return shapes[0][-1]


def _cut_output(embeddings: nn.Module, _: Any, output: Tensor) -> Tensor:
    zeros = getattr(embeddings, _ZEROS)
    return output.masked_fill(zeros[-1], 0.0) if zeros else output


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

    ``zeros`` is True at these elements, (b, L, E). The model has been through :func:`prepare_cutoffs`.
    """
    if zeros is None:
        yield
        return
    inner = getattr(find_embeddings(model), _ZEROS)
    inner.append(zeros)
    try:
        yield
    finally:
        inner.pop()
