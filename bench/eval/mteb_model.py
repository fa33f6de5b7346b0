"""Any bench encoder as a model of mteb, named so that no cache mistakes it for another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.encoder import Encoder, FloatArray, PairScorer, Progress, PromptedEncoder, WordCounter
from bench.errors import BenchError, InputError
from bench.eval.embeddings import embed_sentences, equal_rows
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb

_PROBES = ("", "a", "One sentence, and then another one.", "Zwei Sätze 12; 句子 предложение.")
"""What distinguishes encoders of equal weights: pooling, template, length, tokenizer."""


class MtebEncoder:
    """An encoder behind mteb's encoder protocol.

    A :class:`bench.encoder.PromptedEncoder` gets the prompts that mteb's own wrapper of sentence-transformers
    would give it, and its own similarity; the similarity of any other is the cosine.

    Args:
        encoder: The encoder.
        name: Model name for mteb's folders, "bench/NAME".
        identity: What determines the encoder in addition to its weights, see :func:`revision_of`: mteb's
            cache knows a model only by name and revision.
        progress: Called with finished sentences.
        about: What mteb's files say of the model beyond what it says itself: "license" and
            "training_datasets", names of texts.

    Raises:
        InputError: mteb isn't installed, or a method without vectors.
    """

    def __init__(
        self,
        encoder: Encoder | PairScorer,
        name: str,
        identity: str = "",
        progress: Progress | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(encoder, Encoder):
            raise InputError(
                "this method compares pairs and has no vectors of its own, which mteb needs", where=name
            )
        self.encoder: Encoder = encoder
        self.progress = progress
        self.encoded = 0  # sentences that mteb asked for
        self.begin_task()
        with preserve_random_state():
            import_mteb()
            from bench.eval.mteb_metadata import build_model_meta, mteb_similarities

            # of all pairs, (n, m) from (n, dim) and (m, dim); row by row, (n,) from two (n, dim)
            self.similarity, self.similarity_pairwise = mteb_similarities(similarity_name(encoder))
            self.mteb_model_meta = build_model_meta(
                encoder, name, hash_encoder(encoder, identity), about or {}
            )
            self._prompts = _valid_prompts(encoder)

    def encode(
        self,
        inputs: Iterable[dict[str, Any]],
        *,
        task_metadata: Any = None,
        prompt_type: Any = None,
        **about: Any,
    ) -> FloatArray:
        """Encode batches of ``{"text": [...]}`` in their order, each distinct text once: float32 (n, dim).

        Raises:
            BenchError: vectors of another shape than promised, or that aren't finite.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        self.encoded += len(texts)
        asked = self.encoder
        if isinstance(asked, PromptedEncoder):
            prompt = self._find_prompt(task_metadata, prompt_type)
            asked = _PromptEncoder(asked, prompt_type.value if prompt_type else "", prompt)
        embeddings = embed_sentences(asked, texts, progress=self.progress)
        self._note_vectors(embeddings.vectors)
        return embeddings.vectors[[embeddings.rows[text] for text in texts]]

    def begin_task(self) -> None:
        """Forget what :meth:`check_task` judges by."""
        self._first: FloatArray | None = None
        self._tokens = self._unknown = self._unknown_texts = 0
        self.all_equal = False

    def check_task(self) -> None:
        """Raise BenchError if word vectors have no word of what was encoded since :meth:`begin_task`."""
        if self._tokens and self._tokens == self._unknown:
            raise BenchError(
                f"no vector for any of the text's {self._tokens:,} tokens",
                expected="word vectors of the text's language",
            )

    @property
    def coverage(self) -> str:
        """What word vectors know of the texts encoded since :meth:`begin_task`; "" of other encoders."""
        if not self._tokens:
            return ""
        known = 100 * (1 - self._unknown / self._tokens)
        return f"{known:.2f}% of {self._tokens:,} tokens, no word of {self._unknown_texts:,} texts"

    def _note_vectors(self, vectors: FloatArray) -> None:
        """Note whether all vectors of a task are equal, and the tokens that word vectors know."""
        if len(vectors) and self._first is None:
            self._first, self.all_equal = vectors[0].copy(), True
        if self._first is not None and self.all_equal:
            self.all_equal = equal_rows(vectors, self._first)
        if isinstance(self.encoder, WordCounter):
            coverage: Mapping[str, Any] = getattr(self.encoder, "coverage", {})
            self._tokens += int(coverage.get("tokens", 0))
            self._unknown += int(coverage.get("tokens_without_vector", 0))
            self._unknown_texts += int(coverage.get("sentences_without_vector", 0))

    def _find_prompt(self, task: Any, kind: Any) -> str | None:
        """The encoder's prompt for a task or its type, as mteb finds it; None for the kind's own."""
        if not self._prompts or task is None:
            return None
        from mteb.models.abs_encoder import get_prompt_name

        name = get_prompt_name(self._prompts, task, kind)
        return None if name is None else self._prompts.get(name)


