"""Encoders whose embeddings are added: two towers, or a weighted ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import InputError
from bench.nn.two_phase_encoding import embed_prepared, prepare_sentences


class SumEncoder:
    """The weighted sum of the embeddings of two or more encoders, each with its own tokenizer.

    Sums among the encoders are flattened: ``SumEncoder([SumEncoder([a, b]), c], [1 - w, w])`` has the parts
    a, b, c with the weights 1 - w, 1 - w, w.

    Args:
        encoders: The encoders, of one dimension.
        weights: One an encoder; 1 each by default.

    Raises:
        InputError: fewer than two encoders, several dimensions, or unmatched weights.
    """

    def __init__(self, encoders: Sequence[Encoder], weights: Sequence[float] | None = None) -> None:
        given = [1.0] * len(encoders) if weights is None else [float(weight) for weight in weights]
        if len(encoders) < 2:
            raise InputError(f"a sum of {len(encoders)} encoder(s)", expected="at least two")
        if len(given) != len(encoders) or not all(map(math.isfinite, given)) or not any(given):
            expected = f"{len(encoders)} finite numbers, one an encoder, not all 0"
            raise InputError(f"weights {given}", expected=expected)
        dims = [encoder.dim for encoder in encoders]
        if len(set(dims)) > 1:
            what = f"embeddings of {' and '.join(map(str, dims))} dimensions can't be added"
            raise InputError(what, expected="one dimension")
        self.parts: tuple[Encoder, ...] = ()
        self.weights: tuple[float, ...] = ()
        for encoder, weight in zip(encoders, given, strict=True):
            if isinstance(encoder, SumEncoder):
                self.parts += encoder.parts
                self.weights += tuple(weight * factor for factor in encoder.weights)
            else:
                self.parts += (encoder,)
                self.weights += (weight,)
        self.dim: int = dims[0]
        self.facts = self._merge_facts()

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode with one part after the other; see :class:`bench.encoder.Encoder`."""
        count = _SharedProgress(progress, len(self.parts)) if progress else None
        output = np.zeros((len(sentences), self.dim), dtype=np.float32)
        for part, weight in zip(self.parts, self.weights, strict=True):
            output += np.float32(weight) * part.encode(sentences, batch_tokens, count)
        return output

    def prepare(self, sentences: Sequence[str], batch_tokens: int | None = None) -> tuple[Any, ...]:
        """Prepare every part on the CPU; see :class:`bench.encoder.TensorEncoder`."""
        return tuple(prepare_sentences(part, sentences, batch_tokens) for part in self.parts)

    @torch.no_grad()
    def embed(self, prepared: tuple[Any, ...]) -> Tensor:
        """Compute the weighted sum of the parts' vectors; see :class:`bench.encoder.TensorEncoder`."""
        embedded = [embed_prepared(part, share) for part, share in zip(self.parts, prepared, strict=True)]
        output = torch.zeros_like(embedded[0])
        for vectors, weight in zip(embedded, self.weights, strict=True):
            output += weight * vectors
        return output

    def _merge_facts(self) -> dict[str, str | int]:
        """Return shared facts unchanged, others joined with +."""
        facts: dict[str, str | int] = {"parts": len(self.parts)}
        if set(self.weights) != {1.0}:
            facts["weights"] = "+".join(f"{weight:g}" for weight in self.weights)
        names = [name for part in self.parts for name in part.facts]
        for name in dict.fromkeys(names):
            values = [part.facts.get(name, "-") for part in self.parts]
            facts[name] = values[0] if len(set(values)) == 1 else "+".join(map(str, values))
        return facts


class _SharedProgress:
    """Counts a sentence once its share of all passes is finished."""

    def __init__(self, progress: Progress, passes: int) -> None:
        self.progress, self.passes = progress, passes
        self.encoded = self.reported = 0

    def __call__(self, sentences: int) -> None:
        self.encoded += sentences
        finished = self.encoded // self.passes - self.reported
        if finished:
            self.reported += finished
            self.progress(finished)
