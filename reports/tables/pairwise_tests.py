"""All pairs of a suite's methods, tested once, each by its own design: what tables and pages rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.comparison.design import choose_comparison_design
from bench.comparison.item_bootstrap import FOLDER, CampaignRun, list_task_names, read_draws
from bench.comparison.selection import Group, sort_runs_by_seed
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.render.grid import DASH, format_interval
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, finished_records, main_metric, task_scores
from bench.stats.seed_design import Seeds

if TYPE_CHECKING:
    from bench.stats.ranks import PairTest, Ranking
    from bench.stats.spread import Spread

ALPHA = 0.05
Array = NDArray[np.float64]
Pair = frozenset[str]


class PairwiseTests:
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
        done = [record for record in finished_records(records) if record.method not in campaign.apart]
        self._shown = campaign.shown
        self._as_kept = campaign.as_kept
        self._metric = main_metric(done)
        self._groups = {
            method: Group(
                method,
                tuple(sort_runs_by_seed(CampaignRun(campaign.home(record), record) for record in runs)),
            )
            for method, runs in by_method(done).items()
        }
        self._designs: dict[tuple[str, Seeds, str, Seeds], tuple[Group, Group, bool]] = {}
        kept = self._groups if any((s.root / FOLDER).is_dir() for s in campaign.stores) else ()
        self.drawn = {method: drawn for method in kept if (drawn := self._mean_draws(method)) is not None}
        seeds = any(not group.deterministic for group in self._groups.values())
        self.with_items = seeds and len(self.drawn) == len(self._groups) and len(self._task_lists) == 1
        self._rankings: dict[str, Ranking] = {}

    @cached_property
    def _task_lists(self) -> set[tuple[str, ...]]:
        return {list_task_names(run.record) for group in self._groups.values() for run in group.runs}

    def _tested_sides(self, a: str, b: str, task: str = AVERAGE) -> tuple[Group, Group, bool]:
        """The runs of both that a test of this task uses, and whether they are pairs."""
        one, other = self._scored_runs(a, task), self._scored_runs(b, task)
        key = a, one.seeds, b, other.seeds
        if key not in self._designs:
            one, other, design = choose_comparison_design(one, other, "auto", "")
            self._designs[key] = one, other, design.paired
        return self._designs[key]

    def _scored_runs(self, method: str, task: str) -> Group:
        """The method's runs that have a score of the task; all of them if none has."""
        group = self._groups[method]
        runs = tuple(run for run in group.runs if run.record.score(task, metric=self._metric) is not None)
        return replace(group, runs=runs or group.runs)

    def _mean_draws(self, method: str) -> Array | None:
        """(draws, tasks) scores in kept draws of items, the mean of its runs; None if some are missing."""
        runs = self._groups[method].runs
        total: Array | None = None
        for run in runs:
            kept = read_draws(CampaignRun(run.store, self._as_kept(run.record)))
            if kept is None or (total is not None and total.shape != kept.shape):
                return None
            total = kept.astype(np.float64) if total is None else total + kept
        return None if total is None else total / len(runs)

    def of(self, task: str = AVERAGE) -> Ranking:
        """Return the methods in the order of their means on a task, and all pairs of them."""
        if task not in self._rankings:
            from bench.stats.ranks import rank_methods

            scores = {method: self._task_scores(group, task) for method, group in self._groups.items()}
            means = {method: fmean(own) for method, own in scores.items() if own}
            self._rankings[task] = rank_methods(means, lambda a, b: self.test(a, b, task), alpha=ALPHA)
        return self._rankings[task]

    def sizes(self, a: str, b: str) -> tuple[int, int]:
        """Return how many runs of each the test uses."""
        one, other, _ = self._tested_sides(a, b)
        return len(one.runs), len(other.runs)

    def spread(self, a: str, b: str) -> Spread | None:
        """Return the spread over seeds behind the test of two methods; None where no score varies."""
        from bench.stats.spread import spread_of_pairs, spread_of_sides

        one, other, paired = self._tested_sides(a, b)
        x, y = self._task_scores(one, AVERAGE), self._task_scores(other, AVERAGE)
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

    def _task_scores(self, group: Group, task: str) -> list[float]:
        runs = (run.record for run in group.runs)
        return [value for run in runs if (value := run.score(task, metric=self._metric)) is not None]

    def test(self, a: str, b: str, task: str = AVERAGE, level: float | None = None) -> PairTest:
        """Test two methods on a task, before any correction; with its interval if a level is given."""
        from bench.stats.pair_test import NO_DRAWS, ONE_SEED, pair_test

        one, other, paired = self._tested_sides(a, b, task)
        x, y = self._task_scores(one, task), self._task_scores(other, task)
        alone = (one.deterministic, other.deterministic)
        items, parts = None, []
        if all(alone) and a in self.drawn and b in self.drawn:
            items = self._drawn_scores(a, task) - self._drawn_scores(b, task)
        elif self.with_items:
            parts = self._item_variances(a, b, task)
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

    def _drawn_scores(self, method: str, task: str) -> Array:
        """(draws,) scores of a task, or of the average."""
        drawn = self.drawn[method]
        names = list_task_names(self._groups[method].runs[0].record)
        chosen: Array = drawn.mean(1) if task == AVERAGE else drawn[:, names.index(task)]
        return chosen

    def _item_variances(self, a: str, b: str, task: str) -> list[tuple[float, int]]:
        """The variance that the items of each task add to a difference, with its degrees of freedom."""
        (names,) = self._task_lists
        wanted = names if task == AVERAGE else (task,)
        place = {method: i for i, method in enumerate(self._groups)}
        i, j = place[a], place[b]
        found = []
        for name in wanted:
            shared = self._task_covariances[name]
            variance = float(shared[i, i] + shared[j, j] - 2 * shared[i, j])
            found.append((max(variance, 0.0) / len(wanted) ** 2, self._item_counts[name] - 1))
        return found

    @cached_property
    def _task_covariances(self) -> dict[str, Array]:
        """Of all methods over the draws of each task's items; computed for all pairs at once."""
        (names,) = self._task_lists
        return {
            name: np.atleast_2d(np.cov([self.drawn[method][:, column] for method in self._groups]))
            for column, name in enumerate(names)
        }

    @cached_property
    def _item_counts(self) -> dict[str, int]:
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


