"""A slow average."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def slow_mean(model: Any, rows: list[list[int]]) -> Tensor:
    """Mean of all states of each sentence, specials included, one sentence at a time."""
    states = [model(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows]
    return torch.stack([state.sum(0) / len(state) for state in states])
