"""Two towers of one architecture and the cross stream between them: JTCSE's cross-attention layers (CAEL).

At a CAEL a tower's own attention matrix weights the other tower's values: CACT_a = SA_a (V_b HD_b) (JTCSE
eq. 10). The rest of the layer then makes the cross stream, its residual taken from the stream itself.

That costs little. CACT depends only on the primitive streams, which equal the plain models' and are recorded
on the way. The rest of a layer works token by token, so the cross stream's [CLS] needs one query row a CAEL.

The towers may be of any architecture that has an adapter (:mod:`bench.nn.layer_streams`). SA_a is the layer's
own attention matrix, with its rotary or relative positions. Where norms precede the blocks, queries and keys
come from tower a's normed states and values from tower b's, normed by b. The residual is the stream without
that norm, as in the layer itself. The final norm is applied to the cross stream's [CLS] as to the primitive
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from bench.errors import InputError
from bench.nn.hidden_states import compute_last_states, run_cls_layer
from bench.nn.layer_adapters import (
    IMPLEMENTATIONS,
    AttentionInput,
    BertLayers,
    LayerAdapter,
    Surroundings,
)
from bench.nn.layer_streams import apply_norm, find_adapter, require_adapter
from bench.nn.tokens import Chunk

CROSS_STREAMS = ("carry", "last")


class TwinStates(NamedTuple):
    """States of both towers for a batch."""

    first: Tensor  # last hidden states of the first tower, (B, T, H)
    second: Tensor  # those of the second
    # [CLS] of the first tower's cross stream after the last CAEL, (B, H); None without CAELs
    cross_first: Tensor | None
    cross_second: Tensor | None  # that of the second


class LayerRecord(NamedTuple):
    """A layer, its self-attention's states, queries, keys and values with gradient, and their adapter."""

    layer: Any
    heads: AttentionInput
    adapter: LayerAdapter


def compute_twin_states(
    first: Any,
    second: Any,
    chunk: Chunk,
    caels: Sequence[int] = (),
    cross_stream: str = "carry",
    *,
    cls_only: bool = False,
) -> TwinStates:
    """Run both towers on a batch, and the cross stream of each if there are CAELs.

    The primitive streams equal the plain models' to the bit, in training too: the cross streams draw their
    dropout after both. Gradient flows from either cross stream's [CLS] into both towers.

    Args:
        first: Tower I, an encoder with an adapter and eager or sdpa attention; any model without CAELs.
        second: Tower II, of the same shape and attention implementation; may be tower I itself.
        chunk: The input of both, [CLS] first.
        caels: Positions from :func:`list_cael_layers`.
        cross_stream: "carry" starts with the states that enter the first CAEL, passes from CAEL to CAEL and
            skips the layers between. "last" uses only the last CAEL, its residual from the primitive stream.
        cls_only: The primitive streams' [CLS] suffices, (B, 1, H) of BERT and RoBERTa, whose last layers then
            compute only that.

    Raises:
        InputError: with CAELs, unlike towers (see :func:`check_towers`), positions outside the
            layers or out of order, or an unknown cross stream.
    """
    if not caels:
        states_a, states_b = (compute_last_states(m, chunk, cls_only=cls_only) for m in (first, second))
        return TwinStates(states_a, states_b, None, None)
    check_towers(first, second)
    if cross_stream not in CROSS_STREAMS:
        raise InputError(f"cross_stream '{cross_stream}'", expected=f"one of {', '.join(CROSS_STREAMS)}")
    adapter = require_adapter(first, "the layers of a")
    layers = len(adapter.list_layers(first))
    if list(caels) != sorted(set(caels)) or not 1 <= caels[0] <= caels[-1] <= layers:
        raise InputError(f"cross-attention layers {list(caels)}", expected=f"ascending, within 1 to {layers}")
    used = caels if cross_stream == "carry" else caels[-1:]
    states_a, records_a = record_layer_states(first, chunk, used, cls_only=cls_only)
    states_b, records_b = record_layer_states(second, chunk, used, cls_only=cls_only)
    cross_a, cross_b = compute_cross_cls(records_a, records_b), compute_cross_cls(records_b, records_a)
    final_a, final_b = (adapter.final_norm(model) for model in (first, second))
    return TwinStates(states_a, states_b, apply_norm(final_a, cross_a), apply_norm(final_b, cross_b))


