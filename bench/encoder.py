"""The interfaces of encoders and pair scorers."""

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
    """Facts for the record: attention implementation, longest input, ..."""

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode sentences in evaluation mode.

        Args:
            sentences: n sentences, any order, any length; an empty string is a sentence.
            batch_tokens: Padded tokens a batch may hold; None lets the encoder choose for its device.
            progress: Called with the number of sentences finished since its last call.

        Returns:
            float32 (n, dim), row i for sentence i in any batches; a new array from every call.
        """
        ...


@runtime_checkable
class WordCounter(Protocol):
    """An encoder or pair scorer with a limited vocabulary. Optional; suites that encode once call it."""

    def cover(self, sentences: Sequence[str]) -> str:
        """Return one line on the share of known words; raises BenchError if there is none.

        Args:
            sentences: All distinct sentences of a suite, after encoding or comparison.
        """
        ...


@runtime_checkable
class TensorEncoder(Encoder, Protocol):
    """An encoder whose host and device work in parallel. Optional; training uses it for teachers."""

    def prepare(self, sentences: Sequence[str], batch_tokens: int | None = None) -> Any:
        """Return at least one sentence as CPU tensors, in nested tuples, lists and dictionaries."""
        ...

    def embed(self, prepared: Any) -> Tensor:
        """Return float32 (n, dim) on the device, without gradient, from prepared tensors on the device."""
        ...


@runtime_checkable
class PromptedEncoder(Encoder, Protocol):
    """An encoder with prompts and a similarity of its own, which mteb's tasks use. Optional.

    :meth:`encode` is for sentences that are neither queries nor documents.
    """

    prompts: Mapping[str, str]
    """Prompts by mteb's name of a task, a type of task or a kind of text."""
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
    """A method without vectors, which compares two sentences directly."""

    facts: dict[str, str | int]

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Return float32 (n,), one similarity a pair, larger for more similar; see :meth:`Encoder.encode`."""
        ...
