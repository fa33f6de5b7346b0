"""Model2Vec's distillation: a vector for each token of a teacher, principal components, weights by rank."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bench.baselines.whitening import facts_without_steps
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.nn.architecture import specials
from bench.nn.backbone import TransformerEncoder
from bench.nn.decoders import TemplateEncoder
from bench.nn.static import save_static
from bench.nn.sum_encoder import SumEncoder
from bench.stages import StageContext

Matrix = NDArray[np.float64]
WEIGHTINGS = ("sif", "zipf", "none")
_UNUSED = re.compile(r"\[unused\d+\]")


def make_table(context: StageContext) -> dict[str, Any]:
    """The stage: the teacher's token vectors, reduced and weighted, as a table with its tokenizer.

    Raises:
        BenchError: a teacher without token vectors, or one that gives numbers that aren't finite.
    """
    cpu, config = time.process_time(), context.config
    parts = transformers_of(context.members["teacher"])
    hf = parts[0][1].tokenizer
    tokenizer, kept = words_of(hf)
    vectors = token_vectors(parts, kept)
    reduced, share = principal_components(vectors, int(config["dimensions"]))
    weights = rank_weights(len(kept), str(config["weighting"]), float(config.get("sif_coefficient", 1.0)))
    rows = max(*tokenizer.get_vocab().values(), *kept) + 1
    table = torch.zeros(rows, reduced.shape[1])
    table[kept] = torch.as_tensor(reduced * weights[:, None], dtype=torch.float32)
    if hf.unk_token_id is not None:
        table[hf.unk_token_id] = 0
    save_static(tokenizer, table, context.out)
    return facts_without_steps(0, cpu) | {
        "tokens": len(kept),
        "dimensions": reduced.shape[1],
        "explained_variance": round(share, 6),
    }


def transformers_of(encoder: Encoder) -> list[tuple[float, TransformerEncoder]]:
    """The weighted transformers whose vectors a teacher adds.

    Raises:
        BenchError: a teacher of another kind, or towers whose tokenizers differ.
    """
    parts = encoder.parts if isinstance(encoder, SumEncoder) else (encoder,)
    weights = encoder.weights if isinstance(encoder, SumEncoder) else (1.0,)
    found: list[tuple[float, TransformerEncoder]] = []
    for weight, part in zip(weights, parts, strict=True):
        fast = getattr(getattr(part, "tokenizer", None), "backend_tokenizer", None) is not None
        if not isinstance(part, TransformerEncoder) or isinstance(part, TemplateEncoder) or not fast:
            raise BenchError(
                f"the teacher has no vectors of single tokens: {type(part).__name__}",
                expected="a transformer with a fast tokenizer, or a sum of such ones",
            )
        found.append((weight, part))
    vocabularies = [part.tokenizer.get_vocab() for _, part in found]
    if any(each != vocabularies[0] for each in vocabularies):
        raise BenchError(
            "the teacher's towers have different vocabularies, so they share no token",
            expected="towers of one tokenizer",
        )
    return found


def words_of(tokenizer: Any) -> tuple[Tokenizer, list[int]]:
    """A tokenizer for words alone, and the ids of the tokens that get a vector, in order.

    Dropped are [unusedN] and added tokens but padding and unknown, as Model2Vec does; a text that spells one
    is read as words. A tokenizer of bytes reads the first word as if a blank stood before it. Ids stay as
    they are.

    Args:
        tokenizer: A fast tokenizer of transformers.
    """
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    spared = {tokenizer.pad_token, tokenizer.unk_token} - {None}
    dropped = {token["content"] for token in settings["added_tokens"]} - spared
    settings["added_tokens"] = [token for token in settings["added_tokens"] if token["content"] in spared]
    settings |= {"post_processor": None, "truncation": None, "padding": None}
    first = settings["pre_tokenizer"] or {}
    for part in (first, *first.get("pretokenizers", ())):
        if part.get("type") == "ByteLevel":
            part["add_prefix_space"] = True
    vocabulary = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    kept = [number for number, token in vocabulary if token not in dropped and not _UNUSED.match(token)]
    return Tokenizer.from_str(json.dumps(settings)), kept


def token_vectors(parts: Sequence[tuple[float, TransformerEncoder]], tokens: Sequence[int]) -> Matrix:
    """Return what a weighted sum of transformers says of each token alone, float64 (V, H).

    A token stands between the special tokens, or where a template has the sentence.

    Args:
        parts: The transformers, each with its weight.
        tokens: Ids.

    Raises:
        BenchError: a vector that isn't finite.
    """
    total: Matrix | float = 0.0
    for weight, part in parts:
        before, after = specials(part.tokenizer)
        if part.prompt is not None:
            before, after = [*before, *part.prompt.before], [*part.prompt.after, *after]
        total = total + weight * part.encode_rows([[*before, i, *after] for i in tokens]).astype(np.float64)
    vectors = np.asarray(total)
    if not np.isfinite(vectors).all():
        raise BenchError("the teacher gives a token a vector that is not finite")
    return vectors


def principal_components(vectors: Matrix, dimensions: int) -> tuple[Matrix, float]:
    """Return P (t - mean t) of each row and the share of the variance that it keeps, in [0, 1].

    P has the eigenvectors of the covariance by falling eigenvalue; each one's largest entry is positive, so
    that they don't depend on the solver's signs. More dimensions than there are keep all. As in Model2Vec
    0 leaves the vectors as they are, and so do dimensions that are not fewer than the tokens.

    Args:
        vectors: t, (V, H).
        dimensions: k.

    Returns:
        (V, min(k, H)), and the share; 1 where nothing is left out or all vectors are equal.

    >>> points = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    >>> reduced, share = principal_components(points, 1)
    >>> (reduced + 0.0).tolist(), share
    ([[-2.0], [0.0], [2.0]], 1.0)
    """
    k = min(dimensions, vectors.shape[1])
    if k == 0 or k >= len(vectors):
        return vectors, 1.0
    centred = vectors - vectors.mean(0)
    values, columns = np.linalg.eigh(centred.T @ centred)
    values, columns = values[::-1].clip(min=0), columns[:, ::-1][:, :k]
    signs = np.sign(columns[np.abs(columns).argmax(0), np.arange(k)])
    share = float(values[:k].sum() / values.sum()) if values.any() else 1.0
    return centred @ (columns * signs), share


def rank_weights(tokens: int, weighting: str, sif_coefficient: float) -> Matrix:
    """Return each token's weight by its rank r = 0, 1, ... in the vocabulary, (V,), at least 0.

    sif: a / (a + p_r) with p_r = (1 / (r + 2)) / sum_s 1 / (s + 2), below 1 (Model2Vec since 0.3.9). zipf:
    ln(1 + r), 0 for the first token (Model2Vec before). none: 1.

    Args:
        tokens: V.
        weighting: "sif", "zipf" or "none".
        sif_coefficient: a, above 0.

    Raises:
        ValueError: an unknown weighting.

    >>> [round(float(w), 3) for w in rank_weights(2, "sif", 0.4)]  # p = 0.6, 0.4
    [0.4, 0.5]
    >>> [round(float(w), 3) for w in rank_weights(3, "zipf", 0.4)]
    [0.0, 0.693, 1.099]
    """
    ranks = np.arange(tokens, dtype=np.float64)
    if weighting == "sif":
        inverse = 1 / (ranks + 2)
        weights: Matrix = sif_coefficient / (sif_coefficient + inverse / inverse.sum())
        return weights
    if weighting == "zipf":
        return np.log1p(ranks)
    if weighting == "none":
        return np.ones(tokens)
    raise ValueError(f"weighting {weighting!r} must be one of {', '.join(WEIGHTINGS)}")
