"""Any bench encoder as a model of mteb, named so that caches keep it apart from others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.encoder import Encoder, FloatArray, PairScorer, Progress, PromptedEncoder, WordCounter
from bench.errors import BenchError, InputError
from bench.eval.embeddings import embed_sentences, equal_rows
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb

Similarity = Callable[[Any, Any], Any]
_PROBES = ("", "a", "One sentence, and then another one.", "Zwei Sätze 12; 句子 предложение.")
"""Sentences that distinguish encoders of equal weights by pooling, template, length and tokenizer."""


class MtebEncoder:
    """An encoder behind mteb's encoder protocol.

    A :class:`bench.encoder.PromptedEncoder` gets the prompts that mteb's own wrapper of sentence-transformers
    gives it, and its own similarity; the similarity of any other is the cosine.

    ``name`` is "bench/NAME" in mteb's folders; mteb's cache distinguishes models by it and the revision,
    which has everything beyond the weights from ``identity``, see :func:`hash_encoder`. ``about`` has
    "license" and "training_datasets" (names of texts) for mteb's files. A method for pairs raises InputError.
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
            raise InputError("this method compares pairs, and mteb needs vectors", where=name)
        self.encoder: Encoder = encoder
        self.progress = progress
        self.encoded = 0  # sentences that mteb asked for
        self.begin_task()
        with preserve_random_state():
            import_mteb()
            # of all pairs, (n, m) from (n, dim) and (m, dim); row by row, (n,) from two (n, dim)
            self.similarity, self.similarity_pairwise = _mteb_similarities(similarity_name(encoder))
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
        """Encode batches of ``{"text": [...]}`` in their order, each distinct text once: float32 (n, dim)."""
        texts = [text for batch in inputs for text in batch["text"]]
        self.encoded += len(texts)
        encoder = self.encoder
        if isinstance(encoder, PromptedEncoder):
            prompt = self._find_prompt(task_metadata, prompt_type)
            encoder = _PromptEncoder(encoder, prompt_type.value if prompt_type else "", prompt)
        embeddings = embed_sentences(encoder, texts, progress=self.progress)
        self._note_vectors(embeddings.vectors)
        return embeddings.select(texts)

    def begin_task(self) -> None:
        """Reset the counts of :meth:`check_task`."""
        self._first: FloatArray | None = None
        self._tokens = self._unknown = self._unknown_texts = 0
        self.all_equal = False

    def check_task(self) -> None:
        """Raise BenchError if word vectors lack every word of the texts since :meth:`begin_task`."""
        if self._tokens and self._tokens == self._unknown:
            what = f"no vector for any of the text's {self._tokens:,} tokens"
            raise BenchError(what, expected="word vectors of the text's language")

    @property
    def coverage(self) -> str:
        """Share of tokens since :meth:`begin_task` that word vectors cover; "" of other encoders."""
        if not self._tokens:
            return ""
        known = 100 * (1 - self._unknown / self._tokens)
        return f"{known:.2f}% of {self._tokens:,} tokens, no word of {self._unknown_texts:,} texts"

    def _note_vectors(self, vectors: FloatArray) -> None:
        """Update whether all vectors of a task are equal, and the counts of word vectors."""
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
        """Find the prompt for a task or its type by mteb's rule, otherwise the kind's own applies."""
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


def _valid_prompts(encoder: Encoder) -> dict[str, str]:
    """Return the prompts whose names mteb looks up."""
    if not isinstance(encoder, PromptedEncoder):
        return {}
    from mteb.models.abs_encoder import AbsEncoder

    with silence_mteb():
        prompts, _ = AbsEncoder.validate_task_to_prompt_name(
            dict(encoder.prompts), raise_for_invalid_keys=False
        )
    return prompts or {}


