"""BERT's and RoBERTa's layers called one by one: all states of the last one, or [CLS]'s alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BertModel, RobertaModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

from bench.nn.tokens import Chunk

ARCHITECTURES = (BertModel, RobertaModel)
IMPLEMENTATIONS = ("eager", "sdpa")


class Heads(NamedTuple):
    """What the self-attention of a layer works on.

    Args:
        states: HD, the hidden states that enter the layer, (B, T, H).
        query: Q HD, (B, T, H), heads side by side; ``key`` and ``value`` likewise.
        mask: (B, 1, 1, T), bool (sdpa) or float (eager); None where nothing is masked.
    """

    states: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None


def layered(model: Any) -> bool:
    """True for a model whose layers can be called here: an encoder of a known kind and attention."""
    return (
        isinstance(model, ARCHITECTURES)
        and model.config._attn_implementation in IMPLEMENTATIONS
        and not model.config.is_decoder
    )


def attention_mask(config: Any, chunk: Chunk, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """The mask that layers of :func:`layered` models take: boolean, or added to the scores (eager)."""
    if chunk.attention is None or config._attn_implementation == "sdpa":
        return chunk.attention
    zero = torch.zeros((), dtype=dtype, device=chunk.attention.device)
    return torch.where(chunk.attention, zero, torch.finfo(dtype).min)


def last_states(model: Any, chunk: Chunk, *, cls_only: bool = False) -> Tensor:
    """States of a transformer's last layer, (b, L, H), with gradient; the pooler is not called.

    Args:
        model: A transformer; a :func:`layered` one is called layer by layer.
        chunk: What it reads.
        cls_only: Compute the last layer for [CLS] alone, (b, 1, H), where the model is a layered one. What
            remains is keys and values, which [CLS] needs of every token, and 1/L of the rest: about a sixth
            of the layer. State and gradient are those of the whole layer, up to rounding; dropout draws less.
    """
    if not layered(model):
        states: Tensor = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        return states
    states = model.embeddings(input_ids=chunk.ids)
    mask = attention_mask(model.config, chunk, states.dtype)
    return run_layers(model.encoder.layer, states, mask, cls_only=cls_only)


def run_layers(
    layers: Iterable[Any], states: Tensor, mask: Tensor | None, *, cls_only: bool = False
) -> Tensor:
    """Run transformer layers on given states.

    Args:
        layers: Of a BertModel or RobertaModel.
        states: (B, L, H), what the first layer gets.
        mask: Of :func:`attention_mask`.
        cls_only: See :func:`last_states`.

    Returns:
        (B, L, H), what the last layer gives; (B, 1, H) with ``cls_only``.
    """
    *first, last = layers
    for layer in first:
        states = layer(states, mask)
    if cls_only:
        return run_layer(last, heads_of(last, states, mask, cls_only=True))
    whole: Tensor = last(states, mask)
    return whole


def heads_of(layer: Any, states: Tensor, mask: Tensor | None, *, cls_only: bool = False) -> Heads:
    """Queries, keys and values of a layer; the queries of [CLS] alone with ``cls_only``."""
    own = layer.attention.self
    query = own.query(states[:, :1] if cls_only else states)
    return Heads(states, query, own.key(states), own.value(states), mask)


def run_layer(layer: Any, heads: Heads) -> Tensor:
    """What a layer gives for each of its queries, (B, R, H)."""
    context = attend(layer.attention.self, heads.query, heads.key, heads.value, heads.mask)
    return behind_attention(layer, context, heads.states[:, : heads.query.shape[1]])


def behind_attention(layer: Any, context: Tensor, residual: Tensor) -> Tensor:
    """The rest of a layer: what follows its attention, token by token."""
    given: Tensor = layer.feed_forward_chunk(layer.attention.output(context, residual))
    return given


def attend(attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d_head) + mask) V of a layer, heads apart, then side by side, with its dropout.

    Computed by the function that computes the layer's own context.

    Args:
        attention: The layer's self-attention module.
        query: (B, R, H), heads side by side; R rows.
        key: (B, T, H).
        value: (B, T, H).
        mask: (B, 1, 1, T) of :func:`attention_mask`; None where nothing is masked.

    Returns:
        (B, R, H).
    """
    implementation = attention.config._attn_implementation
    function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
    context, _ = function(
        attention,
        _heads(query, attention),
        _heads(key, attention),
        _heads(value, attention),
        mask,
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=attention.scaling,
    )
    flat: Tensor = context.flatten(2)
    return flat


def _heads(projected: Tensor, attention: Any) -> Tensor:
    """Split (B, T, H) into heads: (B, heads, T, H / heads)."""
    return projected.view(*projected.shape[:2], -1, attention.attention_head_size).transpose(1, 2)
