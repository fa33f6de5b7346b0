"""States of a transformer: its layers under their mask of attention, and how states become a vector."""

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
    """Mean of the attended token states, [CLS] and [SEP] included, padding excluded.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding; every row has at least one token.

    Returns:
        (B, H).
    """
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def select_last_state(states: Tensor, mask: Tensor) -> Tensor:
    """State of each row's last token that is no padding, (B, H); padding stands on the right.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding.
    """
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


def average_by_position(states: Tensor, mask: Tensor) -> Tensor:
    """sum_i (i / sum_j j) h_i over a row's tokens i = 1 ... n (Muennighoff 2022, SGPT), (B, H).

    In a causal model later tokens have read more. Padding, on the right, weighs nothing.

    Args:
        states: (B, L, H) token states.
        mask: (B, L), 1 on tokens and 0 on padding.
    """
    positions = torch.arange(1, mask.shape[1] + 1, dtype=torch.float32, device=mask.device) * mask
    weights = positions / positions.sum(1, keepdim=True)
    return (states * weights.to(states.dtype).unsqueeze(-1)).sum(1)


def pool_states(
    states: Sequence[Tensor], mask: Tensor, pooling: str, *, first_layer: str = "embedding"
) -> Tensor:
    """Pool the hidden states of a transformer (Gao et al. 2021, SimCSE, and its evaluation.py).

    Args:
        states: (B, L, H) each: the embedding output, then every layer's output. For "cls" and "avg" the
            last alone is enough.
        mask: (B, L), 1 on tokens and 0 on padding.
        pooling: "cls" the first token of the last layer, before any pooler; "avg" the mean of the last
            layer; "avg_first_last" the mean of the first and the last layer; "avg_last_two" that of the
            last two; "last" and "weighted_mean" see :func:`last_token` and :func:`weighted_mean`.
        first_layer: What "first" means: "embedding" (the embedding output, which gave the published rows
            56.70 and 56.57) or "layer1" (SimCSE's later correction).

    Returns:
        (B, H).

    Raises:
        ValueError: an unknown pooling.
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
    """State of the mask token (PromptBERT's embedding).

    Args:
        states: (B, L, H) last layer.
        ids: (B, L) token ids with at least one ``mask_id`` a row; the first counts.
        mask_id: Id of the mask token.

    Returns:
        (B, H).
    """
    position = (ids == mask_id).to(torch.uint8).argmax(1)
    return states[torch.arange(len(states), device=states.device), position]


ARCHITECTURES = (BertModel, RobertaModel)
IMPLEMENTATIONS = ("eager", "sdpa")


class AttentionInput(NamedTuple):
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


def is_layered(model: Any) -> bool:
    """True for a model whose layers can be called here: an encoder of a known kind and attention."""
    return (
        isinstance(model, ARCHITECTURES)
        and model.config._attn_implementation in IMPLEMENTATIONS
        and not model.config.is_decoder
    )


def build_attention_mask(config: Any, chunk: Chunk, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """The mask that layers of :func:`layered` models take: boolean, or added to the scores (eager)."""
    if chunk.attention is None or config._attn_implementation == "sdpa":
        return chunk.attention
    zero = torch.zeros((), dtype=dtype, device=chunk.attention.device)
    return torch.where(chunk.attention, zero, torch.finfo(dtype).min)


def compute_last_states(model: Any, chunk: Chunk, *, cls_only: bool = False) -> Tensor:
    """States of a transformer's last layer, (b, L, H), with gradient; the pooler is not called.

    Args:
        model: A transformer; a :func:`layered` one is called layer by layer.
        chunk: What it reads.
        cls_only: Compute the last layer for [CLS] alone, (b, 1, H), where the model is a layered one. What
            remains is keys and values, which [CLS] needs of every token, and 1/L of the rest: about a sixth
            of the layer. State and gradient are those of the whole layer, up to rounding; dropout draws less.
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
        return run_layer(last, project_heads(last, states, mask, cls_only=True))
    whole: Tensor = last(states, mask)
    return whole


def project_heads(
    layer: Any, states: Tensor, mask: Tensor | None, *, cls_only: bool = False
) -> AttentionInput:
    """Queries, keys and values of a layer; the queries of [CLS] alone with ``cls_only``."""
    own = layer.attention.self
    query = own.query(states[:, :1] if cls_only else states)
    return AttentionInput(states, query, own.key(states), own.value(states), mask)


def run_layer(layer: Any, heads: AttentionInput) -> Tensor:
    """What a layer gives for each of its queries, (B, R, H)."""
    context = compute_attention(layer.attention.self, heads.query, heads.key, heads.value, heads.mask)
    return apply_layer_output(layer, context, heads.states[:, : heads.query.shape[1]])


def apply_layer_output(layer: Any, context: Tensor, residual: Tensor) -> Tensor:
    """The rest of a layer: what follows its attention, token by token."""
    given: Tensor = layer.feed_forward_chunk(layer.attention.output(context, residual))
    return given


def compute_attention(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
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
        _split_heads(query, attention),
        _split_heads(key, attention),
        _split_heads(value, attention),
        mask,
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=attention.scaling,
    )
    flat: Tensor = context.flatten(2)
    return flat


def _split_heads(projected: Tensor, attention: Any) -> Tensor:
    """Split (B, T, H) into heads: (B, heads, T, H / heads)."""
    return projected.view(*projected.shape[:2], -1, attention.attention_head_size).transpose(1, 2)