def run_pairwise_tests(campaign: Campaign, records: Sequence[RunRecord]) -> PairwiseTests:
    """Return the standings of these records of one profile and suite, the same to all parts of a report."""
    done = finished_records(records)
    key = ("standings", *map(id, done))  # they live as long as what is kept
    if key not in campaign.kept:
        campaign.kept[key] = PairwiseTests(campaign, done)
    found: PairwiseTests = campaign.kept[key]
    return found


LEVEL = 1 - ALPHA
ABOVE, BELOW = "\N{DAGGER}", "\N{DOUBLE DAGGER}"
BOLD = "Bold: the best methods of each column, tested by itself, of which no two are shown to differ"
NO_BOLD = "Nothing is bold: no method is shown to be better than another."


@dataclass(frozen=True)
class MethodAverages:
    """A method's suite averages, in the metric's unit.

    Args:
        method: Method id.
        values: One a finished seed.
        deterministic: True if it has no seeds.
    """

    method: str
    values: tuple[float, ...]
    deterministic: bool


def method_averages(campaign: Campaign, records: Sequence[RunRecord]) -> list[MethodAverages]:
    """Return the averages of every method with a finished run, in the order of the campaign's rows."""
    found = [
        MethodAverages(method, scores, runs[0].seed is None)
        for method, runs in by_method(records).items()
        if (scores := tuple(task_scores(runs)))
    ]
    return sorted(found, key=lambda one: campaign.place(one.method, fmean(one.values)))


def format_level(level: float) -> str:
    """Return a confidence level in percent, with two digits of what it leaves.

    >>> format_level(0.95), format_level(1 - 0.05 / 42), format_level(1 - 0.05 / 4005)
    ('95%', '99.88%', '99.9988%')
    """
    return f"{100 - float(f'{100 * (1 - level):.2g}'):.10g}%"


def describe_tests(ranking: Ranking) -> str:
    """Say by which tests, of how many pairs each, with which correction."""
    from bench.stats.pair_test import AND_ITEMS, ITEMS, PAIRED, STUDENT, WELCH

    names = {
        PAIRED: "paired t where runs of a seed share stages or batches",
        WELCH: "Welch's",
        STUDENT: "Student's against a method without seeds",
        ITEMS: "the items' bootstrap between two such methods",
    }
    tests = [one.test for one in ranking.pairs if one.p is not None]
    counts = Counter(test.removesuffix(AND_ITEMS) for test in tests)
    used = [f"{words} ({counts[test]})" for test, words in names.items() if counts[test]]
    both = any(test.endswith(AND_ITEMS) for test in tests)
    scope = "over seeds and items (variance components)" if both else "over seeds on these items"
    return f"tests {scope}: {', '.join(used)}; {ranking.caption}"


