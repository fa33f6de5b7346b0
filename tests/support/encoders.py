"""Small encoders for tests of the evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bench.encoder import FloatArray


class FunctionEncoder:
    """An encoder whose vectors are a function of the sentences; ``asked`` has each call's sentences."""

    def __init__(self, vectors: Callable[[Sequence[str]], ArrayLike], dim: int = 2) -> None:
        self.vectors, self.dim = vectors, dim
        self.facts: dict[str, str | int] = {}
        self.asked: list[list[str]] = []

    def encode(self, sentences: Sequence[str], batch_tokens: Any = None, progress: Any = None) -> FloatArray:
        self.asked.append(list(sentences))
        return np.asarray(self.vectors(sentences), dtype=np.float32)


class WordVectors(FunctionEncoder):
    """The mean of fixed random word vectors."""

    def __init__(self, dim: int = 256) -> None:
        super().__init__(self._means, dim)
        self.table = np.random.default_rng(0).normal(size=(1000, dim)).astype(np.float32)

    def _means(self, sentences: Sequence[str]) -> FloatArray:
        rows = [[sum(map(ord, word)) % 1000 for word in text.split()] or [0] for text in sentences]
        return np.stack([self.table[row].mean(axis=0) for row in rows])
