"""Any encoder in two halves, host and device; other encoders encode on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.encoder import Encoder, TensorEncoder


def has_halves(encoder: Encoder) -> bool:
    """Test for a :class:`bench.encoder.TensorEncoder` whose halves are as specific as its ``encode``.

    A subclass that overrides only ``encode`` would otherwise give its parent's vectors.
    """
    if not isinstance(encoder, TensorEncoder) or "encode" in vars(encoder):
        return False
    kinds = type(encoder).__mro__
    encode, embed = (next(n for n, kind in enumerate(kinds) if m in vars(kind)) for m in ("encode", "embed"))
    return embed <= encode


def find_device(encoder: object) -> str:
    """Return an encoder's device, a sum's first part's, or "cpu" where unknown."""
    device = getattr(encoder, "device", None)
    if isinstance(device, str | torch.device):
        return str(device)
    inner = [getattr(encoder, name, None) for name in ("base", "encoder")]
    inner += getattr(encoder, "parts", ())[:1]
    return next((find_device(part) for part in inner if part is not None), "cpu")


def prepare_sentences(encoder: Encoder, sentences: Sequence[str], batch_tokens: int | None = None) -> Any:
    """Run the host's half: the encoder's preparation, or its vectors as a tensor."""
    if has_halves(encoder):
        return encoder.prepare(sentences, batch_tokens)  # type: ignore[attr-defined]
    return torch.tensor(encoder.encode(sentences, batch_tokens), dtype=torch.float32)


def embed_prepared(encoder: Any, prepared: Any) -> Tensor:
    """Run the device's half: float32 (n, dim), constant, of :func:`prepare_sentences` on the device."""
    if isinstance(prepared, Tensor):
        return prepared
    vectors: Tensor = encoder.embed(prepared)
    return vectors
