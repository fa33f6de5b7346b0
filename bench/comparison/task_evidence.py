"""Evidence of tasks on the difference of two rows that have neither seeds nor items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.comparison.item_bootstrap import list_task_names
from bench.comparison.selection import Group
from bench.records.imported import is_published
from bench.records.record import RunRecord

if TYPE_CHECKING:
    from bench.stats.method_ranking import PairTest

LEAST_TASKS = 6
"""Tasks from which they are tested, as :data:`bench.stats.task_tests.MIN_TASKS`."""


@dataclass(frozen=True)
class TaskLevel:
    """The evidence of the tasks, in the metric's unit.

    Args:
        tasks: Number of tasks; ``types``: the type of each, or () if unknown.
        averages: By "tasks" (the mean over tasks) and, with several types, "types" (the mean over types): the
            difference first - second with its test.
    """

    tasks: int
    types: tuple[str, ...]
    averages: dict[str, PairTest]


def has_only_tasks(records: Sequence[RunRecord]) -> bool:
    """Return whether rows can only be tested over tasks.

    None has a seed, one at least is imported without predictions, and all have the same six tasks or more.
    """
    if not records or any(record.seed is not None for record in records):
        return False
    if not any(is_published(record) for record in records):
        return False
    lists = {list_task_names(record) for record in records}
    return len(lists) == 1 and len(lists.pop()) >= LEAST_TASKS


def read_task_types(record: RunRecord) -> tuple[str, ...]:
    """Return the type of each task of a record, in the order of its scores; () if one has none."""
    types = [record.tasks.get(task, {}).get("type") for task in list_task_names(record)]
    return tuple(map(str, types)) if all(types) else ()


def compare_over_tasks(a: Group, b: Group, level: float) -> TaskLevel | None:
    """Compare two rows over their tasks, or return None where they have seeds, items or too few tasks."""
    records = [run.record for run in (*a.runs, *b.runs)]
    if not has_only_tasks(records):
        return None
    from bench.stats.task_tests import task_pair_test

    names, types = list_task_names(records[0]), read_task_types(records[0])
    first, second = ([group.scores(task)[0] for task in names] for group in (a, b))
    averages = ("tasks", "types") if len(set(types)) > 1 else ("tasks",)
    tests = {}
    for average in averages:
        tests[average] = task_pair_test(first, second, types, average=average, level=level)
    return TaskLevel(len(names), types, tests)


def explain_no_test(records: Sequence[RunRecord]) -> list[str]:
    """Return a note on rows that neither seeds nor items nor tasks can tell apart, if these are such rows."""
    published = [record for record in records if is_published(record)]
    if len(records) < 2 or len(published) < len(records) or has_only_tasks(records):
        return []
    if any(record.seed is not None for record in records):
        return []
    count = len(list_task_names(records[0]))
    have = f"{count} task{'s' * (count != 1)}"
    needed = f"they have {have}, and a test over tasks needs {LEAST_TASKS}"
    return [f"Not tested: these rows have neither seeds nor items; {needed}."]


PICKED = (
    "The test is of this pair alone, as if it had been chosen before the scores were seen. For a pair picked "
    "from a leaderboard its ranks decide: bench report."
)
"""Note on a single pair of rows that are tested over tasks."""


def describe_task_unit(types: Sequence[str], tasks: int) -> str:
    """Return what tests over tasks speak for, and what they assume."""
    kinds = f" of {len(set(types))} types" if len(set(types)) > 1 else ""
    return (
        f"Unit of the tests: the task ({tasks}{kinds}), as these rows have neither seeds nor items. They "
        "speak for further tasks of this kind, not for other seeds. They take the tasks as a random draw, "
        "which no benchmark is, and as independent of one another."
    )
