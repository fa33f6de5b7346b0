"""A batch through a transformer in chunks of like length: less padding, the same states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.nn.backbone import padded
from bench.nn.batches import default_batch_tokens, length_sorted_batches
from bench.nn.twin import twin_states


class TwinClsStates(NamedTuple):
    """[CLS] of both towers (B, H), and of their cross streams (None without CAELs)."""

    first: Tensor
    second: Tensor
    cross_first: Tensor | None
    cross_second: Tensor | None


def cls_states(model: Any, rows: Sequence[list[int]], pad_id: int, *, budget: int | None = None) -> Tensor:
    """First-token states of the last layer, with gradient.

    At dropout 0 the result and its gradient don't depend on the chunks (up to rounding); with dropout the
    masks follow the chunks' order, which depends on the rows' lengths alone.

    Args:
        model: A transformer that returns ``last_hidden_state``.
        rows: B token rows.
        pad_id: Id to pad with.
        budget: Padded tokens a chunk may hold; None chooses for the device; 0 keeps the batch whole.

    Returns:
        (B, H), row i for ``rows[i]``.
    """
    device = str(model.device)
    if budget is None:
        budget = default_batch_tokens(device)
    if budget == 0:
        return _states(model, rows, pad_id, device)
    chunks = list(length_sorted_batches([len(row) for row in rows], budget))
    states = torch.cat([_states(model, [rows[i] for i in chunk], pad_id, device) for chunk in chunks])
    place = torch.empty(len(rows), dtype=torch.long)
    place[torch.tensor([i for chunk in chunks for i in chunk])] = torch.arange(len(rows))
    return states[place.to(states.device)]


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
        budget: As for :func:`cls_states`.
    """
    device = str(first.device)
    budget = default_batch_tokens(device) if budget is None else budget
    lengths = [len(row) for row in rows]
    chunks = list(length_sorted_batches(lengths, budget)) if budget else [list(range(len(rows)))]
    parts = []
    for chunk in chunks:
        ids, mask = padded([rows[i] for i in chunk], pad_id, device)
        twin = twin_states(first, second, ids, mask, tuple(caels), cross_stream)
        parts.append((twin.first[:, 0], twin.second[:, 0], twin.cross_first, twin.cross_second))
    place = torch.empty(len(rows), dtype=torch.long)
    place[torch.tensor([i for chunk in chunks for i in chunk])] = torch.arange(len(rows))
    return TwinClsStates(*(_joined(column, place) for column in zip(*parts, strict=True)))


def _joined(parts: Sequence[Tensor | None], place: Tensor) -> Any:
    there = [part for part in parts if part is not None]
    return torch.cat(there)[place.to(there[0].device)] if there else None


def _states(model: Any, rows: Sequence[list[int]], pad_id: int, device: str) -> Tensor:
    ids, mask = padded(rows, pad_id, device)
    states: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
    return states
