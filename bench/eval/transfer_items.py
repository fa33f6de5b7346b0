"""Items of transfer tasks: SentEval's order, folds, and scores of classes; torch stays unloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.data.tasks import LabelledSplit, LabelledTask
from bench.errors import BenchError

SEED = 1111  # seed of SentEval's folds
KFOLD = 10

Rows = NDArray[np.intp]
Labels = NDArray[np.intp]
T = TypeVar("T", bound=np.generic)


def stratified_folds(rows: Rows, labels: Labels, k: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Return training rows and held-out rows of k folds, as scikit-learn's StratifiedKFold shuffles them.

    Rows in the order of their classes are dealt out to the folds in turn, which fixes each fold's number of a
    class. A shuffle class by class, in the order of their first rows, assigns the rows. ``labels`` has the
    class of every row of the features. Fewer than two folds, or than k rows of a class, raise BenchError.
    """
    if k < 2:
        raise BenchError(f"{k} fold(s)", expected="2 or more")
    _, firsts, inverse, counts = np.unique(
        labels[rows], return_index=True, return_inverse=True, return_counts=True
    )
    if counts.min() < k:
        raise BenchError(f"a class has {counts.min()} item(s)", expected=f"at least {k}, one for each fold")
    classes = np.argsort(np.argsort(firsts))[inverse]
    dealt = np.sort(classes)
    order = np.random.RandomState(seed)  # scikit-learn's stream
    fold = np.empty(len(rows), dtype=np.intp)
    for number in range(len(firsts)):
        folds = np.repeat(np.arange(k), [int((dealt[i::k] == number).sum()) for i in range(k)])
        order.shuffle(folds)
        fold[classes == number] = folds
    return [(rows[fold != i], rows[fold == i]) for i in range(k)]


@dataclass(frozen=True)
class TaskLayout:
    """A task's items as they are fitted: splits one after the other, each in SentEval's order."""

    classes: tuple[str, ...]
    splits: tuple[LabelledSplit, ...]  # the splits; all items in one, if the task is folded
    orders: tuple[Rows, ...]  # of each split, the task's rows in SentEval's order
    labels: Labels  # class of every item
    rows: dict[str, Rows]  # rows of each split, by its name

    @property
    def folded(self) -> bool:
        """True if the items are tested in folds instead of a test split."""
        return "test" not in self.rows

    @property
    def tested(self) -> tuple[Rows, Rows]:
        """Rows of the tested items, and the task's order of them."""
        names = list(self.rows)
        position = 0 if self.folded else names.index("test")
        return self.rows[names[position]], self.orders[position]


def build_layout(task: LabelledTask) -> TaskLayout:
    """Lay out a task's items."""
    names = sorted({label for split in task.splits for label in split.labels})
    numbers = {label: number for number, label in enumerate(names)}
    folded = not {"train", "test"} <= task.counts.keys()
    splits = (merge_splits(task.splits),) if folded else task.splits
    labels, orders, rows, end = [], [], {}, 0
    for split in splits:
        orders.append(order_by_length(split, numbers))
        labels.append(np.array([numbers[label] for label in split.labels])[orders[-1]])
        rows[split.name] = np.arange(end, end + len(split.labels))
        end += len(split.labels)
    return TaskLayout(tuple(names), splits, tuple(orders), np.concatenate(labels), rows)


@dataclass(frozen=True)
class ScoredItems:
    """The tested items of a task, in the task's order."""

    classes: tuple[str, ...]
    items: LabelledSplit  # the items; those of all splits, if the task is folded
    gold: Labels  # (items,) number of each item's class
    weights: NDArray[np.float64]  # (items,) 1 on average: folds of different sizes count alike


@lru_cache(maxsize=16)
def scored_items(task: LabelledTask, kfold: int = KFOLD) -> ScoredItems:
    """Return the tested items of a task, with ``kfold`` outer folds if it lacks a test split."""
    layout = build_layout(task)
    rows, order = layout.tested
    weights = np.ones(len(rows))
    for _, held_out in stratified_folds(rows, layout.labels, kfold, SEED) if layout.folded else ():
        weights[held_out] = len(rows) / (kfold * len(held_out))
    items = layout.splits[0 if layout.folded else list(layout.rows).index("test")]
    gold = restore_order(layout.labels[rows], order)
    return ScoredItems(layout.classes, items, gold, restore_order(weights, order))


def right_answers(task: LabelledTask, predictions: NDArray[np.floating]) -> NDArray[np.bool_]:
    """True for each right prediction, a number of a class: (items,) in the task's order, or (runs, items)."""
    gold = scored_items(task).gold
    if predictions.shape[-1] != len(gold):
        raise BenchError(f"{predictions.shape[-1]} predictions for {len(gold)} items", where=task.id)
    right: NDArray[np.bool_] = predictions == gold
    return right


def f1_score(predictions: NDArray[Any], gold: NDArray[Any]) -> float:
    """F1 of class 1; 0 without a true positive."""
    right = int(((predictions == 1) & (gold == 1)).sum())
    return 2 * right / max(1, int((predictions == 1).sum() + (gold == 1).sum()))


def restore_order(values: NDArray[T], order: Rows) -> NDArray[T]:
    """Put values of sorted items back into the task's order."""
    restored = np.empty_like(values)
    restored[order] = values
    return restored


def merge_splits(splits: Sequence[LabelledSplit]) -> LabelledSplit:
    """Merge all splits of a folded task."""
    first = tuple(sentence for split in splits for sentence in split.first)
    return LabelledSplit("all", first, (), tuple(label for split in splits for label in split.labels))


def order_by_length(split: LabelledSplit, numbers: dict[str, int]) -> Rows:
    """Return SentEval's order: by words of the sentence(s), then by number of the class."""
    sides = (split.first, split.second) if split.second else (split.first,)
    numbered = [numbers[label] for label in split.labels]
    words = [[len(sentence.split()) for sentence in side] for side in sides]
    return np.lexsort([numbered, *words[::-1]])
