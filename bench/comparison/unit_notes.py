"""Notes on the sampling units of items: clusters of items that share a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from bench.eval.suite_measures import measure_of
from bench.stats.coverage import CoverageRow, find_cluster_coverage
from bench.stats.item_units import ItemClusters, UnitSummary

LARGE = 0.1
"""Share of a task's items from which one cluster is named."""


def describe_units(suite: str, units: UnitSummary) -> Iterator[str]:
    """Yield notes on what the draws of a suite's items take; nothing where each item is a unit."""
    counted = measure_of(suite).counted
    if not units.known:
        yield (
            f"Some texts of the items are missing, so these {counted} count as independent: if they share "
            "sentences, intervals over items are too narrow."
        )
    if not units.shared:
        return
    yield (
        f"Unit of statistics over items: {units.clusters:,} {measure_of(suite).unit} "
        f"({units.items:,} {counted})."
    )
    large = [name for name, task in units.tasks.items() if task.largest >= LARGE * task.items and task.shared]
    if large:
        *others, last = (f"{_share(units.tasks[name])} of {name}" for name in large)
        shares = f"{', '.join(others)} and {last}" if others else last
        row = find_cluster_coverage()
        yield f"One cluster holds {shares}: in simulations of such tasks, {_describe_coverage(row)}."


def _share(task: ItemClusters) -> str:
    return f"{task.largest / task.items:.0%}"


def _describe_coverage(row: CoverageRow) -> str:
    return f"95% intervals over items held the true difference in {100 * row.measured:.1f}%"