def check_towers(first: Any, second: Any) -> None:
    """Raise InputError unless one tower's attention can weight the other's values."""
    what = f"cross-attention layers between {type(first).__name__} and {type(second).__name__}"
    if type(first) is not type(second) or find_adapter(second) is None:
        expected = "two encoders of one architecture whose layers can be called one by one"
        raise InputError(what, expected=expected)
    for name, meaning in (
        ("num_hidden_layers", "layers"),
        ("num_attention_heads", "attention heads"),
        ("num_key_value_heads", "heads of keys and values"),
        ("hidden_size", "hidden size"),
        ("_attn_implementation", "attention implementation"),
    ):
        values = getattr(first.config, name, None), getattr(second.config, name, None)
        if values[0] != values[1]:
            what = f"the towers differ in {meaning}: {values[0]} and {values[1]}"
            raise InputError(what, expected="the same in both")
    implementation = first.config._attn_implementation
    if implementation not in IMPLEMENTATIONS:
        what = f"attention implementation '{implementation}' with cross-attention layers"
        raise InputError(what, expected=f"one of {', '.join(IMPLEMENTATIONS)}")


def record_layer_states(
    model: Any, chunk: Chunk, positions: Sequence[int], *, cls_only: bool = False
) -> tuple[Tensor, list[LayerRecord]]:
    """Return a model's last states, and the records of the layers at ``positions`` (from 1)."""
    adapter = require_adapter(model, "the layers of a")
    states, records = adapter.embed(model, chunk), []
    around, layers = adapter.prepare(model, states, chunk), adapter.list_layers(model)
    for position, layer in enumerate(layers, start=1):
        own = around[adapter.layer_type(layer)]
        recorded = any(position == number for number in positions)  # torch.compile takes "in" for identity
        narrow = cls_only and position == len(layers) and isinstance(adapter, BertLayers)
        if not recorded:
            if narrow:
                states = run_cls_layer(layer, states, own.mask)
            else:
                states = adapter.run_layer(layer, states, own)
            continue
        heads = _project_layer(adapter, layer, states, own, cls_only=narrow)
        records.append(LayerRecord(layer, heads, adapter))
        context = adapter.attend(layer, heads)
        states = adapter.apply_rest(layer, context, states[:, : context.shape[1]])
    return apply_norm(adapter.final_norm(model), states), records


def _project_layer(
    adapter: LayerAdapter, layer: Any, states: Tensor, around: Surroundings, *, cls_only: bool
) -> AttentionInput:
    """Compute queries, keys and values; with ``cls_only`` one query where the architecture allows it."""
    if cls_only and isinstance(adapter, BertLayers):
        return adapter.project(layer, states, around, cls_only=True)
    return adapter.project(layer, states, around)


def compute_cross_cls(own: Sequence[LayerRecord], other: Sequence[LayerRecord]) -> Tensor:
    """Return [CLS] of the cross stream after the last CAEL, (B, H).

    At a CAEL CACT = softmax(Q_a K_a^T / sqrt(d_head) + mask) V_b (JTCSE eq. 8, 10) takes the place of the
    layer's own context, by the function that computes that: with equal towers both are the same. The last
    layer's final norm, if any, is not applied.
    """
    stream = own[0].heads.states[:, :1]
    for mine, theirs in zip(own, other, strict=True):
        mixed = mine.heads._replace(value=theirs.heads.value)
        context = mine.adapter.attend_from_cls(mine.layer, mixed)
        stream = mine.adapter.apply_rest(mine.layer, context, stream)
    return stream[:, 0]
