"""Suites whose results were made elsewhere: scores as published, or predictions and gold of every item.

A record with predictions is complete in itself. The array of each task has the predictions of all items, then
their gold. The task's sha256 covers the gold, so that a changed gold is found as a changed prediction is.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.data_source import DataSource
from bench.data.imported_names import IMPORTED
from bench.data.sentence_clusters import Texts, mark_source
from bench.data.tasks import suite_average
from bench.encoder import FloatArray
from bench.errors import BenchError, InputError, printable
from bench.eval.measure import (
    AnyEncoder,
    ItemChange,
    Labels,
    Measure,
    MeasureContext,
    PairTests,
    Predictions,
    ScoreName,
    Scores,
    SuiteResult,
)
from bench.eval.pair_suite import compare_correlations
from bench.records.fingerprint import hash_canonical_json
from bench.records.record import ALL, AVERAGE, RunRecord, Score

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.stats.resampling import Statistic

SPEARMAN, PEARSON, ACCURACY = "spearman", "pearson", "accuracy"
ITEM_METRICS = (SPEARMAN, PEARSON, ACCURACY)
"""Metrics that items can be scored by."""
MOST_CLASSES = 20
"""Most classes whose names a record stores."""
ANOTHER_ANSWER = "another answer"
"""Name of a predicted class that is no item's gold."""
_GROUP = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True)
class ImportedTask:
    """A task of a record, as far as the record describes it.

    Args:
        sha256: Identity of its data. Of items: :meth:`identify`; of scores: :func:`identify_score_task`.
        metric: Metric of its score.
        items: Number of items, 0 for a task with only scores.
        items_sha256: Of the items' ids and their gold as text; "" for a task with only scores.
        classes: Names of the gold classes in the order of their numbers; empty for numbers, or many classes.
        groups: Numbers of the groups of items that are drawn together, with blanks between; "" without them.
        first_id: Id of the first item where ids are consecutive whole numbers, otherwise None.
        item_ids: Other ids with line feeds between, "" if the record doesn't store them. They are no part of
            the identity, which covers them by ``items_sha256``.
    """

    id: str
    sha256: str
    metric: str = ""
    items: int = 0
    items_sha256: str = ""
    classes: tuple[str, ...] = ()
    groups: str = ""
    first_id: int | None = None
    item_ids: str = ""

    def identify(self, gold: FloatArray) -> str:
        """Return the sha256 of name, metric, items, classes, groups and (items,) gold."""
        values = np.ascontiguousarray(gold, dtype="<f4")
        numbers = hashlib.sha256(values.tobytes()).hexdigest()
        about = [self.id, self.metric, self.items_sha256, list(self.classes), self.groups, self.first_id]
        return hash_canonical_json(["imported items", *about, numbers])

    @cached_property
    def group_numbers(self) -> list[int]:
        """Numbers of the items' groups; raises BenchError for other than one a item."""
        words = self.groups.split(" ")
        if len(words) != self.items or not all(map(_GROUP.fullmatch, words)):
            raise BenchError("the groups of its items are damaged", where=self.id)
        return [int(word) for word in words]

    @cached_property
    def names(self) -> list[str]:
        """Ids of the items, or their places from 1; raises BenchError for other than one an item."""
        if self.item_ids:
            names = self.item_ids.split("\n")
            if len(names) != self.items:
                raise BenchError(f"{len(names)} ids for {self.items} items", where=self.id)
            return names
        first = 1 if self.first_id is None else self.first_id
        return [str(number) for number in range(first, first + self.items)]

    def write_class(self, number: float, gold_classes: int) -> str:
        """Return a class as text: its name, its number if names aren't stored, or :data:`ANOTHER_ANSWER`.

        Args:
            number: As in the predictions.
            gold_classes: Number of distinct gold classes, whose numbers come first.
        """
        if not 0 <= number < gold_classes:
            return ANOTHER_ANSWER
        return self.classes[int(number)] if number < len(self.classes) else f"class {number:g}"

    def to_facts(self) -> dict[str, Any]:
        """Return the block of the task in a record of items."""
        facts: dict[str, Any] = {"name": self.id, "items": self.items, "sha256": self.sha256}
        facts |= {"reference": False, "metric": self.metric, "items_sha256": self.items_sha256}
        if self.classes:
            facts["classes"] = list(self.classes)
        if self.groups:
            facts["groups"] = self.groups
        if self.first_id is not None:
            facts["first_id"] = self.first_id
        if self.item_ids:
            facts["item_ids"] = self.item_ids
        return facts


