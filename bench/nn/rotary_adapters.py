"""Layers with rotary positions, called one by one: ModernBERT, NomicBERT, EuroBERT and those built alike.

Queries and keys are rotated by their positions, values are not. So in JTCSE's cross-attention context a
tower's rotated queries and keys weight the other tower's plain values.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import create_bidirectional_sliding_window_mask

from bench.nn.layer_adapters import (
    EVERY,
    AttentionInput,
    LayerAdapter,
    Surroundings,
    attend_heads,
    build_attention_mask,
    has_children,
    split_heads,
)
from bench.nn.tokens import Chunk

_FULL, _SLIDING = "full_attention", "sliding_attention"
_SELF_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}


def _rotate_heads(attention: Any, query: Tensor, key: Tensor, angles: Any) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys, (B, T, H) each, by the function of the module's file."""
    rotate = sys.modules[type(attention).__module__].apply_rotary_pos_emb
    rows = (split_heads(part, attention.head_dim) for part in (query, key))
    query, key = rotate(*rows, *angles)
    return query.transpose(1, 2).flatten(2), key.transpose(1, 2).flatten(2)


class _RotaryLayers(LayerAdapter):
    """Base: layers in ``model.layers``, angles from ``model.rotary_emb``."""

    def list_layers(self, model: Any) -> list[Any]:
        """List the layers in order."""
        return list(model.layers)

    def prepare(self, model: Any, states: Tensor, chunk: Chunk) -> Mapping[str, Surroundings]:
        """Compute mask and rotary angles, by the type of layer where there are several."""
        places = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
        mask = build_attention_mask(model.config, chunk, states.dtype)
        if not hasattr(model.rotary_emb, "layer_types"):
            return {EVERY: Surroundings(mask, model.rotary_emb(states, places))}
        window = create_bidirectional_sliding_window_mask(
            config=model.config,
            inputs_embeds=states,
            attention_mask=None if chunk.attention is None else chunk.mask,
        )
        masks = {_FULL: mask, _SLIDING: window}
        types = dict.fromkeys(model.config.layer_types)
        return {name: Surroundings(masks[name], model.rotary_emb(states, places, name)) for name in types}

    def attend_module(self, attention: Any, heads: AttentionInput) -> Tensor:
        """Compute the context of an attention module, (B, R, H)."""
        eager = sys.modules[type(attention).__module__].eager_attention_forward
        dropout = attention.attention_dropout if attention.training else 0.0
        return attend_heads(attention, heads, attention.head_dim, dropout, eager)


class ModernBertLayers(_RotaryLayers):
    """ModernBERT: norms before the blocks, layers of full and of sliding attention."""

    def accepts(self, model: Any) -> bool:
        """Test for ModernBERT's modules."""
        if not has_children(model, {"embeddings", "layers", "final_norm", "rotary_emb"}):
            return False
        layer: Any = next(iter(model.layers), None)
        return has_children(layer, {"attn_norm", "attn", "mlp_norm", "mlp"}) and has_children(
            layer.attn, {"Wqkv", "Wo", "out_drop"}
        )

    def layer_type(self, layer: Any) -> str:
        """Return a layer's key in :meth:`prepare`."""
        return str(layer.attention_type)

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values from the normed states."""
        query, key, value = layer.attn.Wqkv(layer.attn_norm(states)).chunk(3, dim=-1)
        rotated = _rotate_heads(layer.attn, query, key, around.position)
        return AttentionInput(states, *rotated, value, around.mask)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        return self.attend_module(layer.attn, heads)

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer; the residual is added without a norm."""
        attended = residual + layer.attn.out_drop(layer.attn.Wo(context))
        output: Tensor = attended + layer.mlp(layer.mlp_norm(attended))
        return output

    def final_norm(self, model: Any) -> nn.Module | None:
        """Return the norm behind the last layer."""
        norm: nn.Module = model.final_norm
        return norm


class _SelfAttentionLayers(_RotaryLayers):
    """Base: ``layer.self_attn`` with projections of their own."""

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values; keys and values may have fewer heads."""
        attention, read = layer.self_attn, self.norm_input(layer, states)
        rotated = _rotate_heads(attention, attention.q_proj(read), attention.k_proj(read), around.position)
        return AttentionInput(states, *rotated, attention.v_proj(read), around.mask)

    def norm_input(self, layer: Any, states: Tensor) -> Tensor:
        """Apply the norm before the attention, if any."""
        return states

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        return self.attend_module(layer.self_attn, heads)


class NomicBertLayers(_SelfAttentionLayers):
    """NomicBERT, GTE and jina-embeddings-v3: norms behind the blocks."""

    def accepts(self, model: Any) -> bool:
        """Test for NomicBERT's modules."""
        if not has_children(model, {"embeddings", "layers", "rotary_emb"}, {"pooler"}):
            return False
        layer: Any = next(iter(model.layers), None)
        blocks = {"self_attn", "mlp", "post_attention_dropout", "post_attention_layernorm"}
        return has_children(layer, blocks | {"post_mlp_dropout", "post_mlp_layernorm"}) and has_children(
            layer.self_attn, _SELF_ATTENTION
        )

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        attended = residual + layer.post_attention_dropout(layer.self_attn.o_proj(context))
        attended = layer.post_attention_layernorm(attended)
        output: Tensor = layer.post_mlp_layernorm(attended + layer.post_mlp_dropout(layer.mlp(attended)))
        return output


class EuroBertLayers(_SelfAttentionLayers):
    """EuroBERT and UltraBERT: norms before the blocks."""

    def accepts(self, model: Any) -> bool:
        """Test for EuroBERT's modules."""
        if not has_children(model, {"embed_tokens", "layers", "norm", "rotary_emb"}):
            return False
        layer: Any = next(iter(model.layers), None)
        blocks = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
        bidirectional = getattr(getattr(layer, "self_attn", None), "is_causal", True) is False
        return (
            bidirectional and has_children(layer, blocks) and has_children(layer.self_attn, _SELF_ATTENTION)
        )

    def embed(self, model: Any, chunk: Chunk) -> Tensor:
        """Compute the states that enter the first layer, (b, L, H)."""
        states: Tensor = model.embed_tokens(chunk.ids)
        return states

    def layer_type(self, layer: Any) -> str:
        """Return a layer's key in :meth:`prepare`."""
        if not hasattr(layer.self_attn, "sliding_window"):
            return EVERY
        return _FULL if layer.self_attn.sliding_window is None else _SLIDING

    def norm_input(self, layer: Any, states: Tensor) -> Tensor:
        """Apply the norm before the attention."""
        normed: Tensor = layer.input_layernorm(states)
        return normed

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer; the residual is added without a norm."""
        attended = residual + layer.self_attn.o_proj(context)
        output: Tensor = attended + layer.mlp(layer.post_attention_layernorm(attended))
        return output

    def final_norm(self, model: Any) -> nn.Module | None:
        """Return the norm behind the last layer."""
        norm: nn.Module = model.norm
        return norm
