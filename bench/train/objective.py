"""The module that many objectives are: a transformer under SimCSE's training-only head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.train.chunks import cls_states
from bench.train.recipe import fresh_linear


class EncoderWithHead(nn.Module):
    """z = tanh(W h_cls + b); the head is fresh, its weights drawn from torch's state (std 0.02, bias 0).

    Args:
        model: The transformer.
        pad_id: Padding id.
    """

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.head = fresh_linear(model.config.hidden_size)

    def projected(self, rows: Sequence[list[int]]) -> Tensor:
        """Return z of each token row, (B, H); rows of one call differ by their dropout masks alone."""
        return torch.tanh(self.head(cls_states(self.encoder, rows, self.pad_id)))
