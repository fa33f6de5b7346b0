"""Static word vectors from a file: their mean, or smooth inverse frequency (SIF)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.baselines.whitening import normalise_rows, stepless_facts
from bench.data.word_vectors import WordVectors, check_shape, read_dimension, read_word_vectors
from bench.encoder import Encoder, FloatArray, PairScorer, Progress, check_pairs
from bench.errors import BenchError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec

Matrix = NDArray[np.float64]
_STAGE = "counts"
_FILE = "counts.json"


def fill_mean_vectors(
    table: WordVectors, sentences: Sequence[str], out: NDArray[np.floating], weights: Matrix | None = None
) -> dict[str, str | int]:
    """Write each sentence's (1 / |s|) sum_w weight_w v_w into a row of ``out`` (n, dim); return the coverage.

    Tokens are separated by white space; |s| counts those that have a vector. A sentence without one gets
    zeros.
    """
    tokens = unknown = empty = 0
    for number, sentence in enumerate(sentences):
        words = sentence.split()
        rows = [row for row in map(table.find, words) if row is not None]
        tokens += len(words)
        unknown += len(words) - len(rows)
        empty += not rows
        vectors = table.vectors[rows].astype(np.float64)
        if weights is not None:
            vectors *= weights[rows, None]
        out[number] = vectors.sum(0) / max(len(rows), 1)
    return {
        "tokens": tokens,
        "tokens_without_vector": unknown,
        "share_without_vector": f"{100 * unknown / max(tokens, 1):.2f}%",
        "sentences_without_vector": empty,
    }


def sif_weights(table: WordVectors, counts: Mapping[str, int], a: float) -> Matrix:
    """Return a / (a + p(w)), (words,): p(w) is the share of a word among all tokens."""
    totals = np.zeros(len(table.rows))
    for token, count in counts.items():
        row = table.find(token)
        if row is not None:
            totals[row] += count
    weights: Matrix = a / (a + totals / sum(counts.values()))
    return weights


def remove_common_component(vectors: Matrix) -> Matrix:
    """Return v - u u^T v of each row, u the first right singular vector; BenchError: no other direction."""
    values, columns = np.linalg.eigh(vectors.T @ vectors)
    if not values[-1] > 0:
        raise BenchError("no word of these sentences has a vector")
    if len(values) < 2 or values[-2] <= 1e-12 * values[-1]:
        raise BenchError("all sentence vectors are on one line: the common component is all of them")
    common = columns[:, -1]
    residual: Matrix = vectors - np.outer(vectors @ common, common)
    return residual


class _VectorFile:
    """Base of both poolings; the file is read when the first sentence comes."""

    def __init__(self, path: Path) -> None:
        self.path, self.dim = path, read_dimension(path)
        # words of the file, tokens of the latest sentences (avg), and cover's shares
        self.coverage: dict[str, str | int] = {}

    @cached_property
    def table(self) -> WordVectors:
        """All vectors of the file."""
        return read_word_vectors(self.path)

    def cover(self, sentences: Sequence[str]) -> str:
        """Return, and keep in ``coverage``, the share of a text that has vectors; raises as :meth:`share`."""
        share = self.share(sentences)
        self.coverage = {**self.coverage, "coverage": share}
        return f"{self.path.name} has vectors for {share}"

    def share(self, sentences: Sequence[str]) -> str:
        """Return the share of tokens and of distinct words that have a vector; BenchError: none has one."""
        counts = Counter(token for sentence in sentences for token in sentence.split())
        known = [count for token, count in counts.items() if self.table.find(token) is not None]
        if counts and not known:
            raise BenchError(
                f"no vector for any of the text's {counts.total():,} tokens ({len(counts):,} distinct words)",
                where=self.path.name,
                expected="word vectors of the text's language",
            )
        tokens = 100 * sum(known) / max(counts.total(), 1)
        words = 100 * len(known) / max(len(counts), 1)
        distinct = f"{words:.2f}% of {len(counts):,} distinct words"
        return f"{tokens:.2f}% of {counts.total():,} tokens and {distinct}"

    def note(self, of_sentences: Mapping[str, str | int]) -> None:
        """Replace ``coverage``."""
        self.coverage = {"words": len(self.table.rows), "repeated_words": self.table.repeated, **of_sentences}


class AverageEncoder(_VectorFile):
    """The mean of a sentence's word vectors."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.facts: dict[str, str | int] = {"pooling": "avg", "dim": self.dim}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode, and count tokens without a vector in ``coverage``; see :class:`bench.encoder.Encoder`."""
        output = np.zeros((len(sentences), self.dim), dtype=np.float32)
        self.note(fill_mean_vectors(self.table, sentences, output))
        if progress:
            progress(len(sentences))
        return output


