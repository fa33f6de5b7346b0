"""Any bench encoder as a model of mteb, named so that no cache mistakes it for another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import InputError
from bench.eval.embed import embed
from bench.eval.mteb_setup import import_mteb, kept_random_state

_PROBES = ("", "a", "One sentence, and then another one.", "Zwei Sätze 12; 句子 предложение.")
"""What distinguishes encoders of equal weights: pooling, template, length, tokenizer."""


class MtebEncoder:
    """An encoder behind mteb's encoder protocol; similarities are cosines.

    Args:
        encoder: The encoder.
        name: Model name for mteb's folders, "bench/NAME".
        identity: What determines the encoder in addition to its weights, see :func:`revision_of`: mteb's
            cache knows a model only by name and revision.
        progress: Called with finished sentences.

    Raises:
        InputError: mteb isn't installed, or a method without vectors.
    """

    def __init__(
        self,
        encoder: Encoder | PairScorer,
        name: str,
        identity: str = "",
        progress: Progress | None = None,
    ) -> None:
        if not isinstance(encoder, Encoder):
            raise InputError(
                "this method compares pairs and has no vectors of its own, which mteb needs", where=name
            )
        self.encoder, self.progress = encoder, progress
        self.encoded = 0  # sentences that mteb asked for
        with kept_random_state():
            import_mteb()
            from mteb.models import ModelMeta
            from mteb.models.model_meta import ScoringFunction
            from mteb.similarity_functions import cos_sim, pairwise_cos_sim

            # of all pairs, (n, m) from (n, dim) and (m, dim); row by row, (n,) from two (n, dim)
            self.similarity, self.similarity_pairwise = cos_sim, pairwise_cos_sim
            self.mteb_model_meta = ModelMeta.create_empty(
                {
                    "name": name,
                    "revision": revision_of(encoder, identity),
                    "embed_dim": encoder.dim,
                    "similarity_fn_name": ScoringFunction.COSINE,
                }
            )

    def encode(self, inputs: Iterable[dict[str, Any]], **about: Any) -> FloatArray:
        """Encode batches of ``{"text": [...]}`` in their order, each distinct text once: float32 (n, dim).

        Raises:
            BenchError: vectors of another shape than promised, or that aren't finite.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        self.encoded += len(texts)
        embeddings = embed(self.encoder, texts, progress=self.progress)
        return embeddings.vectors[[embeddings.rows[text] for text in texts]]


def revision_of(encoder: Encoder, identity: str = "") -> str:
    """Return the sha256 of an encoder's weights and of what it makes of a few fixed sentences.

    Args:
        encoder: The encoder.
        identity: What else determines it, such as a hash of its options.
    """
    digest = hashlib.sha256(identity.encode())
    for name, array in _arrays(encoder, "", {}):
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(np.ascontiguousarray(encoder.encode(_PROBES)).tobytes())
    return digest.hexdigest()


def _arrays(value: Any, name: str, seen: dict[int, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
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
        for key, item in _items(value):
            yield from _arrays(item, f"{name}.{key}", seen)


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return sorted((str(key), item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [(str(index), item) for index, item in enumerate(value)]
    own = type(value).__module__.split(".")[0] not in ("transformers", "tokenizers", "torch")
    return sorted(vars(value).items()) if own and hasattr(value, "__dict__") else []
