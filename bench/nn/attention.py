"""Self-attention of BERT's and RoBERTa's layers for chosen rows: all of them, or [CLS] alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from transformers import BertModel, RobertaModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

ARCHITECTURES = (BertModel, RobertaModel)
IMPLEMENTATIONS = ("eager", "sdpa")


def attend(attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d_head) + mask) V of a layer, heads apart, then side by side, with its dropout.

    Computed by the function that computes the layer's own context.

    Args:
        attention: The layer's self-attention module.
        query: (B, R, H), heads side by side; R leading rows of the T.
        key: (B, T, H).
        value: (B, T, H).
        mask: As the layer got it, (B, 1, T, T) or (B, 1, 1, T); None where nothing is masked.

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
        None if mask is None else mask[:, :, : query.shape[1]],
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=attention.scaling,
    )
    flat: Tensor = context.flatten(2)
    return flat


@contextmanager
def cls_alone(model: Any) -> Iterator[None]:
    """Compute the last layer for [CLS] alone while the block calls the model: (B, 1, H), not (B, T, H).

    What remains is keys and values, which [CLS] needs of every token, and 1/T of the rest: about a sixth of
    the layer. State and gradient are those of the whole layer, up to rounding; dropout draws less. A model of
    another architecture or attention implementation, or a decoder, stays as it is.

    Args:
        model: A transformer.
    """
    if not (
        isinstance(model, ARCHITECTURES)
        and model.config._attn_implementation in IMPLEMENTATIONS
        and not model.config.is_decoder
    ):
        yield
        return
    attention: Any = model.encoder.layer[-1].attention
    vars(attention.self)["forward"] = partial(_cls_context, attention.self)
    residual = attention.output.register_forward_pre_hook(_cls_residual)
    try:
        yield
    finally:
        residual.remove()
        del vars(attention.self)["forward"]


def _cls_context(
    attention: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Stands in for the self-attention's forward call."""
    query = attention.query(hidden_states[:, :1])
    key, value = attention.key(hidden_states), attention.value(hidden_states)
    return attend(attention, query, key, value, attention_mask), None


def _cls_residual(_module: Any, args: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The output block adds the layer's input to the context: [CLS]'s alone."""
    context, states = args
    return context, states[:, :1]


def _heads(projected: Tensor, attention: Any) -> Tensor:
    """Split (B, T, H) into heads: (B, heads, T, H / heads)."""
    return projected.view(*projected.shape[:2], -1, attention.attention_head_size).transpose(1, 2)
