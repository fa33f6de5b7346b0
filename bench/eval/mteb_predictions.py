"""Predictions of mteb's tasks in records: enough to compute a task's score again, and to draw its items.

A record keeps the predictions that reproduce mteb's own score. Tasks with a score of
whole sets, such as clustering, lack them.

| task | kept of each item |
|---|---|
| STS | the cosine |
| classification | the predicted class, of each of mteb's experiments |
| pair classification | all five similarities |
| bitext mining | the position of the nearest sentence |
| retrieval, reranking | mteb's score of the query |
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from bench.data.sentence_clusters import Texts, mark_source
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.measure import ItemChange
from bench.eval.mteb_items import MtebItems, local_items, mteb_items
from bench.eval.mteb_kinds import PredictionKind, kind_of
from bench.eval.mteb_scores import MtebEntry, metric_name, suite_scores
from bench.eval.mteb_setup import preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task
from bench.records.record import ALL, AVERAGE, RunRecord, Score
from bench.schema import is_count, is_text
from bench.stats.resampling import Statistic

Part = tuple[str, str, int]  # split, subset and number of items
PARALLEL = frozenset({
    "STSBenchmarkMultilingualSTS",
    "STS17",  # en-en and its four pairings with translations; other tracks have other gold
    "MassiveIntentClassification", "MassiveScenarioClassification", "SIB200Classification", "NusaX-senti",
    "IndicSentimentClassification", "XNLI", "XNLIV2", "IndicXnliPairClassification",
    "PawsXPairClassification",
    "FloresBitextMining", "NTREXBitextMining", "IN22GenBitextMining", "IN22ConvBitextMining",
})  # fmt: skip
"""mteb's tasks of several languages whose rows are translations, by the descriptions of their data.

Subsets count as parallel only if their gold is the same in every row.
"""


def keep_predictions(
    kind: PredictionKind, predictions: Any, items: MtebItems, score: float
) -> FloatArray | None:
    """Return float32 (rows, items) of mteb's predictions of a subset, if they give mteb's score."""
    try:
        values = kind.read(predictions, items).astype(np.float32)
        fits = values.shape[1:] == (len(items.texts),) and bool(np.isfinite(values).all())
        return values if fits and abs(kind.score(values, items.gold) - score) <= kind.slack else None
    except (BenchError, KeyError, TypeError, ValueError):  # mteb evaluates this task by an own rule
        return None


def load_mteb_items(task: MtebTask) -> dict[tuple[str, str], MtebItems]:
    """Return the items of a task by split and subset; raises BenchError if mteb's data are missing."""
    items = _find_items(task)
    if isinstance(items, str):
        what = f"the data of {task.id} are missing: {items}"
        raise BenchError(what, hint="with HF_HUB_OFFLINE=0 mteb fetches them")
    return items


@lru_cache(maxsize=64)
def _find_items(task: MtebTask) -> dict[tuple[str, str], MtebItems] | str:
    """Return the items of a task by split and subset, or the reason why they are missing."""
    if task.local is not None:
        return {(task.local.split, "default"): local_items(task.local)}
    try:
        with preserve_random_state(), silence_mteb():
            built: Any = build_mteb_task(task)
            built.load_data()
            if hasattr(built, "convert_v1_dataset_format_to_v2"):
                built.convert_v1_dataset_format_to_v2(num_proc=None)
            parts = [(split, subset) for split in task.splits for subset in built.hf_subsets]
            return {part: mteb_items(built, *part) for part in parts}
    except Exception as error:  # of the hub, mteb or the data
        return " ".join(str(error).split()) or type(error).__name__


def prediction_parts(task: MtebTask, record: RunRecord) -> list[Part]:
    """Return the parts of a task's predictions in their order; raises BenchError if the record lacks them."""
    parts: Any = record.provenance.get("mteb")
    for name in ("tasks", task.id, "kept"):
        parts = parts.get(name) if isinstance(parts, dict) else None
    if not isinstance(parts, list) or not parts or not all(map(_is_part, parts)):
        raise BenchError(f"the record lacks the parts of the predictions of {task.id}")
    return [(split, subset, number) for split, subset, number in parts]


def _check_no_parts(task: MtebTask, record: RunRecord) -> None:
    """Raise BenchError for a task without predictions that says, or is known, to have some."""
    try:
        parts = prediction_parts(task, record)
    except BenchError:
        if task.local is None:  # mteb's own may have a layout of which none are kept
            return
        parts = []
    kept = f"the record says that those of {sum(n for *_, n in parts)} items are kept" if parts else ""
    why = kept or "those of a task from a file are always kept"
    raise BenchError(f"{task.id} has no predictions, and {why}", where=record.suite)


def _is_part(part: Any) -> bool:
    if not isinstance(part, list) or len(part) != 3 or not all(map(is_text, part[:2])):
        return False
    return bool(is_count(part[2]) and part[2] > 0)


def split_values(values: FloatArray, parts: Sequence[Part], where: str) -> list[FloatArray]:
    """Split (..., predictions) into (..., rows, items) of each part; raises BenchError for another length."""
    sizes = [number for _, _, number in parts]
    length, items = values.shape[-1], sum(sizes)
    if not items or length % items:
        raise BenchError(f"{length} predictions for {items} items", where=where)
    rows = length // items
    pieces = np.split(values, np.cumsum(sizes)[:-1] * rows, axis=-1)
    return [piece.reshape(*values.shape[:-1], rows, size) for piece, size in zip(pieces, sizes, strict=True)]


