"""Training-only heads with their own layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.nn.masked_lm import split_mlm_head
from bench.training.mixed_precision import to_float32


class ContrastHead(nn.Module):
    """g(e) = norm(W2 ReLU(W1 e)), (B, H) to (B, F), without biases; weights normal with std 0.02.

    ``rate_scale`` multiplies its weights' learning rate, see :func:`bench.training.loop.parameter_groups`.
    """

    def __init__(self, size: int, features: int, rate_scale: float = 1.0) -> None:
        super().__init__()
        self.rate_scale = rate_scale
        self.inner, self.outer = nn.Linear(size, size, bias=False), nn.Linear(size, features, bias=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=0.02)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (B, H) to unit vectors (B, F)."""
        hidden = functional.relu(self.inner(vectors))
        unit: Tensor = functional.normalize(self.outer(hidden), dim=1, eps=1e-8)
        return unit

    @torch.no_grad()
    def pulled_back(self, vectors: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by ``vectors``, (B, H), of a function with ``gradient`` (B, F) by their g.

        Written out: an autograd call would break the one graph of a step's second half.
        """
        hidden = functional.relu(self.inner(vectors))
        out = self.outer(hidden)
        length = out.norm(dim=1, keepdim=True).clamp(min=1e-8)
        normed = out / length
        along = (gradient * normed).sum(1, keepdim=True)
        inward = (gradient - along * normed) / length @ self.outer.weight
        result: Tensor = (inward * (hidden > 0)) @ self.inner.weight
        return result


class TiedHead(nn.Module):
    """A masked-LM head up to the encoder's word embeddings; it takes over the layers and the bias."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.transform, decoder = split_mlm_head(head)
        bias = torch.zeros(decoder.out_features) if decoder.bias is None else decoder.bias.detach()
        self.bias = nn.Parameter(bias)

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """Map states (K, H) and word embeddings (V, H), which may be bfloat16, to logits (K, V)."""
        logits = functional.linear(self.transform(states).to(words.dtype), words)
        return to_float32(logits) + self.bias