class SifScorer(_VectorFile):
    """Compares the pairs of a task by SIF; ``counts`` has each token's count in a text, JSON."""

    def __init__(self, path: Path, counts: Path, a: float) -> None:
        super().__init__(path)
        self.counts, self.a = counts, a
        self.facts: dict[str, str | int] = {"pooling": "sif", "fit": "target", "dim": self.dim}

    @cached_property
    def weights(self) -> Matrix:
        """Weight of each row of the table."""
        return sif_weights(self.table, json.loads(self.counts.read_text(encoding="utf-8")), self.a)

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Cosines, float32 (n,); the component is of both sides of all pairs. A zero vector gives 0."""
        check_pairs(first, second)
        if not first:
            return np.zeros(0, dtype=np.float32)
        self.share([*first, *second])
        vectors = np.zeros((2 * len(first), self.dim))
        fill_mean_vectors(self.table, [*first, *second], vectors, self.weights)
        self.note({})
        unit = normalise_rows(remove_common_component(vectors))
        cosines: FloatArray = np.einsum("ij,ij->i", unit[: len(first)], unit[len(first) :]).astype(np.float32)
        return cosines


def count_tokens(context: StageContext) -> dict[str, Any]:
    """Count the tokens of the training text: the stage of ``sif``, without randomness."""
    cpu = time.process_time()
    sentences = context.sentences[: int(context.config["steps"]) or None]
    counts = Counter(token for sentence in sentences for token in sentence.split())
    text = json.dumps(counts, ensure_ascii=False, sort_keys=True, indent=0)
    (context.out / _FILE).write_text(text, encoding="utf-8")
    if context.progress:
        context.progress(len(sentences))
    return stepless_facts(len(sentences), cpu) | {"tokens": counts.total()}


@add_method
class Vectors:
    """Word vectors trained by others: GloVe, word2vec, Komninos, fastText."""

    card = MethodCard(
        name="vectors",
        family="any-encoder",
        instead="no training; word vectors from a file, averaged, or weighted by rarity",
        cites=("arora-etal-2017-simple",),
        kind="external",
        summary="vectors:FILE[:avg|sif], word vectors as text (word2vec, GloVe; also .gz, .xz)",
        version=1,
        paper="sif: Arora, Liang, Ma 2017, A Simple but Tough-to-Beat Baseline for Sentence Embeddings",
        code="facebookresearch/SentEval examples/bow.py (avg); PrincetonML/SIF (sif)",
        equations=(
            "avg: (1 / |s|) sum_w v_w over the tokens that have a vector",
            "sif: v_s = (1 / |s|) sum_w a / (a + p(w)) v_w; then v_s - u u^T v_s, u the first singular "
            "vector of all v_s",
            "token: separated by white space; the first form in the file counts: as written, lower-cased, "
            "stripped of ASCII punctuation, that lower-cased; otherwise the token is left out",
            "only unknown tokens: the zero vector, with cosine 0",
        ),
        options=(
            Option("pooling", "avg", "the plain mean, or smooth inverse frequency", ("avg", "sif")),
            Option("a", 1e-3, "for sif: smoothing constant; larger is nearer to avg", minimum=1e-8),
        ),
        deviations=(
            "SentEval's example finds only exact tokens, and gives a sentence of unknown ones the vector of "
            "the full stop",
            "the first line of a repeated word counts; the record has the number of the others",
            "sentence-transformers' folders of word vectors have their own tokenizer and stop words: use "
            "st:PATH",
            "sif: p(w) is w's share of the tokens of the run's training text (--corpus FILE for another); "
            "paper: of a Wikipedia dump's words",
            "sif: u is of both sides of all pairs of a task with their repetitions (paper: all sentences of "
            "the data set); released: of each side of each file",
            "sif: |s| counts tokens with a vector; released: an unknown word has a vector too",
            "sif: exact singular vector in float64; released: randomised",
        ),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
        takes_file=True,
        short_option="pooling",
    )

    check_folder = staticmethod(check_shape)

    @staticmethod
    def scores_pairs(options: Mapping[str, OptionValue]) -> bool:
        """True for ``sif``."""
        return options["pooling"] == "sif"

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the count of the training text's tokens for ``sif``; a sentence counts as a step."""
        if options["pooling"] != "sif":
            return ()
        config: tuple[tuple[str, OptionValue], ...] = (("batch_size", 1), ("epochs", 1), ("steps", 0))
        return (StageSpec(_STAGE, "token_counts", self.card.version, config, count_tokens),)

    def build(self, context: BuildContext) -> Encoder | PairScorer:
        """Return an encoder (avg) or a scorer of pairs (sif)."""
        if context.model is None:
            raise BenchError("no file of word vectors was given")
        if context.options["pooling"] == "avg":
            return AverageEncoder(context.model)
        if _STAGE not in context.stages:
            raise BenchError(f"the stage '{_STAGE}' has not run")
        return SifScorer(context.model, context.stages[_STAGE] / _FILE, float(context.options["a"]))
