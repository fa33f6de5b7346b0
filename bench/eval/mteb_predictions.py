"""What a record keeps of mteb's predictions: enough to compute a task's score again, and to draw its items.

Kept is only what gave mteb's own score when it was kept. A task whose score isn't one of single items, such
as clustering, has nothing.

| task | kept of each item |
|---|---|
| STS | the cosine |
| classification | the predicted class, of each of mteb's experiments |
| pair classification | all five similarities |
| bitext mining | the position of the sentence that was found |
| retrieval, reranking | the query's score, from mteb: gold and ranking aren't kept |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.item_changes import ItemChange
from bench.eval.mteb_items import MtebItems, local_items, mteb_items
from bench.eval.mteb_kinds import PredictionKind, kind_of
from bench.eval.mteb_scores import MtebEntry, metric_name, suite_scores
from bench.eval.mteb_setup import preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task
from bench.records.record import ALL, AVERAGE, RunRecord, Score
from bench.schema import is_count as whole_number
from bench.schema import is_text


def keep_predictions(kind: PredictionKind, said: Any, items: MtebItems, score: float) -> FloatArray | None:
    """Return float32 (rows, items) of what mteb says of a subset; None where that doesn't give its score.

    Args:
        kind: The task's kind.
        said: mteb's predictions; of retrieval the scores of each query.
        items: The subset's items.
        score: mteb's score of them.
    """
    try:
        exact = kind.read(said, items)
        values = exact.astype(np.float32)
        fits = values.shape[1:] == (len(items.texts),) and bool(np.isfinite(values).all())
        return values if fits and abs(kind.score(values, items.gold) - score) <= kind.slack else None
    except (BenchError, KeyError, TypeError, ValueError):  # a task that mteb evaluates in a way of its own
        return None


def load_mteb_items(task: MtebTask) -> dict[tuple[str, str], MtebItems]:
    """Return the items of a task by split and subset, from its files or from mteb's data.

    Raises:
        BenchError: mteb's data aren't at hand.
    """
    found = _find_items(task)
    if isinstance(found, str):
        raise BenchError(
            f"the data of {task.id} aren't at hand: {found}", hint="with HF_HUB_OFFLINE=0 mteb fetches them"
        )
    return found


@lru_cache(maxsize=64)
def _find_items(task: MtebTask) -> dict[tuple[str, str], MtebItems] | str:
    """The items of a task, or in words why there are none."""
    if task.local is not None:
        return {(task.local.split, "default"): local_items(task.local)}
    try:
        with preserve_random_state(), silence_mteb():
            made: Any = build_mteb_task(task)
            made.load_data()
            if hasattr(made, "convert_v1_dataset_format_to_v2"):
                made.convert_v1_dataset_format_to_v2(num_proc=None)
            return {
                (split, subset): mteb_items(made, split, subset)
                for split in task.splits
                for subset in made.hf_subsets
            }
    except Exception as error:  # the hub's, mteb's or the data's
        return " ".join(str(error).split()) or type(error).__name__


def prediction_parts(task: MtebTask, record: RunRecord) -> list[tuple[str, str, int]]:
    """Return what a task's kept predictions are of: split, subset and number of items, in their order.

    Raises:
        BenchError: the record doesn't say it.
    """
    said: Any = record.provenance.get("mteb")
    for name in ("tasks", task.id, "kept"):
        said = said.get(name) if isinstance(said, dict) else None
    if not isinstance(said, list) or not said or not all(map(_is_part, said)):
        raise BenchError(f"the record doesn't say what the predictions of {task.id} are of")
    return [(split, subset, number) for split, subset, number in said]


def _is_part(said: Any) -> bool:
    if not isinstance(said, list) or len(said) != 3:
        return False
    split, subset, number = said
    return bool(is_text(split) and is_text(subset) and whole_number(number) and number > 0)


def split_values(values: FloatArray, parts: Sequence[tuple[str, str, int]], where: str) -> list[FloatArray]:
    """Split (..., predictions) into (..., rows, items) of each part.

    Raises:
        BenchError: lengths that don't fit.
    """
    length, items = values.shape[-1], sum(number for _, _, number in parts)
    if not items or length % items:
        raise BenchError(f"{length} predictions for {items} items", where=where)
    rows = length // items
    ends = np.cumsum([rows * number for _, _, number in parts])[:-1]
    pieces = np.split(values, ends, axis=-1)
    return [
        piece.reshape(*values.shape[:-1], rows, number)
        for piece, (_, _, number) in zip(pieces, parts, strict=True)
    ]


def rescore_tasks(
    tasks: Sequence[MtebTask], predictions: Mapping[str, FloatArray], record: RunRecord
) -> tuple[Score, ...]:
    """Return the scores of a record that its predictions and the data at hand give.

    Averages are made of these and, where a task can't be scored again, of what the record says of it.

    Raises:
        BenchError: predictions that don't fit the data.
    """
    again = {
        task.id: entries for task in tasks if (entries := _rescore_task(task, predictions[task.id], record))
    }
    if not again:
        return ()
    found = {task.id: again.get(task.id) or [_recorded_entry(task, record)] for task in tasks}
    slack = {task.id: kind.slack for task in tasks if task.id in again and (kind := kind_of(task))}
    slack |= dict.fromkeys((AVERAGE, *(task.kind for task in tasks)), max(slack.values()))
    said = {(s.task, s.subset, s.metric): s.value for s in record.scores}
    scores = []
    for score in suite_scores(tasks, found):
        if score.task in slack:
            value = said.get((score.task, score.subset, score.metric), np.inf)
            near = abs(value - score.value) <= slack[score.task]
            scores.append(replace(score, value=value) if near else score)
    return tuple(scores)


def _rescore_task(task: MtebTask, values: FloatArray, record: RunRecord) -> list[MtebEntry] | None:
    """What a task's kept predictions give; None where nothing is kept, or the gold isn't at hand."""
    kind = kind_of(task)
    if kind is None or not len(values):
        return None
    parts = prediction_parts(task, record)
    known = _find_items(task) if kind.needs_gold else {}
    if isinstance(known, str):
        return None
    entries = []
    for (split, subset, number), part in zip(parts, split_values(values, parts, task.id), strict=True):
        gold = known[split, subset].gold if (split, subset) in known else np.empty(0)
        if kind.needs_gold and len(gold) != number:
            raise BenchError(f"predictions of {number} items for {len(gold)} of {subset}", where=task.id)
        entries.append(MtebEntry(split, subset, {task.score: kind.score(part, gold)}, number))
    return entries


def _recorded_entry(task: MtebTask, record: RunRecord) -> MtebEntry:
    """What the record says of a task, as if it were mteb's only subset."""
    name = task.id, ALL, metric_name(task.score)
    found = [score for score in record.scores if (score.task, score.subset, score.metric) == name]
    if not found:
        raise BenchError(f"no score of {task.id}", where=record.suite)
    return MtebEntry("", "", {task.score: found[0].value}, found[0].n)


