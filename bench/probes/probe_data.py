"""The probed sentences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.data.suites import is_reference
from bench.data.tasks import PairTask

VERSION = 1
"""Raised when the numbers of a probe change."""


@dataclass(frozen=True)
class ProbeData:
    """The pairs of a suite's tasks, taken together, and their sentences."""

    suite: str
    tasks: tuple[PairTask, ...]

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The distinct sentences, in order of first appearance."""
        pairs = (pair for task in self.tasks for pair in task.all_pairs())
        return tuple(dict.fromkeys(sentence for pair in pairs for sentence in pair))

    @cached_property
    def sides(self) -> tuple[list[str], list[str]]:
        """First and second sentences of all pairs."""
        pairs = [pair for task in self.tasks for pair in task.all_pairs()]
        return [first for first, _ in pairs], [second for _, second in pairs]

    @cached_property
    def gold(self) -> list[float]:
        """Gold scores of all pairs."""
        return [score for task in self.tasks for subset in task.subsets for score in subset.gold]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts of records, without the sentences."""
        tasks = {
            task.id: {"pairs": task.pairs, "sha256": task.sha256, "reference": is_reference(task)}
            for task in self.tasks
        }
        return {"suite": self.suite, "tasks": tasks, "sentences": len(self.sentences)}
