"""Every distinct sentence of a suite, once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bench.encoder import Encoder, FloatArray, PairScorer, Progress, WordCounter
from bench.errors import BenchError

BLOCK = 4096  # sentences that :func:`stream_embeddings` holds at once
_EQUAL = 1e-6  # tolerance of equal float32 vectors, as a share of the largest value


@dataclass(frozen=True)
class Embeddings:
    """Vectors of distinct sentences."""

    rows: dict[str, int]  # row of each sentence
    vectors: FloatArray  # float32 (n, dim)

    @property
    def all_equal(self) -> bool:
        """True if there are several vectors and all are equal up to rounding."""
        return len(self.vectors) > 1 and equal_rows(self.vectors, self.vectors[0])

    def select(self, sentences: Iterable[str]) -> FloatArray:
        """Vectors of sentences, in their order."""
        return self.vectors[[self.rows[sentence] for sentence in sentences]]

    def cosine(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Cosine of each pair, float64 (n,) in [-1, 1]; norms have the floor 1e-8: a zero vector gives 0."""
        a, b = (self.select(side).astype(np.float64) for side in (first, second))
        norms = np.maximum(np.linalg.norm(a, axis=1), 1e-8) * np.maximum(np.linalg.norm(b, axis=1), 1e-8)
        cosine: NDArray[np.float64] = np.clip(np.einsum("ij,ij->i", a, b) / norms, -1.0, 1.0)
        return cosine

    def unnormalised(self, first: Sequence[str], second: Sequence[str]) -> tuple[NDArray[np.float64], ...]:
        """Dot product, and the Euclidean and Manhattan distance times -1, of each pair, float64 (n,) each."""
        a, b = (self.select(side).astype(np.float64) for side in (first, second))
        difference = a - b
        dot: NDArray[np.float64] = np.einsum("ij,ij->i", a, b)
        return dot, -np.linalg.norm(difference, axis=1), -np.abs(difference).sum(1)


def equal_rows(vectors: FloatArray, vector: FloatArray) -> bool:
    """True if all rows equal a vector up to rounding."""
    limit = _EQUAL * float(np.abs(vector).max(initial=0))
    return bool((np.abs(vectors - vector) <= limit).all())


def distinct_sentences(sentences: Iterable[str]) -> list[str]:
    """Return distinct sentences in order of first appearance."""
    return list(dict.fromkeys(sentences))


def embed_sentences(
    encoder: Encoder,
    sentences: Iterable[str],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """Encode the distinct sentences; the vectors are a copy, since an encoder may reuse its array.

    Another shape or type than the encoder promises, and NaN or infinite values, raise BenchError.
    """
    texts = distinct_sentences(sentences)
    vectors = encoder.encode(list(texts), batch_tokens, progress)  # a copy, since encoders may sort in place
    _check_array(vectors, (len(texts), encoder.dim), "encoder")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        what = f"the embeddings of {int((~finite).sum())} of {len(texts)} sentences are not finite"
        raise BenchError(what, where=f"distinct sentence {int(np.argmin(finite)) + 1} is the first")
    return Embeddings({text: row for row, text in enumerate(texts)}, vectors.copy())


def report_words(encoder: Encoder | PairScorer, sentences: Iterable[str]) -> None:
    """Print word vectors' coverage of an encoded text on stderr; an unknown text raises BenchError."""
    if isinstance(encoder, WordCounter):
        print(encoder.cover(distinct_sentences(sentences)), file=sys.stderr)


def compare_pairs(scorer: PairScorer, first: Sequence[str], second: Sequence[str]) -> FloatArray:
    """Return a copy of a scorer's float32 (pairs,) similarities; errors as :func:`embed_sentences`."""
    similarities = scorer.score_pairs(list(first), list(second))
    _check_array(similarities, (len(first),), "scorer")
    finite = np.isfinite(similarities)
    if not finite.all():
        what = f"the similarities of {int((~finite).sum())} of {len(first)} pairs are not finite"
        raise BenchError(what, where=f"pair {int(np.argmin(finite)) + 1} is the first")
    return similarities.copy()


def _check_array(array: object, shape: tuple[int, ...], source: str) -> None:
    """Raise BenchError unless it is a float32 array of this shape."""
    if isinstance(array, np.ndarray) and (array.shape, array.dtype) == (shape, np.float32):
        return
    what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
    raise BenchError(f"the {source} returned {what}", expected=f"float32 {shape}")


def stream_embeddings(
    encoder: Encoder,
    sentences: Iterable[str],
    *,
    block: int = BLOCK,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Iterator[FloatArray]:
    """Encode a text of any length in constant memory, and yield float32 (n, dim) of each block of sentences.

    A block is sorted by length, and its equal sentences are encoded once; row i is that of its sentence i.
    Errors are those of :func:`embed_sentences`, naming the block.
    """
    source, done = iter(sentences), 0
    while texts := list(islice(source, block)):
        try:
            embeddings = embed_sentences(encoder, texts, batch_tokens=batch_tokens, progress=progress)
        except BenchError as error:
            where = f"sentences {done + 1:,} to {done + len(texts):,}"
            what = f"{error.what} ({error.where})" if error.where else error.what
            raise BenchError(what, where=where, expected=error.expected) from error
        done += len(texts)
        if progress and len(embeddings.rows) < len(texts):
            progress(len(texts) - len(embeddings.rows))
        yield embeddings.select(texts)
