"""The one interface behind which every method is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError

if TYPE_CHECKING:
    from torch import Tensor

FloatArray = NDArray[np.float32]
Progress = Callable[[int], None]


@runtime_checkable
class Encoder(Protocol):
    """Turns sentences into vectors; sentences are compared by the cosine of their vectors."""

    dim: int
    facts: dict[str, str | int]
    """What a record should say about it: attention implementation, longest input, ..."""

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode sentences in evaluation mode.

        Args:
            sentences: n sentences, any order, any length; an empty string is a sentence.
            batch_tokens: Padded tokens a batch may hold; None lets the encoder choose for its device.
            progress: Called with the number of sentences finished since its last call.

        Returns:
            float32 (n, dim), row i for sentence i whatever the batches were. bench copies what it keeps;
            other callers may not, so return an array of its own from every call.
        """
        ...


@runtime_checkable
class WordCounter(Protocol):
    """An encoder, or a scorer of pairs, that only knows the words of a list.

    Optional. Suites that encode their sentences once call it.
    """

    def cover(self, sentences: Sequence[str]) -> str:
        """Return in one line how much of a text it knows.

        Args:
            sentences: All distinct sentences of a suite, after they were encoded or compared.

        Raises:
            BenchError: it knows no word of them.
        """
        ...


@runtime_checkable
class TensorEncoder(Encoder, Protocol):
    """An encoder whose work comes in two halves, so that a device need not wait for the host, nor it for it.

    Optional: training asks teachers this way, and any other encoder by :meth:`encode`.
    """

    def prepare(self, sentences: Sequence[str], batch_tokens: int | None = None) -> Any:
        """The host's half: sentences as CPU tensors, in nested tuples, lists and dictionaries.

        Args:
            sentences: n sentences, at least one.
            batch_tokens: As for :meth:`encode`.
        """
        ...

    def embed(self, prepared: Any) -> Tensor:
        """The device's half: float32 (n, dim) where the encoder is, without gradient.

        Args:
            prepared: What :meth:`prepare` made, its tensors on the encoder's device.
        """
        ...


@runtime_checkable
class PromptedEncoder(Encoder, Protocol):
    """An encoder whose author says how sentences are put to it, and how its vectors are compared.

    Optional. What mteb measures honours it; :meth:`encode` is for sentences that are neither queries nor
    documents.
    """

    prompts: Mapping[str, str]
    """Texts put before sentences, by mteb's name of a task, of a type of task or of a kind of text."""
    similarity: str
    """"cosine", "dot", "euclidean" or "manhattan"."""

    def encode_as(
        self,
        sentences: Sequence[str],
        kind: str,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Encode sentences of one kind; otherwise as :meth:`encode`.

        Args:
            sentences: n sentences, without a prompt.
            kind: "query", "document", or "" for neither.
            prompt: Put before each; None for the kind's own.
            batch_tokens: Padded tokens a batch may hold.
            progress: Called with the number of sentences finished since its last call.
        """
        ...


def check_pairs(first: Sequence[str], second: Sequence[str]) -> None:
    """Raise BenchError unless there are as many first sentences as second ones."""
    if len(first) != len(second):
        what = f"{len(first)} first sentences and {len(second)} second ones"
        raise BenchError(what, expected="one of each for every pair")


@runtime_checkable
class PairScorer(Protocol):
    """A method without vectors: it compares two sentences directly."""

    facts: dict[str, str | int]

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Return float32 (n,), one similarity a pair; larger means more alike; see :meth:`Encoder.encode`."""
        ...