class _PromptEncoder:
    """A prompted encoder for texts of one kind."""

    def __init__(self, encoder: PromptedEncoder, kind: str, prompt: str | None) -> None:
        self.encoder, self.kind, self.prompt = encoder, kind, prompt
        self.dim, self.facts = encoder.dim, encoder.facts

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        return self.encoder.encode_as(sentences, self.kind, self.prompt, batch_tokens, progress)


def similarity_name(encoder: Encoder) -> str:
    """Return the name of the similarity by which an encoder's vectors are compared."""
    return encoder.similarity if isinstance(encoder, PromptedEncoder) else "cosine"


def _valid_prompts(encoder: Encoder) -> dict[str, str]:
    """The prompts whose names mteb looks up; the others are of other kinds of text, or nobody's."""
    if not isinstance(encoder, PromptedEncoder):
        return {}
    from mteb.models.abs_encoder import AbsEncoder

    with silence_mteb():
        found, _ = AbsEncoder.validate_task_to_prompt_name(
            dict(encoder.prompts), raise_for_invalid_keys=False
        )
    return found or {}


def hash_encoder(encoder: Encoder, identity: str = "") -> str:
    """Return a hash of an encoder's weights and of what it makes of a few fixed sentences.

    40 digits, as a commit's: the public results of mteb take no others.

    Args:
        encoder: The encoder.
        identity: What else determines it, such as a hash of its options.
    """
    digest = hashlib.sha256(identity.encode())
    for name, array in _walk_arrays(encoder, "", {}):
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(np.ascontiguousarray(encoder.encode(_PROBES)).tobytes())
    if isinstance(encoder, PromptedEncoder):
        digest.update(json.dumps([encoder.similarity, sorted(encoder.prompts.items())]).encode())
        for kind in ("query", "document"):
            digest.update(np.ascontiguousarray(encoder.encode_as(_PROBES, kind)).tobytes())
    return digest.hexdigest()[:40]


def _walk_arrays(value: Any, name: str, seen: dict[int, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield every tensor and array that an object holds, at any depth, by its path.

    ``seen`` keeps what was visited alive, so that no other object gets its number.
    """
    import torch

    if id(value) in seen or isinstance(value, str | bytes | int | float | type):
        return
    seen[id(value)] = value
    if isinstance(value, torch.nn.Module):
        value = dict(value.state_dict())
    if isinstance(value, torch.Tensor):
        raw = value.detach().cpu().contiguous()
        yield name, raw.view(torch.uint8).numpy() if value.dim() else np.asarray(value.item())
    elif isinstance(value, np.ndarray):
        yield name, value
    else:
        for key, item in _list_members(value):
            yield from _walk_arrays(item, f"{name}.{key}", seen)


def _list_members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return sorted((str(key), item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [(str(index), item) for index, item in enumerate(value)]
    own = type(value).__module__.split(".")[0] not in ("transformers", "tokenizers", "torch")
    return sorted(vars(value).items()) if own and hasattr(value, "__dict__") else []
