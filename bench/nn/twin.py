"""Two towers of one architecture and the cross stream between them: JTCSE's cross-attention layers (CAEL).

At a CAEL a tower's own attention matrix weights the other tower's values: CACT_a = SA_a (V_b HD_b) (JTCSE
eq. 10). The cross stream is the rest of the layer applied to that, its residual taken from the stream itself.

That costs little. CACT reads the primitive streams alone, so these are the models' own forward calls,
untouched, and what the cross stream needs of them is recorded on the way. And everything behind the attention
works token by token, so the [CLS] of the cross stream needs one query row a CAEL, never the whole sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from bench.errors import InputError
from bench.nn.attention import ARCHITECTURES, IMPLEMENTATIONS, attend

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


class LayerRecord:
    """What the self-attention of one layer saw in the latest call, with gradient.

    Args:
        layer: The transformer layer.

    Attributes:
        states: HD, the hidden states that enter the layer, (B, T, H).
        mask: As the layer got it: (B, 1, T, T), bool (sdpa) or float (eager); None where nothing is masked.
        query: Q HD, (B, T, H), heads side by side; ``key`` and ``value`` likewise.
    """

    states: Tensor
    mask: Tensor | None
    query: Tensor
    key: Tensor
    value: Tensor

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def attach(self) -> list[Any]:
        """Register the hooks and return their handles."""
        attention = self.layer.attention.self
        handles = [attention.register_forward_pre_hook(self._keep_input, with_kwargs=True)]
        for name in ("query", "key", "value"):
            handles.append(getattr(attention, name).register_forward_hook(partial(self._keep_output, name)))
        return handles

    def _keep_input(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.states, self.mask = args[0], kwargs["attention_mask"]

    def _keep_output(self, name: str, _module: Any, _args: tuple[Any, ...], output: Tensor) -> None:
        setattr(self, name, output)


def cael_layers(layers: int, count: int) -> tuple[int, ...]:
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


def twin_states(
    first: Any,
    second: Any,
    ids: Tensor,
    mask: Tensor | None,
    caels: Sequence[int] = (),
    cross_stream: str = "carry",
) -> TwinStates:
    """Run both towers on a batch, and the cross stream of each if there are CAELs.

    The primitive streams are what the plain models return, to the bit; in training too, as the cross streams
    draw their dropout after both, attention's too (own draws with the layers' probabilities). Gradient flows
    from the [CLS] of either cross stream into both towers.

    Args:
        first: Tower I, a BertModel or RobertaModel with eager or sdpa attention; any model without CAELs.
        second: Tower II, of the same shape and attention implementation; may be tower I itself.
        ids: Token ids, (B, T), [CLS] first.
        mask: 1 for tokens, 0 for padding, (B, T); None where nothing is padded.
        caels: Positions from :func:`cael_layers`.
        cross_stream: "carry": the stream starts as the states that enter the first CAEL, passes from CAEL to
            CAEL and skips the layers between. "last": the last CAEL alone, its residual from the primitive
            stream.

    Raises:
        InputError: with CAELs, towers that don't fit (see :func:`check_towers`), positions outside the layers
            or not ascending, or an unknown cross stream.
    """
    if not caels:
        one, two = (model(input_ids=ids, attention_mask=mask) for model in (first, second))
        return TwinStates(one.last_hidden_state, two.last_hidden_state, None, None)
    check_towers(first, second)
    if cross_stream not in CROSS_STREAMS:
        raise InputError(f"cross_stream '{cross_stream}'", expected=f"one of {', '.join(CROSS_STREAMS)}")
    layers = len(first.encoder.layer)
    if list(caels) != sorted(set(caels)) or not 1 <= caels[0] <= caels[-1] <= layers:
        raise InputError(f"cross-attention layers {list(caels)}", expected=f"ascending, within 1 to {layers}")
    used = caels if cross_stream == "carry" else caels[-1:]
    with recorded(first, used) as own:
        one = first(input_ids=ids, attention_mask=mask)
    with recorded(second, used) as other:
        two = second(input_ids=ids, attention_mask=mask)
    cross = _cross_cls(own, other), _cross_cls(other, own)
    return TwinStates(one.last_hidden_state, two.last_hidden_state, *cross)


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


@contextmanager
def recorded(model: Any, positions: Sequence[int]) -> Iterator[list[LayerRecord]]:
    """Record the self-attention of the layers at ``positions`` (from 1) while the block calls the model."""
    records = [LayerRecord(model.encoder.layer[position - 1]) for position in positions]
    handles = [handle for record in records for handle in record.attach()]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()


def cross_context(own: LayerRecord, other: LayerRecord, rows: int | None = None) -> Tensor:
    """CACT = softmax(Q_a K_a^T / sqrt(d_head) + mask) V_b, heads apart, then side by side (JTCSE eq. 8, 10).

    Computed by the function that computes the layer's own context: with equal towers it is that context.

    Args:
        own: Layer of tower a, which attends.
        other: The same layer of tower b, whose values are weighted.
        rows: Leading query rows to compute; None for all.

    Returns:
        (B, rows, H).
    """
    return attend(own.layer.attention.self, own.query[:, :rows], own.key, other.value, own.mask)


def _cross_cls(own: Sequence[LayerRecord], other: Sequence[LayerRecord]) -> Tensor:
    """[CLS] of the cross stream after the last CAEL, (B, H)."""
    stream = own[0].states[:, :1]
    for mine, theirs in zip(own, other, strict=True):
        attended = mine.layer.attention.output(cross_context(mine, theirs, rows=1), stream)
        stream = mine.layer.feed_forward_chunk(attended)
    return stream[:, 0]
