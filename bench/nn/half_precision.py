"""Encoders that compute in bfloat16 or float16; their vectors stay float32."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def cast_encoder(encoder: Encoder | PairScorer, precision: str) -> Any:
    """Return a copy of a transformer, or of a sum, with weights and activations in "bf16" or "fp16".

    "fp32" returns the encoder itself. Raises BenchError for an encoder of another kind.
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
