"""Heads with layers of their own, which methods put on a transformer in training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.training.mixed_precision import to_float32


class ContrastHead(nn.Module):
    """g(e) = norm(W2 ReLU(W1 e)), without biases; weights normal with std 0.02 from torch's state.

    Args:
        size: H.
        features: F, size of its vectors.
        rate_scale: Multiple of the learning rate that its weights have, see
            :func:`bench.training.loop.parameter_groups`.
    """

    def __init__(self, size: int, features: int, rate_scale: float = 1.0) -> None:
        super().__init__()
        self.rate_scale = rate_scale
        self.inner, self.outer = nn.Linear(size, size, bias=False), nn.Linear(size, features, bias=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=0.02)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, H) to unit vectors (B, F)."""
        hidden = functional.relu(self.inner(vectors))
        found: Tensor = functional.normalize(self.outer(hidden), dim=1, eps=1e-8)
        return found

    @torch.no_grad()
    def pulled_back(self, vectors: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with respect to ``vectors`` of what has ``gradient`` with respect to g of them.

        Written out: a step's second half is one graph, which a gradient within it would break.

        Args:
            vectors: e, (B, H).
            gradient: (B, F).

        Returns:
            (B, H).
        """
        hidden = functional.relu(self.inner(vectors))
        out = self.outer(hidden)
        length = out.norm(dim=1, keepdim=True).clamp(min=1e-8)
        normed = out / length
        along = (gradient * normed).sum(1, keepdim=True)
        inward = (gradient - along * normed) / length @ self.outer.weight
        found: Tensor = (inward * (hidden > 0)) @ self.inner.weight
        return found


class TiedHead(nn.Module):
    """A masked language model's head without its last weights, which are the encoder's word embeddings.

    Args:
        head: Of a BertForMaskedLM or a RobertaForMaskedLM; its layers become this module's.
    """

    def __init__(self, head: Any) -> None:
        super().__init__()
        if hasattr(head, "predictions"):
            self.transform: Any = head.predictions.transform
            self.bias = nn.Parameter(head.predictions.decoder.bias.detach())
        else:
            self.transform = nn.Sequential(head.dense, nn.GELU(), head.layer_norm)
            self.bias = nn.Parameter(head.decoder.bias.detach())

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """States (K, H) and word embeddings (V, H), which may be bfloat16, to logits (K, V)."""
        found = functional.linear(self.transform(states).to(words.dtype), words)
        return to_float32(found) + self.bias
