"""Layers of encoders called one by one: an adapter for each architecture.

An adapter takes a layer apart: queries, keys and values of its self-attention; the context, by the layer's
own attention function and dropout; the rest, which works token by token. It reads modules by name, so it
accepts only models that have exactly those modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

from bench.nn.layer_checkpointing import run_checkpointed
from bench.nn.tokens import Chunk

IMPLEMENTATIONS = ("eager", "sdpa")
EVERY = ""
"""Key of :meth:`LayerAdapter.prepare` for layers that are all of one type."""
BERT_BLOCKS = {"attention", "intermediate", "output"}


class Surroundings(NamedTuple):
    """Input of a layer besides its states."""

    mask: Tensor | None  # (B, 1, 1 or T, T), bool (sdpa) or float (eager); None where everything is attended
    position: Any = None  # rotary angles, a bias of the scores, or relative positions and their embeddings


class AttentionInput(NamedTuple):
    """Input of a layer's self-attention."""

    states: Tensor  # HD, the hidden states that enter the layer, (B, T, H)
    query: Tensor  # Q HD, (B, T, H), heads concatenated; ``key`` and ``value`` likewise
    key: Tensor
    value: Tensor
    mask: Tensor | None  # see :class:`Surroundings`, as ``position``
    position: Any = None


def build_attention_mask(config: Any, chunk: Chunk, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Return the attention mask for layers of an encoder, (b, 1, 1, L); None without padding.

    Eager attention adds it to the scores, in ``dtype``; sdpa takes a boolean one.
    """
    if chunk.attention is None or config._attn_implementation == "sdpa":
        return chunk.attention
    zero = torch.zeros((), dtype=dtype, device=chunk.attention.device)
    return torch.where(chunk.attention, zero, torch.finfo(dtype).min)


def compute_attention(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_head) + mask) V of a layer with its dropout, by its function, (B, R, H).

    The query is (B, R, H) of R rows, key and value are (B, T, H), heads concatenated.
    """
    dropout = attention.dropout.p if attention.training else 0.0
    heads = AttentionInput(query, query, key, value, mask)
    return attend_heads(attention, heads, attention.attention_head_size, dropout)


def attend_heads(
    attention: Any,
    heads: AttentionInput,
    size: int,
    dropout: float,
    eager: Callable[..., Any] = eager_attention_forward,
) -> Tensor:
    """Return the context by transformers' function for an attention module, (B, R, H).

    ``size`` is that of a head, ``dropout`` the probability now, ``eager`` the module's own eager function.
    """
    function = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, eager)
    rows = (heads.query, heads.key, heads.value)
    apart = [split_heads(part, size) for part in rows]
    context, _ = function(attention, *apart, heads.mask, dropout=dropout, scaling=size**-0.5)
    flat: Tensor = context.flatten(2)
    return flat


def split_heads(rows: Tensor, size: int) -> Tensor:
    """Split concatenated heads, (B, T, H) to (B, heads, T, size)."""
    return rows.view(*rows.shape[:2], -1, size).transpose(1, 2)


def has_children(module: Any, names: Collection[str], optional: Collection[str] = ()) -> bool:
    """Test for a module whose children have exactly these names; the optional ones may be absent."""
    if not isinstance(module, nn.Module):
        return False
    present = {name for name, _ in module.named_children()}
    return present - set(optional) == set(names)


