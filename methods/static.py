"""``static:X`` or ``distill:static:X``: any method distilled into vectors of its tokens, as Model2Vec."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bench import nn
from bench.baselines.whitening import stepless_facts
from bench.config.method_ids import parse_method
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.lazy import torch
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.methods.ensemble import parse_weighted_members
from bench.registry import METHODS, add_method
from bench.stages import StageContext, StageSpec

STAGE = "static"
_WHY = {
    "st": "an st: folder doesn't define how it reads single tokens",
    "echo": "it reads a sentence inside a template",
    "prompteol": "it reads a sentence inside a template",
    "bert_flow": "it maps the vectors of sentences",
    "whitening": "it maps the vectors of sentences",
}
_HINTS = {"st": "use hf:PATH:POOLING, such as hf:PATH:avg"}
_STEPLESS: tuple[tuple[str, OptionValue], ...] = (("batch_size", 1), ("epochs", 0), ("steps", 0))


def check_token_vectors(text: str, where: str) -> None:
    """Raise InputError if a method, or a part of an ensemble, has no transformer that reads single tokens."""
    request = parse_method(text, where)
    card = METHODS.get(request.name, where=where).card
    if card.name == "ensemble":
        for _, part in parse_weighted_members(request.argument or ""):
            check_token_vectors(part, where)
    why = _WHY.get(card.name, "")
    if card.scores_pairs or card.takes_file:
        why = why or "it has no transformer"
    if any(name.endswith("prompt") and value for name, value in request.options):
        why = why or "its prompt precedes a sentence"
    if why:
        raise InputError(
            f"{card.name} has no vectors of single tokens: {why}",
            where=where,
            expected="a transformer with its tokenizer, or a sum of such ones",
            hint=_HINTS.get(card.name),
        )


Matrix = NDArray[np.float64]
WEIGHTINGS = ("sif", "zipf", "none")
_UNUSED = re.compile(r"\[unused\d+\]")


def build_token_table(context: StageContext) -> dict[str, Any]:
    """Reduce and weight the teacher's token vectors to a table with its tokenizer: the stage."""
    cpu, config = time.process_time(), context.config
    parts = list_transformers(context.members["teacher"])
    hf = parts[0][1].tokenizer
    tokenizer, kept = strip_tokenizer(hf)
    vectors = encode_tokens(parts, kept)
    reduced, share = principal_components(vectors, int(config["dimensions"]))
    weights = rank_weights(len(kept), str(config["weighting"]), float(config.get("sif_coefficient", 1.0)))
    rows = max(*tokenizer.get_vocab().values(), *kept) + 1
    table = torch.zeros(rows, reduced.shape[1])
    table[kept] = torch.as_tensor(reduced * weights[:, None], dtype=torch.float32)
    if hf.unk_token_id is not None:
        table[hf.unk_token_id] = 0
    nn.save_static(tokenizer, table, context.out)
    facts = {"tokens": len(kept), "dimensions": reduced.shape[1], "explained_variance": round(share, 6)}
    return stepless_facts(0, cpu) | facts


def list_transformers(encoder: Encoder) -> list[tuple[float, nn.TransformerEncoder]]:
    """List the weighted transformers whose vectors a teacher adds; BenchError: another kind of teacher."""
    weighted: list[tuple[float, Any]] = [(1.0, encoder)]
    if isinstance(encoder, nn.SumEncoder):
        weighted = list(zip(encoder.weights, encoder.parts, strict=True))
    for _, part in weighted:
        fast = getattr(getattr(part, "tokenizer", None), "backend_tokenizer", None) is not None
        if not isinstance(part, nn.TransformerEncoder) or isinstance(part, nn.TemplateEncoder) or not fast:
            raise BenchError(
                f"the teacher has no vectors of single tokens: {type(part).__name__}",
                expected="a transformer with a fast tokenizer, or a sum of such ones",
            )
    vocabularies = [part.tokenizer.get_vocab() for _, part in weighted]
    if any(vocabulary != vocabularies[0] for vocabulary in vocabularies):
        message = "the teacher's towers have different vocabularies"
        raise BenchError(message, expected="towers of one tokenizer")
    return weighted


