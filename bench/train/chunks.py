"""A batch through a transformer in chunks of like length: less padding, the same states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.nn.backbone import padded
from bench.nn.batches import default_batch_tokens, length_sorted_batches


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


def _states(model: Any, rows: Sequence[list[int]], pad_id: int, device: str) -> Tensor:
    ids, mask = padded(rows, pad_id, device)
    states: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
    return states
