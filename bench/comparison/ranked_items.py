"""Items of a suite whose data may be shown, with each method's ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from bench.comparison.item_bootstrap import CampaignRun
from bench.data.suites import SUITES
from bench.data.tasks import PairTask
from bench.eval.rescoring import load_record_tasks

MOST = 5_000
"""Most items of a task to show; a larger task is left out."""


@dataclass(frozen=True)
class RankedItems:
    """A task's pairs, gold scores, and by method the mean ranks over seeds, 1 for the most similar pair."""

    task: str
    texts: tuple[tuple[str, str], ...]
    gold: tuple[float, ...]
    ranks: dict[str, tuple[float, ...]]


def may_show_sentences(suite: str) -> bool:
    """True for a suite of synthetic sentences; those of others may not be copied."""
    return suite in SUITES.names() and SUITES.get(suite).embedded


def rank_items(methods: Mapping[str, Sequence[CampaignRun]], data: Path | None) -> list[RankedItems]:
    """Return the pairs of every task of a suite that may be shown, for its runs by method."""
    first = next(run.record for runs in methods.values() for run in runs)
    if not may_show_sentences(first.suite):
        return []
    tasks = load_record_tasks(first, data)
    predictions = {}
    for method, runs in methods.items():
        predictions[method] = [run.store.predictions(run.record) for run in runs]
    items = []
    for name, task in tasks.items():
        if not isinstance(task, PairTask) or task.pairs > MOST:
            continue
        gold = tuple(float(value) for subset in task.subsets for value in subset.gold)
        ranks = {}
        for method, of_runs in predictions.items():
            stacked = np.stack([rankdata(-of_run[name]) for of_run in of_runs])
            ranks[method] = tuple(stacked.mean(0).round(1).tolist())
        items.append(RankedItems(name, tuple(task.all_pairs()), gold, ranks))
    return items
