"""BERT-whitening: the backbone's mean vectors, linearly mapped to mean 0 and covariance 1."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import nn
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError, InputError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.recipe import TEXT_OPTION

Matrix = NDArray[np.float64]
FLOOR = 1e-12  # smallest eigenvalue that divides, as a share of the largest
_FILE = "whitening.safetensors"
_CHUNK = 4096
_BASE = ("pooling", "first_layer", "max_length")


class Moments:
    """Mean and covariance of vectors that come in parts, float64 (joined as in Chan et al. 1979)."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.mean: Matrix = np.zeros(dim)
        self._scatter: Matrix = np.zeros((dim, dim))

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Take in (n, H) vectors, n at least 1."""
        part = vectors.astype(np.float64)
        mean = part.mean(0)
        part -= mean
        total, shift = self.count + len(part), mean - self.mean
        self._scatter += part.T @ part + np.outer(shift, shift) * (self.count * len(part) / total)
        self.mean = self.mean + shift * (len(part) / total)
        self.count = total

    def kernel(self) -> Matrix:
        """Return W = U S^(-1/2) of the sample covariance U S U^T (divisor n - 1), (H, H) (Su et al. 2021).

        Columns are in order of falling eigenvalues, which have the floor 1e-12 of the largest: fewer vectors
        than dimensions, or repeated ones, leave directions without variance. BenchError: fewer than two
        vectors, or equal ones.
        """
        if self.count < 2:
            raise BenchError(f"whitening needs at least two sentences, not {self.count}")
        values, columns = np.linalg.eigh(self._scatter / (self.count - 1))
        values, columns = values[::-1], columns[:, ::-1]
        if values[0] <= 1e-18 * float(self.mean @ self.mean):  # below what float32 vectors resolve
            raise BenchError("all vectors are equal: whitening is undefined")
        scaled: Matrix = columns / np.sqrt(np.maximum(values, FLOOR * values[0]))
        return scaled


def whiten(vectors: NDArray[np.floating], mean: Matrix, kernel: Matrix) -> Matrix:
    """Return (x - mu) W of each row, (n, k) from (n, H), float64."""
    whitened: Matrix = (vectors.astype(np.float64) - mean) @ kernel
    return whitened


def normalise_rows(vectors: Matrix) -> Matrix:
    """Scale rows to length 1; norms have the floor 1e-8, so a zero row stays zero."""
    normed: Matrix = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-8)
    return normed


class TargetWhitening:
    """Compares the pairs of a task after whitening with its own sentences, to ``k`` dimensions."""

    def __init__(self, base: Encoder, k: int) -> None:
        self.base, self.k = base, k
        self.facts: dict[str, str | int] = {**base.facts, "fit": "target", "k": k}

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Cosines of the whitened pairs, float32 (n,); the fit is on both sides of all pairs."""
        row = {sentence: i for i, sentence in enumerate(dict.fromkeys((*first, *second)))}
        if not row:
            return np.zeros(0, dtype=np.float32)
        vectors = self.base.encode(list(row))
        a = [row[sentence] for sentence in first]
        b = [row[sentence] for sentence in second]
        moments = Moments(self.base.dim)
        moments.add(vectors[[*a, *b]])
        whitened = normalise_rows(whiten(vectors, moments.mean, moments.kernel()[:, : self.k]))
        cosines: FloatArray = np.einsum("ij,ij->i", whitened[a], whitened[b]).astype(np.float32)
        return cosines


class WhitenedEncoder:
    """An encoder followed by a fixed whitening with mean (H,) and kernel (H, k)."""

    def __init__(self, base: Encoder, mean: Matrix, kernel: Matrix) -> None:
        self.base, self.mean, self.kernel = base, mean, kernel
        self.dim = kernel.shape[1]
        self.facts: dict[str, str | int] = {**base.facts, "fit": "train", "dim": self.dim}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Vectors of length 1, float32 (n, k); see :class:`bench.encoder.Encoder`."""
        vectors = self.base.encode(sentences, batch_tokens, progress)
        whitened: FloatArray = normalise_rows(whiten(vectors, self.mean, self.kernel)).astype(np.float32)
        return whitened


def build_base_encoder(model: Path, options: Mapping[str, OptionValue], device: str) -> nn.TransformerEncoder:
    """Build the backbone with the card's pooling, cut to ``max_length`` tokens."""
    pooling, first = str(options["pooling"]), str(options["first_layer"])
    encoder = nn.TransformerEncoder(model, pooling, first_layer=first, device=device)
    encoder.max_length = min(encoder.max_length, int(options["max_length"]))
    encoder.facts["max_length"] = encoder.max_length
    return encoder


