"""Tests over tasks between rows that have neither seeds nor items, such as published scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bench.comparison.item_bootstrap import list_task_names
from bench.comparison.task_evidence import describe_task_unit, read_task_types
from bench.records.record import AVERAGE, RunRecord
from bench.reports.campaign import Campaign
from bench.reports.tables.pairwise_tests import PairwiseTests

if TYPE_CHECKING:
    from bench.stats.method_ranking import PairTest, Ranking
    from bench.stats.pair_table import PairTable
    from bench.stats.task_tests import TaskTests

ONE_TASK = "one task, and neither has seeds"


class TaskPairwiseTests(PairwiseTests):
    """Tests over tasks between the rows of one profile and suite, each with one score a task."""

    over_tasks = True

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        super().__init__(campaign, records)
        self._rows = {method: group.runs[0].record for method, group in self._groups.items()}
        first = next(iter(self._rows.values()))
        self.tasks = list_task_names(first)
        self.types = read_task_types(first)
        self._tests: dict[str, TaskTests] = {}

    @cached_property
    def average_names(self) -> tuple[str, ...]:
        """The averages that the tasks have: over tasks, over types if they have several, and Borda's."""
        from bench.stats.task_averages import AVERAGES

        return tuple(name for name in AVERAGES if name != "types" or len(set(self.types)) > 1)

    def tests_of(self, average: str) -> TaskTests:
        """Return the tests of all pairs on one of ``average_names``."""
        if average not in self._tests:
            from bench.stats.task_averages import TaskScores
            from bench.stats.task_tests import compare_tasks

            rows = [self._scores[id(record)] for record in self._rows.values()]
            scores = np.array([[row[task] for task in self.tasks] for row in rows])
            table = TaskScores(tuple(self._rows), scores, self.types)
            self._tests[average] = compare_tasks(table, average)
        return self._tests[average]

    def average_of(self, method: str) -> float:
        """Return a row's average as its record has it."""
        return self._scores[id(self._rows[method])][AVERAGE]

    def list_best(self, average: str = "tasks") -> frozenset[str]:
        """Return the rows that may be the best on one of ``average_names``."""
        tests = self.tests_of(average)
        best = zip(tests.methods, tests.may_be_best.tolist(), strict=True)
        return frozenset(method for method, may_be in best if may_be)

    def of(self, task: str = AVERAGE) -> Ranking:
        """Return the ranking by the average; a single task has none."""
        if task != AVERAGE:
            return super().of(task)
        if task not in self._rankings:
            self._rankings[task] = self.tests_of("tasks").ranking
        return self._rankings[task]

    def test(
        self, a: str, b: str, task: str = AVERAGE, level: float | None = None, *, fewest: bool = False
    ) -> PairTest:
        """Test two rows over tasks, before any correction."""
        if task == AVERAGE:
            return self.tests_of("tasks").pair(a, b, level)
        return replace(super().test(a, b, task, level, fewest=fewest), test=ONE_TASK)

    def table(self, task: str = AVERAGE) -> PairTable:
        """Return the tests of all pairs before correction; of a single task, differences alone."""
        if task not in self._tables:
            self._tables[task] = self._make_table(task)
        return self._tables[task]

    def _make_table(self, task: str) -> PairTable:
        from bench.stats.pair_table import PairTable

        means = self._means(task)
        scores = np.array(list(means.values()))
        differences = scores[:, None] - scores
        p, names = np.full(differences.shape, np.nan), np.zeros(differences.shape, dtype=np.int32)
        test = ONE_TASK
        if task == AVERAGE:
            from bench.stats.difference_test import OVER_TASKS

            tests = self.tests_of("tasks")
            own = [tests.methods.index(method) for method in means]
            p, test = tests.p[np.ix_(own, own)].copy(), OVER_TASKS
            np.fill_diagonal(p, np.nan)
        return PairTable(tuple(means), differences, p, p, names, (test,))

    def interval(self, a: str, b: str, task: str = AVERAGE) -> tuple[float, float] | None:
        """Return the interval of a - b that agrees with its verdict among all pairs."""
        return self.tests_of("tasks").interval(a, b) if task == AVERAGE else None

    def unit_notes(self, suite: str, *, intervals: bool = False) -> list[str]:
        """Say what the tests speak for."""
        return [describe_task_unit(self.types, len(self.tasks))]
