"""What many objectives are: a transformer under SimCSE's training-only head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.nn.architecture import state_size
from bench.nn.tokens import TokenBatch
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear


class EncoderWithHead(Objective):
    """z = tanh(W h_cls + b); the head is fresh, its weights drawn from torch's state (std 0.02, bias 0).

    Args:
        model: The transformer.
        pad_id: Padding id.
    """

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.head = fresh_linear(state_size(model))

    def tokens(self, rows: Sequence[list[int]]) -> TokenBatch:
        """The host's half of :meth:`projected`."""
        return token_batch(rows, self.pad_id, self.encoder)

    def projected(self, batch: TokenBatch) -> Tensor:
        """Return z of each token row, (B, H); rows of one call differ by their dropout masks alone."""
        return torch.tanh(self.head(batch_states(self.encoder, batch)))