def draw_task_scores(
    task: MtebTask, rows: FloatArray, record: RunRecord, rng: np.random.Generator, count: int
) -> NDArray[np.float64]:
    """Return (count, runs) scores of a task in draws of its items, within each subset of each split.

    Raises:
        BenchError: nothing is kept, or the gold isn't at hand.
    """
    kind = kind_of(task)
    if kind is None or not rows.shape[1]:
        raise BenchError(f"no predictions of {task.id} are kept", where=record.suite)
    parts = prediction_parts(task, record)
    known = load_mteb_items(task) if kind.needs_gold else {}
    found = [
        kind.draws(values, known[split, subset].gold if known else np.empty(0), rng, count)
        for (split, subset, _), values in zip(parts, split_values(rows, parts, task.id), strict=True)
    ]
    average: NDArray[np.float64] = np.mean(found, axis=0)
    return average


def find_item_changes(
    task: MtebTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
) -> list[ItemChange]:
    """Return the items of a task that two runs treat most differently, of all its subsets together.

    Raises:
        BenchError: nothing is kept, or the data aren't at hand.
    """
    kind = kind_of(task)
    if kind is None or not len(one) or len(one) != len(other):
        raise BenchError(f"no predictions of {task.id} are kept", where=record.suite)
    parts, known = prediction_parts(task, record), load_mteb_items(task)
    there = [known.get((split, subset)) or MtebItems((), np.empty(0)) for split, subset, _ in parts]
    if [len(part.texts) for part in there] != [number for _, _, number in parts]:
        raise BenchError("the predictions are of other items than the data at hand", where=task.id)
    items = MtebItems(
        tuple(pair for part in there for pair in part.texts),
        np.concatenate([part.gold for part in there]),
        there[0].names,
    )
    a, b = (np.concatenate(split_values(side, parts, task.id), axis=1) for side in (one, other))
    return kind.moved(items, a, b, count)
