"""Items of transfer tasks: SentEval's order and folds, and scores of predicted classes; loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.data.tasks import LabelledSplit, LabelledTask
from bench.errors import BenchError

SEED = 1111
"""Seed of SentEval's folds."""
KFOLD = 10

Rows = NDArray[np.intp]
Labels = NDArray[np.intp]
T = TypeVar("T", bound=np.generic)


def stratified_folds(rows: Rows, labels: Labels, k: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Stratified folds of rows, those of scikit-learn's StratifiedKFold with shuffling.

    Rows in the order of their classes are dealt out to the folds in turn; that says how many of a class each
    fold has. Which ones is shuffled class by class, the classes in the order of their first rows.

    Args:
        rows: The rows.
        labels: Class of every row of the features.
        k: Number of folds.
        seed: Seed.

    Returns:
        (training rows, held-out rows) of each fold.

    Raises:
        BenchError: a class with fewer than k rows, or fewer than two folds.

    >>> labels = np.array([0, 0, 1, 1])
    >>> [held_out.tolist() for _, held_out in stratified_folds(np.arange(4), labels, 2, seed=1111)]
    [[1, 2], [0, 3]]
    """
    if k < 2:
        raise BenchError(f"{k} fold(s)", expected="2 or more")
    _, firsts, inverse, counts = np.unique(
        labels[rows], return_index=True, return_inverse=True, return_counts=True
    )
    if counts.min() < k:
        raise BenchError(f"a class has {counts.min()} item(s)", expected=f"at least {k}, one for each fold")
    known = np.argsort(np.argsort(firsts))[inverse]
    dealt = np.sort(known)
    order = np.random.RandomState(seed)  # scikit-learn's stream
    fold = np.empty(len(rows), dtype=np.intp)
    for one in range(len(firsts)):
        of_class = np.repeat(np.arange(k), [int((dealt[i::k] == one).sum()) for i in range(k)])
        order.shuffle(of_class)
        fold[known == one] = of_class
    return [(rows[fold != i], rows[fold == i]) for i in range(k)]


@dataclass(frozen=True)
class TaskLayout:
    """A task's items as they are fitted: splits one after the other, each in SentEval's order.

    Args:
        classes: Names of the classes.
        splits: The splits; all items in one, if the task is folded.
        orders: Of each split, the task's rows in SentEval's order.
        labels: Class of every item.
        rows: Rows of each split, by its name.
    """

    classes: tuple[str, ...]
    splits: tuple[LabelledSplit, ...]
    orders: tuple[Rows, ...]
    labels: Labels
    rows: dict[str, Rows]

    @property
    def folded(self) -> bool:
        """True if the items are tested in folds, not in a split of their own."""
        return "test" not in self.rows

    @property
    def tested(self) -> tuple[Rows, Rows]:
        """Rows of the items that are tested, and the task's order of them."""
        names = list(self.rows)
        position = 0 if self.folded else names.index("test")
        return self.rows[names[position]], self.orders[position]


def build_layout(task: LabelledTask) -> TaskLayout:
    """Lay out a task's items."""
    classes = tuple(sorted({label for split in task.splits for label in split.labels}))
    known = {label: number for number, label in enumerate(classes)}
    folded = not {"train", "test"} <= task.counts.keys()
    splits = (merge_splits(task.splits),) if folded else task.splits
    orders = tuple(order_by_length(split, known) for split in splits)
    labels = [np.array([known[x] for x in s.labels])[order] for s, order in zip(splits, orders, strict=True)]
    ends = np.cumsum([len(order) for order in orders])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    names = (split.name for split in splits)
    return TaskLayout(classes, splits, orders, np.concatenate(labels), dict(zip(names, rows, strict=True)))


@dataclass(frozen=True)
class ScoredItems:
    """The items of a task that are tested, in the task's order.

    Args:
        classes: Names of the classes.
        items: The items; those of all splits, if the task is folded.
        gold: (items,) number of each item's class.
        weights: (items,) what each counts, 1 on average: the accuracy of a folded task is the mean over
            folds, which aren't all of one size.
    """

    classes: tuple[str, ...]
    items: LabelledSplit
    gold: Labels
    weights: NDArray[np.float64]


@lru_cache(maxsize=16)
def scored_items(task: LabelledTask, kfold: int = KFOLD) -> ScoredItems:
    """Return the items of a task that are tested.

    Args:
        task: The task.
        kfold: Outer folds of a task without a test split.

    Raises:
        BenchError: a class with fewer items than folds.
    """
    lay = build_layout(task)
    rows, order = lay.tested
    weights = np.ones(len(rows))
    for _, held_out in stratified_folds(rows, lay.labels, kfold, SEED) if lay.folded else ():
        weights[held_out] = len(rows) / (kfold * len(held_out))
    items = lay.splits[0 if lay.folded else list(lay.rows).index("test")]
    return ScoredItems(
        lay.classes, items, restore_order(lay.labels[rows], order), restore_order(weights, order)
    )


def right_answers(task: LabelledTask, predictions: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which predicted classes are right.

    Args:
        task: The task.
        predictions: (items,) number of the predicted class of every tested item, in the task's order; or
            (runs, items).

    Raises:
        BenchError: a wrong number of predictions.
    """
    gold = scored_items(task).gold
    if predictions.shape[-1] != len(gold):
        raise BenchError(f"{predictions.shape[-1]} predictions for {len(gold)} items", where=task.id)
    found: NDArray[np.bool_] = predictions == gold
    return found


def score_classes(task: LabelledTask, predictions: NDArray[np.floating]) -> tuple[float, float]:
    """Score predicted classes: accuracy, the mean over folds where the task is folded; and F1 of class 1.

    Arguments and errors are those of :func:`right_answers`.
    """
    right = right_answers(task, predictions)
    items = scored_items(task)
    return float(np.mean(items.weights * right)), f1_score(predictions, items.gold)


def f1_score(predictions: NDArray[Any], gold: NDArray[Any]) -> float:
    """F1 of class 1; 0 without a true positive."""
    right = int(((predictions == 1) & (gold == 1)).sum())
    return 2 * right / max(1, int((predictions == 1).sum() + (gold == 1).sum()))


def restore_order(values: NDArray[T], order: Rows) -> NDArray[T]:
    """Put values of sorted items back into the task's order."""
    found = np.empty_like(values)
    found[order] = values
    return found


def merge_splits(splits: Sequence[LabelledSplit]) -> LabelledSplit:
    """All splits of a folded task as one."""
    first = tuple(sentence for split in splits for sentence in split.first)
    return LabelledSplit("all", first, (), tuple(label for split in splits for label in split.labels))


def order_by_length(split: LabelledSplit, known: dict[str, int]) -> Rows:
    """SentEval's order: by words of the sentence(s), then by class."""
    sides = (split.first, split.second) if split.second else (split.first,)
    keys = [[len(sentence.split()) for sentence in side] for side in sides]
    keys.append([known[label] for label in split.labels])
    return np.lexsort(keys[::-1])
