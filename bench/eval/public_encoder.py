"""An encoder as programs get it: bench's own interface and mteb's in one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from bench.encoder import Encoder, FloatArray, Progress
from bench.eval.mteb_model import MtebEncoder, Similarity, similarity_name


class LoadedEncoder:
    """An encoder that is a model of mteb too: ``mteb.evaluate(encoder, tasks)`` takes it.

    All other attributes are the encoder's, its class for ``isinstance`` too. mteb's first call imports it,
    with a name "ORGANISATION/NAME" and ``about`` as :class:`bench.eval.mteb_model.MtebEncoder` takes them.
    """

    def __init__(self, encoder: Encoder, name: str, about: Mapping[str, Any]) -> None:
        self.encoder, self.dim, self.facts = encoder, encoder.dim, encoder.facts
        self._name, self._about = name, about

    def encode(
        self,
        sentences: Sequence[str] | Iterable[dict[str, Any]],
        batch_tokens: int | None = None,
        progress: Progress | None = None,
        **about: Any,
    ) -> FloatArray:
        """Encode sentences, see :class:`bench.encoder.Encoder`; with ``task_metadata`` mteb's batches."""
        if "task_metadata" in about:
            return self._mteb_model.encode(sentences, **about)  # type: ignore[arg-type]
        if about:
            raise TypeError(f"encode() got an unexpected keyword argument '{next(iter(about))}'")
        if isinstance(sentences, str):  # it would encode the characters
            raise TypeError("encode() takes a list of sentences, not a single one")
        texts = list(sentences)
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise TypeError(f"encode() takes a list of sentences, and item {place} is a {kind}")
        return self.encoder.encode(texts, batch_tokens, progress)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """Return the model's name and the size of its vectors."""
        return f"<LoadedEncoder {self._name}, {self.dim} dimensions>"

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The encoder's class."""
        return type(self.encoder)

    @property
    def mteb_model_meta(self) -> Any:
        """Mteb's description of the model."""
        return self._mteb_model.mteb_model_meta

    def similarity(self, one: Any, other: Any) -> Any:
        """Similarities of all pairs of vectors, (n, m) from (n, dim) and (m, dim)."""
        return self._similarities[0](one, other)

    def similarity_pairwise(self, one: Any, other: Any) -> Any:
        """Similarities row by row, (n,) from two (n, dim)."""
        return self._similarities[1](one, other)

    @cached_property
    def _similarities(self) -> tuple[Similarity, Similarity]:
        """Similarity of all pairs, and row by row: mteb's; without it sentence-transformers' of that name."""
        if find_spec("mteb") is not None:
            return self._mteb_model.similarity, self._mteb_model.similarity_pairwise
        from sentence_transformers import SimilarityFunction

        kind = similarity_name(self.encoder)
        pairwise = SimilarityFunction.to_similarity_pairwise_fn(kind)
        return SimilarityFunction.to_similarity_fn(kind), pairwise

    @cached_property
    def _mteb_model(self) -> MtebEncoder:
        return MtebEncoder(self.encoder, self._name, about=self._about)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the encoder."""
        if name.startswith("_") or name == "encoder":
            raise AttributeError(name)
        return getattr(self.encoder, name)
