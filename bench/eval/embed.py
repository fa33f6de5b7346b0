"""Every distinct sentence of a suite, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import BenchError


@dataclass(frozen=True)
class Embeddings:
    """Vectors of distinct sentences.

    Args:
        rows: Row of each sentence.
        vectors: float32 (n, dim).
    """

    rows: dict[str, int]
    vectors: FloatArray

    def cosine(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Cosine of each pair, float64 (n,) in [-1, 1]; norms have the floor 1e-8: a zero vector gives 0."""
        a, b = self._sides(first, second)
        norms = np.maximum(np.linalg.norm(a, axis=1), 1e-8) * np.maximum(np.linalg.norm(b, axis=1), 1e-8)
        cosine: NDArray[np.float64] = np.clip(np.einsum("ij,ij->i", a, b) / norms, -1.0, 1.0)
        return cosine

    def unnormalised(self, first: Sequence[str], second: Sequence[str]) -> tuple[NDArray[np.float64], ...]:
        """Dot product, and the Euclidean and Manhattan distance times -1, of each pair, float64 (n,) each."""
        a, b = self._sides(first, second)
        difference = a - b
        dot: NDArray[np.float64] = np.einsum("ij,ij->i", a, b)
        return dot, -np.linalg.norm(difference, axis=1), -np.abs(difference).sum(1)

    def _sides(
        self, first: Sequence[str], second: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        a, b = (self.vectors[[self.rows[sentence] for sentence in side]] for side in (first, second))
        return a.astype(np.float64), b.astype(np.float64)


def distinct(sentences: Iterable[str]) -> list[str]:
    """Distinct sentences in order of first appearance."""
    return list(dict.fromkeys(sentences))


def embed(
    encoder: Encoder,
    sentences: Iterable[str],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """Encode the distinct sentences.

    Raises:
        BenchError: the encoder returned another shape or type than it promises, or no finite value.
    """
    texts = distinct(sentences)
    vectors = encoder.encode(texts, batch_tokens, progress)
    if vectors.shape != (len(texts), encoder.dim) or vectors.dtype != np.float32:
        raise BenchError(
            f"the encoder returned {vectors.dtype} {vectors.shape}",
            expected=f"float32 ({len(texts)}, {encoder.dim})",
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise BenchError(
            f"the embeddings of {int((~finite).sum())} of {len(texts)} sentences are not finite",
            where=f"distinct sentence {row + 1} is the first",
        )
    return Embeddings({text: row for row, text in enumerate(texts)}, vectors)
