"""Encoders that compute in bfloat16 or float16; their vectors stay float32."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def cast_encoder(encoder: Encoder | PairScorer, precision: str) -> Any:
    """Return an encoder with weights and activations of another precision; the given one is unchanged.

    Args:
        encoder: A transformer (with ``model``), or a sum of them (with ``parts``).
        precision: "fp32" (the encoder itself), "bf16" or "fp16".

    Raises:
        BenchError: an encoder of another kind.
    """
    if precision == "fp32":
        return encoder
    lowered: Any = copy.copy(encoder)
    if hasattr(encoder, "parts"):
        lowered.parts = tuple(cast_encoder(part, precision) for part in encoder.parts)
    elif isinstance(getattr(encoder, "model", None), torch.nn.Module):
        lowered.model = copy.deepcopy(encoder.model).to(DTYPES[precision])  # type: ignore[union-attr]
    else:
        what = f"an encoder of the kind {type(encoder).__name__} computes in fp32 only"
        raise BenchError(what, hint="without --precision")
    return lowered
