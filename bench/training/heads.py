"""What many objectives are: a transformer under SimCSE's training-only head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import nn, training
from bench.lazy import torch
from bench.training.recipe import init_linear


class EncoderWithHead(training.Objective):
    """z = tanh(W h_cls + b); the head is fresh, its weights drawn from torch's state (std 0.02, bias 0).

    Args:
        model: The transformer.
        pad_id: Padding id.
    """

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.head = init_linear(nn.state_size(model))

    def tokens(self, rows: Sequence[list[int]]) -> nn.TokenBatch:
        """The host's half of :meth:`projected`."""
        return training.token_batch(rows, self.pad_id, self.encoder)

    def projected(self, batch: nn.TokenBatch) -> torch.Tensor:
        """Return z of each token row, (B, H); rows of one call differ by their dropout masks alone."""
        return torch.tanh(self.head(training.batch_states(self.encoder, batch)))
