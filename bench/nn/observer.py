"""What a watched transformer tells of itself; nothing here needs torch to be imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.errors import BenchError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class UntraceableError(BenchError):
    """A transformer whose layers can't be watched (exit code 1)."""


class ObservedTower(NamedTuple):
    """One transformer of an encoder.

    Args:
        model: The transformer.
        tokenizer: Its tokenizer.
        pooling: Which of its states are pooled, "" where that is not known.
        has_pooler: True if its pooler has trained weights.
    """

    model: PreTrainedModel
    tokenizer: Any
    pooling: str
    has_pooler: bool


class LayerView(NamedTuple):
    """One attention layer on one batch.

    Args:
        tower: Number of the tower, from 0.
        layer: Number of the layer, from 0.
        mask: True on tokens, False on padding, (B, T).
        context: Context tensor, softmax(Q K^T / sqrt(d_head)) V, heads side by side, before the output's
            dense layer, (B, T, H).
        weights: Gives the attention weights, (B, heads, T, T); rows sum to 1, padded columns are 0.
    """

    tower: int
    layer: int
    mask: Tensor
    context: Tensor
    weights: Callable[[], Tensor]


class Observer:
    """Is told what is computed; what it keeps must not grow with the number of sentences."""

    def on_batch(self, tower: int, ids: Tensor, mask: Tensor) -> None:
        """A batch begins: token ids (B, T), and True on tokens, False on padding, (B, T)."""

    def on_layer(self, view: LayerView) -> None:
        """An attention layer was computed."""

    def on_output(self, tower: int, states: Tensor, pooled: Tensor | None) -> None:
        """A batch ends: last hidden states (B, T, H), and pooler output (B, H) where the tower has one."""