def uneven_seed_notes(found: PairwiseTests) -> list[str]:
    """Say which of Welch's tests have the degrees of freedom of the fewer seeds."""
    from bench.stats.pair_test import AND_ITEMS, WELCH
    from bench.stats.seeds import FEW, UNEVEN, is_uneven

    tested = (one for one in found.of().pairs if one.test.removesuffix(AND_ITEMS) == WELCH)
    count = sum(is_uneven(*found.sizes(one.first, one.second)) for one in tested)
    if not count:
        return []
    pairs = "One of Welch's tests is" if count == 1 else f"{count} of Welch's tests are"
    return [
        f"{pairs} of fewer than {FEW} seeds against {UNEVEN} times as many or more, or of 2 against 3: with "
        "the degrees of freedom of the fewer."
    ]


def format_pair_interval(found: PairwiseTests, a: str, b: str) -> str:
    """The interval of a - b on average and its level, or a dash."""
    ends, level = found.interval(a, b), found.of().pair(a, b).level
    shown = format_interval(*(ends or (None, None)))
    return shown if shown == DASH or level is None else f"{shown} ({format_level(level)})"


INTERVAL = (
    "Interval: each pair by itself, at the level in parentheses, that of its step of Holm's correction; it "
    "holds 0 just where no difference is shown."
)


def ranking_notes(
    ranking: Ranking, few_seeds: Sequence[str] = (), shown: Callable[[str], str] = str
) -> list[str]:
    """Say what a group and a rank mean, which pairs were not tested, and ``few_seeds`` of those that were.

    Args:
        ranking: The methods.
        few_seeds: What is said of the tests of unequal numbers of seeds.
        shown: What a method is called.
    """
    if not ranking.methods:
        return []
    notes = [
        "group: methods that share a letter are not shown to differ on average, p > 0.05 by "
        f"{describe_tests(ranking)}.",
        "Methods that share none differ, or two methods from the one to the other do or were not tested: "
        "Differences (--table significance) has every pair.",
        "rank: the ranks that these tests leave open; with 95% confidence all true ranks are among them.",
    ]
    if ranking.left_out:
        alone = ", ".join(map(shown, ranking.left_out))
        notes.append(
            f"One seed, so no test, rank or group: {alone}, not counted in the others' ranks; where one is "
            "the best, nothing is bold."
        )
    notes += few_seeds
    if untested := ranking.untested:
        pairs = dict.fromkeys(name for one in untested for name in (one.first, one.second))
        names = ", ".join(map(shown, pairs))
        notes.append(
            f"Not tested against each other: {names}, which have no seeds; bench stats draws the "
            "items for such tests."
        )
    return notes


def baseline_daggers(
    ranking: Ranking,
    baseline: str | None,
    shown: Callable[[str], str] = str,
    apart: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the dagger of every method that differs from the baseline, and what the table says of them.

    Args:
        ranking: The methods that are tested.
        baseline: What they are compared with; None for no daggers.
        shown: What a method is called.
        apart: Why methods with finished runs are not among those tested.
    """
    if baseline is None:
        return {}, ()
    if baseline not in ranking.methods:
        why = apart.get(baseline, "no finished run of it here")
        if baseline in ranking.left_out:
            alone = f"{shown(baseline)} has one seed"
            tests = {one.test for one in ranking.pairs if baseline in (one.first, one.second)}
            why = "it has one seed" if alone in tests else "no other method has two seeds"
        return {}, (f"No daggers: {shown(baseline)} can't be tested, {why}.",)
    signs = {}
    for one in ranking.pairs:
        if one.differs and baseline in (one.first, one.second):
            other = one.second if one.first == baseline else one.first
            signs[other] = ABOVE if (one.difference > 0) == (other == one.first) else BELOW
    said = f"{ABOVE} above, {BELOW} below {shown(baseline)} on average, by the same tests and correction."
    return signs, (said,)
