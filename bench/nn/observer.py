"""Interfaces of a watched transformer; importing them leaves torch unloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.errors import BenchError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class UntraceableError(BenchError):
    """A transformer that hides its layers (exit code 1)."""


class ObservedTower(NamedTuple):
    """One transformer of an encoder."""

    model: PreTrainedModel
    tokenizer: Any
    pooling: str  # name of the states that are pooled, "" where unknown
    has_pooler: bool  # its pooler has trained weights


class LayerView(NamedTuple):
    """One attention layer on one batch."""

    tower: int  # number of the tower, from 0
    layer: int  # number of the layer, from 0
    mask: Tensor  # True on tokens, False on padding, (B, T)
    # softmax(Q K^T / sqrt(d_head)) V, heads concatenated, before the output's dense layer, (B, T, H)
    context: Tensor
    # computes the attention weights, (B, heads, T, T); rows sum to 1, padded columns are 0
    weights: Callable[[], Tensor]


class Observer:
    """Receives computed tensors; its state stays the same size for any number of sentences."""

    def on_batch(self, tower: int, ids: Tensor, mask: Tensor) -> None:
        """Receive a batch's token ids, and True on tokens, False on padding, (B, T) each."""

    def on_layer(self, view: LayerView) -> None:
        """Receive an attention layer."""

    def on_output(self, tower: int, states: Tensor, pooled: Tensor | None) -> None:
        """Receive a batch's last hidden states (B, T, H), and its pooler output (B, H) if there is one."""
