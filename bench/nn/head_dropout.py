"""DropHead: whole attention heads are left out at random in training (Zhou et al. 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError


def scale_heads(context: Tensor, kept: Tensor) -> Tensor:
    """Set the heads that are not kept to 0, and scale a row's others by heads / kept heads.

    Args:
        context: Output of an attention before its projection, (B, n, heads x size), head by head.
        kept: True for each kept head of a row, (B, heads).

    Returns:
        Same shape; 0 for a row without a kept head.
    """
    rows, heads = kept.shape
    precise = torch.promote_types(context.dtype, torch.float32)
    scale = kept.to(precise) * heads / kept.sum(1, keepdim=True).clamp(min=1)
    parts = context.reshape(rows, context.shape[1], heads, -1)
    parts = parts * scale.to(context.dtype).view(rows, 1, heads, 1)
    return parts.flatten(-2)


def add_head_dropout(model: Any, rate: float) -> None:
    """Let every attention of a BERT-like encoder drop each head of a row with probability ``rate``.

    Draws come from torch's state, in training mode only. The hooks stay on the model; its files have none.

    Raises:
        InputError: an architecture without ``encoder.layer[i].attention.self``.
    """
    layers = getattr(getattr(model, "encoder", None), "layer", ())
    attentions: list[Any] = [getattr(getattr(layer, "attention", None), "self", None) for layer in layers]
    if not attentions or not all(hasattr(attention, "num_attention_heads") for attention in attentions):
        what = f"drophead {rate:g}: {type(model).__name__} has no attention of BERT's kind"
        raise InputError(what, expected="drophead=0, or a BERT or RoBERTa")

    def drop(attention: nn.Module, _: Any, output: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not attention.training:
            return None
        context = output[0]
        heads: Any = attention.num_attention_heads
        kept = torch.rand(len(context), heads, device=context.device) >= rate
        return (scale_heads(context, kept), *output[1:])

    for attention in attentions:
        attention.register_forward_hook(drop)