def rescore_tasks(
    tasks: Sequence[MtebTask], predictions: Mapping[str, FloatArray], record: RunRecord
) -> tuple[Score, ...]:
    """Score a record's predictions again; averages take the recorded scores of the other tasks."""
    rescored: dict[str, list[MtebEntry]] = {}
    slack: dict[str, float] = {}
    for task in tasks:
        kind, entries = kind_of(task), _rescore_task(task, predictions[task.id], record)
        if kind and entries:
            rescored[task.id], slack[task.id] = entries, kind.slack
    if not rescored:
        return ()
    entries_of = {task.id: rescored.get(task.id) or [_recorded_entry(task, record)] for task in tasks}
    slack |= dict.fromkeys((AVERAGE, *(task.kind for task in tasks)), max(slack.values()))
    recorded = {(s.task, s.subset, s.metric): s.value for s in record.scores}
    scores = []
    for score in suite_scores(tasks, entries_of):
        if score.task in slack:
            value = recorded.get((score.task, score.subset, score.metric), np.inf)
            near = abs(value - score.value) <= slack[score.task]
            scores.append(replace(score, value=value) if near else score)
    return tuple(scores)


def _rescore_task(task: MtebTask, values: FloatArray, record: RunRecord) -> list[MtebEntry]:
    """Score a task's predictions again, if they and the gold are available."""
    kind = kind_of(task)
    if kind is None:
        return []
    if not len(values):
        _check_no_parts(task, record)
        return []
    parts = prediction_parts(task, record)
    items = _find_items(task) if kind.needs_gold else {}
    if isinstance(items, str):
        return []
    entries = []
    for (split, subset, number), part in zip(parts, split_values(values, parts, task.id), strict=True):
        gold = items[split, subset].gold if (split, subset) in items else np.empty(0)
        if kind.needs_gold and len(gold) != number:
            raise BenchError(f"predictions of {number} items for {len(gold)} of {subset}", where=task.id)
        entries.append(MtebEntry(split, subset, {task.score: kind.score(part, gold)}, number))
    return entries


def _recorded_entry(task: MtebTask, record: RunRecord) -> MtebEntry:
    """Return the record's score of a task as mteb's only subset."""
    name = task.id, ALL, metric_name(task.score)
    for score in record.scores:
        if (score.task, score.subset, score.metric) == name:
            return MtebEntry("", "", {task.score: score.value}, score.n)
    raise BenchError(f"no score of {task.id}", where=record.suite)


def part_statistics(task: MtebTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
    """Return the scores of each subset of each split as a function of counts of its items."""
    kind = kind_of(task)
    if kind is None or not rows.shape[1]:
        raise BenchError(f"no predictions of {task.id} are kept", where=record.suite)
    parts = prediction_parts(task, record)
    items = load_mteb_items(task) if kind.needs_gold else {}
    statistics = []
    for (split, subset, _), values in zip(parts, split_values(rows, parts, task.id), strict=True):
        gold = items[split, subset].gold if items else np.empty(0)
        statistics.append(kind.statistic(values, gold))
    return statistics


def part_texts(task: MtebTask, record: RunRecord) -> list[Texts | int]:
    """Return the texts of every item of each subset of each split, or their number if data are missing.

    Of queries from mteb's data also their number: nothing else loads those again. Items that are translations
    of one another have a mark of their row too, see :func:`parallel_name`.
    """
    kind = kind_of(task)
    is_read = task.local is not None or (kind is not None and kind.needs_gold)
    items = _find_items(task) if is_read else ""
    if isinstance(items, str):
        return [number for _, _, number in prediction_parts(task, record)]
    texts: list[Texts | int] = []
    for split, subset, number in prediction_parts(task, record):
        part = items.get((split, subset))
        if part is None or len(part.texts) != number:
            raise BenchError("the predictions are of other items than the data", where=task.id)
        name = parallel_name(task, split, part)
        if name:
            texts.append([(*text, mark_source(name, row)) for row, text in enumerate(part.texts)])
        else:
            texts.append(part.texts)
    return texts


def parallel_name(task: MtebTask, split: str, items: MtebItems) -> str:
    """Return the name that parts share whose items of one row are translations of one another, "" for others.

    Local tasks state it. Of mteb's it is the gold in :data:`PARALLEL`, which must agree in every row.
    """
    if task.local is not None:
        return task.local.parallel
    if task.asked.name not in PARALLEL:
        return ""
    return f"{task.asked.name} {split} {hashlib.sha256(items.gold.tobytes()).hexdigest()}"


def find_item_changes(
    task: MtebTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
) -> list[ItemChange]:
    """Return the items of a task that two runs treat most differently, of all its subsets together."""
    kind = kind_of(task)
    if kind is None or not len(one) or len(one) != len(other):
        raise BenchError(f"no predictions of {task.id} are kept", where=record.suite)
    parts, known = prediction_parts(task, record), load_mteb_items(task)
    items = [known.get((split, subset)) or MtebItems((), np.empty(0)) for split, subset, _ in parts]
    if [len(part.texts) for part in items] != [number for _, _, number in parts]:
        raise BenchError("the predictions are of other items than the data", where=task.id)
    texts = tuple(text for part in items for text in part.texts)
    joined = MtebItems(texts, np.concatenate([part.gold for part in items]), items[0].names)
    a, b = (np.concatenate(split_values(side, parts, task.id), axis=1) for side in (one, other))
    return kind.find_changes(joined, a, b, count)
