"""Predictions of every item from a table: a row a prediction (method, seed, task, item, gold, prediction)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.data.imported_names import name_imported_suite
from bench.data.tasks import suite_average
from bench.encoder import FloatArray
from bench.errors import DataError, not_one_of
from bench.eval.imported_suite import ACCURACY, ITEM_METRICS, MOST_CLASSES, ImportedTask, score_items
from bench.imports.published import PublishedResults, PublishedRun
from bench.imports.source_table import (
    METHOD,
    METRIC,
    SEED,
    TASK,
    MetricColumn,
    NameList,
    Run,
    TableRow,
    check_columns,
    check_seeds,
    count_left_out,
    describe_source,
    leave_out_incomplete,
    quote,
    read_number,
    read_rows,
    read_seed,
)
from bench.records.fingerprint import hash_canonical_json
from bench.records.record import ALL, AVERAGE, Score
from bench.schema import parse_decimal
from bench.stats.argument_checks import MIN_PAIRS

ITEM, GOLD, PREDICTION, GROUP = "item", "gold", "prediction", "group"
_MOST_NAMED = 3
_MOST_ID_CHARACTERS = 1_000_000  # of a task's ids in a record
_WHOLE = re.compile(r"[0-9]{1,15}")
_UNREAD = "write a word such as none for an answer that can't be read"


class _Gold(NamedTuple):
    text: str
    group: str
    line: int


class _Prediction(NamedTuple):
    text: str
    line: int


@dataclass
class _Items:
    """The rows of a table: the gold of each task's items, and each run's predictions by task and item."""

    file: Path
    metric: MetricColumn
    gold: dict[str, dict[str, _Gold]] = field(default_factory=dict)
    predictions: dict[Run, dict[str, dict[str, _Prediction]]] = field(default_factory=dict)
    lines: dict[Run, int] = field(default_factory=dict)
    methods: NameList = field(default_factory=lambda: NameList("method"))
    task_names: NameList = field(default_factory=lambda: NameList("task"))

    def add(self, row: TableRow) -> None:
        """Take one row; raises DataError if it contradicts an earlier one."""
        self.metric.read(row)
        run = Run(self.methods.check(row.cells[METHOD], row.where, row.line), read_seed(row))
        task, item = self._read_task(row), row.cells.get(ITEM, "")
        self.lines.setdefault(run, row.line)
        for column, hint in ((ITEM, None), (GOLD, None), (PREDICTION, _UNREAD)):
            if not row.cells.get(column):
                raise DataError(f"no {column}", where=row.where, expected="a value", hint=hint)
        self._add_gold(row, task, item)
        own = self.predictions.setdefault(run, {}).setdefault(task, {})
        prediction = _Prediction(row.cells[PREDICTION], row.line)
        other = own.setdefault(item, prediction)
        if other is not prediction:
            same = "the same prediction again" if other.text == prediction.text else "another prediction"
            what = f"{run.label} on item {quote(item)} of {task}: {same} in line {other.line}"
            raise DataError(what, where=row.where, expected="one row", hint="delete one of both rows")

    def _read_task(self, row: TableRow) -> str:
        task = self.task_names.check(row.cells[TASK], row.where, row.line)
        if task == AVERAGE or task.endswith(".npy"):  # names that a record's files use
            raise DataError(f"task '{task}'", where=row.where, expected="another name")
        return task

    def _add_gold(self, row: TableRow, task: str, item: str) -> None:
        gold = _Gold(row.cells[GOLD], row.cells.get(GROUP, ""), row.line)
        first = self.gold.setdefault(task, {}).setdefault(item, gold)
        for name, value, known in (("gold", gold.text, first.text), ("group", gold.group, first.group)):
            if value != known and (name == "group" or _write_number(value) != _write_number(known)):
                of = f"item {quote(item)} of {task}"
                what = f"{name} {quote(value)} of {of}, and {quote(known)} in line {first.line}"
                raise DataError(what, where=row.where, expected=f"one {name} of an item")


def read_item_table(file: Path, *, suite: str = "", metric: str = "") -> PublishedResults:
    """Read predictions from a table with commas, tabs or ``;``, or from JSON lines, and score them.

    Args:
        file: With columns method, task, item, gold and prediction; seed and group may be missing. Items of
            one group, such as those of one source, are drawn together.
        suite: Name of the suite, ``imported:NAME``; by default the file's name.
        metric: One of :data:`ITEM_METRICS`; may be left out where all gold values are words.

    Raises InputError for a file, or a line of it, that can't be read without a guess.
    """
    if metric and metric not in ITEM_METRICS:
        raise not_one_of(f"'{metric}' is no metric of items", metric, ITEM_METRICS, where="--metric")
    name = name_imported_suite(suite, file)
    source, notes = describe_source("items", file), list[str]()
    table = _read_table(file, MetricColumn(metric), notes)
    check_seeds(table.lines, file)
    chosen = _choose_metric(table, notes)
    left_out = leave_out_incomplete(table.predictions, list(table.gold), file)
    _check_items(table)
    groups = _number_groups(table)
    columns = {task: _TaskColumn(table, task, chosen, groups) for task in table.gold}
    notes += chain.from_iterable(column.notes for column in columns.values())
    runs = []
    for run in table.predictions:
        if run not in left_out:
            published = _publish_run(run, columns, chosen)
            if isinstance(published, str):
                left_out[run] = published
            else:
                runs.append(published)
    if not runs:
        raise DataError(f"no run has a score: {next(iter(left_out.values()))}", where=str(file))
    by_label = {run.label: reason for run, reason in left_out.items()}
    table_notes = count_left_out(left_out, len(table.predictions))
    return PublishedResults(name, tuple(runs), source, tuple(notes), by_label, table_notes)


def _read_table(file: Path, metric: MetricColumn, notes: list[str]) -> _Items:
    rows = read_rows(file, notes)
    first = next(rows)
    others = check_columns(first, (METHOD, TASK, ITEM, GOLD, PREDICTION), (SEED, METRIC, GROUP))
    if others:
        notes.append(f"columns without a meaning here: {', '.join(others)}")
    table = _Items(file, metric)
    for row in chain([first], rows):
        table.add(row)
    return table


def _choose_metric(table: _Items, notes: list[str]) -> str:
    """Return the metric: the stated one, or accuracy of words; raises DataError if it is open."""
    stated = table.metric.name or table.metric.given
    if stated and stated not in ITEM_METRICS:
        raise not_one_of(f"'{stated}' is no metric of items", stated, ITEM_METRICS, where=str(table.file))
    if stated == ACCURACY:
        return stated
    for task, items in table.gold.items():
        word = next((gold for gold in items.values() if not _is_number(gold.text)), None)
        number = next((gold for gold in items.values() if _is_number(gold.text)), None)
        if word is not None and (stated or number is not None):
            where, hint = f"{table.file}:{word.line}", "type --metric accuracy for classes"
            raise DataError(f"gold {quote(word.text)} of {task}", where=where, expected="a number", hint=hint)
        if number is not None and not stated:
            what = f"the gold values of {task} are numbers: scores or classes"
            hint = f"type --metric with one of {', '.join(ITEM_METRICS)}"
            raise DataError(what, where=str(table.file), expected="a metric", hint=hint)
    if not stated:
        notes.append("metric accuracy: the gold values are words")
    return stated or ACCURACY


def _check_items(table: _Items) -> None:
    """Raise DataError for the first item that a run lacks."""
    for run, tasks in table.predictions.items():
        for task, own in tasks.items():
            missing = [item for item in table.gold[task] if item not in own]
            if missing:
                line = table.gold[task][missing[0]].line
                what = (
                    f"{run.label} has no prediction of item {quote(missing[0])} of {task} (see line {line})"
                )
                more = f"{what}, nor of {len(missing) - 1} more" if len(missing) > 1 else what
                raise DataError(more, where=str(table.file), expected="the same items of every run")


def _number_groups(table: _Items) -> dict[str, int]:
    """Return the number of each group over all tasks; {} without groups. An item without one raises."""
    every = [(task, item, gold) for task, items in table.gold.items() for item, gold in items.items()]
    if not any(gold.group for *_, gold in every):
        return {}
    for task, item, gold in every:
        if not gold.group:
            what, where = f"item {quote(item)} of {task} has no group", f"{table.file}:{gold.line}"
            raise DataError(what, where=where, expected="a group of every item, or of none")
    names = sorted({gold.group for *_, gold in every})
    return {name: number for number, name in enumerate(names)}


class _TaskColumn:
    """A task's items in the order of their ids, with gold values, and each run's predictions as numbers."""

    def __init__(self, table: _Items, task: str, metric: str, groups: Mapping[str, int]) -> None:
        self._table, self._task, self._metric = table, task, metric
        items = table.gold[task]
        if metric != ACCURACY and len(items) < MIN_PAIRS:
            what, expected = f"{task} has {len(items)} items", f"at least {MIN_PAIRS} for a correlation"
            raise DataError(what, where=str(table.file), expected=expected)
        self.items = _sort_items(items)
        self.notes: list[str] = []
        self._numeric = all(_is_number(gold.text) for gold in items.values())
        labels = [self._write_label(items[item].text) for item in self.items]
        self._numbers: dict[str, int] = {}
        classes: tuple[str, ...] = ()
        if metric == ACCURACY:
            gold_classes = sorted(set(labels))
            classes = tuple(gold_classes) if len(gold_classes) <= MOST_CLASSES else ()
            self._numbers = {label: number for number, label in enumerate(gold_classes)}
            self._number_unknown_labels()
        self.gold = self._to_numbers((item, items[item].text, items[item].line) for item in self.items)
        if metric != ACCURACY and len(set(self.gold.tolist())) == 1:
            what = f"the gold values of all items of {task} are equal: no correlation"
            raise DataError(what, where=str(table.file), expected="different values")
        numbers = " ".join(str(groups[items[item].group]) for item in self.items) if groups else ""
        ids = hash_canonical_json([[item, label] for item, label in zip(self.items, labels, strict=True)])
        first_id = _find_first_id(self.items)
        names = "" if first_id is not None else self._join_ids()
        known = ImportedTask(task, "", metric, len(self.items), ids, classes, numbers, first_id, names)
        self.task = replace(known, sha256=known.identify(self.gold))

    def read_predictions(self, run: Run) -> FloatArray:
        """Return the (items,) predictions of a run."""
        own = self._table.predictions[run][self._task]
        return self._to_numbers((item, own[item].text, own[item].line) for item in self.items)

    def _join_ids(self) -> str:
        """Return the ids for the record, "" with a note if they are too long for it."""
        joined = "\n".join(self.items)
        if len(joined) <= _MOST_ID_CHARACTERS and len(joined.split("\n")) == len(self.items):
            return joined
        reason = "have line breaks"
        if len(joined) > _MOST_ID_CHARACTERS:
            reason = f"are longer than {_MOST_ID_CHARACTERS:,} characters"
        self.notes.append(f"{self._task}: its ids {reason}; records have each item's place in their order")
        return ""

    def _number_unknown_labels(self) -> None:
        """Number the predicted labels that are none of the gold after those, and note them."""
        predicted = set[str]()
        for tasks in self._table.predictions.values():
            predicted |= {self._write_label(value.text) for value in tasks.get(self._task, {}).values()}
        gold_classes = len(self._numbers)
        unknown = sorted(predicted - self._numbers.keys())
        for label in unknown:
            self._numbers[label] = len(self._numbers)
        if unknown and gold_classes > 1:  # of one class, such as "right", the others are wrong answers
            named = ", ".join(map(quote, unknown[:_MOST_NAMED]))
            more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
            self.notes.append(f"{self._task}: predicted, but no item's gold: {named}{more}")

    def _write_label(self, text: str) -> str:
        """Return a label; where all gold are numbers, 1 and 1.0 are one."""
        return _write_number(text) if self._numeric else text

    def _to_numbers(self, cells: Iterable[tuple[str, str, int]]) -> FloatArray:
        values = []
        for item, text, line in cells:
            if self._metric == ACCURACY:
                values.append(float(self._numbers[self._write_label(text)]))
            else:
                where = f"{self._table.file}:{line}"
                values.append(read_number(text, f"value of item {quote(item)} of {self._task}", where))
        return np.array(values, dtype=np.float32)


def _publish_run(run: Run, columns: Mapping[str, _TaskColumn], metric: str) -> PublishedRun | str:
    """Return a run with its scores, or the reason why it has none."""
    scores, predictions, facts = [], {}, {}
    for name, column in columns.items():
        predicted = column.read_predictions(run)
        try:
            value = score_items(metric, predicted, column.gold)
        except ValueError:
            return f"no correlation: its predictions on {name} are all equal"
        scores.append(Score(name, ALL, metric, value, column.task.items))
        predictions[name] = np.concatenate([predicted, column.gold])
        facts[name] = column.task.to_facts()
    average = suite_average(score.value for score in scores)
    scores.append(Score(AVERAGE, ALL, metric, average, len(columns)))
    return PublishedRun(run.method, run.seed, tuple(scores), facts, predictions=predictions)


def _is_number(text: str) -> bool:
    try:
        parse_decimal(text)
    except ValueError:
        return False
    return True


def _write_number(text: str) -> str:
    """Return a number in one form, exactly, and another text as it is."""
    if not _is_number(text):
        return text
    number = Decimal(text)
    digits = len(number.as_tuple().digits)
    return str(number.normalize(Context(prec=max(1, digits))) if number else Decimal(0))


def _find_first_id(items: Sequence[str]) -> int | None:
    """Return the first of sorted ids that are consecutive whole numbers, otherwise None."""
    if not all(map(_is_whole, items)):
        return None
    first = int(items[0])
    consecutive = all(item == str(number) for number, item in enumerate(items, start=first))
    return first if consecutive else None


def _sort_items(items: Iterable[str]) -> list[str]:
    """Return ids in an order that no file's order changes: as numbers if all are whole numbers."""
    ids = sorted(items)
    if all(map(_is_whole, ids)):
        ids.sort(key=int)
    return ids


def _is_whole(item: str) -> bool:
    return _WHOLE.fullmatch(item) is not None