class LayerAdapter:
    """Takes the layers of one architecture apart.

    The queries, keys and values are those of the scores: behind a norm that precedes them and, with rotary
    positions, queries and keys rotated.
    """

    def accepts(self, model: Any) -> bool:
        """Test for a model with exactly the modules that this adapter reads."""
        raise NotImplementedError

    def list_layers(self, model: Any) -> list[Any]:
        """List the layers in order; shared ones occur more than once."""
        return list(model.encoder.layer)

    def embed(self, model: Any, chunk: Chunk) -> Tensor:
        """Compute the states that enter the first layer, (b, L, H)."""
        states: Tensor = model.embeddings(input_ids=chunk.ids)
        return states

    def prepare(self, model: Any, states: Tensor, chunk: Chunk) -> Mapping[str, Surroundings]:
        """Compute what layers read besides their states (b, L, H), by the type of layer."""
        return {EVERY: Surroundings(build_attention_mask(model.config, chunk, states.dtype))}

    def layer_type(self, layer: Any) -> str:
        """Return a layer's key in :meth:`prepare`."""
        return EVERY

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values of a layer."""
        raise NotImplementedError

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, T, H)."""
        raise NotImplementedError

    def attend_from_cls(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute the context of [CLS] alone, (B, 1, H)."""
        mask = None if heads.mask is None else heads.mask[..., :1, :]
        return self.attend(layer, heads._replace(query=heads.query[:, :1], mask=mask))

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        raise NotImplementedError

    def final_norm(self, model: Any) -> nn.Module | None:
        """Return the norm behind the last layer of an architecture with norms before its blocks."""
        return None

    def run_layer(self, layer: Any, states: Tensor, around: Surroundings) -> Tensor:
        """Compute a layer's output, (B, T, H)."""

        def compute(states: Tensor) -> Tensor:
            return self.apply_rest(layer, self.attend(layer, self.project(layer, states, around)), states)

        output: Tensor = run_checkpointed(layer, compute, states)
        return output


class BertLayers(LayerAdapter):
    """BERT, RoBERTa and those built alike: XLM-R, CamemBERT, data2vec, ELECTRA, ERNIE."""

    def accepts(self, model: Any) -> bool:
        """Test for BERT's modules; ELECTRA may project its embeddings."""
        if not has_children(model, {"embeddings", "encoder"}, {"pooler", "embeddings_project"}):
            return False
        layer: Any = next(iter(getattr(model.encoder, "layer", ())), None)
        return (
            has_children(layer, BERT_BLOCKS)
            and has_children(layer.attention, {"self", "output"})
            and has_children(layer.attention.self, {"query", "key", "value", "dropout"})
            and hasattr(layer.attention.self, "scaling")
        )

    def embed(self, model: Any, chunk: Chunk) -> Tensor:
        """Compute the states that enter the first layer, (b, L, H)."""
        states = super().embed(model, chunk)
        if hasattr(model, "embeddings_project"):
            states = model.embeddings_project(states)
        return states

    def project(
        self, layer: Any, states: Tensor, around: Surroundings, *, cls_only: bool = False
    ) -> AttentionInput:
        """Compute queries, keys and values of a layer; only [CLS]'s query with ``cls_only``."""
        attention = layer.attention.self
        query = attention.query(states[:, :1] if cls_only else states)
        key, value, mask = attention.key(states), attention.value(states), around.mask
        if (prompt := getattr(attention, "prompt", None)) is not None:  # bench.nn.deep_prompts
            key, value, mask = prompt.prepend(key, value, mask)
        return AttentionInput(states, query, key, value, mask)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        return compute_attention(layer.attention.self, heads.query, heads.key, heads.value, heads.mask)

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        output: Tensor = layer.feed_forward_chunk(layer.attention.output(context, residual))
        return output


class DistilBertLayers(LayerAdapter):
    """DistilBERT."""

    def accepts(self, model: Any) -> bool:
        """Test for DistilBERT's modules."""
        if not has_children(model, {"embeddings", "transformer"}):
            return False
        layer: Any = next(iter(model.transformer.layer), None)
        return has_children(
            layer, {"attention", "sa_layer_norm", "ffn", "output_layer_norm"}
        ) and has_children(layer.attention, {"q_lin", "k_lin", "v_lin", "out_lin", "dropout"})

    def list_layers(self, model: Any) -> list[Any]:
        """List the layers in order."""
        return list(model.transformer.layer)

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values of a layer."""
        attention = layer.attention
        rows = (attention.q_lin(states), attention.k_lin(states), attention.v_lin(states))
        return AttentionInput(states, *rows, around.mask)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        return compute_attention(layer.attention, heads.query, heads.key, heads.value, heads.mask)

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        attended = layer.sa_layer_norm(layer.attention.out_lin(context) + residual)
        output: Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
        return output


class AlbertLayers(LayerAdapter):
    """ALBERT, whose layers share their weights."""

    def accepts(self, model: Any) -> bool:
        """Test for ALBERT's modules, with one layer a group."""
        if not has_children(model, {"embeddings", "encoder"}, {"pooler", "pooler_activation"}):
            return False
        groups = getattr(model.encoder, "albert_layer_groups", ())
        return bool(len(groups)) and all(len(group.albert_layers) == 1 for group in groups)

    def list_layers(self, model: Any) -> list[Any]:
        """List the layers in order; each occurs as often as it is applied."""
        groups, count = model.encoder.albert_layer_groups, model.config.num_hidden_layers
        return [groups[int(i / (count / len(groups)))].albert_layers[0] for i in range(count)]

    def embed(self, model: Any, chunk: Chunk) -> Tensor:
        """Compute the states that enter the first layer, (b, L, H)."""
        states: Tensor = model.encoder.embedding_hidden_mapping_in(super().embed(model, chunk))
        return states

    def project(self, layer: Any, states: Tensor, around: Surroundings) -> AttentionInput:
        """Compute queries, keys and values of a layer."""
        attention = layer.attention
        rows = (attention.query(states), attention.key(states), attention.value(states))
        return AttentionInput(states, *rows, around.mask)

    def attend(self, layer: Any, heads: AttentionInput) -> Tensor:
        """Compute a layer's context, (B, R, H)."""
        attention = layer.attention
        dropout = attention.attention_dropout.p if attention.training else 0.0
        return attend_heads(attention, heads, attention.attention_head_size, dropout)

    def apply_rest(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Apply the rest of a layer to its context, token by token."""
        attention = layer.attention
        attended = attention.LayerNorm(residual + attention.output_dropout(attention.dense(context)))
        output: Tensor = layer.full_layer_layer_norm(layer.ff_chunk(attended) + attended)
        return output