def fit_whitening(context: StageContext) -> dict[str, Any]:
    """Fit mean and kernel to the training text's vectors: the stage of ``fit=train``, without randomness."""
    from safetensors.numpy import save_file

    cpu = time.process_time()
    base = build_base_encoder(context.model, context.config, context.device)
    sentences = context.sentences[: int(context.config["steps"]) or None]
    moments = Moments(base.dim)
    for start in range(0, len(sentences), _CHUNK):
        moments.add(base.encode(sentences[start : start + _CHUNK], progress=context.progress))
    kernel = np.ascontiguousarray(moments.kernel())
    save_file({"mean": moments.mean, "kernel": kernel}, context.out / _FILE)
    return stepless_facts(moments.count, cpu)


def stepless_facts(sentences: int, started: float) -> dict[str, Any]:
    """Facts of a stage without optimiser steps; ``started`` is of time.process_time."""
    return {
        "steps": 0,
        "sentences_seen": sentences,
        "dev_curve": [],
        "selected_step": 0,
        "selected_dev": None,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


@add_method
class Whitening:
    """BERT-whitening."""

    card = MethodCard(
        name="whitening",
        family="untrained",
        instead="no training; mean vectors, transformed to equal variance in every direction",
        cites=("su-etal-2021-whitening",),
        tags=("whitening",),
        kind="baseline",
        summary="the backbone's mean vectors, whitened on the task's sentences or on the training text",
        version=1,
        paper="Su, Cao, Liu, Ou 2021, Whitening Sentence Representations for Better Semantics and Faster "
        "Retrieval",
        code="bojone/BERT-whitening 2bfea5a",
        equations=(
            "v = (mean_t h^1_t + mean_t h^L_t) / 2; mu = mean v; Sigma = sample covariance = U S U^T",
            "x = (v - mu) U S^(-1/2), first k columns, divided by its norm",
        ),
        options=(
            Option(
                "fit",
                "target",
                "source of mean and covariance: each task's own sentences, or the training text",
                ("target", "train"),
            ),
            Option("k", -1, "dimensions kept, by falling variance; -1 all, 0 no whitening", minimum=-1),
            Option(
                "pooling",
                "avg_first_last",
                "the vectors that are whitened",
                ("avg_first_last", "avg_last_two", "avg", "cls", "pooler"),
            ),
            Option(
                "first_layer",
                "layer1",
                "first layer of avg_first_last: layer 1 (released) or the embedding output",
                ("layer1", "embedding"),
            ),
            Option("max_length", 64, "tokens a sentence keeps, specials included", minimum=3),
            Option("sentences", 0, "for fit=train: sentences from the text's start, 0 for all", minimum=0),
            TEXT_OPTION,
        ),
        deviations=(
            "fit=target takes both sides of a task's pairs as the suite has them; released: also its train "
            "and dev sets",
            "fit=train takes the profile's text; released: the sentences of SNLI and MNLI",
            "the fit of the published rows is unknown",
            "eigenvalues have the floor 1e-12 of the largest; released: none",
            "whitened in float64",
        ),
        deterministic=True,
        published_names=(
            ("bert_whitening", "profile bert-base"),
            ("roberta_whitening", "profile roberta-base"),
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the fit of ``fit=train``, one for all k; a sentence counts as a step."""
        if options["fit"] != "train" or options["k"] == 0:
            return ()
        config = {name: options[name] for name in _BASE}
        config |= {"steps": options["sentences"], "batch_size": 1, "epochs": 1}
        name, text, settings = self.card.name, str(options["text"]), tuple(sorted(config.items()))
        return (StageSpec(name, name, self.card.version, settings, fit_whitening, text=text),)

    def build(self, context: BuildContext) -> Encoder | PairScorer:
        """Return a scorer of pairs (``fit=target``) or an encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        base = build_base_encoder(context.model, context.options, context.device)
        k = int(context.options["k"])
        if k > base.dim:
            message = f"k {k} is more than the backbone's dimensions"
            raise InputError(message, where="whitening.k", expected=f"-1 to {base.dim}")
        if k == 0:
            return base
        kept = base.dim if k < 0 else k
        if context.options["fit"] == "target":
            return TargetWhitening(base, kept)
        if "whitening" not in context.stages:
            raise BenchError("the stage 'whitening' has not run")
        from safetensors.numpy import load_file

        arrays = load_file(context.stages["whitening"] / _FILE)
        return WhitenedEncoder(base, arrays["mean"], arrays["kernel"][:, :kept])
