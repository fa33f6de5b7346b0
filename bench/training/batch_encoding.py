"""A batch through a transformer in chunks of similar length: less padding, the same states.

A step has two halves. :func:`token_batch`, the host's, turns lists into tensors. Functions of its result are
the device's: tensors in, tensors out. Functions of token rows do both.

Where several processes train together, each encodes a share (:mod:`bench.training.distributed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.architecture import count_positions
from bench.nn.cross_attention import TwinStates, compute_twin_states
from bench.nn.dropout import set_dropout
from bench.nn.embedding_augmentation import attach_zeros, cut_embeddings
from bench.nn.hidden_states import (
    compute_last_states,
    compute_layer_states,
    is_layered,
    pool_states,
    select_mask_state,
)
from bench.nn.tokens import (
    BUCKET,
    Chunk,
    TokenBatch,
    default_batch_tokens,
    move_to_device,
    share_embedding_lookup,
    split_into_chunks,
)
from bench.training.distributed import deal_rows, gather_shares, use_own_draws
from bench.training.gradient_caching import encode_without_graph, get_chunk_rows
from bench.training.mixed_precision import autocast_towers, to_float32
from bench.training.two_phase_step import get_compile_mode

TwinClsStates = TwinStates
"""A vector of each sentence, [CLS] by default, (B, H) each."""


class EncodingSettings(NamedTuple):
    """How batches are encoded within :func:`encode_with`."""

    pooling: str = ""  # a sentence's vector; "" leaves it to the caller of batch_states
    mask_id: int | None = None  # of the mask token, for pooling "mask"


_asked: list[EncodingSettings] = []  # innermost last; a plain list, which a compiled step can read


@contextmanager
def encode_with(pooling: str = "", mask_id: int | None = None) -> Iterator[None]:
    """Encode batches with another pooling within the block, whatever :func:`batch_states` is asked for.

    Args:
        pooling: "cls", "avg", "avg_first_last" (of layer 1 and the last), "last", "weighted_mean" or "mask";
            "" keeps the caller's.
        mask_id: Id of the mask token, which "mask" reads; the rows have it.
    """
    _asked.append(EncodingSettings(pooling, mask_id))
    try:
        yield
    finally:
        _asked.pop()


def get_encoding_settings() -> EncodingSettings:
    """Return the settings of the innermost :func:`encode_with`."""
    return _asked[-1] if _asked else EncodingSettings()


def token_batch(
    rows: Sequence[list[int]],
    pad_id: int,
    model: Any,
    *,
    budget: int | None = None,
    once: bool = True,
    zeros: Sequence[Tensor | None] | None = None,
) -> TokenBatch:
    """Build this process's share of the rows, in chunks of similar length, on the CPU: the host's half.

    Chunks are small on a CPU, large on a GPU, one for compiled steps. ``budget`` limits their padded tokens;
    0 keeps the batch whole. ``once`` looks the embeddings up once for all chunks, where that pays: on a CPU.
    Within :func:`bench.training.gradient_caching.cache_gradients` a chunk has at most so many rows. ``zeros``
    are elements of each row's embeddings that :func:`batch_states` sets to 0, see
    :func:`bench.nn.embedding_augmentation.attach_zeros`.
    """
    kind, compiled = torch.device(model.device).type, get_compile_mode() != "none"
    if budget is None:
        budget = 0 if compiled else default_batch_tokens(kind)
    padding: dict[str, Any] = {"room": count_positions(model)}
    if compiled or kind in ("cuda", "mps"):  # few shapes, each always with its attention mask: few graphs
        once = False
        padding |= {"multiple": BUCKET, "masked": True}
    share = deal_rows([len(row) for row in rows])
    own = [rows[i] for i in share.own]
    most = get_chunk_rows()
    twice = 0 < most < len(own)
    if twice:
        once, padding["most"] = False, most  # a lookup for all chunks would have to keep its graph
    chunks, order = split_into_chunks(own, pad_id, budget, **padding)
    if zeros is not None:
        chunks = attach_zeros(chunks, order, [zeros[i] for i in share.own])
    where = [0] * len(order)
    for position, row in enumerate(order):
        where[row] = position
    place = torch.tensor([at // len(own) * len(own) + where[at % len(own)] for at in share.place])
    known = torch.tensor(sorted({pad_id}.union(*own))) if once else None
    return TokenBatch(chunks, place, known, twice)


def batch_states(
    model: Any, batch: TokenBatch, pooling: str = "cls", *, dropout: float | None = None
) -> Tensor:
    """Compute the device's half of :func:`pooled_states`, (B, H).

    A pooling of :func:`encode_with` goes before the given one. ``dropout`` is set in the model for this
    call and stays; a backward pass that computes layers again would take the last call's.
    """
    way = get_encoding_settings().pooling or pooling

    def encode(chunk: Chunk) -> Tensor:
        if dropout is not None:
            set_dropout(model, dropout)
        return _compute_vectors(model, chunk, way)

    return _encode_chunks([model], batch, encode)


def _compute_vectors(model: Any, chunk: Chunk, pooling: str) -> Tensor:
    """Compute a chunk's vectors, (b, H): those of ``TransformerEncoder``; zeros for a row without a token."""
    mask = chunk.mask
    may_be_empty = pooling not in ("cls", "mask") and not is_layered(model)
    if may_be_empty:  # an empty row reads one padding token, so that its states stay finite
        chunk = chunk._replace(mask=torch.cat([torch.ones_like(mask[:, :1]), mask[:, 1:]], dim=1))
    with autocast_towers(mask.device), cut_embeddings(model, chunk.zeros):
        if pooling == "avg_first_last":
            states = compute_layer_states(model, chunk)
        else:
            states = (compute_last_states(model, chunk, cls_only=pooling == "cls"),)
    if pooling == "mask":
        return to_float32(select_mask_state(states[-1], chunk.ids, _find_mask_id()))
    if pooling == "avg_first_last":
        states = (states[0], to_float32(states[1]), to_float32(states[-1]))
    else:
        states = (to_float32(states[0]),)
    vectors = pool_states(states, chunk.mask, pooling, first_layer="layer1")
    return torch.where(mask[:, :1] > 0, vectors, 0) if may_be_empty else vectors


