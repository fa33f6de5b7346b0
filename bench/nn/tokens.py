"""Token rows as the tensors that a transformer takes: made on the host, before a device sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.nn.batches import length_sorted_batches
from bench.nn.device import has_float64


class Chunk(NamedTuple):
    """Rows padded on the right to one length.

    Args:
        ids: Token ids, (b, L).
        mask: 1 on tokens and 0 on padding, (b, L).
        attention: The same as a boolean mask of attention, (b, 1, 1, L); None where nothing is padded. What
            the host knows of the padding needs no look at the device.
    """

    ids: Tensor
    mask: Tensor
    attention: Tensor | None


class TokenBatch(NamedTuple):
    """Rows in chunks of like length.

    Args:
        chunks: The chunks.
        place: Row i of the batch is row ``place[i]`` of the chunks' rows put one after the other, (B,).
        known: The ids that occur, ascending, for one lookup of their embeddings; None: a lookup a chunk.
    """

    chunks: tuple[Chunk, ...]
    place: Tensor
    known: Tensor | None


def chunk_of(
    rows: Sequence[Sequence[int]],
    pad_id: int,
    *,
    multiple: int = 1,
    room: int | None = None,
    masked: bool = False,
) -> Chunk:
    """Pad rows to the longest, or to the next multiple of a length.

    Args:
        rows: Token rows.
        pad_id: Id to pad with.
        multiple: The padded length is one of this, so that few lengths occur.
        room: Tokens that the model takes: padding goes no further.
        masked: Give the mask of attention where nothing is padded too.
    """
    lengths = [len(row) for row in rows]
    longest = -(-max(*lengths, 1) // multiple) * multiple
    if room is not None:
        longest = max(max(lengths), min(longest, room))
    padded = np.full((len(rows), longest), pad_id, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    ids = torch.from_numpy(padded)
    mask = torch.from_numpy((np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64))
    whole = min(lengths) == longest and not masked
    return Chunk(ids, mask, None if whole else mask.bool()[:, None, None, :])


def chunk_from(ids: Tensor, mask: Tensor | None) -> Chunk:
    """A chunk of tensors that are there already; None where nothing is masked."""
    if mask is None:
        return Chunk(ids, torch.ones_like(ids), None)
    return Chunk(ids, mask, mask.bool()[:, None, None, :])


def in_chunks(
    rows: Sequence[Sequence[int]],
    pad_id: int,
    budget: int,
    *,
    multiple: int = 1,
    room: int | None = None,
    masked: bool = False,
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Cut rows into chunks of like length; return them, and the number of each of their rows.

    Args:
        rows: Token rows.
        pad_id: Id to pad with.
        budget: Padded tokens a chunk may hold; 0 keeps the rows in one chunk, as they come.
        multiple: See :func:`chunk_of`.
        room: See :func:`chunk_of`.
        masked: See :func:`chunk_of`.
    """
    numbers = [list(range(len(rows)))]
    if budget:
        numbers = list(length_sorted_batches([len(row) for row in rows], budget))
    chunks = (
        chunk_of([rows[i] for i in chunk], pad_id, multiple=multiple, room=room, masked=masked)
        for chunk in numbers
    )
    return tuple(chunks), [i for chunk in numbers for i in chunk]


def places(order: Sequence[int]) -> Tensor:
    """Where each of the numbers 0 ... n - 1 stands in ``order``, (n,)."""
    place = torch.empty(len(order), dtype=torch.long)
    place[torch.tensor(order)] = torch.arange(len(order))
    return place


def on_device(tree: Any, device: torch.device | str) -> Any:
    """Send every tensor of nested tuples, lists and dictionaries to a device; other values stay as they are.

    To CUDA they go from pinned memory, so that the host waits for no copy; see :func:`sent`.
    """
    if isinstance(tree, Tensor):
        return sent(tree, device)
    if isinstance(tree, dict):
        return {name: on_device(value, device) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        values = [on_device(value, device) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return tree


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A CPU tensor on a device; to CUDA from pinned memory, so that the host needn't wait for the copy.

    One in float64 stays on the CPU where the device has no float64 (:mod:`bench.nn.device`).
    """
    kind = torch.device(device).type
    if kind in ("cpu", tensor.device.type) or (tensor.dtype == torch.float64 and not has_float64(device)):
        return tensor
    if kind == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
