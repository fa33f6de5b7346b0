"""Sampling units of a suite's items: clusters of items that share a text, and draws of them.

Items of one cluster depend on one another, so a draw takes clusters with replacement, and every item of a
cluster as often as its cluster. Clusters that reach over tasks link the tasks' draws. Without shared texts
each item is a cluster, and a draw is that of the plain bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.stats.argument_checks import FloatArray
from bench.stats.resampling import IntArray, draw_counts

Labels = NDArray[np.intp]
Part = tuple[str, int]
"""A task and the number of its part, from 0; most tasks have one."""
LEAST_EFFECTIVE = 10.0
"""Fewer clusters than this, counted by their sizes, give no interval."""


@dataclass(frozen=True)
class ItemClusters:
    """The clusters of a task's items.

    Args:
        items: Number of items.
        clusters: Number of clusters; as many as items if no two share a text.
        largest: Items of the largest cluster.
        effective: Kish's number of equal clusters: items squared over the sum of squared sizes.
    """

    items: int
    clusters: int
    largest: int
    effective: float

    @property
    def shared(self) -> bool:
        """True if two items share a text."""
        return self.clusters < self.items


@dataclass(frozen=True)
class LinkedTasks:
    """Tasks whose clusters are drawn together, and Kish's number of clusters for their average."""

    tasks: tuple[str, ...]
    effective: float


@dataclass(frozen=True)
class UnitSummary:
    """The clusters of a suite, in numbers.

    Args:
        tasks: By task.
        linked: All tasks, in groups that share clusters.
        clusters: Number of clusters of the suite.
        known: False without the texts; each item then counts as a cluster.
    """

    tasks: dict[str, ItemClusters]
    linked: tuple[LinkedTasks, ...]
    clusters: int
    known: bool = True

    @property
    def items(self) -> int:
        """Number of items of all tasks."""
        return sum(task.items for task in self.tasks.values())

    @property
    def shared(self) -> bool:
        """True if two items of the suite share a text."""
        return self.clusters < self.items

    def effective_clusters(self, task: str, average: str) -> float | None:
        """Return the effective number of clusters of a task, None if no two of its items share a text.

        ``average`` is the name of the mean over all tasks: variances of groups of linked tasks add up, so its
        number is T^2 over the sum of T_g^2 / number, with T_g tasks in a group.
        """
        if task != average:
            return self.tasks[task].effective if self.tasks[task].shared else None
        if not self.shared:
            return None
        spread = sum(len(group.tasks) ** 2 / group.effective for group in self.linked)
        return len(self.tasks) ** 2 / spread

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> UnitSummary:
        """Return it from JSON's types; raise AttributeError, KeyError, TypeError or ValueError for others."""
        tasks = {name: ItemClusters(**numbers) for name, numbers in value["tasks"].items()}
        linked = tuple(LinkedTasks(tuple(one["tasks"]), one["effective"]) for one in value["linked"])
        summary = cls(tasks, linked, value["clusters"], value["known"])
        counts = [summary.clusters]
        for task in tasks.values():
            counts += [task.items, task.clusters, task.largest]
        sizes = [task.effective for task in tasks.values()] + [group.effective for group in linked]
        is_sound = (
            all(type(count) is int and count > 0 for count in counts)
            and all(type(size) is float and 1 <= size <= summary.items + 0.5 for size in sizes)
            and type(summary.known) is bool
            and sorted(task for one in linked for task in one.tasks) == sorted(tasks)
        )
        if not is_sound:
            raise ValueError(f"{value}; expected the clusters of a suite")
        return summary


