"""Layers whose scores have terms of relative positions, called one by one: MPNet, DeBERTa-v2 and v3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bench.nn.layer_adapters import (
    BERT_BLOCKS,
    EVERY,
    AttentionInput,
    LayerAdapter,
    Surroundings,
    build_attention_mask,
    has_children,
    split_heads,
)
from bench.nn.tokens import Chunk


class MPNetLayers(LayerAdapter):
    """MPNet: all layers add one bias by relative position to their scores."""

    def accepts(self, model: Any) -> bool:
        """Test for MPNet's modules."""
        if not has_children(model, {"embeddings", "encoder"}, {"pooler"}):
            return False
        if not has_children(model.encoder, {"layer", "relative_attention_bias"}):
            return False
        layer: Any = next(iter(model.encoder.layer), None)
        return (
            has_children(layer, BERT_BLOCKS)
            and has_children(layer.attention, {"attn", "LayerNorm", "dropout"})
            and has_children(layer.attention.attn, {"q", "k", "v", "o", "dropout"})
        )

    def prepare(self, model: Any, states: Tensor, chunk: Chunk) -> Mapping[str, Surroundings]:
        """Compute mask and bias, (b, heads, L, L)."""
        mask = build_attention_mask(model.config, chunk, states.dtype)
        return {EVERY: Surroundings(mask, model.encoder.compute_position_bias(states))}

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values of a layer."""
        attention = layer.attention.attn
        rows = (attention.q(states), attention.k(states), attention.v(states))
        return AttentionInput(states, *rows, *around)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        attention = layer.attention.attn
        size = attention.attention_head_size
        query, key, value = (split_heads(rows, size) for rows in (heads.query, heads.key, heads.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(size) + heads.position[..., : query.shape[2], :]
        if heads.mask is not None:
            scores = scores + heads.mask
        weights = attention.dropout(scores.softmax(-1))
        context: Tensor = (weights @ value).transpose(1, 2).flatten(2)
        return context

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        attention = layer.attention
        attended = attention.LayerNorm(attention.dropout(attention.attn.o(context)) + residual)
        output: Tensor = layer.output(layer.intermediate(attended), attended)
        return output


class DebertaLayers(LayerAdapter):
    """DeBERTa-v2 and v3: scores have terms of relative positions, from queries and keys of all tokens."""

    def accepts(self, model: Any) -> bool:
        """Test for the modules of DeBERTa-v2 without a convolution, which would mix tokens."""
        if not has_children(model, {"embeddings", "encoder"}) or getattr(model, "z_steps", 0) > 1:
            return False
        if not has_children(model.encoder, {"layer"}, {"rel_embeddings", "LayerNorm"}):
            return False
        layer: Any = next(iter(model.encoder.layer), None)
        optional = {"pos_dropout", "pos_key_proj", "pos_query_proj"}
        return (
            has_children(layer, BERT_BLOCKS)
            and has_children(layer.attention, {"self", "output"})
            and has_children(
                layer.attention.self, {"query_proj", "key_proj", "value_proj", "dropout"}, optional
            )
        )

    def embed(self, model: Any, chunk: Chunk) -> Tensor:
        """Compute the states that enter the first layer, (b, L, H); 0 on padding."""
        states: Tensor = model.embeddings(input_ids=chunk.ids, mask=chunk.mask)
        return states

    def prepare(self, model: Any, states: Tensor, chunk: Chunk) -> Mapping[str, Surroundings]:
        """Compute the mask of pairs, the relative positions and their embeddings."""
        encoder = model.encoder
        relative = encoder.get_rel_pos(states), encoder.get_rel_embedding()
        return {EVERY: Surroundings(encoder.get_attention_mask(chunk.mask).bool(), relative)}

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values of a layer."""
        attention = layer.attention.self
        rows = (attention.query_proj(states), attention.key_proj(states), attention.value_proj(states))
        return AttentionInput(states, *rows, *around)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, T, H)."""
        attention = layer.attention.self
        count = attention.num_attention_heads
        query, key, value = (
            attention.transpose_for_scores(rows, count) for rows in (heads.query, heads.key, heads.value)
        )
        terms = 1 + sum(name in attention.pos_att_type for name in ("c2p", "p2c"))
        scores = query @ (key.transpose(-1, -2) / math.sqrt(query.shape[-1] * terms))
        if attention.relative_attention:
            positions, embeddings = heads.position
            embeddings = attention.pos_dropout(embeddings)
            scores = scores + attention.disentangled_attention_bias(query, key, positions, embeddings, terms)
        scores = scores.view(-1, count, *scores.shape[1:])
        if heads.mask is not None:
            scores = scores.masked_fill(~heads.mask, torch.finfo(scores.dtype).min)
        weights = attention.dropout(scores.softmax(-1))
        context: Tensor = (weights @ value.view(-1, count, *value.shape[1:])).transpose(1, 2).flatten(2)
        return context

    def attend_from_cls(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute the context of [CLS], (B, 1, H), from that of all tokens."""
        return self.attend(layer, heads)[:, :1]

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        attended = layer.attention.output(context, residual)
        output: Tensor = layer.output(layer.intermediate(attended), attended)
        return output
