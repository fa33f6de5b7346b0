"""Notes on the sampling units of items: clusters of items that share a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.eval.suite_measures import measure_of
from bench.records.record import AVERAGE
from bench.stats.coverage import find_cluster_coverage
from bench.stats.item_units import UnitSummary

if TYPE_CHECKING:
    from bench.stats.item_statistics import ItemDifference  # scipy.stats is slow to load

LARGE = 0.1
"""A cluster with at least this share of a task's items is named."""


def describe_units(suite: str, units: UnitSummary, *, differences: bool = True) -> Iterator[str]:
    """Yield notes on the sampling units of a suite's items; single items need none.

    ``differences`` is False for intervals of single checkpoints.
    """
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
    large = {}
    for name, task in units.tasks.items():
        if task.shared and task.largest >= LARGE * task.items:
            large[name] = f"{task.largest / task.items:.0%} of {name}"
    if large:
        method, of, true = "item bootstrap, one run", "of a checkpoint", "its true score"
        if differences:
            method, of, true = "paired bootstrap", "of the difference of two equal checkpoints", "0"
        measured = 100 * find_cluster_coverage(method).measured
        yield (
            f"The largest cluster holds {_join(list(large.values()))}. In simulations on tasks of sts7 with "
            f"such clusters, 95% intervals over items {of} held {true} in {measured:.1f}% or more."
        )


def describe_rough_intervals(tests: Mapping[str, ItemDifference]) -> Iterator[str]:
    """Yield a note on intervals over items that rest on a few clusters; "avg" is the average."""
    rough = ["the average" if task == AVERAGE else task for task, test in tests.items() if test.is_rough]
    if rough:
        yield (
            f"Rough over items: {_join(rough)}. The draws are far from normal, so a few clusters carry most "
            "of the variance: trust the interval's order of magnitude, and not its p."
        )


def _join(names: Sequence[str]) -> str:
    """Join names with commas and a last "and"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
