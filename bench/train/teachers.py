"""Frozen teachers: encoders of other methods that say how alike the sentences of a batch are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.encoder import Encoder, FloatArray
from bench.errors import BenchError
from bench.train.distributed import spread_arrays

KEPT_BYTES = 2**28


class Teacher:
    """A frozen encoder of the training text; it keeps the vectors of sentences that it has seen.

    Args:
        encoder: Any encoder; it encodes whole sentences, in evaluation mode and without gradient.
        sentences: The training text, which the batches number.
        kept_bytes: Memory for vectors that may come again in a later epoch; 0 keeps none.
    """

    def __init__(self, encoder: Encoder, sentences: Sequence[str], kept_bytes: int = KEPT_BYTES) -> None:
        self.encoder, self.sentences = encoder, sentences
        self._room = kept_bytes // (4 * encoder.dim)
        self._kept: dict[int, FloatArray] = {}

    def vectors(self, numbers: Sequence[int]) -> Tensor:
        """Return float32 (B, H_k), row i for sentence ``numbers[i]``, on the CPU and without gradient.

        Raises:
            BenchError: a vector that is not finite.
        """
        new = [number for number in dict.fromkeys(numbers) if number not in self._kept]
        found: dict[int, FloatArray] = {}
        if new:
            texts = [self.sentences[number] for number in new]
            encoded = spread_arrays(texts, self.encoder.encode)
            if not np.isfinite(encoded).all():
                raise BenchError("a teacher's vectors are not finite")
            found = dict(zip(new, encoded, strict=True))
        rows = np.stack([self._kept[n] if n in self._kept else found[n] for n in numbers])
        free = max(0, self._room - len(self._kept))
        self._kept.update({number: found[number].copy() for number in new[:free]})
        return torch.from_numpy(rows)


def cosine_matrix(first: Tensor, second: Tensor) -> Tensor:
    """Return cos(a_i, b_j), (B, B) in [-1, 1]; norms have the floor 1e-8.

    Args:
        first: a, (B, H).
        second: b, (B, H).
    """
    return functional.normalize(first, dim=1, eps=1e-8) @ functional.normalize(second, dim=1, eps=1e-8).T


def mixed_cosines(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return sum_k w_k cos(t^k_i, t^k_j), (B, B): similarities are mixed, not vectors.

    Args:
        vectors: Of each teacher, (B, H_k); their sizes may differ.
        weights: One a teacher.
    """
    mixed = [w * cosine_matrix(t, t) for t, w in zip(vectors, weights, strict=True)]
    return torch.stack(mixed).sum(0)
