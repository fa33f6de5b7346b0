"""Scores of a campaign as CSV, one row a score or one row an item: what ``bench import`` reads.

UTF-8, a header, commas, a line feed at the end of each line, numbers at full precision. The seed of a
deterministic method is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.sentence_clusters import cluster_items
from bench.data.tasks import LabelledTask, PairTask
from bench.encoder import FloatArray
from bench.errors import BenchError, InputError
from bench.eval.mteb_predictions import load_mteb_items, prediction_parts
from bench.eval.mteb_tasks import MtebTask
from bench.eval.rescoring import load_record_tasks
from bench.eval.sts import spearman
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.eval.transfer_items import scored_items
from bench.exchange.record_choice import ChosenRecords, LeftOut, LeftOutError, require_one_suite
from bench.records.filesystem import temporary_path
from bench.records.integrity import TOLERANCE
from bench.records.record import ALL, AVERAGE, RunRecord

SCORES = ("method", "seed", "task", "score")
ITEMS = ("method", "seed", "task", "item", "gold", "prediction", "group")
Row = Sequence[str]


@dataclass(frozen=True)
class TaskItems:
    """The scored items of a task: gold as text, and the score that predictions have against it."""

    gold: tuple[str, ...]
    groups: tuple[int, ...]  # number of the cluster of items that share a sentence
    score: Callable[[FloatArray], float]
    format: Callable[[float], str]


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
    """Yield a row for each run and task, with the metric of the suite's average; the average is left out.

    Raises InputError for several profiles or suites, see :func:`require_one_suite`.
    """
    require_one_suite(chosen.records)
    for record in chosen.records:
        for task in list_tasks(record):
            value = record.score(task)
            if value is None:
                chosen.left_out.add(f"{record.suite} {task}", f"no {record.metric}")
            else:
                yield (record.method, format_seed(record), task, repr(float(value)))


def item_rows(chosen: ChosenRecords, data: Path | None) -> Iterator[Row]:
    """Yield a row for each run, task and item, of tasks whose score comes from one prediction an item.

    Items of a group share a sentence. Raises InputError for several profiles or suites, and for missing data.
    """
    require_one_suite(chosen.records)
    tasks = load_record_tasks(chosen.records[0], data)
    items = _collect_items(tasks, chosen.records[0], chosen.left_out)
    for record in chosen.records:
        if record.predictions is None or not chosen.store.is_whole(record.place, record):
            chosen.left_out.add(record.suite, f"no predictions of {record.method}")
            continue
        predictions = chosen.store.predictions(record)
        for task in filter(items.__contains__, list_tasks(record)):
            values = predictions.get(task, np.empty(0, dtype=np.float32))
            if reason := _find_mismatch(record, task, items[task], values):
                chosen.left_out.add(f"{record.suite} {task}", reason)
                continue
            yield from _format_items(record, task, items[task], values)


def list_tasks(record: RunRecord) -> list[str]:
    """Return the tasks of a record in the order of its scores."""
    scored = [score.task for score in record.scores if score.subset == ALL and score.task in record.tasks]
    return [task for task in dict.fromkeys([*scored, *record.tasks]) if task != AVERAGE]


def format_seed(record: RunRecord) -> str:
    """Return the seed as text, "" for a deterministic method."""
    return "" if record.seed is None else str(record.seed)


def _format_items(record: RunRecord, task: str, items: TaskItems, values: FloatArray) -> Iterator[Row]:
    seed = format_seed(record)
    columns = zip(items.gold, values.tolist(), items.groups, strict=True)
    for number, (gold, value, group) in enumerate(columns, start=1):
        yield (record.method, seed, task, str(number), gold, items.format(value), str(group))


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


def _collect_items(tasks: dict[str, SuiteTask], record: RunRecord, left_out: LeftOut) -> dict[str, TaskItems]:
    """Return the items of the tasks that the layout can hold; groups count over all of them."""
    readers = {}
    for name, task in tasks.items():
        try:
            readers[name] = _read_items(task, record)
        except LeftOutError as reason:
            left_out.add(f"{record.suite} {name}", str(reason))
        except BenchError as error:  # no parts of the predictions, or no data of mteb's
            left_out.add(f"{record.suite} {name}", error.what)
    measure = measure_of(record.suite)
    texts = [part for name in readers for part in measure.item_texts(tasks[name], record)]
    groups = cluster_items(texts) if texts else []
    items = {}
    for (name, (gold, score, form)), numbers in zip(readers.items(), groups, strict=True):
        items[name] = TaskItems(tuple(gold), tuple(numbers.tolist()), score, form)
    return items


def _read_items(task: Any, record: RunRecord) -> tuple[list[str], Callable[[FloatArray], float], Any]:
    """Return gold as text, the score of predictions, and how a prediction is written.

    Raises LeftOutError for a task that isn't scored by one prediction an item.
    """
    if isinstance(task, PairTask):
        return _score_pairs([value for subset in task.subsets for value in subset.gold])
    if isinstance(task, LabelledTask):
        scored = scored_items(task)
        if len({*scored.weights.tolist()}) > 1:
            raise LeftOutError("its score is a mean over folds")
        names = dict(enumerate(scored.classes))
        labels = [names[number] for number in scored.gold.tolist()]

        def score(values: FloatArray) -> float:
            return float(np.mean(values == scored.gold))

        return labels, score, lambda value: names.get(int(value), f"{value:g}")
    if isinstance(task, MtebTask) and (task.kind, task.score) == ("STS", "cosine_spearman"):
        parts = prediction_parts(task, record)
        if len(parts) > 1:
            raise LeftOutError(f"its score is a mean over {len(parts)} subsets")
        return _score_pairs(load_mteb_items(task)[parts[0][:2]].gold.tolist())
    raise LeftOutError("its score isn't one of a prediction and a gold value an item")


def _score_pairs(gold: Sequence[float]) -> tuple[list[str], Callable[[FloatArray], float], Any]:
    values = np.asarray(gold, dtype=np.float64)
    return [repr(float(value)) for value in gold], lambda predicted: spearman(predicted, values), repr