class SuiteUnits:
    """The sampling units of a suite, as labels of its items.

    Args:
        labels: For every task (items,) numbers of clusters of each part; equal numbers are one cluster, in
            all tasks.
        known: False if the texts are unknown.

    >>> labels = {"one": [np.array([0, 1, 0])], "two": [np.array([1, 2])], "three": [np.arange(3, 6)]}
    >>> units = SuiteUnits(labels)
    >>> [one.tasks for one in units.summary.linked], units.summary.tasks["one"].effective
    ([('one', 'two'), ('three',)], 1.8)
    """

    def __init__(self, labels: Mapping[str, Sequence[Labels]], *, known: bool = True) -> None:
        self.labels = {task: tuple(parts) for task, parts in labels.items()}
        self._known = known
        for task, parts in self.labels.items():
            if not parts or not all(len(part) for part in parts):
                raise ValueError(f"{task} has no items in a part; expected at least one")

    @classmethod
    def independent(cls, sizes: Mapping[str, Sequence[int]], *, known: bool = False) -> SuiteUnits:
        """Return units of single items, for tasks with parts of these sizes.

        >>> SuiteUnits.independent({"one": [3], "two": [2]}).summary.clusters
        5
        """
        start = 0
        labels: dict[str, list[Labels]] = {task: [] for task in sizes}
        for task, parts in sizes.items():
            for size in parts:
                labels[task].append(np.arange(start, start + size))
                start += size
        return cls(labels, known=known)

    def task_labels(self, task: str) -> Labels:
        """Return the (items,) clusters of a task, its parts one after the other."""
        return np.concatenate(self.labels[task])

    @cached_property
    def summary(self) -> UnitSummary:
        """The clusters in numbers."""
        tasks = {task: _count_clusters(self.task_labels(task)) for task in self.labels}
        groups = _group_linked({(task, 0): self.task_labels(task) for task in self.labels})
        linked = []
        for group in groups:
            names = tuple(task for task, _ in group)
            linked.append(LinkedTasks(names, self._count_effective(names)))
        everything = np.concatenate([self.task_labels(task) for task in self.labels])
        return UnitSummary(tasks, tuple(linked), len(np.unique(everything)), self._known)

    def _count_effective(self, tasks: Sequence[str]) -> float:
        """Return Kish's number of clusters for the mean of tasks, each the mean of its parts."""
        labels, weights = [], []
        for task in tasks:
            for part in self.labels[task]:
                labels.append(part)
                weights.append(np.full(len(part), 1 / len(self.labels[task]) / len(part)))
        if len(labels) == 1:  # integers, so that single items give exactly their number
            return _count_clusters(labels[0]).effective
        _, numbers = np.unique(np.concatenate(labels), return_inverse=True)
        sums = np.bincount(numbers, np.concatenate(weights))
        return float(sums.sum() ** 2 / (sums @ sums))

    def draw(
        self, draws: int, make: Callable[[str], np.random.Generator]
    ) -> Iterator[tuple[slice, dict[Part, IntArray]]]:
        """Yield some draws, as a slice, and the (some draws, items) counts of parts that share clusters.

        Args:
            make: From the name of a stream to its generator; a group of parts has the stream of its first,
                "items/TASK", or "items/TASK/NUMBER" of a task's further parts.
        """
        parts = {(task, i): part for task, of in self.labels.items() for i, part in enumerate(of)}
        for group in _group_linked(parts):
            task, number = group[0]
            stream = f"items/{task}/{number}" if number else f"items/{task}"
            _, together = np.unique(np.concatenate([parts[part] for part in group]), return_inverse=True)
            clusters = np.split(together, np.cumsum([len(parts[part]) for part in group])[:-1])
            start = 0
            for counts in draw_counts(int(together.max()) + 1, make(stream), draws):
                drawn = slice(start, start + len(counts))
                yield drawn, {part: _spread(counts, of) for part, of in zip(group, clusters, strict=True)}
                start = drawn.stop


def draw_scores(
    statistics: Mapping[str, Sequence[Callable[[IntArray], FloatArray]]],
    units: SuiteUnits,
    draws: int,
    make: Callable[[str], np.random.Generator],
) -> FloatArray:
    """Return (draws, runs, tasks) scores in common draws of the units; a task's is the mean of its parts.

    Args:
        statistics: For every task, and each of its parts, a function from (some draws, items) counts to
            (some draws, runs) scores.
        make: As in :meth:`SuiteUnits.draw`.
    """
    columns = {task: column for column, task in enumerate(statistics)}
    result: FloatArray | None = None
    for drawn, counts in units.draw(draws, make):
        for (task, number), of_part in counts.items():
            parts = statistics[task]
            if not of_part.any(axis=1).all():
                what = f"{task}: a draw has none of its items ({of_part.shape[1]})"
                raise ValueError(f"{what}; expected a task with a larger share of the suite's clusters")
            try:
                scores = parts[number](of_part)
            except ValueError as error:
                raise ValueError(f"{task}: {error}") from error
            if result is None:
                result = np.zeros((draws, scores.shape[1], len(columns)))
            result[drawn, :, columns[task]] += scores if len(parts) == 1 else scores / len(parts)
    if result is None:
        raise ValueError("no tasks; expected at least one")
    return result


def _spread(counts: IntArray, labels: Labels) -> IntArray:
    """Return the counts of items from those of their clusters."""
    if counts.shape[1] == len(labels) and (np.diff(labels) == 1).all():
        return counts
    return counts.take(labels, axis=1)


def _count_clusters(labels: Labels) -> ItemClusters:
    sizes = np.unique(labels, return_counts=True)[1]
    return ItemClusters(len(labels), len(sizes), int(sizes.max()), len(labels) ** 2 / int(sizes @ sizes))


def _group_linked(parts: Mapping[Part, Labels]) -> list[list[Part]]:
    """Group parts that a chain of shared clusters links, in the order of their first parts."""
    groups: list[tuple[list[Part], set[int]]] = []
    for part, labels in parts.items():
        own, clusters = [part], set(labels.tolist())
        apart = []
        for group in groups:
            if clusters.isdisjoint(group[1]):
                apart.append(group)
            else:
                own, clusters = [*group[0], *own], clusters | group[1]
        groups = [*apart, (own, clusters)]
    order = list(parts)
    found = [sorted(own, key=order.index) for own, _ in groups]
    return sorted(found, key=lambda own: order.index(own[0]))
