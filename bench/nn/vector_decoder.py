"""TSDAE's decoder: an encoder's own layers under a causal mask, each with a cross-attention to one vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.folder_facts import list_model_types
from bench.nn.layer_adapters import BertLayers
from bench.nn.layer_checkpointing import run_checkpointed
from bench.nn.layer_streams import find_adapter
from bench.nn.tokens import Chunk


class VectorReading(nn.Module):
    """The cross-attention of a layer to one vector v: LayerNorm(x + dropout(W_o dropout(W_v v) + b_o)).

    The softmax over a single key is 1, so queries and keys would have no effect and no gradient: it has none.
    Dropout of the attention's weights leaves out whole heads of a token. Linear layers are normal with the
    model's std and biases 0.

    Args:
        config: Configuration of a model of BERT's kind.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, self.heads = int(config.hidden_size), int(config.num_attention_heads)
        self.value, self.output = nn.Linear(size, size), nn.Linear(size, size)
        for linear in (self.value, self.output):
            nn.init.normal_(linear.weight, std=config.initializer_range)
            nn.init.zeros_(linear.bias)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, vectors: Tensor) -> Tensor:
        """Let states (B, T, H) read vectors (B, H); return (B, T, H)."""
        own = self.value.weight.dtype  # the states may be of lower precision
        values = self.value(vectors.to(own)).unflatten(1, (1, self.heads, -1))
        weights = self.attention_dropout(values.new_ones(*states.shape[:2], self.heads, 1))
        context = (weights * values).flatten(2)
        read: Tensor = self.norm(states.to(own) + self.dropout(self.output(context)))
        return read.to(states.dtype)


class VectorDecoder(nn.Module):
    """A decoder made of a model's embeddings and layers, which stay the model's, and fresh cross-attentions.

    Args:
        model: An encoder of BERT's kind, such as BertModel, RobertaModel or ElectraModel.

    Raises:
        InputError: a model whose layers take no cross-attention behind their self-attention.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        if type(find_adapter(model)) is not BertLayers:
            kinds = ", ".join(sorted(list_model_types("decoding")))
            what = f"a decoder made of a {type(model).__name__}"
            raise InputError(what, expected=f"an encoder of one of the kinds {kinds}")
        self.readings = nn.ModuleList([VectorReading(model.config) for _ in model.encoder.layer])

    def decode(self, model: Any, chunk: Chunk, vectors: Tensor) -> Tensor:
        """Return the states of tokens that read those before them and their row's vector, (B, T, H).

        Args:
            model: The model whose weights decode: that of the constructor, or one of its shape.
            chunk: Token rows from :func:`mask_later_tokens`.
            vectors: (B, H).
        """
        adapter = BertLayers()
        states = adapter.embed(model, chunk)
        around = adapter.prepare(model, states, chunk)
        for layer, reading in zip(model.encoder.layer, self.readings, strict=True):
            own = around[adapter.layer_type(layer)]

            def compute(states: Tensor, layer: Any = layer, reading: Any = reading, own: Any = own) -> Tensor:
                context = adapter.attend(layer, adapter.project(layer, states, own))
                attended = layer.attention.output(context, states)
                output: Tensor = layer.feed_forward_chunk(reading(attended, vectors))
                return output

            states = run_checkpointed(layer, compute, states)
        return states


def mask_later_tokens(chunk: Chunk) -> Chunk:
    """Return a chunk in which a token attends only to itself and to those before it, (1, 1, L, L).

    Padding follows on the right, so no token attends to it.
    """
    length = chunk.ids.shape[1]
    return chunk._replace(attention=torch.ones(length, length, dtype=torch.bool).tril()[None, None])
