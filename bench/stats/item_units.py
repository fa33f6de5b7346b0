"""Sampling units of a suite's items: clusters of items that share a text, and draws of them.

Items of one cluster depend on one another, so a draw takes clusters with replacement, and every item of a
cluster as often as its cluster. Clusters that reach over tasks link the tasks' draws. Without shared texts
each item is a cluster, and a draw is that of the plain bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.stats.argument_checks import FloatArray
from bench.stats.resampling import IntArray, draw_counts

Labels = NDArray[np.intp]
Part = tuple[str, int]
"""A task and the number of its part, from 0; most tasks have one."""
_NEVER_MISSED = 60  # a draw misses k clusters with a chance of e^-k
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

    @property
    def is_possible(self) -> bool:
        """True if the numbers fit together and suffice for intervals."""
        largest = self.items - self.clusters + 1
        if not (self.clusters <= self.items and 1 <= self.largest <= largest):
            return False
        least = LEAST_EFFECTIVE if self.shared else 0.0
        return least <= self.effective <= self.clusters * (1 + 1e-9)


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
        linked = [{"tasks": list(group.tasks), "effective": group.effective} for group in self.linked]
        return asdict(self) | {"linked": linked}

    @classmethod
    def from_json(cls, value: Any) -> UnitSummary:
        """Return it from JSON's types; raise AttributeError, KeyError, TypeError or ValueError for others."""
        tasks = {name: ItemClusters(**numbers) for name, numbers in value["tasks"].items()}
        linked = tuple(LinkedTasks(tuple(one["tasks"]), one["effective"]) for one in value["linked"])
        summary = cls(tasks, linked, value["clusters"], value["known"])
        if not (value == summary.to_json() and summary._is_possible()):
            raise ValueError(f"{value}; expected the clusters of a suite")
        return summary

    def _is_possible(self) -> bool:
        """True if all numbers fit together."""
        counts = [self.clusters]
        for task in self.tasks.values():
            counts += [task.items, task.clusters, task.largest]
        effective = [task.effective for task in self.tasks.values()] + [one.effective for one in self.linked]
        if not all(type(count) is int and count > 0 for count in counts):
            return False
        if not all(type(number) is float and math.isfinite(number) for number in effective):
            return False
        by_task = [task.clusters for task in self.tasks.values()]
        named = [task for group in self.linked for task in group.tasks]
        return (
            type(self.known) is bool
            and (self.known or len(self.tasks) > 1 or not self.shared)
            and all(task.is_possible for task in self.tasks.values())
            and max(by_task) <= self.clusters <= sum(by_task)
            and sorted(named) == sorted(self.tasks)
            and all(map(self._is_possible_group, self.linked))
        )

    def _is_possible_group(self, group: LinkedTasks) -> bool:
        if len(group.tasks) == 1:
            return group.effective == self.tasks[group.tasks[0]].effective
        return len(group.tasks) > 1 and LEAST_EFFECTIVE <= group.effective <= self.items


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

    def find_shortage(self) -> str | None:
        """Return why there are too few clusters for statistics over items, if so.

        >>> SuiteUnits({"one": [np.array([0, 0, 1, 1])]}).find_shortage()
        'the 4 items of one share sentences: as good as 2.0 clusters'
        """
        for name, task in self.summary.tasks.items():
            if task.shared and task.effective < LEAST_EFFECTIVE:
                number = f"{task.effective:.1f} clusters"
                return f"the {task.items} items of {name} share sentences: as good as {number}"
        for group in self.summary.linked:
            if len(group.tasks) > 1 and group.effective < LEAST_EFFECTIVE:
                names = ", ".join(group.tasks)
                return f"the items of {names} share sentences: as good as {group.effective:.1f} clusters"
        return None

    def task_labels(self, task: str) -> Labels:
        """Return the (items,) clusters of a task, its parts one after the other."""
        return np.concatenate(self.labels[task])

    @cached_property
    def summary(self) -> UnitSummary:
        """The clusters in numbers."""
        tasks = {}
        for task in self.labels:
            counted = _count_clusters(self.task_labels(task))
            tasks[task] = replace(counted, effective=self._count_effective([task]))
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
                "items/TASK", or "items/TASK/NUMBER" of a task's further parts. Draws that lack a part's items
                are drawn again, from the same stream with "/again".
        """
        parts = {(task, i): part for task, of in self.labels.items() for i, part in enumerate(of)}
        for group in _group_linked(parts):
            task, number = group[0]
            stream = f"items/{task}/{number}" if number else f"items/{task}"
            _, together = np.unique(np.concatenate([parts[part] for part in group]), return_inverse=True)
            clusters = np.split(together, np.cumsum([len(parts[part]) for part in group])[:-1])
            start = 0
            small = _list_small_parts(clusters)
            again: np.random.Generator | None = None
            most = max(map(len, clusters))
            for counts in draw_counts(int(together.max()) + 1, make(stream), draws, most):
                while len(empty := _find_empty(counts, small)):
                    again = again or make(f"{stream}/again")
                    chosen = again.integers(0, counts.shape[1], (len(empty), counts.shape[1]))
                    counts[empty] = [np.bincount(row, minlength=counts.shape[1]) for row in chosen]
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

    >>> from functools import partial
    >>> from bench.stats.argument_checks import make_generator
    >>> from bench.stats.resampling import mean_statistic
    >>> statistics = {"one": [mean_statistic([[1, 0, 1, 1]])]}
    >>> draw_scores(statistics, SuiteUnits({"one": [np.arange(4)]}), 100, partial(make_generator, 1)).shape
    (100, 1, 1)
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


def _list_small_parts(clusters: Sequence[Labels]) -> list[Labels]:
    """Return the clusters of each part that a draw of a larger group may miss."""
    if len(clusters) == 1:
        return []
    distinct = [np.unique(labels) for labels in clusters]
    return [labels for labels in distinct if len(labels) < _NEVER_MISSED]


def _find_empty(counts: IntArray, parts: Sequence[Labels]) -> NDArray[np.intp]:
    """Return the draws in which one of some parts has no item."""
    empty = np.zeros(len(counts), dtype=np.bool_)
    for labels in parts:
        empty |= ~counts[:, labels].any(axis=1)
    return np.flatnonzero(empty)


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
