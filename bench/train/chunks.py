"""A batch through a transformer in chunks of like length: less padding, the same states.

Where several processes train together, each encodes a share (:mod:`bench.train.distributed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from bench.nn.attention import cls_alone
from bench.nn.backbone import padded, sent
from bench.nn.batches import default_batch_tokens, length_sorted_batches
from bench.nn.denoising import mask_states
from bench.nn.lookup import looked_up_once
from bench.nn.pooling import pool
from bench.nn.twin import TwinStates, twin_states
from bench.train.distributed import size, spread
from bench.train.precision import lowered, widened

TwinClsStates = TwinStates
"""Of [CLS] alone, (B, H) each."""


def cls_states(model: Any, rows: Sequence[list[int]], pad_id: int, *, budget: int | None = None) -> Tensor:
    """First-token states of the last layer, with gradient; see :func:`pooled_states`."""
    return pooled_states(model, rows, pad_id, "cls", budget=budget)


def pooled_states(
    model: Any, rows: Sequence[list[int]], pad_id: int, pooling: str, *, budget: int | None = None
) -> Tensor:
    """A vector of each row from the last layer's states, with gradient.

    At dropout 0 the result and its gradient don't depend on the chunks (up to rounding); with dropout the
    masks follow the chunks' order, which depends on the rows' lengths alone.

    Args:
        model: A transformer that returns ``last_hidden_state``.
        rows: B token rows.
        pad_id: Id to pad with.
        pooling: "cls" or "avg", see :func:`bench.nn.pooling.pool`.
        budget: Padded tokens a chunk may hold; None chooses for the device; 0 keeps the batch whole.

    Returns:
        (B, H), row i for ``rows[i]``.
    """

    def encode(ids: Tensor, mask: Tensor) -> list[Tensor | None]:
        with lowered(model.device):
            last = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return [pool((widened(last),), mask, pooling)]

    def share(own: Sequence[list[int]]) -> Tensor:
        states: Tensor = _in_chunks([model], own, pad_id, budget, encode, cls=pooling == "cls")[0]
        return states

    return spread(rows, share)


def prompted_states(model: Any, rows: Sequence[list[int]], tokenizer: Any) -> Tensor:
    """State of each row's mask token, with gradient; see :func:`bench.nn.denoising.mask_states`."""

    def encode(own: Sequence[list[int]]) -> Tensor:
        with lowered(model.device):
            return widened(mask_states(model, own, tokenizer))

    return spread(rows, encode)


def _in_chunks(
    models: Sequence[Any],
    rows: Sequence[list[int]],
    pad_id: int,
    budget: int | None,
    encode: Callable[[Tensor, Tensor], list[Tensor | None]],
    *,
    cls: bool,
) -> list[Any]:
    """What ``encode`` makes of each chunk's ids and mask, joined: row i for row i; None stays."""
    device, lengths = str(models[0].device), [len(row) for row in rows]
    tokens = default_batch_tokens(device) if budget is None else budget
    chunks = list(length_sorted_batches(lengths, tokens)) if tokens else [list(range(len(rows)))]
    with _economical(models, rows, pad_id, cls=cls):
        parts = [encode(*padded([rows[i] for i in chunk], pad_id, device)) for chunk in chunks]
    place = torch.empty(len(rows), dtype=torch.long)
    place[torch.tensor([i for chunk in chunks for i in chunk])] = torch.arange(len(rows))
    here = sent(place, device)
    return [None if column[0] is None else torch.cat(column)[here] for column in zip(*parts, strict=True)]


@contextmanager
def _economical(
    models: Sequence[Any], rows: Sequence[list[int]], pad_id: int, *, cls: bool
) -> Iterator[None]:
    """Compute nothing that a loss doesn't read; ``cls`` if it reads [CLS] alone."""
    with ExitStack() as stack:
        for model in {id(model): model for model in models}.values():  # both towers may be one
            stack.enter_context(looked_up_once(model, rows, pad_id))
            if cls:
                stack.enter_context(cls_alone(model))
        yield


def twin_cls_states(
    first: Any,
    second: Any,
    rows: Sequence[list[int]],
    pad_id: int,
    *,
    caels: Sequence[int] = (),
    cross_stream: str = "carry",
    budget: int | None = None,
) -> TwinClsStates:
    """First-token states of two towers, and of their cross streams where there are CAELs, with gradient.

    Args:
        first: The first tower; takes ids and mask, returns ``last_hidden_state``.
        second: The second tower.
        rows: B token rows, the same for both.
        pad_id: Id to pad with.
        caels: Layers with cross-attention, from 1 (see :func:`bench.nn.twin.cael_layers`).
        cross_stream: "carry" or "last".
        budget: As for :func:`pooled_states`.
    """

    def encode(ids: Tensor, mask: Tensor) -> list[Tensor | None]:
        with lowered(first.device):
            twin = twin_states(first, second, ids, mask, tuple(caels), cross_stream)
        states = (twin.first[:, 0], twin.second[:, 0], twin.cross_first, twin.cross_second)
        return [None if each is None else widened(each) for each in states]

    def share(own: Sequence[list[int]]) -> list[Any]:
        return _in_chunks([first, second], own, pad_id, budget, encode, cls=True)

    if size() == 1:
        return TwinClsStates(*share(rows))

    def joined(own: Sequence[list[int]]) -> Tensor:
        return torch.cat([states for states in share(own) if states is not None], dim=1)

    columns = spread(rows, joined).chunk(4 if caels else 2, dim=1)
    return TwinClsStates(columns[0], columns[1], *(columns[2:] or (None, None)))