def strip_tokenizer(tokenizer: Any) -> tuple[Tokenizer, list[int]]:
    """Return a tokenizer of words only, and the sorted ids of the tokens that get a vector.

    Dropped are [unusedN] and added tokens except padding and unknown, as in Model2Vec; a text that spells one
    is read as words. A tokenizer of bytes reads the first word as if after a blank. Ids stay as they are.
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


def encode_tokens(parts: Sequence[tuple[float, nn.TransformerEncoder]], tokens: Sequence[int]) -> Matrix:
    """Return the vector of each token, alone or in a template's place, by a weighted sum, float64 (V, H)."""
    total: Matrix | float = 0.0
    for weight, part in parts:
        before, after = nn.find_special_ids(part.tokenizer)
        if part.prompt is not None:
            before, after = [*before, *part.prompt.before], [*part.prompt.after, *after]
        total = total + weight * part.encode_rows([[*before, i, *after] for i in tokens]).astype(np.float64)
    vectors = np.asarray(total)
    if not np.isfinite(vectors).all():
        raise BenchError("the teacher's vector of a token is not finite")
    return vectors


def principal_components(vectors: Matrix, dimensions: int) -> tuple[Matrix, float]:
    """Return P (t - mean t) of each row (V, min(k, H)) and the share of the variance that it keeps.

    P has the eigenvectors of the covariance by falling eigenvalue; each one's largest entry is positive,
    whatever the solver's signs. As in Model2Vec, 0 dimensions or at least as many as tokens leave the vectors
    as they are.
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


@add_method
class Static:
    """Token vectors of a teacher, reduced, weighted and averaged."""

    card = MethodCard(
        name="static",
        family="distilled",
        instead="another method's vectors of single tokens, made smaller and weighted, then averaged",
        cites=("tulkens-van-dongen-2024-model2vec",),
        kind="baseline",
        summary="static:X or distill:static:X, any method X distilled into vectors of its tokens (Model2Vec)",
        version=1,
        paper="Tulkens and van Dongen 2024, Model2Vec: Fast State-of-the-Art Static Embeddings (software)",
        code="MinishLab/model2vec c901407 (0.8.2), model2vec/distill; 0.3.8 for weighting=zipf",
        equations=(
            "t_i = X([CLS] token_i [SEP]) with X's own pooling, for every token i of its vocabulary",
            "e_i = w_i P (t_i - mean t), P the first principal components of all t",
            "sif: w_i = a / (a + p_i), p_i = (1 / (r_i + 2)) / sum_j 1 / (r_j + 2), r_i = 0, 1, ... the "
            "token's place in the vocabulary; zipf: w_i = log(1 + r_i)",
            "v_s = mean of e_i over the tokens of s, without [CLS] and [SEP]; v_s / |v_s|",
        ),
        options=(
            Option("of", "simcse", "the teacher"),
            Option("dimensions", 256, "principal components kept; 0: no PCA", minimum=0),
            Option(
                "weighting",
                "sif",
                "of tokens by their rank: sif (released since 0.3.9), zipf (released before) or none",
                ("sif", "zipf", "none"),
            ),
            Option("sif_coefficient", 1e-4, "a; larger is nearer to no weighting", minimum=1e-12),
        ),
        known_as=(("model2vec", "static:METHOD, or st:PATH for a folder"),),
        deviations=(
            "the teacher's own pooling; released: by default the mean of the last layer's states",
            "the table is float32; released: rounded to float16",
            "rows of [unused] and special tokens stay in the table as zeros; released: they are cut out",
            "the unknown token's row is zeros, which leaves it out of a direction as released",
            "whole sentences; released: their first 512 tokens count",
            "left out: the released code's optional word list and clustering of the vocabulary",
            "the stage's key holds the unread profile, text and dev set, as every stage's",
        ),
        short_option="of",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the teacher; InputError: none is named, or one without token vectors."""
        teacher = str(options["of"])
        if not teacher:
            raise InputError("the teacher is missing", where="--methods static", expected="static:METHOD")
        check_token_vectors(teacher, f"--methods static:{teacher}")
        return {"teacher": teacher}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the table's stage, which reads no sentence and draws nothing."""
        own = {name: value for name, value in options.items() if name != "of"}
        if own["weighting"] != "sif":
            del own["sif_coefficient"]
        config = tuple(sorted((*own.items(), *_STEPLESS)))
        version = self.card.version
        inputs = ("teacher",)
        return (StageSpec(STAGE, STAGE, version, config, build_token_table, inputs=inputs, seeded=False),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the table's encoder."""
        if STAGE not in context.stages:
            raise BenchError(f"the stage '{STAGE}' has not run")
        return nn.load_static(context.stages[STAGE], context.device)