def hash_encoder(encoder: Encoder, identity: str = "") -> str:
    """Hash weights, vectors of fixed sentences and ``identity`` to 40 digits, as mteb's results require."""
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
    """Yield every tensor and array of an object by its path; ``seen`` keeps objects alive and ids unique."""
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
    library = type(value).__module__.split(".")[0] in ("transformers", "tokenizers", "torch")
    return [] if library or not hasattr(value, "__dict__") else sorted(vars(value).items())


def similarity_name(encoder: Encoder) -> str:
    """Return the name of an encoder's similarity: its own, or the cosine."""
    return encoder.similarity if isinstance(encoder, PromptedEncoder) else "cosine"


def _mteb_similarities(name: str) -> tuple[Similarity, Similarity]:
    """Return mteb's similarity of all pairs, and row by row; distances are negative."""
    from mteb import similarity_functions
    from sentence_transformers import util

    known: dict[str, tuple[Similarity, Similarity]] = {
        "cosine": (similarity_functions.cos_sim, similarity_functions.pairwise_cos_sim),
        "dot": (similarity_functions.dot_score, similarity_functions.pairwise_dot_score),
        "euclidean": (util.euclidean_sim, util.pairwise_euclidean_sim),
        "manhattan": (util.manhattan_sim, util.pairwise_manhattan_sim),
    }
    return known[name]


def build_model_meta(encoder: Encoder, name: str, revision: str, about: Mapping[str, Any]) -> Any:
    """Return mteb's ModelMeta of an encoder; ``about`` as in :class:`MtebEncoder`."""
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction
    from pydantic import ValidationError

    prompts = isinstance(encoder, PromptedEncoder) and encoder.facts.get("prompt", "none") != "none"
    size, embeddings = _count_weights(encoder)
    texts = about.get("training_datasets")
    facts = {
        "name": name,
        "revision": revision,
        "embed_dim": encoder.dim,
        "max_tokens": _max_tokens(encoder),
        "n_parameters": size or None,
        "n_embedding_parameters": embeddings or None,
        "memory_usage_mb": round(size * 4 / 2**20, 3) if size else None,
        "similarity_fn_name": ScoringFunction.from_str(similarity_name(encoder)),
        "use_instructions": prompts,
        "framework": ["PyTorch"] if size else ["NumPy"],
        "open_weights": True,
        "license": about.get("license") or "not specified",
        "training_datasets": None if texts is None else set(texts),
        "public_training_data": False,
    }
    meta = ModelMeta.create_empty(facts)
    try:
        return ModelMeta.model_validate(meta.model_dump())
    except ValidationError:  # mteb has no name for the licence
        return meta.model_copy(update={"license": "not specified"})


def _count_weights(encoder: object) -> tuple[int, int]:
    """Count the parameters of an encoder's modules and of their input embeddings, shared ones once."""
    from torch.nn import Module
    from transformers import PreTrainedModel

    sizes: dict[int, int] = {}
    tables: dict[int, int] = {}
    waiting = [encoder]
    while waiting:
        part = waiting.pop()
        waiting += _inner_encoders(part)
        model = getattr(part, "model", None)
        if not isinstance(model, Module):
            continue
        sizes |= {id(weight): weight.numel() for weight in model.parameters()}
        for module in model.modules():
            table = module.get_input_embeddings() if isinstance(module, PreTrainedModel) else None
            if table is not None:
                tables |= {id(weight): weight.numel() for weight in table.parameters()}
    return sum(sizes.values()), sum(tables.values())


def _inner_encoders(encoder: object) -> list[Any]:
    inner = getattr(encoder, "parts", None) or [getattr(encoder, "base", None)]
    return [part for part in inner if part is not None]


def _max_tokens(encoder: object) -> int | None:
    """Return the longest input that all parts of an encoder read whole, if it is known."""
    lengths = [getattr(encoder, "max_length", None), *map(_max_tokens, _inner_encoders(encoder))]
    known = [int(length) for length in lengths if isinstance(length, int | float) and length > 0]
    return min(known, default=None)
