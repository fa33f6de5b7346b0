"""What kept draws of the items say: intervals of methods' averages, and of their differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.compare.draws import Run, stored_draws
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, finished
from bench.reports.tables.significance import LEVEL
from bench.stats.items import ItemDifference, item_difference

MethodDraws = dict[str, NDArray[np.float64]]


def method_draws(campaign: Campaign, records: Sequence[RunRecord]) -> MethodDraws:
    """Return (draws,) averages of every method all of whose finished runs have kept draws; runs are averaged.

    ``bench stats`` makes and keeps them.
    """
    found: MethodDraws = {}
    for method, runs in by_method(finished(records)).items():
        kept = (stored_draws(Run(campaign.store, record)) for record in runs)
        averages = [drawn.mean(1, dtype=np.float64) for drawn in kept if drawn is not None]
        if len(averages) == len(runs):
            found[method] = sum(averages, np.zeros(1)) / len(runs)
    return found


def item_interval(drawn: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile interval of a method's average: for these checkpoints, on other items."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def compare_items(drawn: MethodDraws, first: str, second: str, observed: float) -> ItemDifference | None:
    """Paired bootstrap of two methods' averages; None where one has no draws."""
    if first not in drawn or second not in drawn:
        return None
    return item_difference(drawn[first] - drawn[second], observed, 0, LEVEL)
