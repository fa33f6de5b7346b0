"""Scores of a campaign as CSV, a row a score or a row an item: what ``bench import`` reads.

UTF-8, a header, commas, a line feed at the end of each line, numbers at full precision. The seed of a
deterministic method is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.sentence_clusters import cluster_items
from bench.data.tasks import LabelledTask, PairTask
from bench.encoder import FloatArray
from bench.errors import BenchError, InputError
from bench.eval.imported_suite import (
    ACCURACY,
    SPEARMAN,
    ImportedTask,
    count_classes,
    score_items,
    split_items,
)
from bench.eval.mteb_predictions import load_mteb_items, prediction_parts
from bench.eval.mteb_tasks import MtebTask
from bench.eval.rescoring import load_record_tasks
from bench.eval.sts import spearman
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.eval.transfer_items import scored_items
from bench.exchange.record_choice import ChosenRecords, LeftOut, LeftOutError, describe_run
from bench.records.filesystem import temporary_path
from bench.records.integrity import TOLERANCE
from bench.records.record import ALL, RunRecord

SCORES = ("method", "seed", "task", "metric", "score")
ITEMS = ("method", "seed", "task", "metric", "item", "gold", "prediction", "group")
Row = Sequence[str]
_NONE: FloatArray = np.empty(0, dtype=np.float32)


@dataclass(frozen=True)
class TaskItems:
    """The scored items of a task.

    Args:
        metric: By which predictions are scored.
        gold: Of each item, as text.
        score: Gives the score of (items,) predictions; raises ValueError for an undefined one.
        format: Writes one prediction.
        groups: Each item's group as text, "" if groups are unknown; items of one group share a sentence.
        names: Id of each item; empty for numbers from 1.
    """

    metric: str
    gold: Sequence[str]
    score: Callable[[FloatArray], float]
    format: Callable[[Any], str] = str  # the shortest text that gives the number again
    groups: Sequence[str] = ()
    names: Sequence[str] = ()


def check_table_target(out: Path) -> None:
    """Raise InputError for an existing file, or a missing folder."""
    if out.exists() or out.is_symlink():
        raise InputError("this file exists already", where=f"--out {out}", expected="a new file")
    if not out.parent.is_dir():
        raise InputError("there is no such folder", where=f"--out {out}", expected="a new file in a folder")


def write_table(
    out: Path, columns: Row, rows: Iterable[Row], commit: Callable[[], object] = lambda: None
) -> int:
    """Write rows below a header, completely or not at all; return their number.

    ``commit`` is called when the file is complete, just before it gets its name. Raises OSError, and
    InputError without a row.
    """
    scratch, count = temporary_path(out), 0
    try:
        with scratch.open("x", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            for row in rows:
                writer.writerow(row)
                count += 1
        if not count:
            raise InputError("nothing of these records can be written", where=f"--out {out}")
        commit()
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)
    return count


def score_rows(chosen: ChosenRecords) -> Iterator[Row]:
    """Yield a row for each run of one suite and task, by the metric of the average, which has no row."""
    for record in chosen.records:
        for task in list_tasks(record):
            value = record.score(task)
            if value is None:
                chosen.left_out.add(f"{record.suite} {task}", f"no {record.metric}")
            else:
                yield (record.method, format_seed(record), task, record.metric, repr(float(value)))


def item_rows(chosen: ChosenRecords, data: Path | None) -> Iterator[Row]:
    """Yield a row for each run of one suite, task and item, of tasks scored by one prediction an item.

    Items of a group share a sentence. Raises InputError for missing data.
    """
    tasks = load_record_tasks(chosen.records[0], data)
    items: dict[str, TaskItems] | None = None
    for record in chosen.records:
        if record.predictions is None or not chosen.store.is_whole(record.place, record):
            chosen.left_out.add(describe_run(record), "no predictions")
            continue
        predictions = chosen.store.predictions(record)
        if items is None:
            items = _collect_items(tasks, record, predictions, chosen.left_out)
        for task in filter(items.__contains__, list_tasks(record)):
            values = _read_predictions(tasks[task], predictions.get(task, _NONE))
            if reason := _find_mismatch(record, task, items[task], values):
                chosen.left_out.add(f"{record.suite} {task}", reason)
                continue
            yield from _format_items(record, task, items[task], values)


def list_tasks(record: RunRecord) -> list[str]:
    """Return the tasks of a record in the order of its scores."""
    scored = [score.task for score in record.scores if score.subset == ALL and score.task in record.tasks]
    return list(dict.fromkeys([*scored, *record.tasks]))


def format_seed(record: RunRecord) -> str:
    """Return the seed as text, "" for a deterministic method."""
    return "" if record.seed is None else str(record.seed)


def _format_items(record: RunRecord, task: str, items: TaskItems, values: FloatArray) -> Iterator[Row]:
    head = (record.method, format_seed(record), task, items.metric)
    names = items.names or [str(number) for number in range(1, len(items.gold) + 1)]
    for name, gold, value, group in zip(names, items.gold, values, items.groups, strict=True):
        yield (*head, name, gold, items.format(value), group)


def _read_predictions(task: Any, values: FloatArray) -> FloatArray:
    """Return the (items,) predictions of a run: a record of imported items has the gold behind them."""
    if isinstance(task, ImportedTask) and len(values):
        return split_items(task, values)[0]
    return values


def _find_mismatch(record: RunRecord, task: str, items: TaskItems, values: FloatArray) -> str:
    """Return why a run's predictions don't give its score, "" if they do."""
    if not len(values):
        return "no predictions"
    if len(values) != len(items.gold):
        return f"{len(values)} predictions for {len(items.gold)} items"
    value = record.score(task)
    if value is None or abs(items.score(values) - value) > TOLERANCE:
        return "its score isn't one over all items"
    return ""


def _collect_items(
    tasks: Mapping[str, SuiteTask],
    record: RunRecord,
    predictions: Mapping[str, FloatArray],
    left_out: LeftOut,
) -> dict[str, TaskItems]:
    """Return the items of the tasks that the layout can hold; groups count over all of them."""
    found = {}
    for name, task in tasks.items():
        try:
            found[name] = _read_items(task, record, predictions.get(name, _NONE))
        except LeftOutError as reason:
            left_out.add(f"{record.suite} {name}", str(reason))
        except BenchError as error:  # no parts of the predictions, or no data of mteb's
            left_out.add(f"{record.suite} {name}", error.what)
    measure = measure_of(record.suite)
    texts = [part for name in found for part in measure.item_texts(tasks[name], record)]
    if all(isinstance(part, int) for part in texts):  # numbers of items without texts
        return {name: replace(items, groups=[""] * len(items.gold)) for name, items in found.items()}
    return {
        name: replace(items, groups=list(map(str, numbers.tolist())))
        for (name, items), numbers in zip(found.items(), cluster_items(texts), strict=True)
    }


def _read_items(task: Any, record: RunRecord, values: FloatArray) -> TaskItems:
    """Return the items of a task; raises LeftOutError if it isn't scored by one prediction an item.

    ``values`` are the predictions of a record, with the gold of imported items.
    """
    if isinstance(task, PairTask):
        return _list_pairs([value for subset in task.subsets for value in subset.gold])
    if isinstance(task, LabelledTask):
        return _list_labelled_items(task)
    if isinstance(task, ImportedTask):
        return _list_imported_items(task, values)
    if isinstance(task, MtebTask) and (task.kind, task.score) == ("STS", "cosine_spearman"):
        parts = prediction_parts(task, record)
        if len(parts) > 1:
            raise LeftOutError(f"its score is a mean over {len(parts)} subsets")
        return _list_pairs(load_mteb_items(task)[parts[0][:2]].gold.tolist())
    raise LeftOutError("its score isn't one of a prediction and a gold value an item")


def _list_pairs(gold: Sequence[float]) -> TaskItems:
    values = np.asarray(gold, dtype=np.float64)
    return TaskItems(SPEARMAN, [repr(float(value)) for value in gold], lambda own: spearman(own, values))


def _list_labelled_items(task: LabelledTask) -> TaskItems:
    scored = scored_items(task)
    if len(set(scored.weights.tolist())) > 1:
        raise LeftOutError("its score is a mean over folds of different sizes")
    gold, write = scored.gold, _name_classes(scored.classes)
    labels = [write(number) for number in gold.tolist()]
    return TaskItems(ACCURACY, labels, lambda own: float(np.mean(own == gold)), write)


def _list_imported_items(task: ImportedTask, values: FloatArray) -> TaskItems:
    if not len(values):
        raise LeftOutError("only its score was published")
    gold = split_items(task, values)[1]
    write: Callable[[Any], str] = str
    if task.metric == ACCURACY:
        write = partial(task.write_class, gold_classes=count_classes(gold))
    labels = [write(number) for number in gold]
    compute = partial(score_items, task.metric, gold=gold)
    return TaskItems(task.metric, labels, compute, write, names=task.names)


def _name_classes(classes: Sequence[str]) -> Callable[[float], str]:
    """Return the writer of a class number: its name, or the number of a class without a name."""
    names = dict(enumerate(classes))
    return lambda number: names.get(int(number), f"{number:g}")
