"""Token rows as a transformer's input: batches, chunks, one lookup of each embedding."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bench.lazy import torch
from bench.nn.device import has_float64

CPU_BATCH_TOKENS = 1024  # fastest of 256 to 8,192 for MiniLM on one and two threads
CUDA_BATCH_TOKENS = 65_536
MPS_BATCH_TOKENS = 16_384  # a quarter of CUDA's, as a Mac's GPU shares its memory with the CPU; unmeasured
BUCKET = 8  # padded lengths on a GPU are multiples of it: few shapes, for compiled steps and graphs


def default_batch_tokens(device: str) -> int:
    """Return the padded tokens a batch may hold on a device."""
    budgets = {"cuda": CUDA_BATCH_TOKENS, "mps": MPS_BATCH_TOKENS}
    return budgets.get(device.partition(":")[0], CPU_BATCH_TOKENS)


def length_sorted_batches(
    lengths: Sequence[int], budget: int, *, equal: bool = False, most: int | None = None
) -> Iterator[list[int]]:
    """Yield lists of indices: rising length, each list at most ``budget`` padded tokens, or one sentence.

    Lengths are in tokens, specials included. Ties keep their order, so that lengths and budget determine the
    batches. With ``equal``, a batch has sentences of one length; with ``most``, at most so many.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        longer = equal and batch and lengths[index] > lengths[batch[0]]
        full = len(batch) == most or lengths[index] * (len(batch) + 1) > budget
        if longer or (batch and full):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@contextmanager
def share_embedding_lookup(model: Any, known: torch.Tensor | None) -> Iterator[None]:
    """Serve word embeddings from one lookup of the known ids while the block calls the model.

    ``known`` are the ids that the calls use, ascending, (K,), or None. A lookup's gradient is as large as the
    table: one a batch replaces one a chunk. States stay the same to the bit, gradients up to rounding.
    """
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if known is None or not isinstance(embeddings, torch.nn.Embedding):
        yield
        return
    table = embeddings(known)  # the batch's own
    look_up = torch.nn.functional.embedding
    vars(embeddings)["forward"] = lambda ids: look_up(torch.searchsorted(known, ids), table)
    try:
        yield
    finally:
        del vars(embeddings)["forward"]


class Chunk(NamedTuple):
    """Rows padded on the right to one length."""

    ids: torch.Tensor  # token ids, (b, L)
    mask: torch.Tensor  # 1 on tokens and 0 on padding, (b, L)
    # the mask as a boolean attention mask, (b, 1, 1, L), made on the host; None without padding
    attention: torch.Tensor | None
    # elements of the embeddings' output that are 0, (b, L, E), see bench.nn.embedding_augmentation
    zeros: torch.Tensor | None = None


class TokenBatch(NamedTuple):
    """Rows in chunks of similar length."""

    chunks: tuple[Chunk, ...]
    place: torch.Tensor  # row i of the batch is row ``place[i]`` of the concatenated chunks, (B,)
    # the ids that occur, ascending, for one lookup of their embeddings; None: a lookup a chunk
    known: torch.Tensor | None
    twice: bool = False  # the backward pass encodes each chunk again, so that its graph isn't kept


def pad_chunk(
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
        multiple: The padded length is a multiple of it, so that few lengths occur.
        room: The model's longest input, which limits padding.
        masked: Always give the attention mask.
    """
    lengths = [len(row) for row in rows]
    longest = -(-max(*lengths, 1) // multiple) * multiple
    if room is not None:
        longest = max(max(lengths), min(longest, room))
    padded = np.full((len(rows), longest), pad_id, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    ids = torch.from_numpy(padded)
    mask = torch.from_numpy((np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64))
    whole = min(lengths) == longest and not masked
    return Chunk(ids, mask, None if whole else mask.bool()[:, None, None, :])


def wrap_chunk(ids: torch.Tensor, mask: torch.Tensor | None) -> Chunk:
    """Return a chunk of existing tensors; None for the mask where everything is attended."""
    if mask is None:
        return Chunk(ids, torch.ones_like(ids), None)
    return Chunk(ids, mask, mask.bool()[:, None, None, :])


def split_into_chunks(
    rows: Sequence[Sequence[int]], pad_id: int, budget: int, *, most: int | None = None, **padding: Any
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Split rows into chunks of similar length; return them, and the numbers of their rows.

    ``budget`` limits the padded tokens of a chunk; 0 keeps all rows in one chunk, in their order. ``most``
    limits the rows of a chunk. ``padding`` are arguments of :func:`pad_chunk`.
    """
    numbers = [list(range(len(rows)))]
    if budget or most:
        lengths = [len(row) for row in rows]
        numbers = list(length_sorted_batches(lengths, budget or sys.maxsize, most=most))
    members = ([rows[number] for number in chunk] for chunk in numbers)
    chunks = tuple(pad_chunk(chunk, pad_id, **padding) for chunk in members)
    return chunks, list(chain.from_iterable(numbers))


def invert_order(order: Sequence[int]) -> torch.Tensor:
    """Return the position of each number 0 ... n - 1 in ``order``, (n,)."""
    place = torch.empty(len(order), dtype=torch.long)
    place[torch.tensor(order)] = torch.arange(len(order))
    return place


def move_to_device(tree: Any, device: torch.device | str) -> Any:
    """Send every tensor of nested tuples, lists and dictionaries to a device; other values stay.

    Copies to CUDA leave from pinned memory and are asynchronous; see :func:`send_tensor`.
    """
    if isinstance(tree, torch.Tensor):
        return send_tensor(tree, device)
    if isinstance(tree, dict):
        return {name: move_to_device(value, device) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        values = [move_to_device(value, device) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return tree


def send_tensor(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Send a CPU tensor to a device; to CUDA from pinned memory, so that the host can go on.

    Float64 stays on the CPU where the device lacks it (:mod:`bench.nn.device`).
    """
    kind = torch.device(device).type
    if kind in ("cpu", tensor.device.type) or (tensor.dtype == torch.float64 and not has_float64(device)):
        return tensor
    if kind == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