def identify_score_task(suite: str, task: str, metric: str) -> str:
    """Return the sha256 of a task with only scores: suite, task and metric by name."""
    return hash_canonical_json(["imported", suite, task, metric])


def read_imported_task(name: str, facts: Mapping[str, Any]) -> ImportedTask:
    """Return the task of a block of ``record.tasks``; wrong facts make a task of another sha256."""
    texts = {key: facts.get(key) for key in ("metric", "items_sha256", "groups", "item_ids")}
    known = {key: value for key, value in texts.items() if isinstance(value, str)}
    classes, first_id = facts.get("classes"), facts.get("first_id")
    return ImportedTask(
        name,
        facts["sha256"],
        items=facts.get("items", 0),
        classes=tuple(map(str, classes)) if isinstance(classes, list) else (),
        first_id=first_id if type(first_id) is int else None,
        **known,
    )


def score_items(metric: str, predictions: FloatArray, gold: FloatArray) -> float:
    """Return the score of (items,) predictions; raises ValueError if it is undefined."""
    from bench.stats.resampling import pearson_statistic, spearman_rows

    if metric == ACCURACY:
        return float(np.mean(predictions == gold))
    if metric == SPEARMAN:
        return float(spearman_rows(predictions, gold)[0])
    if metric == PEARSON:
        return float(pearson_statistic(predictions, gold)(np.ones((1, len(gold)), dtype=np.int64))[0, 0])
    raise ValueError(f"metric '{metric}'; expected one of {', '.join(ITEM_METRICS)}")


def score_imported_tasks(tasks: Sequence[ImportedTask], predictions: Predictions) -> Scores:
    """Return each task's score and the average; raises BenchError for damaged arrays, or another gold."""
    scores = []
    for task in tasks:
        predicted, gold = split_items(task, predictions[task.id])
        if not task.items_sha256 or task.identify(gold) != task.sha256:
            what = "the gold differs from that of the task's sha256"
            raise BenchError(what, where=task.id, hint="import the results again")
        if task.item_ids and len(set(task.names)) != task.items:
            raise BenchError("two of its items have one id", where=task.id)
        try:
            value = score_items(task.metric, predicted, gold)
        except ValueError as error:
            raise BenchError(str(error), where=task.id) from error
        scores.append(Score(task.id, ALL, task.metric, value, task.items))
    metrics = {task.metric for task in tasks}
    if len(metrics) != 1:
        raise BenchError(f"tasks of {len(metrics)} metrics", expected="one metric")
    average = suite_average(score.value for score in scores)
    return (*scores, Score(AVERAGE, ALL, metrics.pop(), average, len(tasks)))


