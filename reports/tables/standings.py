"""All pairs of a suite's methods, tested once, each by its own design: what a page says rests on this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.comparison.design import design_of
from bench.comparison.item_bootstrap import FOLDER, Run, stored_draws, task_names
from bench.comparison.select import Group, by_seed
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, finished, main_metric
from bench.stats.design import Seeds

if TYPE_CHECKING:
    from bench.stats.ranks import PairTest, Ranking
    from bench.stats.spread import Spread

ALPHA = 0.05
Array = NDArray[np.float64]
Pair = frozenset[str]


class Standings:
    """The methods of one profile and suite.

    Which runs are pairs is read from the records' stages and batches, as ``bench compare`` does. Where draws
    of the items of all runs are kept, the tests speak for further seeds and items, else for further seeds on
    these items. Both is settled before any score is read. Supervised methods are left out unless the campaign
    ranks them, so that nothing that is said of the others depends on them.

    Args:
        campaign: Where draws of the items may be kept.
        records: Those of one profile and suite.
    """

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        done = [record for record in finished(records) if record.method not in campaign.apart]
        self._shown = campaign.shown
        self._as_kept = campaign.as_kept
        self._metric = main_metric(done)
        self._groups = {
            method: Group(method, tuple(by_seed(Run(campaign.home(record), record) for record in runs)))
            for method, runs in by_method(done).items()
        }
        self._designs: dict[tuple[str, Seeds, str, Seeds], tuple[Group, Group, bool]] = {}
        kept = self._groups if any((s.root / FOLDER).is_dir() for s in campaign.stores) else ()
        self.drawn = {method: drawn for method in kept if (drawn := self._draws(method)) is not None}
        seeds = any(not group.deterministic for group in self._groups.values())
        self.with_items = seeds and len(self.drawn) == len(self._groups) and len(self._tasks) == 1
        self._rankings: dict[str, Ranking] = {}

    @cached_property
    def _tasks(self) -> set[tuple[str, ...]]:
        return {task_names(run.record) for group in self._groups.values() for run in group.runs}

    def _sides(self, a: str, b: str, task: str = AVERAGE) -> tuple[Group, Group, bool]:
        """The runs of both that a test of this task uses, and whether they are pairs."""
        one, other = self._scored(a, task), self._scored(b, task)
        key = a, one.seeds, b, other.seeds
        if key not in self._designs:
            one, other, design = design_of(one, other, "auto", "")
            self._designs[key] = one, other, design.paired
        return self._designs[key]

    def _scored(self, method: str, task: str) -> Group:
        """The method's runs that have a score of the task; all of them if none has."""
        group = self._groups[method]
        runs = tuple(run for run in group.runs if run.record.score(task, metric=self._metric) is not None)
        return replace(group, runs=runs or group.runs)

    def _draws(self, method: str) -> Array | None:
        """(draws, tasks) scores in kept draws of items, the mean of its runs; None if some are missing."""
        runs = self._groups[method].runs
        total: Array | None = None
        for run in runs:
            kept = stored_draws(Run(run.store, self._as_kept(run.record)))
            if kept is None or (total is not None and total.shape != kept.shape):
                return None
            total = kept.astype(np.float64) if total is None else total + kept
        return None if total is None else total / len(runs)

    def of(self, task: str = AVERAGE) -> Ranking:
        """Return the methods in the order of their means on a task, and all pairs of them."""
        if task not in self._rankings:
            from bench.stats.ranks import rank_methods

            scores = {method: self._scores(group, task) for method, group in self._groups.items()}
            means = {method: fmean(own) for method, own in scores.items() if own}
            self._rankings[task] = rank_methods(means, lambda a, b: self.test(a, b, task), alpha=ALPHA)
        return self._rankings[task]

    def sizes(self, a: str, b: str) -> tuple[int, int]:
        """Return how many runs of each the test uses."""
        one, other, _ = self._sides(a, b)
        return len(one.runs), len(other.runs)

    def spread(self, a: str, b: str) -> Spread | None:
        """Return the spread over seeds behind the test of two methods; None where no score varies."""
        from bench.stats.spread import spread_of_pairs, spread_of_sides

        one, other, paired = self._sides(a, b)
        x, y = self._scores(one, AVERAGE), self._scores(other, AVERAGE)
        try:
            if paired:
                return spread_of_pairs(x, y)
            found = spread_of_sides(x, y)
        except ValueError:
            return None
        # a side with seeds that doesn't vary is no fixed score
        alone = one.deterministic or other.deterministic
        return found if alone or found.design != "one side" else None

    @property
    def leaves_out(self) -> bool:
        """True if a test uses only the seeds that both methods have."""
        return any(
            used < len(self._groups[method].runs)
            for pair in combinations(self._groups, 2)
            for method, used in zip(pair, self.sizes(*pair), strict=True)
        )

    def _scores(self, group: Group, task: str) -> list[float]:
        runs = (run.record for run in group.runs)
        return [value for run in runs if (value := run.score(task, metric=self._metric)) is not None]

    def test(self, a: str, b: str, task: str = AVERAGE, level: float | None = None) -> PairTest:
        """Test two methods on a task, before any correction; with its interval if a level is given."""
        from bench.stats.pair_test import NO_DRAWS, ONE_SEED, pair_test

        one, other, paired = self._sides(a, b, task)
        x, y = self._scores(one, task), self._scores(other, task)
        alone = (one.deterministic, other.deterministic)
        items, parts = None, []
        if all(alone) and a in self.drawn and b in self.drawn:
            items = self._on(a, task) - self._on(b, task)
        elif self.with_items:
            parts = self._parts(a, b, task)
        found = pair_test(
            x,
            y,
            deterministic=alone,
            paired=paired,
            items=items,
            parts=parts,
            level=level,
        )
        if found.test == ONE_SEED:
            short = a if len(x) < 2 and not alone[0] else b
            return replace(found, test=f"{self._shown(short)} has one seed")
        return replace(found, test="neither has seeds") if found.test == NO_DRAWS else found

    def _on(self, method: str, task: str) -> Array:
        """(draws,) scores of a task, or of the average."""
        drawn = self.drawn[method]
        names = task_names(self._groups[method].runs[0].record)
        chosen: Array = drawn.mean(1) if task == AVERAGE else drawn[:, names.index(task)]
        return chosen

    def _parts(self, a: str, b: str, task: str) -> list[tuple[float, int]]:
        """The variance that the items of each task add to a difference, with its degrees of freedom."""
        (names,) = self._tasks
        wanted = names if task == AVERAGE else (task,)
        place = {method: i for i, method in enumerate(self._groups)}
        i, j = place[a], place[b]
        found = []
        for name in wanted:
            shared = self._covariances[name]
            variance = float(shared[i, i] + shared[j, j] - 2 * shared[i, j])
            found.append((max(variance, 0.0) / len(wanted) ** 2, self._items[name] - 1))
        return found

    @cached_property
    def _covariances(self) -> dict[str, Array]:
        """Of all methods over the draws of each task's items; computed for all pairs at once."""
        (names,) = self._tasks
        return {
            name: np.atleast_2d(np.cov([self.drawn[method][:, column] for method in self._groups]))
            for column, name in enumerate(names)
        }

    @cached_property
    def _items(self) -> dict[str, int]:
        """Items of each task."""
        record = next(iter(self._groups.values())).runs[0].record
        return {s.task: s.n for s in record.scores if (s.subset, s.metric) == (ALL, record.metric)}

    def interval(self, a: str, b: str, task: str = AVERAGE) -> tuple[float, float] | None:
        """The interval of a - b at the level at which it agrees with the verdict.

        None without a test, and where none agrees: seeds that don't vary show nothing below their lowest p.
        """
        pair = self.of(task).pair(a, b)
        ends = None if pair.level is None else self.test(a, b, task, pair.level).interval
        return ends if ends and (ends[0] > 0 or ends[1] < 0) == pair.differs else None


def standings(campaign: Campaign, records: Sequence[RunRecord]) -> Standings:
    """Return the standings of these records of one profile and suite, the same to all parts of a report."""
    done = finished(records)
    key = ("standings", *map(id, done))  # they live as long as what is kept
    if key not in campaign.kept:
        campaign.kept[key] = Standings(campaign, done)
    found: Standings = campaign.kept[key]
    return found
