"""Kinds of mteb's tasks whose predictions are kept: how they are read, scored, drawn and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.eval.item_changes import class_changes, rank_changes, score_changes
from bench.eval.measure import ItemChange
from bench.eval.mteb_items import MtebItems
from bench.eval.mteb_tasks import MtebTask
from bench.eval.sts import spearman
from bench.records.integrity import TOLERANCE
from bench.stats.classification_statistics import average_precision, weighted_f1
from bench.stats.resampling import Statistic, mean_statistic, spearman_statistic

RANKED = ("Retrieval", "Reranking")  # mteb's types of tasks that rank documents for queries

Values = NDArray[np.floating]
Draws = NDArray[np.float64]
Counts = NDArray[np.int64]


class PredictionKind(ABC):
    """A kind of task whose predictions are kept; values are (rows, items), of runs (runs, rows, items)."""

    unit = "clusters of pairs that share a sentence or a translated row"  # see Measure.task_unit
    needs_gold = True
    slack = TOLERANCE  # tolerance of a score, since mteb rounds some

    @abstractmethod
    def read(self, predictions: Any, items: MtebItems) -> Values:
        """Return (rows, items) of mteb's predictions of a subset."""

    @abstractmethod
    def score(self, values: Values, gold: Values) -> float:
        """Return mteb's score."""

    @abstractmethod
    def statistic(self, runs: Values, gold: Values) -> Statistic:
        """Return the scores of (runs, rows, items) as a function of counts of the items."""

    @abstractmethod
    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        """Return the items that two runs treat most differently."""


class _Similarities(PredictionKind):
    """STS: Spearman of cosines."""

    def read(self, predictions: Any, items: MtebItems) -> Values:
        return np.array([predictions["cosine_scores"]])

    def score(self, values: Values, gold: Values) -> float:
        return spearman(values[0], gold)

    def statistic(self, runs: Values, gold: Values) -> Statistic:
        return spearman_statistic(runs[:, 0], gold)

    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        return rank_changes(items.texts, items.gold.tolist(), one[0], other[0], count)


class _Classes(PredictionKind):
    """Classification: accuracy, the mean over mteb's experiments."""

    unit = "clusters of tested texts, equal or translated"

    def read(self, predictions: Any, items: MtebItems) -> Values:
        return np.array([[*map(items.class_number, experiment)] for experiment in predictions])

    def score(self, values: Values, gold: Values) -> float:
        return float((values == gold).mean())

    def statistic(self, runs: Values, gold: Values) -> Statistic:
        return mean_statistic((runs == gold).mean(1))

    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        a, b, gold = (_majority_classes(items, values) for values in (one, other, items.gold[None]))
        return class_changes(items.texts, gold, a, b, count)


class _Counted(PredictionKind):
    """A score that weighs each item by its count in a draw."""

    @abstractmethod
    def weigh(self, values: Values, gold: Values, counts: Counts) -> Draws:
        """Return (draws,) scores of (rows, items) with (draws, items) counts."""

    def score(self, values: Values, gold: Values) -> float:
        return float(self.weigh(values, gold, np.ones((1, len(gold)), dtype=np.int64))[0])

    def statistic(self, runs: Values, gold: Values) -> Statistic:
        return lambda counts: np.stack([self.weigh(values, gold, counts) for values in runs], axis=1)


class _Distances(_Counted):
    """Pair classification: the best average precision of five similarities."""

    _ALIKE = ("similarity_scores", "cosine_scores", "dot_scores")
    _APART = ("manhattan_distances", "euclidean_distances")

    def read(self, predictions: Any, items: MtebItems) -> Values:
        similarities = np.array([predictions[name] for name in self._ALIKE])
        return np.concatenate([similarities, -np.array([predictions[name] for name in self._APART])])

    def weigh(self, values: Values, gold: Values, counts: Counts) -> Draws:
        best: Draws = np.max([average_precision(row, gold, counts) for row in values], axis=0)
        return best

    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        cosine = self._ALIKE.index("cosine_scores")
        return rank_changes(items.texts, items.gold.tolist(), one[cosine], other[cosine], count)


class _Neighbours(_Counted):
    """Bitext mining: weighted F1 of the nearest sentences."""

    def read(self, predictions: Any, items: MtebItems) -> Values:
        (neighbours,) = predictions.values()
        return np.array([[neighbour["corpus_id"] for neighbour in neighbours]])

    def weigh(self, values: Values, gold: Values, counts: Counts) -> Draws:
        return weighted_f1(values[0], gold, counts)

    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        a, b, gold = (np.char.mod("%g", row + 1).tolist() for row in (one[0], other[0], items.gold))
        return class_changes(items.texts, gold, a, b, count)


class _Queries(PredictionKind):
    """Retrieval and reranking: the mean over queries, which mteb rounds to five decimals."""

    unit = "queries, those of equal text together"
    needs_gold = False
    slack = 6e-6

    def __init__(self, score: str) -> None:
        self._score = score

    def read(self, predictions: Any, items: MtebItems) -> Values:
        name, _, rank = self._score.rpartition("_at_")
        measures = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
        return np.array([[predictions[query][f"{measures[name]}_{rank}"] for query in items.ids]])

    def score(self, values: Values, gold: Values) -> float:
        return float(values[0].mean(dtype=np.float64))

    def statistic(self, runs: Values, gold: Values) -> Statistic:
        return mean_statistic(runs[:, 0])

    def find_changes(self, items: MtebItems, one: Values, other: Values, count: int) -> list[ItemChange]:
        return score_changes(items.texts, one[0], other[0], count)


_KINDS: dict[tuple[str, str], PredictionKind] = {
    ("STS", "cosine_spearman"): _Similarities(),
    ("Classification", "accuracy"): _Classes(),
    ("PairClassification", "max_ap"): _Distances(),
    ("BitextMining", "f1"): _Neighbours(),
}


def kind_of(task: MtebTask) -> PredictionKind | None:
    """Return the kind of a task's kept predictions, if they are kept."""
    if task.kind in RANKED:
        return _Queries(task.score)
    return _KINDS.get((task.kind, task.score))


def _majority_classes(items: MtebItems, values: Values) -> list[str]:
    """Name the class that most experiments predict, the smallest number at ties."""
    names = []
    for column in values.T:
        numbers, counts = np.unique(column, return_counts=True)
        names.append(items.class_name(float(numbers[counts.argmax()])))
    return names
