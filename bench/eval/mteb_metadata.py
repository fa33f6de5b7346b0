"""What mteb's files say of a model: its size, length, similarity, licence and training texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.encoder import Encoder, PromptedEncoder

Similarity = Callable[[Any, Any], Any]


def mteb_similarities(name: str) -> tuple[Similarity, Similarity]:
    """Return a similarity as mteb computes it: of all pairs, and row by row.

    Args:
        name: "cosine", "dot", "euclidean" or "manhattan"; distances are negative.
    """
    from mteb import similarity_functions as ours
    from sentence_transformers import util

    found: dict[str, tuple[Similarity, Similarity]] = {
        "cosine": (ours.cos_sim, ours.pairwise_cos_sim),
        "dot": (ours.dot_score, ours.pairwise_dot_score),
        "euclidean": (util.euclidean_sim, util.pairwise_euclidean_sim),
        "manhattan": (util.manhattan_sim, util.pairwise_manhattan_sim),
    }
    return found[name]


def build_model_meta(encoder: Encoder, name: str, revision: str, about: Mapping[str, Any]) -> Any:
    """Return mteb's ModelMeta of an encoder.

    Args:
        encoder: The encoder.
        name: Model name, "ORGANISATION/NAME".
        revision: Its revision.
        about: "license" and "training_datasets", where they are known.
    """
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction
    from pydantic import ValidationError

    similarity = encoder.similarity if isinstance(encoder, PromptedEncoder) else "cosine"
    prompts = isinstance(encoder, PromptedEncoder) and encoder.facts.get("prompt", "none") != "none"
    size, embeddings = _count_weights(encoder)
    texts = about.get("training_datasets")
    said = {
        "name": name,
        "revision": revision,
        "embed_dim": encoder.dim,
        "max_tokens": _max_tokens(encoder),
        "n_parameters": size or None,
        "n_embedding_parameters": embeddings or None,
        "memory_usage_mb": round(size * 4 / 2**20, 3) if size else None,
        "similarity_fn_name": ScoringFunction.from_str(similarity),
        "use_instructions": prompts,
        "framework": ["PyTorch"] if size else ["NumPy"],
        "open_weights": True,
        "license": about.get("license") or "not specified",
        "training_datasets": None if texts is None else set(texts),
        "public_training_data": False,
    }
    meta = ModelMeta.create_empty(said)
    try:
        return ModelMeta.model_validate(meta.model_dump())
    except ValidationError:  # a licence that mteb has no name for
        return meta.model_copy(update={"license": "not specified"})


def _count_weights(encoder: object) -> tuple[int, int]:
    """Parameters of an encoder's modules, and those of their input embeddings; shared ones count once."""
    from transformers import PreTrainedModel

    sizes: dict[int, int] = {}
    tables: dict[int, int] = {}
    for model in _inner_models(encoder):
        sizes |= {id(weight): weight.numel() for weight in model.parameters()}
        for module in model.modules():
            table = module.get_input_embeddings() if isinstance(module, PreTrainedModel) else None
            if table is not None:
                tables |= {id(weight): weight.numel() for weight in table.parameters()}
    return sum(sizes.values()), sum(tables.values())


def _inner_models(encoder: object) -> Iterator[Any]:
    from torch.nn import Module

    inner = getattr(encoder, "parts", None) or [getattr(encoder, "base", None)]
    if isinstance(model := getattr(encoder, "model", None), Module):
        yield model
    for part in inner:
        if part is not None:
            yield from _inner_models(part)


def _max_tokens(encoder: object) -> int | None:
    """The longest input that all parts of an encoder read whole; None where it isn't said."""
    inner = [part for part in getattr(encoder, "parts", ()) or [getattr(encoder, "base", None)] if part]
    own = getattr(encoder, "max_length", None)
    found = [own, *map(_max_tokens, inner)]
    return min((int(each) for each in found if isinstance(each, int | float) and each > 0), default=None)