def split_items(task: ImportedTask, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split (..., 2 items) into predictions and gold; raises BenchError for another length."""
    if not task.items or values.shape[-1] != 2 * task.items:
        what = f"{values.shape[-1]} numbers for {task.items} items"
        raise BenchError(what, where=task.id, expected="a prediction and a gold value an item")
    return values[..., : task.items], values[..., task.items :]


def _has_only_scores(record: RunRecord) -> bool:
    """Return whether the record describes no items."""
    return not any("items_sha256" in facts for facts in record.tasks.values())


class ImportedSuite(Measure[ImportedTask]):
    """Results made elsewhere: scored again from the record's own gold, without a data folder."""

    counted, needs_torch, encodes_once = "items", False, False
    unit = "clusters of items of one group"
    change_columns = (
        "Items by id, or by place in the order of their ids. Correlations: each cell has the item's rank, "
        "below it the prediction or gold value. Classes: items of which A and B predict different ones; "
        f"{ANOTHER_ANSWER}: one that is no item's gold."
    )

    def load(self, source: DataSource) -> list[ImportedTask]:
        """Refuse: the suite has results and no sentences."""
        what = f"the results of '{self.name}' were made elsewhere: it has no sentences to encode"
        name = self.name.removeprefix(IMPORTED)
        hint = f"add results with: bench import csv:FILE --suite {name}"
        raise InputError(what, where="--suite", expected="a suite of bench list suites", hint=hint)

    def sentences(self, tasks: Sequence[ImportedTask]) -> Iterator[str]:
        """Return an empty iterator."""
        return iter(())

    def measure(
        self, encoder: AnyEncoder, tasks: Sequence[ImportedTask], setting: MeasureContext
    ) -> SuiteResult:
        """Refuse, as :meth:`load`."""
        raise BenchError("results made elsewhere can't be measured", where=f"suite {self.name}")

    def recorded_tasks(self, record: RunRecord) -> dict[str, ImportedTask]:
        """Return the tasks as the record describes them."""
        return {name: read_imported_task(name, facts) for name, facts in record.tasks.items()}

    def rescore(self, tasks: Sequence[ImportedTask], predictions: Predictions, record: RunRecord) -> Scores:
        """Score the predictions again, with the gold next to them."""
        if _has_only_scores(record) and not predictions:
            return ()
        if set(predictions) != {task.id for task in tasks}:
            raise BenchError("its predictions are of other tasks", where=f"suite {self.name}")
        return score_imported_tasks(tasks, predictions)

    def main_metric(self, tasks: Sequence[ImportedTask]) -> str:
        """Return the metric that all tasks share, "" if they state none."""
        metrics = {task.metric for task in tasks}
        return metrics.pop() if len(metrics) == 1 else ""

    def own_scores(self, tasks: Sequence[ImportedTask], record: RunRecord) -> set[ScoreName]:
        """Return all scores of a record that was published without predictions."""
        if not _has_only_scores(record):
            return set()
        return {(score.task, score.subset, score.metric) for score in record.scores}

    def task_unit(self, task: ImportedTask) -> str:
        """Return the unit of a task with items."""
        return self.unit if task.items_sha256 else ""

    def item_texts(self, task: ImportedTask, record: RunRecord) -> list[Texts | int]:
        """Return a mark of each item's group, or the number of items."""
        if not task.items_sha256:
            raise BenchError("the items of this suite are unknown", where=f"suite {self.name}")
        if not task.groups:
            return [task.items]
        return [[(mark_source("group", number),) for number in task.group_numbers]]

    def item_statistics(self, task: ImportedTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Correlation or accuracy in draws of items."""
        from bench.stats.resampling import mean_statistic, pearson_statistic, spearman_statistic

        predicted, every_gold = split_items(task, rows)
        gold = every_gold[0]
        if (every_gold != gold).any():
            raise BenchError("two runs have different gold", where=task.id)
        if task.metric == ACCURACY:
            return [mean_statistic(predicted == gold)]
        correlate = pearson_statistic if task.metric == PEARSON else spearman_statistic
        return [correlate(predicted, gold)]

    def pair_tests(
        self,
        task: ImportedTask | None,
        one: FloatArray,
        other: FloatArray,
        scores: tuple[float, float],
        clusters: Labels | None,
    ) -> PairTests:
        """Williams' and Steiger's tests of correlations, McNemar's of classes; by clusters in groups.

        Pearson's correlations have no test by clusters.
        """
        if task is None:
            return {}
        (first, gold), (second, _) = split_items(task, one), split_items(task, other)
        if task.metric == ACCURACY:
            from bench.stats.classification_statistics import mcnemar

            return {"mcnemar": mcnemar(first == gold, second == gold, clusters)}
        if clusters is None:
            try:
                between = score_items(task.metric, first, second)
            except ValueError:
                between = math.nan
            return compare_correlations(scores, between, task.items)
        if task.metric == PEARSON:
            return {}
        from bench.stats.clustered_tests import clustered_test

        return {"clustered": clustered_test(first, second, gold, clusters)}

    def find_changes(
        self, task: ImportedTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items that two runs treat most differently, by number."""
        from bench.eval.item_changes import class_changes, rank_changes

        if not task.items_sha256:
            raise BenchError("only scores were published", where=f"suite {self.name}")
        (first, gold), (second, _) = split_items(task, one), split_items(task, other)
        word = "place" if task.first_id is None and not task.item_ids else "item"
        texts = [(f"{word} {printable(name)}",) for name in task.names]
        if task.metric != ACCURACY:
            return rank_changes(texts, gold.tolist(), first, second, count)
        classes = count_classes(gold)
        truth, a, b = (
            [task.write_class(number, classes) for number in side.tolist()] for side in (gold, first, second)
        )
        return class_changes(texts, truth, a, b, count)


def count_classes(gold: FloatArray) -> int:
    """Return the number of gold classes, which are numbered from 0 without a gap."""
    return int(gold.max()) + 1
