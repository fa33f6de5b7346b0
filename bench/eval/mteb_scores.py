"""From what mteb measured to the scores of a record."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bench.data.tasks import suite_average
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.mteb_tasks import MtebTask
from bench.records.record import ALL, AVERAGE, Score

MAIN = "main_score"
"""Metric of a suite whose tasks have different ones."""
MOST_PARTS = 200
"""Parts of a task that a record lists; mteb's own file has all."""
_NAMES = {
    "cosine_spearman": "spearman",
    "max_ap": "ap",
    "map_at_1000": "map",
    "max_over_subqueries_map_at_1000": "map",
}
_RETRIEVAL = tuple(
    f"{metric}_at_{k}" for metric in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10)
)


@dataclass(frozen=True)
class MtebEntry:
    """What mteb measured on one subset of one split.

    Args:
        split: The split.
        subset: mteb's name of the subset.
        scores: By mteb's names.
        items: Pairs, queries or sentences behind them, 0 where mteb doesn't tell.
        kept: Predictions of all items, float32 in rows of so many; None where they don't give the score.
        coverage: What word vectors know of the whole task's text; "" of other encoders.
    """

    split: str
    subset: str
    scores: dict[str, float]
    items: int
    kept: FloatArray | None = None
    coverage: str = ""


def entry_as_json(entry: MtebEntry) -> dict[str, Any]:
    """Return what JSON holds of an entry, its predictions packed."""
    kept = None
    if entry.kept is not None:
        kept = [len(entry.kept), base64.b64encode(entry.kept.astype("<f4").tobytes()).decode()]
    return {**asdict(replace(entry, kept=None)), "kept": kept}


def entry_from_json(said: Mapping[str, Any]) -> MtebEntry:
    """Return the entry of what :func:`entry_as_json` made.

    Raises:
        ValueError, TypeError, KeyError: it is something else.
    """
    kept = None
    if said["kept"] is not None:
        rows, packed = said["kept"]
        kept = np.frombuffer(base64.b64decode(packed, validate=True), dtype="<f4").astype(np.float32)
        kept = kept.reshape(rows, said["items"])
        if not kept.size or not np.isfinite(kept).all():
            raise ValueError("no predictions")
    return MtebEntry(**{**said, "kept": kept})


def metric_name(score: str) -> str:
    """Return what published tables call one of mteb's scores.

    >>> metric_name("cosine_spearman"), metric_name("map_at_10")
    ('spearman', 'map@10')
    """
    return _NAMES.get(score, score.replace("_at_", "@"))


def shared_metric(tasks: Sequence[MtebTask]) -> str:
    """Return the metric of the suite's average: the one that all tasks share, else "main_score"."""
    metrics = {metric_name(task.score) for task in tasks}
    return metrics.pop() if len(metrics) == 1 else MAIN


def suite_scores(tasks: Sequence[MtebTask], found: Mapping[str, Sequence[MtebEntry]]) -> tuple[Score, ...]:
    """Return every task's scores and the suite's average.

    A task's value is the mean over its splits and subsets, as mteb's. The average's metric is the one that
    all tasks share, else "main_score", which every task then has too. Retrieval tasks have MAP, MRR, NDCG,
    precision and recall at 1, 5 and 10. Where there are several kinds of task, each has its mean.

    Args:
        tasks: The suite's tasks.
        found: What was measured, by the tasks' ids.

    Raises:
        BenchError: a score that isn't finite.
    """
    metrics = {task.id: metric_name(task.score) for task in tasks}
    shared = shared_metric(tasks)
    values = {task.id: _mean_score(task.id, found[task.id], task.score) for task in tasks}
    scores: list[Score] = []
    for task in tasks:
        items = sum(entry.items for entry in found[task.id])
        for metric in dict.fromkeys((shared, metrics[task.id])):
            scores.append(Score(task.id, ALL, metric, values[task.id], items))
        scores += _rank_scores(task, found[task.id], items)
        scores += _subset_scores(task, found[task.id])
    kinds = dict.fromkeys(task.kind for task in tasks)
    for kind in kinds if len(kinds) > 1 else ():
        of_kind = [values[task.id] for task in tasks if task.kind == kind]
        scores.append(Score(kind, "mean", shared, suite_average(of_kind), len(of_kind)))
    scores.append(Score("avg", ALL, shared, suite_average(values.values()), len(tasks)))
    return (*scores, *_rank_averages(scores, len(tasks), shared))


def own_score_names(tasks: Sequence[MtebTask], scores: Sequence[Score]) -> set[tuple[str, str, str]]:
    """Return task, subset and metric of what :func:`suite_scores` gives, but for other ranks' scores.

    Args:
        tasks: The suite's tasks.
        scores: Of a record; a subset of a task may have any name.
    """
    metrics, shared = {task.id: metric_name(task.score) for task in tasks}, shared_metric(tasks)
    parts = {(s.task, s.subset, s.metric) for s in scores if s.subset != ALL and s.task in metrics}
    kinds = {task.kind for task in tasks}
    return {
        *((task, ALL, metric) for task in metrics for metric in (shared, metrics[task])),
        *(name for name in parts if name[2] == metrics[name[0]]),
        *((kind, "mean", shared) for kind in kinds if len(kinds) > 1),
        (AVERAGE, ALL, shared),
    }


def rank_score_names(tasks: Sequence[MtebTask]) -> set[tuple[str, str, str]]:
    """Return task, subset and metric of what retrieval has at other ranks, and of its averages."""
    ranked = [task.id for task in tasks if task.kind == "Retrieval"]
    rows = (*ranked, AVERAGE) if len(ranked) == len(tasks) else ranked
    return {(row, ALL, metric_name(name)) for row in rows for name in _RETRIEVAL}


def _mean_score(task_id: str, entries: Sequence[MtebEntry], score: str) -> float:
    values = [entry.scores.get(score, math.nan) for entry in entries]
    bad = [entry.subset for entry, value in zip(entries, values, strict=True) if not math.isfinite(value)]
    if bad or not values:
        raise BenchError(
            f"mteb gives no finite {score} of {', '.join(bad[:5]) or 'any subset'}",
            where=task_id,
        )
    return suite_average(values)


def _rank_scores(task: MtebTask, entries: Sequence[MtebEntry], items: int) -> list[Score]:
    if task.kind != "Retrieval":
        return []
    there = [
        name for name in _RETRIEVAL if name != task.score and all(name in entry.scores for entry in entries)
    ]
    return [
        Score(task.id, ALL, metric_name(name), _mean_score(task.id, entries, name), items) for name in there
    ]


def _subset_scores(task: MtebTask, entries: Sequence[MtebEntry]) -> list[Score]:
    if not 1 < len(entries) <= MOST_PARTS:
        return []
    several = len({entry.split for entry in entries}) > 1
    return [
        Score(
            task.id,
            f"{entry.split}/{entry.subset}" if several else entry.subset,
            metric_name(task.score),
            entry.scores[task.score],
            entry.items,
        )
        for entry in entries
    ]


def _rank_averages(scores: Sequence[Score], tasks: int, shared: str) -> list[Score]:
    """Averages of the retrieval metrics that every task has."""
    averages = []
    for name in map(metric_name, _RETRIEVAL):
        values = [s.value for s in scores if (s.subset, s.metric) == (ALL, name) and s.task != "avg"]
        if len(values) == tasks and name != shared:
            averages.append(Score("avg", ALL, name, suite_average(values), tasks))
    return averages