def _find_mask_id() -> int:
    mask_id = get_encoding_settings().mask_id
    if mask_id is None:
        raise InputError("pooling 'mask' with a tokenizer that has no mask token", expected="another pooling")
    return mask_id


def batch_mask_states(model: Any, batch: TokenBatch, mask_id: int) -> Tensor:
    """Compute the states of each row's first mask token, (B, H), with gradient: the device's half."""

    def encode(chunk: Chunk) -> Tensor:
        with autocast_towers(chunk.ids.device):
            last = compute_last_states(model, chunk)
        return to_float32(select_mask_state(last, chunk.ids, mask_id))

    return _encode_chunks([model], batch, encode)


def batch_twin_states(
    first: Any, second: Any, batch: TokenBatch, *, caels: Sequence[int] = (), cross_stream: str = "carry"
) -> TwinClsStates:
    """Compute first-token states of two towers, and of their cross streams, with gradient.

    This is the device's half. For ``caels`` and ``cross_stream`` see
    :func:`bench.nn.cross_attention.compute_twin_states`. A pooling of :func:`encode_with` takes the place of
    the first token; ValueError with ``caels``, whose cross streams have only that.
    """
    way = get_encoding_settings().pooling or "cls"
    if way != "cls" and caels:
        raise ValueError(f"pooling {way!r} with cross-attention layers")

    def encode(chunk: Chunk) -> Tensor:
        if way != "cls":
            return torch.cat([_compute_vectors(tower, chunk, way) for tower in (first, second)], dim=1)
        with autocast_towers(chunk.ids.device):
            twin = compute_twin_states(first, second, chunk, tuple(caels), cross_stream, cls_only=True)
        states = (twin.first[:, 0], twin.second[:, 0], twin.cross_first, twin.cross_second)
        return torch.cat([to_float32(part) for part in states if part is not None], dim=1)

    columns = _encode_chunks([first, second], batch, encode).chunk(4 if caels else 2, dim=1)
    return TwinClsStates(columns[0], columns[1], *(columns[2:] or (None, None)))


def _encode_chunks(models: Sequence[Any], batch: TokenBatch, encode: Callable[[Chunk], Tensor]) -> Tensor:
    """Encode the chunks of all processes and return row i for row i of the batch."""
    with use_own_draws(), ExitStack() as stack:
        for model in {id(model): model for model in models}.values():  # both towers may be one
            stack.enter_context(share_embedding_lookup(model, batch.known))
        once_or_twice = partial(encode_without_graph, encode) if batch.twice else encode
        own = torch.cat([once_or_twice(chunk) for chunk in batch.chunks])
    return gather_shares(own)[batch.place]


def pooled_states(
    model: Any, rows: Sequence[list[int]], pad_id: int, pooling: str = "cls", *, budget: int | None = None
) -> Tensor:
    """Compute a vector of each row from the last layer's states ("cls" or "avg"), (B, H), with gradient.

    At dropout 0 result and gradient are the same for any chunks (up to rounding); with dropout the masks
    follow the chunks' order, which depends only on the rows' lengths. For ``budget`` see :func:`token_batch`.
    """
    batch = token_batch(rows, pad_id, model, budget=budget)
    return batch_states(model, move_to_device(batch, model.device), pooling)
