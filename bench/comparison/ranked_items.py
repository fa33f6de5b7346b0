"""Items of a suite whose data may be shown, with the rank that each method gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from bench.comparison.item_bootstrap import CampaignRun
from bench.data.suites import SUITES
from bench.data.tasks import PairTask
from bench.encoder import FloatArray
from bench.eval.rescoring import load_record_tasks

MOST = 5_000
"""Items of a task that are shown; a larger one is left out."""


@dataclass(frozen=True)
class RankedItems:
    """A task's pairs.

    Args:
        task: Its name.
        texts: Both sentences of each pair.
        gold: Gold score of each.
        ranks: By method its rank of each, 1 for the most similar: the mean over its seeds, to one decimal.
    """

    task: str
    texts: tuple[tuple[str, str], ...]
    gold: tuple[float, ...]
    ranks: dict[str, tuple[float, ...]]


def may_show_sentences(suite: str) -> bool:
    """True for a suite whose sentences are made up by bench itself; another's may not be copied anywhere."""
    return suite in SUITES.names() and SUITES.get(suite).embedded


def rank_items(methods: Mapping[str, Sequence[CampaignRun]], data: Path | None) -> list[RankedItems]:
    """Return the pairs of every task of a suite that may be shown; none of another suite.

    Args:
        methods: Finished runs of one suite, by method.
        data: Evaluation data.

    Raises:
        BenchError: data or predictions that are missing, or others than the record's.
    """
    first = next(run.record for runs in methods.values() for run in runs)
    if not may_show_sentences(first.suite):
        return []
    tasks = load_record_tasks(first, data)
    given = {method: [run.store.predictions(run.record) for run in runs] for method, runs in methods.items()}
    found = []
    for name, task in tasks.items():
        if not isinstance(task, PairTask) or task.pairs > MOST:
            continue
        texts = tuple(task.all_pairs())
        gold = tuple(float(value) for subset in task.subsets for value in subset.gold)
        ranks = {method: _mean_ranks([each[name] for each in runs]) for method, runs in given.items()}
        found.append(RankedItems(name, texts, gold, ranks))
    return found


def _mean_ranks(runs: Sequence[FloatArray]) -> tuple[float, ...]:
    means: list[float] = np.stack([rankdata(-run) for run in runs]).mean(0).round(1).tolist()
    return tuple(means)
