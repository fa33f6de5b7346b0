"""A batcher's vectors of the distinct sentences of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.eval.embed import Embeddings, distinct


class Vectors:
    """Asks a batcher for vectors.

    Args:
        params: The engine's parameters.
        batcher: (params, sentences as lists of words) -> (sentences, dim).
        prepare: (params, all sentences).

    >>> from bench.senteval_compat.engine import Params
    >>> lengths = lambda params, batch: [[len(words), 1.0] for words in batch]
    >>> vectors = Vectors(Params(batch_size=2), lengths, lambda params, samples: None)
    >>> found = vectors.of(["one", "three short words", "two words", "one"])
    >>> found.vectors[found.rows["two words"]].tolist(), len(found.vectors)
    ([2.0, 1.0], 3)
    """

    def __init__(self, params: Any, batcher: Callable[..., Any], prepare: Callable[..., Any]) -> None:
        self.params, self.batcher, self.prepare = params, batcher, prepare

    def of(self, sentences: Iterable[str]) -> Embeddings:
        """Vectors of the distinct sentences, float32 as SentEval's classifier takes them.

        Raises:
            BenchError: the number of rows isn't the number of sentences, or values aren't finite.
        """
        everything = list(sentences)
        self.prepare(self.params, [sentence.split() for sentence in everything])
        texts = sorted(distinct(everything), key=lambda sentence: len(sentence.split()))
        parts = []
        for begin in range(0, len(texts), int(self.params.batch_size)):
            batch = [sentence.split() for sentence in texts[begin : begin + int(self.params.batch_size)]]
            part = np.asarray(self.batcher(self.params, batch), dtype=np.float32)
            if part.ndim != 2 or len(part) != len(batch):
                raise BenchError(
                    f"the batcher returned the shape {part.shape}",
                    where=str(self.params.current_task),
                    expected=f"({len(batch)}, dim)",
                )
            parts.append(part)
        vectors = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise BenchError("the batcher's vectors are not finite", where=str(self.params.current_task))
        return Embeddings({text: row for row, text in enumerate(texts)}, vectors)
