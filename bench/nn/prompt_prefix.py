"""Prompts before sentences: for queries, passages and other texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.encoder import Encoder, FloatArray, Progress
from bench.nn.two_phase_encoding import embed_prepared, prepare_sentences

QUERY, DOCUMENT = "query", "document"
"""mteb's names of the two sides of retrieval and reranking; other texts are ""."""


class PrefixedEncoder:
    """An encoder that puts a text before every sentence; see :class:`bench.encoder.PromptedEncoder`.

    Args:
        encoder: Encodes sentence and prompt together.
        prompt: Before every sentence.
        query: Instead, before a query; None for ``prompt``.
        document: Instead, before a document; None for ``prompt``.
        source: Origin of the prompts, for the record.
    """

    similarity = "cosine"

    def __init__(
        self,
        encoder: Encoder,
        prompt: str = "",
        query: str | None = None,
        document: str | None = None,
        *,
        source: str = "the options",
    ) -> None:
        self.parts = (encoder,)
        self.dim = encoder.dim
        self.prompts: dict[str, str] = {}
        self.used = {"": prompt}
        for kind, text in ((QUERY, query), (DOCUMENT, document)):
            self.used[kind] = prompt if text is None else text
        self.facts = {**encoder.facts, **prompt_facts(self.used, source)}

    @property
    def base(self) -> Encoder:
        """The encoder behind the prompts."""
        return self.parts[0]

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode sentences other than queries and documents; see :class:`bench.encoder.Encoder`."""
        return self.encode_as(sentences, "", None, batch_tokens, progress)

    def encode_as(
        self,
        sentences: Sequence[str],
        kind: str,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Encode with the kind's prompt; see :class:`bench.encoder.PromptedEncoder`."""
        before = self.used[kind] if prompt is None else prompt
        return self.base.encode([before + sentence for sentence in sentences], batch_tokens, progress)

    def prepare(self, sentences: Sequence[str], batch_tokens: int | None = None) -> Any:
        """The host's half; see :class:`bench.encoder.TensorEncoder`."""
        prompted = [self.used[""] + sentence for sentence in sentences]
        return prepare_sentences(self.base, prompted, batch_tokens)

    def embed(self, prepared: Any) -> Tensor:
        """The device's half; see :class:`bench.encoder.TensorEncoder`."""
        with torch.no_grad():
            return embed_prepared(self.base, prepared)


def prompt_facts(used: Mapping[str, str], source: str) -> dict[str, str | int]:
    """Return a record's facts on the prompts in use, each in quotes.

    >>> prompt_facts({"": "", "query": "query: ", "document": ""}, "the options")["prompt"]
    'query "query: "'
    """
    given = [(kind or "any", text) for kind, text in used.items() if text]
    if not given:
        return {"prompt": "none"}
    prompts = ", ".join(f"{kind} {json.dumps(text, ensure_ascii=False)}" for kind, text in given)
    return {"prompt": prompts, "prompt_from": source}
