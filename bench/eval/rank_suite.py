"""EvalRank (Wang, Kuo and Li 2022): does a sentence find its partner among all others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.data.data_source import DataSource
from bench.data.rank_task import RankTask
from bench.data.sentence_clusters import Texts
from bench.data.suites import load_rank
from bench.data.tasks import suite_average
from bench.encoder import FloatArray, PairScorer
from bench.errors import BenchError
from bench.eval.embeddings import Embeddings, embed_sentences, report_words
from bench.eval.measure import AnyEncoder, ItemChange, Measure, MeasureContext, Predictions, SuiteResult
from bench.records.record import ALL, RunRecord, Score

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.stats.resampling import Statistic

HITS = (1, 3)
_TIE = 1e-6
_EQUAL = 1e-6  # share of their length by which equal vectors may differ, as float32 rounds
_BLOCK = 256
Vectors = NDArray[np.float64]


class RankSuite(Measure[RankTask]):
    """Mean reciprocal rank and hits of each positive pair's partner, by cosine and by Euclidean distance."""

    counted, metric, needs_torch, needs_vectors = "items", "mrr", False, True
    unit = "clusters of pairs that share a sentence, each pair with both queries"
    change_columns = "Queries whose partner's rank by cosine changed most, by the reciprocal rank."

    def load(self, source: DataSource) -> list[RankTask]:
        """Make the task."""
        return load_rank(self.name, source)

    def is_reference(self, task: RankTask) -> bool:
        """True if the pairs have the committed fingerprints, or come with the program."""
        return task.reference

    def sentences(self, tasks: Sequence[RankTask]) -> Iterator[str]:
        """Yield the background, which includes all pairs."""
        return (sentence for task in tasks for sentence in task.background)

    def measure(self, encoder: AnyEncoder, tasks: Sequence[RankTask], setting: MeasureContext) -> SuiteResult:
        """Encode the background once and rank it for every query; predictions are ranks, by cosine first."""
        if isinstance(encoder, PairScorer):
            raise BenchError("this method compares pairs and has no vectors to rank by")
        embeddings = embed_sentences(encoder, self.sentences(tasks), progress=setting.progress)
        report_words(encoder, embeddings.rows)
        predictions: dict[str, FloatArray] = {}
        for task in tasks:
            predictions[task.id] = np.concatenate(task_ranks(task, embeddings)).astype(np.float32)
        return SuiteResult(_rank_scores(tasks, predictions), predictions)

    def rescore(
        self, tasks: Sequence[RankTask], predictions: Predictions, record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the ranks again."""
        return _rank_scores(tasks, predictions)

    def item_texts(self, task: RankTask, record: RunRecord) -> list[Texts | int]:
        """Return both sentences of every pair: a pair's two queries are one item here."""
        return [task.pairs]

    def item_statistics(self, task: RankTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Mean reciprocal rank by cosine in draws of pairs, both directions of a pair together."""
        from bench.stats.resampling import mean_statistic

        reciprocal = np.stack([1 / _split_ranks(task, row)[0] for row in rows])
        return [mean_statistic(reciprocal.reshape(len(rows), -1, 2).mean(2))]

    def find_changes(
        self, task: RankTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the queries whose reciprocal rank changed most."""
        a, b = (_split_ranks(task, side)[0] for side in (one, other))
        change = 1 / b - 1 / a
        return [
            ItemChange(row + 1, f"{change[row]:+.3f}", f"{a[row]:g}", f"{b[row]:g}", "1", task.queries[row])
            for row in np.argsort(-np.abs(change), kind="stable")[:count].tolist()
            if change[row]
        ]


def task_ranks(task: RankTask, embeddings: Embeddings) -> tuple[Vectors, Vectors]:
    """Rank every query's partner in the background, by cosine and by Euclidean distance: (queries,) each.

    The cosine is that of vectors less the background's mean, "centralization" in the released code. The
    distance is of the vectors as they are, scaled up together if the longest is shorter than 1. Equal vectors
    raise BenchError: everything ties, and each partner would have rank 1.
    """
    rows = {sentence: row for row, sentence in enumerate(task.background)}
    vectors = embeddings.select(task.background).astype(np.float64)
    queries = np.array([[rows[query], rows[partner]] for query, partner in task.queries])
    centred = vectors - vectors.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    size = np.linalg.norm(vectors, axis=1).max()
    if lengths.max() <= _EQUAL * size:
        raise BenchError("all vectors are equal, so no rank is defined (a collapsed encoder?)")
    centred /= np.maximum(lengths, 1e-8 * min(size, 1))
    # the tolerance of ties is small for a length of 1, and as large as whole vectors that are shorter
    return partner_ranks(centred, queries), partner_ranks(vectors / min(size, 1), queries, distance=True)


def partner_ranks(vectors: Vectors, queries: NDArray[np.intp], *, distance: bool = False) -> Vectors:
    """Return the rank of each query's partner among all (sentences, dim) vectors: float64 (queries,).

    Queries are (queries, 2) rows of a query and its partner. The rank is the number of vectors that are more
    similar to the query than its partner, the query included, and at least 1: a partner that only the query
    beats has rank 1. Similarities that differ by less than 1e-6 are equal, in the partner's favour.
    """
    squares = np.einsum("ij,ij->i", vectors, vectors)
    ranks = np.empty(len(queries))
    for start in range(0, len(queries), _BLOCK):
        rows, partners = queries[start : start + _BLOCK].T
        similar = vectors[rows] @ vectors.T
        if distance:
            similar = -np.sqrt(np.maximum(squares[rows][:, None] + squares - 2 * similar, 0))
        partner_similarity = similar[np.arange(len(rows)), partners]
        ranks[start : start + _BLOCK] = (similar > partner_similarity[:, None] + _TIE).sum(1)
    return np.maximum(ranks, 1)


def _split_ranks(task: RankTask, predictions: FloatArray) -> tuple[Vectors, Vectors]:
    """Return ranks by cosine and by distance; raises BenchError for a wrong number, or an impossible rank."""
    if predictions.shape != (2 * task.items,):
        what = f"{len(predictions)} ranks for {task.items} queries"
        raise BenchError(what, where=task.id, expected="two a query")
    ranks = predictions.astype(np.float64)
    if not ((ranks >= 1) & (ranks <= len(task.background)) & (ranks == np.floor(ranks))).all():
        raise BenchError("a prediction is not a rank", where=task.id)
    return ranks[: task.items], ranks[task.items :]


def _rank_scores(tasks: Sequence[RankTask], predictions: Mapping[str, FloatArray]) -> tuple[Score, ...]:
    """Return MRR and hits of each task by cosine ("all") and by distance ("l2"), and the average."""
    scores = []
    for task in tasks:
        for subset, ranks in zip((ALL, "l2"), _split_ranks(task, predictions[task.id]), strict=True):
            figures = {"mrr": float(np.mean(1 / ranks))}
            figures |= {f"hits@{k}": float(np.mean(ranks <= k)) for k in HITS}
            scores += [Score(task.id, subset, metric, value, task.items) for metric, value in figures.items()]
    average = suite_average(s.value for s in scores if (s.subset, s.metric) == (ALL, "mrr"))
    return (*scores, Score("avg", ALL, "mrr", average, len(tasks)))
