"""States of a transformer: its layers under an attention mask, and the pooling of states to a vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BertModel, RobertaModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

from bench.nn.tokens import Chunk


def average_states(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the attended token states, [CLS] and [SEP] included, (B, H)."""
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def select_last_state(states: Tensor, mask: Tensor) -> Tensor:
    """Return the state of each row's last token, (B, H); padding follows on the right."""
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


def average_by_position(states: Tensor, mask: Tensor) -> Tensor:
    """Return sum_i (i / sum_j j) h_i over a row's tokens i = 1 ... n (Muennighoff 2022, SGPT), (B, H).

    In a causal model later tokens have read more. Padding follows on the right and weighs 0.
    """
    positions = torch.arange(1, mask.shape[1] + 1, dtype=torch.float32, device=mask.device) * mask
    weights = positions / positions.sum(1, keepdim=True)
    return (states * weights.to(states.dtype).unsqueeze(-1)).sum(1)


def pool_states(
    states: Sequence[Tensor], mask: Tensor, pooling: str, *, first_layer: str = "embedding"
) -> Tensor:
    """Pool the hidden states of a transformer (Gao et al. 2021, SimCSE, and its evaluation.py), (B, H).

    Args:
        states: (B, L, H) each: the embedding output, then every layer's output; poolings other than
            "avg_first_last" and "avg_last_two" need only the last.
        mask: (B, L), 1 on tokens and 0 on padding; every row has a token.
        pooling: "cls" the first token of the last layer, before any pooler; "avg" the mean of the last layer;
            "avg_first_last" and "avg_last_two" the mean of two layers; "last" and "weighted_mean" see
            :func:`select_last_state` and :func:`average_by_position`.
        first_layer: "embedding" (the embedding output, which gave the published 56.70 and 56.57) or "layer1"
            (SimCSE's later correction).
    """
    if pooling == "cls":
        return states[-1][:, 0]
    if pooling == "avg":
        return average_states(states[-1], mask)
    if pooling == "avg_first_last":
        return average_states((states[0 if first_layer == "embedding" else 1] + states[-1]) / 2, mask)
    if pooling == "avg_last_two":
        return average_states((states[-2] + states[-1]) / 2, mask)
    if pooling == "last":
        return select_last_state(states[-1], mask)
    if pooling == "weighted_mean":
        return average_by_position(states[-1], mask)
    raise ValueError(f"pooling {pooling!r}")


def select_mask_state(states: Tensor, ids: Tensor, mask_id: int) -> Tensor:
    """Return each row's state at its first mask token (PromptBERT's embedding), (B, H)."""
    position = (ids == mask_id).to(torch.uint8).argmax(1)
    return states[torch.arange(len(states), device=states.device), position]


ARCHITECTURES = (BertModel, RobertaModel)
IMPLEMENTATIONS = ("eager", "sdpa")


class AttentionInput(NamedTuple):
    """Input of a layer's self-attention."""

    states: Tensor  # HD, the hidden states that enter the layer, (B, T, H)
    query: Tensor  # Q HD, (B, T, H), heads concatenated; ``key`` and ``value`` likewise
    key: Tensor
    value: Tensor
    mask: Tensor | None  # (B, 1, 1, T), bool (sdpa) or float (eager); None where everything is attended


def is_layered(model: Any) -> bool:
    """Test for a model whose layers can be called one by one: an encoder of a known kind and attention."""
    return (
        isinstance(model, ARCHITECTURES)
        and model.config._attn_implementation in IMPLEMENTATIONS
        and not model.config.is_decoder
    )


def build_attention_mask(config: Any, chunk: Chunk, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Return the attention mask for layers of :func:`is_layered` models, (b, 1, 1, L); None without padding.

    Eager attention adds it to the scores, in ``dtype``; sdpa takes a boolean one.
    """
    if chunk.attention is None or config._attn_implementation == "sdpa":
        return chunk.attention
    zero = torch.zeros((), dtype=dtype, device=chunk.attention.device)
    return torch.where(chunk.attention, zero, torch.finfo(dtype).min)


def compute_last_states(model: Any, chunk: Chunk, *, cls_only: bool = False) -> Tensor:
    """Return the states of a transformer's last layer, (b, L, H), with gradient; the pooler is left out.

    Args:
        model: A transformer; a layered one (:func:`is_layered`) is called layer by layer.
        chunk: Its input.
        cls_only: Compute the last layer of a layered model only for [CLS], (b, 1, H): keys and values of all
            tokens and 1/L of the rest, about a sixth of the layer. State and gradient are the whole layer's
            up to rounding; dropout draws less.
    """
    if not is_layered(model):
        states: Tensor = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        return states
    states = model.embeddings(input_ids=chunk.ids)
    mask = build_attention_mask(model.config, chunk, states.dtype)
    return run_layers(model.encoder.layer, states, mask, cls_only=cls_only)


def run_layers(
    layers: Iterable[Any], states: Tensor, mask: Tensor | None, *, cls_only: bool = False
) -> Tensor:
    """Run layers of a BertModel or RobertaModel on states (B, L, H), the input of the first.

    Returns (B, L, H), output of the last layer; (B, 1, H) with ``cls_only``, see :func:`compute_last_states`.
    """
    *first, last = layers
    for layer in first:
        states = layer(states, mask)
    if cls_only:
        return run_layer(last, project_heads(last, states, mask, cls_only=True))
    whole: Tensor = last(states, mask)
    return whole


def project_heads(
    layer: Any, states: Tensor, mask: Tensor | None, *, cls_only: bool = False
) -> AttentionInput:
    """Return queries, keys and values of a layer; only [CLS]'s queries with ``cls_only``."""
    attention = layer.attention.self
    query = attention.query(states[:, :1] if cls_only else states)
    return AttentionInput(states, query, attention.key(states), attention.value(states), mask)


def run_layer(layer: Any, heads: AttentionInput) -> Tensor:
    """Return a layer's output for each of its queries, (B, R, H)."""
    context = compute_attention(layer.attention.self, heads.query, heads.key, heads.value, heads.mask)
    return apply_layer_output(layer, context, heads.states[:, : heads.query.shape[1]])


def apply_layer_output(layer: Any, context: Tensor, residual: Tensor) -> Tensor:
    """Apply the rest of a layer to its attention's context, token by token."""
    output: Tensor = layer.feed_forward_chunk(layer.attention.output(context, residual))
    return output


def compute_attention(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_head) + mask) V of a layer with its dropout, by its function, (B, R, H).

    The query is (B, R, H) of R rows, key and value are (B, T, H), heads concatenated.
    """
    implementation = attention.config._attn_implementation
    function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
    size = attention.attention_head_size
    heads = [rows.view(*rows.shape[:2], -1, size).transpose(1, 2) for rows in (query, key, value)]
    dropout = attention.dropout.p if attention.training else 0.0
    context, _ = function(attention, *heads, mask, dropout=dropout, scaling=attention.scaling)
    flat: Tensor = context.flatten(2)
    return flat
