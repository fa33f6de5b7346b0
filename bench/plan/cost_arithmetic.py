"""Parameters, memory and operations of a transformer, from the numbers of its ``config.json`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

FLOAT = 4
"""Bytes of a float32 number."""
STATES = {"adamw": 2, "rmsprop": 1}
"""Float32 numbers that an optimiser keeps of a weight."""
BERTS = ("bert", "roberta")
DECODERS = ("qwen3", "llama")
KINDS = (*BERTS, "modernbert", "deberta-v2", *DECODERS)
"""Values of ``model_type`` that have formulas."""
_SAVED: dict[str, tuple[int, int, int, int]] = {
    "bert": (10, 2, 0, 0),
    "roberta": (10, 2, 0, 0),
    "modernbert": (9, 5, 0, 0),
    "deberta-v2": (11, 2, 0, 0),
    "qwen3": (6, 4, 6, 2),
    "llama": (6, 4, 4, 0),
}
"""Numbers that a layer keeps of a token for its backward pass, in widths, inner widths, queries and keys."""
_DROPPED = 1.25  # numbers that dropout before an adapter keeps of each input: itself, and a mask of a byte
_ENCODED_WIDTHS, _ENCODED_INNER = 8, 3  # numbers of a token in a layer that keeps nothing
_SCORES = 3  # attention matrices that a layer keeps: scores behind softmax, dropout's mask, their product


@dataclass(frozen=True)
class Architecture:
    """Sizes of a transformer.

    Args:
        kind: One of :data:`KINDS`.
        vocabulary: Tokens.
        width: Numbers of a hidden state.
        layers: Layers.
        heads: Attention heads.
        inner: Inner width of the MLP.
        key_heads: Heads of keys and values.
        head_width: Numbers of a query.
        positions: Rows of the table of positions.
        types: Rows of the table of token types.
        relative: Rows of DeBERTa's table of relative positions.
    """

    kind: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    key_heads: int
    head_width: int
    positions: int = 0
    types: int = 0
    relative: int = 0

    @property
    def queries(self) -> int:
        """Numbers of a token's queries."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """Numbers of a token's keys."""
        return self.key_heads * self.head_width


def read_architecture(config: Mapping[str, Any]) -> Architecture | None:
    """Return the sizes that a ``config.json`` states; None for a kind without formulas or lacking numbers."""
    kind = config.get("model_type")
    try:
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        sizes = [int(config[n]) for n in ("vocab_size", "num_hidden_layers", "intermediate_size")]
        key_heads = int(config.get("num_key_value_heads") or heads)
        head_width = int(config.get("head_dim") or width // heads)
        positions = int(config.get("max_position_embeddings", 0))
        types = int(config.get("type_vocab_size", 0))
        relative = 2 * int(config.get("position_buckets", 0))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    if kind not in KINDS:
        return None
    vocabulary, layers, inner = sizes
    sized = Architecture(kind, vocabulary, width, layers, heads, inner, key_heads, head_width)
    return _add_tables(sized, positions, types, relative)


def _add_tables(sized: Architecture, positions: int, types: int, relative: int) -> Architecture:
    """Add the tables of positions and types that the kind has: others turn queries, or score distances."""
    if sized.kind in BERTS:
        return replace(sized, positions=positions, types=types)
    if sized.kind == "deberta-v2":
        return replace(sized, types=types, relative=relative)
    return sized


def linear_shapes(sized: Architecture) -> tuple[tuple[int, int], ...]:
    """Return rows and columns of the linear modules of a layer."""
    width, inner = sized.width, sized.inner
    if sized.kind == "modernbert":
        return (3 * width, width), (width, width), (2 * inner, width), (width, inner)
    if sized.kind in DECODERS:
        attention = ((sized.queries, width), (sized.keys, width), (sized.keys, width), (width, sized.queries))
        return *attention, (inner, width), (inner, width), (width, inner)
    return *((width, width),) * 4, (inner, width), (width, inner)


def count_parameters(sized: Architecture) -> int:
    """Return the number of weights, as transformers' ``AutoModel`` has them.

    >>> count_parameters(Architecture("bert", 30522, 768, 12, 12, 3072, 12, 64, positions=512, types=2))
    109482240
    """
    width, linear = sized.width, linear_shapes(sized)
    rows = sized.vocabulary + sized.positions + sized.types + sized.relative
    layer = sum(high * wide for high, wide in linear)
    if sized.kind in DECODERS or sized.kind == "modernbert":
        layer += 2 * width + (2 * sized.head_width if sized.kind == "qwen3" else 0)
        return rows * width + sized.layers * layer + width  # its first norm or its last
    layer += sum(high for high, _ in linear) + 4 * width
    rest = width * width + width if sized.kind in BERTS else 2 * width  # pooler, or norm of positions
    return rows * width + 2 * width + sized.layers * layer + rest


def count_adapters(sized: Architecture, rank: int) -> int:
    """Return the number of weights of LoRA adapters on all linear modules of the layers."""
    return sized.layers * rank * sum(high + wide for high, wide in linear_shapes(sized))


def token_operations(sized: Architecture, length: int) -> float:
    """Return the operations of a token in a forward pass of rows of ``length`` tokens, 2 a multiplication."""
    linear = sum(high * wide for high, wide in linear_shapes(sized))
    distances = 4 * sized.relative * sized.width  # a query with each row of the table, a key with each
    return sized.layers * (2 * linear + 4 * length * sized.queries + distances)


@dataclass(frozen=True)
class StepMemory:
    """What a training step holds, as the options of those names say.

    Args:
        length: Tokens of a row, at most.
        rows: Encoded rows: SimCSE has two of each sentence.
        chunk: Rows held at a time; 0: all.
        checkpoint_layers: Layers are computed again in the backward pass.
        lora_rank: Rank of the adapters; 0: all weights are trained.
        lora_dropout: Whether their input has dropout.
        lora_bf16: Whether the frozen weights have 16 bits.
        optimizer: One of :data:`STATES`.
    """

    length: int
    rows: int
    chunk: int = 0
    checkpoint_layers: bool = False
    lora_rank: int = 0
    lora_dropout: bool = False
    lora_bf16: bool = False
    optimizer: str = "adamw"


def count_trained(sized: Architecture, step: StepMemory) -> int:
    """Return the number of trained weights of the transformer: all, or the adapters."""
    return count_adapters(sized, step.lora_rank) if step.lora_rank else count_parameters(sized)


def weight_bytes(sized: Architecture, step: StepMemory) -> int:
    """Return the bytes of weights, gradients and the optimiser's states."""
    trained = count_trained(sized, step)
    frozen = count_parameters(sized) if step.lora_rank else 0
    each = FLOAT * (2 + STATES[step.optimizer])  # itself, its gradient, its states
    return each * trained + (FLOAT // 2 if step.lora_bf16 else FLOAT) * frozen


def frozen_bytes(sized: Architecture) -> int:
    """Return the bytes of an encoder without gradients in float32."""
    return FLOAT * count_parameters(sized)


def average_bytes(sized: Architecture, step: StepMemory) -> int:
    """Return the bytes of an encoder's moving average, which shares frozen weights below adapters."""
    return FLOAT * count_trained(sized, step)


def layer_numbers(sized: Architecture, step: StepMemory, rows: int) -> float:
    """Return the numbers that a layer keeps for its backward pass, in training with dropout."""
    of_width, of_inner, of_queries, of_keys = _SAVED[sized.kind]
    token = of_width * sized.width + of_inner * sized.inner + of_queries * sized.queries
    token += of_keys * sized.keys + _SCORES * sized.heads * step.length
    token += 2 * sized.relative * sized.heads
    linear = linear_shapes(sized)
    numbers: float = token + step.lora_rank * len(linear)
    if step.lora_dropout:
        numbers += _DROPPED * sum(wide for _, wide in linear)
    shared = 2 * sized.relative * sized.width * (rows + 1)  # the projected table, copied for every row
    return rows * step.length * numbers + shared


def activation_bytes(sized: Architecture, step: StepMemory) -> float:
    """Return the bytes of a step's activations in float32."""
    rows = min(step.rows, step.chunk) if step.chunk else step.rows
    layer = layer_numbers(sized, step, rows)
    if step.checkpoint_layers:
        return FLOAT * (sized.layers * rows * step.length * sized.width + layer)
    return FLOAT * sized.layers * layer


def evaluation_bytes(sized: Architecture, tokens: int) -> float:
    """Return the bytes of a layer's states while ``tokens`` tokens are encoded without gradients."""
    return FLOAT * tokens * (_ENCODED_WIDTHS * sized.width + _ENCODED_INNER * sized.inner)
