"""Two towers of one architecture and the cross stream between them: JTCSE's cross-attention layers (CAEL).

At a CAEL a tower's own attention matrix weights the other tower's values: CACT_a = SA_a (V_b HD_b) (JTCSE
eq. 10). The cross stream is the rest of the layer applied to that, its residual taken from the stream itself.

That costs little. CACT reads the primitive streams alone, so these are what the plain models compute, and
what the cross stream needs of them is kept on the way. And everything behind the attention works token by
token, so the [CLS] of the cross stream needs one query row a CAEL, never the whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from bench.errors import InputError
from bench.nn.hidden_states import (
    ARCHITECTURES,
    IMPLEMENTATIONS,
    AttentionInput,
    apply_layer_output,
    build_attention_mask,
    compute_attention,
    compute_last_states,
    project_heads,
    run_layer,
)
from bench.nn.tokens import Chunk

CROSS_STREAMS = ("carry", "last")


class TwinStates(NamedTuple):
    """What both towers say of a batch.

    Args:
        first: Last hidden states of the first tower, (B, T, H).
        second: Those of the second.
        cross_first: [CLS] of the first tower's cross stream after the last CAEL, (B, H); None without CAELs.
        cross_second: That of the second.
    """

    first: Tensor
    second: Tensor
    cross_first: Tensor | None
    cross_second: Tensor | None


class LayerRecord(NamedTuple):
    """A layer and what its self-attention worked on, with gradient.

    Args:
        layer: The transformer layer.
        heads: Its states, queries, keys and values.
    """

    layer: Any
    heads: AttentionInput


def list_cael_layers(layers: int, count: int) -> tuple[int, ...]:
    """Positions of the CAELs, {j : 1 <= j <= L, j mod k = 0} with k = L / n; the last is always layer L.

    Args:
        layers: L, the towers' layers.
        count: n, the number of CAELs; 0 for none.

    Returns:
        Ascending positions, counted from 1.

    Raises:
        InputError: a number that doesn't divide the layers.
    """
    if count == 0:
        return ()
    if count < 0 or layers % count:
        choice = ", ".join(str(n) for n in range(layers + 1) if n == 0 or layers % n == 0)
        raise InputError(f"{count} cross-attention layers for {layers} layers", expected=f"one of {choice}")
    step = layers // count
    return tuple(range(step, layers + 1, step))


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

    The primitive streams are what the plain models return, to the bit; in training too, as the cross streams
    draw their dropout after both, attention's too (own draws with the layers' probabilities). Gradient flows
    from the [CLS] of either cross stream into both towers.

    Args:
        first: Tower I, a BertModel or RobertaModel with eager or sdpa attention; any model without CAELs.
        second: Tower II, of the same shape and attention implementation; may be tower I itself.
        chunk: What both read, [CLS] first.
        caels: Positions from :func:`cael_layers`.
        cross_stream: "carry": the stream starts as the states that enter the first CAEL, passes from CAEL to
            CAEL and skips the layers between. "last": the last CAEL alone, its residual from the primitive
            stream.
        cls_only: The primitive streams' [CLS] alone, (B, 1, H).

    Raises:
        InputError: with CAELs, towers that don't fit (see :func:`check_towers`), positions outside the layers
            or not ascending, or an unknown cross stream.
    """
    if not caels:
        one, two = (compute_last_states(model, chunk, cls_only=cls_only) for model in (first, second))
        return TwinStates(one, two, None, None)
    check_towers(first, second)
    if cross_stream not in CROSS_STREAMS:
        raise InputError(f"cross_stream '{cross_stream}'", expected=f"one of {', '.join(CROSS_STREAMS)}")
    layers = len(first.encoder.layer)
    if list(caels) != sorted(set(caels)) or not 1 <= caels[0] <= caels[-1] <= layers:
        raise InputError(f"cross-attention layers {list(caels)}", expected=f"ascending, within 1 to {layers}")
    used = caels if cross_stream == "carry" else caels[-1:]
    one, own = record_layer_states(first, chunk, used, cls_only=cls_only)
    two, other = record_layer_states(second, chunk, used, cls_only=cls_only)
    return TwinStates(one, two, _compute_cross_cls(own, other), _compute_cross_cls(other, own))


def check_towers(first: Any, second: Any) -> None:
    """Check that values of one tower can be weighted by the attention of the other.

    Raises:
        InputError: not both BertModel or both RobertaModel, different layers, heads, hidden size or attention
            implementation, or an implementation other than eager and sdpa.
    """
    kind = next((kind for kind in ARCHITECTURES if isinstance(first, kind)), None)
    if kind is None or not isinstance(second, kind):
        raise InputError(
            f"cross-attention layers between {type(first).__name__} and {type(second).__name__}",
            expected=f"two {' or two '.join(kind.__name__ for kind in ARCHITECTURES)}",
        )
    for name, meaning in (
        ("num_hidden_layers", "layers"),
        ("num_attention_heads", "attention heads"),
        ("hidden_size", "hidden size"),
        ("_attn_implementation", "attention implementation"),
    ):
        one, two = getattr(first.config, name), getattr(second.config, name)
        if one != two:
            raise InputError(f"the towers differ in {meaning}: {one} and {two}", expected="the same in both")
    if first.config._attn_implementation not in IMPLEMENTATIONS:
        raise InputError(
            f"attention implementation '{first.config._attn_implementation}' with cross-attention layers",
            expected=f"one of {', '.join(IMPLEMENTATIONS)}",
        )


def record_layer_states(
    model: Any, chunk: Chunk, positions: Sequence[int], *, cls_only: bool = False
) -> tuple[Tensor, list[LayerRecord]]:
    """Return a model's last states, and the records of the layers at ``positions`` (from 1)."""
    states, records = model.embeddings(input_ids=chunk.ids), []
    mask, layers = build_attention_mask(model.config, chunk, states.dtype), list(model.encoder.layer)
    for position, layer in enumerate(layers, start=1):
        alone = cls_only and position == len(layers)
        recorded = any(position == each for each in positions)  # torch.compile takes "in" for identity
        if not recorded and not alone:
            states = layer(states, mask)
            continue
        heads = project_heads(layer, states, mask, cls_only=alone)
        if recorded:
            records.append(LayerRecord(layer, heads))
        states = run_layer(layer, heads)
    return states, records


def compute_cross_context(own: LayerRecord, other: LayerRecord, rows: int | None = None) -> Tensor:
    """CACT = softmax(Q_a K_a^T / sqrt(d_head) + mask) V_b, heads apart, then side by side (JTCSE eq. 8, 10).

    Computed by the function that computes the layer's own context: with equal towers it is that context.

    Args:
        own: Layer of tower a, which attends.
        other: The same layer of tower b, whose values are weighted.
        rows: Leading query rows to compute; None for all.

    Returns:
        (B, rows, H).
    """
    heads = own.heads
    return compute_attention(
        own.layer.attention.self, heads.query[:, :rows], heads.key, other.heads.value, heads.mask
    )


def _compute_cross_cls(own: Sequence[LayerRecord], other: Sequence[LayerRecord]) -> Tensor:
    """[CLS] of the cross stream after the last CAEL, (B, H)."""
    stream = own[0].heads.states[:, :1]
    for mine, theirs in zip(own, other, strict=True):
        stream = apply_layer_output(mine.layer, compute_cross_context(mine, theirs, rows=1), stream)
    return stream[:, 0]
