"""States of a transformer: its layers under an attention mask, and the pooling of states to a vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import BertModel, RobertaModel

from bench.nn.layer_adapters import IMPLEMENTATIONS, BertLayers, Surroundings, build_attention_mask
from bench.nn.layer_checkpointing import run_checkpointed
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


_FAST = (BertModel, RobertaModel)
_BERT = BertLayers()


def is_layered(model: Any) -> bool:
    """Test for an encoder that is always called layer by layer, with a last layer for [CLS] alone."""
    return (
        isinstance(model, _FAST)
        and model.config._attn_implementation in IMPLEMENTATIONS
        and not model.config.is_decoder
    )


def compute_last_states(model: Any, chunk: Chunk, *, cls_only: bool = False) -> Tensor:
    """Return the states of a transformer's last layer, (b, L, H), with gradient; the pooler is left out.

    Args:
        model: A transformer; BERT and RoBERTa (:func:`is_layered`) are called layer by layer.
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


def compute_layer_states(model: Any, chunk: Chunk) -> tuple[Tensor, ...]:
    """Return the embedding output and every layer's states, (b, L, H) each, with gradient.

    Of a model with two sides they are the decoder's. BERT and RoBERTa are called as by
    :func:`compute_last_states`.
    """
    if not is_layered(model):
        output = model(input_ids=chunk.ids, attention_mask=chunk.mask, output_hidden_states=True)
        found: tuple[Tensor, ...] = getattr(output, "hidden_states", None) or output.decoder_hidden_states
        return found
    states = [model.embeddings(input_ids=chunk.ids)]
    mask = build_attention_mask(model.config, chunk, states[0].dtype)
    for layer in model.encoder.layer:
        states.append(layer(states[-1], mask))
    return tuple(states)


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
        return run_cls_layer(last, states, mask)
    whole: Tensor = last(states, mask)
    return whole


def run_cls_layer(layer: Any, states: Tensor, mask: Tensor | None) -> Tensor:
    """Run a layer of a BertModel or RobertaModel for [CLS] alone, (B, 1, H)."""

    def compute(states: Tensor) -> Tensor:
        heads = _BERT.project(layer, states, Surroundings(mask), cls_only=True)
        return _BERT.apply_rest(layer, _BERT.attend(layer, heads), states[:, :1])

    cls_state: Tensor = run_checkpointed(layer, compute, states)
    return cls_state
