"""Any encoder in two halves: one that has them, and one that encodes whole, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.encoder import Encoder, TensorEncoder


def has_halves(encoder: Encoder) -> bool:
    """True for a :class:`bench.encoder.TensorEncoder` whose halves are as specific as its ``encode``.

    A subclass that changes ``encode`` alone would otherwise be asked for its parent's vectors.
    """
    if not isinstance(encoder, TensorEncoder) or "encode" in vars(encoder):
        return False
    kinds = type(encoder).__mro__
    encode, embed = (next(n for n, kind in enumerate(kinds) if m in vars(kind)) for m in ("encode", "embed"))
    return embed <= encode


def find_device(encoder: object) -> str:
    """Where an encoder computes, as far as it says so, else "cpu"; a sum of encoders where its first does."""
    device = getattr(encoder, "device", None)
    if isinstance(device, str | torch.device):
        return str(device)
    inner = [getattr(encoder, name, None) for name in ("base", "encoder")]
    inner += getattr(encoder, "parts", ())[:1]
    return next((find_device(one) for one in inner if one is not None), "cpu")


def prepare_sentences(encoder: Encoder, sentences: Sequence[str], batch_tokens: int | None = None) -> Any:
    """The host's half: what the encoder prepares, or where it has no halves its vectors as a tensor."""
    if has_halves(encoder):
        return encoder.prepare(sentences, batch_tokens)  # type: ignore[attr-defined]
    return torch.tensor(encoder.encode(sentences, batch_tokens), dtype=torch.float32)


def embed_prepared(encoder: Any, prepared: Any) -> Tensor:
    """The device's half: float32 (n, dim), without gradient.

    Args:
        encoder: The encoder.
        prepared: What :func:`prepared_by` made of n sentences, on the device.
    """
    if isinstance(prepared, Tensor):
        return prepared
    found: Tensor = encoder.embed(prepared)
    return found
