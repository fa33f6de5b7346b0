"""From mteb's scores to those of a record."""

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
from bench.records.record import ALL, Score

MAIN = "main_score"  # metric of a suite whose tasks have different ones
MOST_PARTS = 200  # parts of a task that a record lists; mteb's own file has all
_NAMES = {
    "cosine_spearman": "spearman", "max_ap": "ap", "map_at_1000": "map",
    "max_over_subqueries_map_at_1000": "map",
}  # fmt: skip
RETRIEVAL = tuple(
    f"{metric}_at_{k}" for metric in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10)
)
Entries = Mapping[str, Sequence["MtebEntry"]]


@dataclass(frozen=True)
class MtebEntry:
    """mteb's scores of one subset of one split."""

    split: str
    subset: str  # mteb's name of the subset
    scores: dict[str, float]  # by mteb's names
    items: int  # pairs, queries or sentences behind them, 0 if unknown
    kept: FloatArray | None = None  # float32 (rows, items) predictions; None unless they give the score
    coverage: str = ""  # word vectors' coverage of the whole task's text; "" of other encoders


def entry_as_json(entry: MtebEntry) -> dict[str, Any]:
    """Return an entry for JSON, its predictions packed."""
    kept = None
    if entry.kept is not None:
        kept = [len(entry.kept), base64.b64encode(entry.kept.astype("<f4").tobytes()).decode()]
    return {**asdict(replace(entry, kept=None)), "kept": kept}


def entry_from_json(data: Mapping[str, Any]) -> MtebEntry:
    """Read an entry from :func:`entry_as_json`; raises ValueError, TypeError or KeyError if it is damaged."""
    kept = None
    if data["kept"] is not None:
        rows, packed = data["kept"]
        kept = np.frombuffer(base64.b64decode(packed, validate=True), dtype="<f4").astype(np.float32)
        kept = kept.reshape(rows, data["items"])
        if not kept.size or not np.isfinite(kept).all():
            raise ValueError("no predictions")
    return MtebEntry(**{**data, "kept": kept})


def metric_name(score: str) -> str:
    """Return the name in published tables of one of mteb's scores.

    >>> metric_name("cosine_spearman"), metric_name("map_at_10")
    ('spearman', 'map@10')
    """
    return _NAMES.get(score, score.replace("_at_", "@"))


def shared_metric(tasks: Sequence[MtebTask]) -> str:
    """Return the metric of the suite's average: the one that all tasks share, otherwise "main_score"."""
    metrics = {metric_name(task.score) for task in tasks}
    return metrics.pop() if len(metrics) == 1 else MAIN


def suite_scores(tasks: Sequence[MtebTask], entries: Entries) -> tuple[Score, ...]:
    """Return every task's scores and the suite's average; raises BenchError for NaN or infinite ones.

    A task's value is the mean over its splits and subsets, as mteb's. Every task also has it under the
    average's metric. Retrieval tasks have MAP, MRR, NDCG, precision and recall at 1, 5 and 10. In a suite of
    several kinds of tasks each kind has its mean.
    """
    shared = shared_metric(tasks)
    values = {task.id: _mean_score(task.id, entries[task.id], task.score) for task in tasks}
    scores: list[Score] = []
    for task in tasks:
        parts, main = entries[task.id], metric_name(task.score)
        items = sum(entry.items for entry in parts)
        for metric in dict.fromkeys((shared, main)):
            scores.append(Score(task.id, ALL, metric, values[task.id], items))
        for name in RETRIEVAL if task.kind == "Retrieval" else ():
            if name != task.score and all(name in entry.scores for entry in parts):
                value = _mean_score(task.id, parts, name)
                scores.append(Score(task.id, ALL, metric_name(name), value, items))
        several = len({entry.split for entry in parts}) > 1
        for entry in parts if 1 < len(parts) <= MOST_PARTS else ():
            subset = f"{entry.split}/{entry.subset}" if several else entry.subset
            scores.append(Score(task.id, subset, main, entry.scores[task.score], entry.items))
    kinds = dict.fromkeys(task.kind for task in tasks)
    for kind in kinds if len(kinds) > 1 else ():
        of_kind = [values[task.id] for task in tasks if task.kind == kind]
        scores.append(Score(kind, "mean", shared, suite_average(of_kind), len(of_kind)))
    scores.append(Score("avg", ALL, shared, suite_average(values.values()), len(tasks)))
    return (*scores, *_rank_averages(scores, len(tasks), shared))


def _mean_score(task_id: str, entries: Sequence[MtebEntry], score: str) -> float:
    values = [entry.scores.get(score, math.nan) for entry in entries]
    bad = [entry.subset for entry, value in zip(entries, values, strict=True) if not math.isfinite(value)]
    if bad or not values:
        what = f"mteb gives no finite {score} of {', '.join(bad[:5]) or 'any subset'}"
        raise BenchError(what, where=task_id)
    return suite_average(values)


def _rank_averages(scores: Sequence[Score], tasks: int, shared: str) -> list[Score]:
    """Average the retrieval metrics that every task has."""
    averages = []
    for name in map(metric_name, RETRIEVAL):
        values = [s.value for s in scores if (s.subset, s.metric) == (ALL, name) and s.task != "avg"]
        if len(values) == tasks and name != shared:
            averages.append(Score("avg", ALL, name, suite_average(values), tasks))
    return averages
