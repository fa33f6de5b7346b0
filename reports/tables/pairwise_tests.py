"""Tests of all pairs of a suite's methods, each by its own design, shared by tables and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.comparison.design import choose_tested_runs
from bench.comparison.item_bootstrap import FOLDER, CampaignRun, list_task_names, read_draws
from bench.comparison.selection import Group, sort_runs_by_seed
from bench.comparison.unit_notes import describe_units
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.render.grid import DASH, format_interval, no_width
from bench.render.row_names import join_names
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, finished_records, main_metric, task_scores
from bench.stats.item_units import LinkedTasks
from bench.stats.seed_design import Seeds

if TYPE_CHECKING:
    from bench.stats.item_units import UnitSummary
    from bench.stats.method_ranking import PairTest, Ranking
    from bench.stats.pair_table import PairTable
    from bench.stats.spread import Spread

ALPHA = 0.05
Array = NDArray[np.float64]
Places = NDArray[np.intp]


class PairwiseTests:
    """Tests between the methods of one profile and suite.

    The records' stages and batches determine which runs are pairs, as in ``bench compare``. With kept draws
    of all runs' items, the tests speak for further seeds and items, otherwise for further seeds on these
    items. Both are chosen before any score is read. The rows are those of the campaign's family
    (:mod:`bench.reports.method_family`), so that verdicts are independent of the others.
    """

    over_tasks = False
    """True if the sampling unit is the task."""

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        tested = campaign.family(records).tested
        done = [record for record in finished_records(records) if record.method in tested]
        self._shown = campaign.shown
        self._as_kept = campaign.as_kept
        self._metric = main_metric(done)
        self._groups = {}
        for method, records in by_method(done).items():
            runs = sort_runs_by_seed(CampaignRun(campaign.home(record), record) for record in records)
            self._groups[method] = Group(method, tuple(runs))
        self.kept: dict[tuple[Any, ...], Any] = {}  # what tables compute of these tests, once
        self._scores: dict[int, dict[str, float]] = {}  # by record: thousands of tests read them
        for record in done:
            whole = (s for s in record.scores if (s.subset, s.metric) == (ALL, self._metric))
            self._scores[id(record)] = {score.task: score.value for score in whole}
        self._designs: dict[tuple[str, Seeds, str, Seeds], tuple[Group, Group, bool]] = {}
        drawn = any((store.root / FOLDER).is_dir() for store in campaign.stores)
        self.drawn = {}
        self._units: UnitSummary
        self._summaries: list[UnitSummary] = []
        self._covariances: dict[str, list[tuple[Array, float]]] = {}
        for method in self._groups if drawn else ():
            if (mean := self._mean_draws(method)) is not None:
                self.drawn[method] = mean
        seeds = any(not group.deterministic for group in self._groups.values())
        if len({str(units.to_json()) for units in self._summaries}) > 1:  # not common draws
            self.drawn = {}
        self.with_items = seeds and len(self.drawn) == len(self._groups) and len(self._task_lists) == 1
        self._rankings: dict[str, Ranking] = {}
        self._tables: dict[str, PairTable] = {}
        self._paired: dict[tuple[Seeds, ...], NDArray[np.bool_]] = {}
        self._scored: dict[tuple[str, str], Group] = {}
        self._score_rows: dict[str, dict[str, Array]] = {}
        self._by_seed: dict[tuple[str, str], dict[int, float]] = {}

    @cached_property
    def _task_lists(self) -> set[tuple[str, ...]]:
        return {list_task_names(run.record) for group in self._groups.values() for run in group.runs}

    def _tested_sides(self, a: str, b: str, task: str = AVERAGE) -> tuple[Group, Group, bool]:
        """The runs of both in a test of this task, and whether they are pairs."""
        one, other = self._scored_runs(a, task), self._scored_runs(b, task)
        key = a, one.seeds, b, other.seeds
        if key not in self._designs:
            self._designs[key] = choose_tested_runs(one, other)
        return self._designs[key]

    def _scored_runs(self, method: str, task: str) -> Group:
        """The method's runs with a score of the task, or all of them."""
        if (method, task) not in self._scored:
            group = self._groups[method]
            runs = tuple(run for run in group.runs if run.record.score(task, metric=self._metric) is not None)
            self._scored[method, task] = replace(group, runs=runs or group.runs)
        return self._scored[method, task]

    def _mean_draws(self, method: str) -> Array | None:
        """(draws, tasks) scores in kept draws of items, the mean of its runs; None for missing draws."""
        runs = self._groups[method].runs
        total: Array | None = None
        for run in runs:
            kept = read_draws(CampaignRun(run.store, self._as_kept(run.record)))
            if kept is None or (total is not None and total.shape != kept.values.shape):
                return None
            self._units = kept.summary
            self._summaries.append(kept.summary)
            total = kept.values.astype(np.float64) if total is None else total + kept.values
        return None if total is None else total / len(runs)

    def of(self, task: str = AVERAGE) -> Ranking:
        """Return the methods in the order of their means on a task, and all pairs of them."""
        if task not in self._rankings:
            from bench.stats.method_ranking import rank_methods

            table = self.table(task)
            self._rankings[task] = rank_methods(self._means(task), table.pair_tests(), alpha=ALPHA)
        return self._rankings[task]

    def table(self, task: str = AVERAGE) -> PairTable:
        """Return the tests of all pairs of methods with a score of a task, before any correction."""
        if task not in self._tables:
            from bench.stats.pair_table import make_pair_table

            means, places = self._means(task), {method: i for i, method in enumerate(self._groups)}
            own = np.array([places[method] for method in means], dtype=np.intp)

            def parts(first: Places, second: Places) -> list[tuple[Array, float]]:
                return self._item_variances(own[first], own[second], task) if self.with_items else []

            self._tables[task] = make_pair_table(
                means,
                self._seed_scores(task)[own],
                self._pairings(task)[np.ix_(own, own)],
                parts,
                lambda a, b: self.test(a, b, task),
            )
        return self._tables[task]

    def _means(self, task: str) -> dict[str, float]:
        """Mean scores of a task, the best first, equal ones by name."""
        means = {}
        for method, group in self._groups.items():
            if scores := self._task_scores(group, task):
                means[method] = fmean(scores)
        return dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))

    def _seed_scores(self, task: str) -> Array:
        """(methods, seeds) scores of a task, not a number without a run; seeds are in rising order."""
        scores = np.full((len(self._groups), len(self._seeds)), np.nan)
        for row, method in zip(scores, self._groups, strict=True):
            for seed, score in self.scores_by_seed(method, task).items():
                row[self._seeds[seed]] = score
        return scores

    @cached_property
    def _seeds(self) -> dict[int, int]:
        """The column of every seed."""
        seeds = {seed for group in self._groups.values() for seed in group.seeds}
        return {seed: column for column, seed in enumerate(sorted(seeds))}

    def _pairings(self, task: str) -> NDArray[np.bool_]:
        """(methods, methods), whether the runs of two are pairs in a test of a task."""
        scored = [self._scored_runs(method, task) for method in self._groups]
        key = tuple(group.seeds for group in scored)
        if key not in self._paired:
            paired = np.zeros((len(scored), len(scored)), dtype=np.bool_)
            for (i, one), (j, other) in combinations(enumerate(scored), 2):
                paired[i, j] = paired[j, i] = choose_tested_runs(one, other)[2]
            self._paired[key] = paired
        return self._paired[key]

    def sizes(self, a: str, b: str) -> tuple[int, int]:
        """Return the number of runs of each in their test."""
        one, other, _ = self._tested_sides(a, b)
        return len(one.runs), len(other.runs)

    def spread(self, a: str, b: str) -> Spread | None:
        """Return the spread over seeds behind the test of two methods; None for constant scores."""
        from bench.stats.spread import spread_of_pairs, spread_of_sides

        one, other, paired = self._tested_sides(a, b)
        x, y = self._task_scores(one, AVERAGE), self._task_scores(other, AVERAGE)
        try:
            if paired:
                return spread_of_pairs(x, y)
            spread = spread_of_sides(x, y)
        except ValueError:
            return None
        # "one side" needs a deterministic method: seeds with equal scores are no fixed score
        fixed = one.deterministic or other.deterministic
        return spread if fixed or spread.design != "one side" else None

    @property
    def methods(self) -> tuple[str, ...]:
        """The family's methods with a finished run."""
        return tuple(self._groups)

    def scores_by_seed(self, method: str, task: str = AVERAGE) -> dict[int, float]:
        """Return a method's scores of a task by seed; empty for a deterministic method."""
        if (method, task) not in self._by_seed:
            scores = {}
            for run in self._groups[method].runs:
                score = run.record.score(task, metric=self._metric)
                if score is not None and run.record.seed is not None:
                    scores[run.record.seed] = score
            self._by_seed[method, task] = scores
        return self._by_seed[method, task]

    def paired_differences(
        self, methods: Sequence[str], baseline: str, task: str = AVERAGE
    ) -> tuple[list[int], Array]:
        """Return the differences of methods from a baseline whose runs of a seed are their pairs.

        Returns:
            The number of pairs of each method, and the (seeds, methods) differences of the seeds that all
            have, in rising order.
        """
        if task not in self._score_rows:
            self._score_rows[task] = dict(zip(self._groups, self._seed_scores(task), strict=True))
        rows = self._score_rows[task]
        scores = np.array([rows[method] for method in methods]).reshape(len(methods), len(self._seeds))
        differences = scores - rows[baseline]
        has_pair = ~np.isnan(differences)
        common = np.ascontiguousarray(differences[:, has_pair.all(axis=0)].T)
        return has_pair.sum(axis=1).tolist(), common

    @property
    def leaves_out(self) -> bool:
        """True if a test uses only the seeds that both methods have."""
        for a, b in combinations(self._groups, 2):
            if self.sizes(a, b) != (len(self._groups[a].runs), len(self._groups[b].runs)):
                return True
        return False

    def _task_scores(self, group: Group, task: str) -> list[float]:
        scores = (self._scores[id(run.record)].get(task) for run in group.runs)
        return [score for score in scores if score is not None]

    def test(
        self, a: str, b: str, task: str = AVERAGE, level: float | None = None, *, fewest: bool = False
    ) -> PairTest:
        """Test two methods on a task, before any correction; with its interval if a level is given.

        ``fewest`` is for families against one row, see :func:`bench.stats.difference_test.pair_test`.
        """
        from bench.stats.difference_test import NO_DRAWS, ONE_SEED, pair_test

        one, other, paired = self._tested_sides(a, b, task)
        x, y = self._task_scores(one, task), self._task_scores(other, task)
        fixed = (one.deterministic, other.deterministic)
        items, parts, effective = None, [], None
        if all(fixed) and a in self.drawn and b in self.drawn:
            items = self._drawn_scores(a, task) - self._drawn_scores(b, task)
            effective = self._units.effective_clusters(task, AVERAGE)
        elif self.with_items:
            methods = list(self._groups)
            i, j = np.array([methods.index(a)]), np.array([methods.index(b)])
            parts = [(float(part[0]), df) for part, df in self._item_variances(i, j, task)]
        test = pair_test(
            x,
            y,
            deterministic=fixed,
            paired=paired,
            items=items,
            effective=effective,
            parts=parts,
            level=level,
            fewest=fewest,
        )
        if test.test == ONE_SEED:
            short = a if len(x) < 2 and not fixed[0] else b
            return replace(test, test=f"{self._shown(short)} has one seed")
        return replace(test, test="neither has seeds") if test.test == NO_DRAWS else test

    def _drawn_scores(self, method: str, task: str) -> Array:
        """(draws,) scores of a task, or of the average."""
        drawn = self.drawn[method]
        names = list_task_names(self._groups[method].runs[0].record)
        chosen: Array = drawn.mean(1) if task == AVERAGE else drawn[:, names.index(task)]
        return chosen

    def _item_variances(self, i: Places, j: Places, task: str) -> list[tuple[Array, float]]:
        """(pairs,) variances of differences of methods by the items of tasks, with degrees of freedom.

        One for each group of tasks whose items are drawn together.
        """
        variances = []
        for shared, effective in self._item_covariances(task):
            variance = shared[i, i] + shared[j, j] - 2 * shared[i, j]
            variances.append((np.maximum(variance, 0.0), effective - 1))
        return variances

    def item_interval(self, method: str, level: float) -> tuple[float, float] | None:
        """Return an average's interval, for its checkpoints, on other items, if draws are kept and differ."""
        if method not in self.drawn:
            return None
        from bench.stats.item_statistics import percentile_interval

        effective = self._units.effective_clusters(AVERAGE, AVERAGE)
        ends = percentile_interval(self._drawn_scores(method, AVERAGE), level, effective)
        return None if no_width(*ends) else ends

    def unit_notes(self, suite: str, *, intervals: bool = False) -> list[str]:
        """Return notes on the sampling units of items, if tests of these methods are over items.

        ``intervals`` is True for an output with :meth:`item_interval`.
        """
        fixed = [method for method in self.drawn if self._groups[method].deterministic]
        is_over_items = self.with_items or len(fixed) > 1 or (intervals and bool(self.drawn))
        return list(describe_units(suite, self._units)) if is_over_items else []

    def _item_covariances(self, task: str) -> list[tuple[Array, float]]:
        """Covariances of all methods over draws of items, and the effective number of clusters of items.

        Computed for all pairs of methods at once.
        """
        if task not in self._covariances:
            (names,) = self._task_lists
            groups, count = self._units.linked, len(names)
            if task != AVERAGE:
                groups, count = (LinkedTasks((task,), self._units.tasks[task].effective),), 1
            covariances = []
            for group in groups:
                columns = [names.index(name) for name in group.tasks]
                sums = [self.drawn[method][:, columns].sum(axis=1) for method in self._groups]
                covariances.append((np.atleast_2d(np.cov(sums)) / count**2, group.effective))
            self._covariances[task] = covariances
        return self._covariances[task]

    def interval(self, a: str, b: str, task: str = AVERAGE) -> tuple[float, float] | None:
        """Return the interval of a - b at the level of its verdict.

        None without a test, and where none agrees: constant seeds show nothing below their lowest p.
        """
        pair = self.of(task).pair(a, b)
        ends = None if pair.level is None else self.test(a, b, task, pair.level).interval
        return ends if ends and (ends[0] > 0 or ends[1] < 0) == pair.differs else None


LEVEL = 1 - ALPHA
ABOVE, BELOW = "\N{DAGGER}", "\N{DOUBLE DAGGER}"


@dataclass(frozen=True)
class MethodAverages:
    """A method's suite averages, in the metric's unit.

    Args:
        method: Method id.
        values: One a finished seed.
        deterministic: True for a deterministic method.
    """

    method: str
    values: tuple[float, ...]
    deterministic: bool


def method_averages(campaign: Campaign, records: Sequence[RunRecord]) -> list[MethodAverages]:
    """Return the averages of every method with a finished run, in the order of the campaign's rows."""
    averages = []
    for method, runs in by_method(records).items():
        if scores := tuple(task_scores(runs)):
            averages.append(MethodAverages(method, scores, runs[0].seed is None))
    return sorted(averages, key=lambda one: campaign.place(one.method, fmean(one.values)))


def format_level(level: float) -> str:
    """Return a confidence level in percent, with two digits of its complement.

    >>> format_level(0.95), format_level(1 - 0.05 / 42), format_level(1 - 0.05 / 4005)
    ('95%', '99.88%', '99.9988%')
    """
    return f"{100 - float(f'{100 * (1 - level):.2g}'):.10g}%"


def describe_tests(ranking: Ranking) -> str:
    """Return the tests, each with its number of pairs, and the correction."""
    from bench.stats.difference_test import AND_ITEMS, ITEMS, OVER_TASKS, PAIRED, STUDENT, WELCH

    names = {
        PAIRED: "paired t where runs of a seed share stages or batches",
        WELCH: "Welch's",
        STUDENT: "Student's against a method without seeds",
        ITEMS: "the items' bootstrap between two such methods",
    }
    tests = Counter(pair.test for pair in ranking.pairs if pair.p is not None)
    if OVER_TASKS in tests:
        return f"tests over tasks: t ({tests[OVER_TASKS]}); {ranking.caption}"
    used, scope = [], "over seeds on these items"
    for test, words in names.items():
        if count := tests[test] + tests[test + AND_ITEMS]:
            used.append(f"{words} ({count})")
        if tests[test + AND_ITEMS]:
            scope = "over seeds and items (variance components)"
    return f"tests {scope}: {', '.join(used)}; {ranking.caption}"


def uneven_seed_notes(tests: PairwiseTests) -> list[str]:
    """Return a note on Welch's tests with the degrees of freedom of the fewer seeds."""
    from bench.stats.difference_test import AND_ITEMS, WELCH
    from bench.stats.seeds import FEW, UNEVEN, is_uneven

    pairs = (pair for pair in tests.of().pairs if pair.test.removesuffix(AND_ITEMS) == WELCH)
    count = sum(is_uneven(*tests.sizes(pair.first, pair.second)) for pair in pairs)
    if not count:
        return []
    which = f"{count} of Welch's tests are"
    if count == 1:
        which = "One of Welch's tests is"
    return [
        f"{which} of fewer than {FEW} seeds against {UNEVEN} times as many or more, or of 2 against 3: with "
        "the degrees of freedom of the fewer."
    ]


def format_pair_interval(tests: PairwiseTests, a: str, b: str) -> str:
    """Return the interval of a - b on average and its level, or a dash."""
    ends, level = tests.interval(a, b), tests.of().pair(a, b).level
    shown = format_interval(*(ends or (None, None)))
    return shown if shown == DASH or level is None else f"{shown} ({format_level(level)})"


INTERVAL = (
    "Interval: each pair by itself, at the level in parentheses, that of its step of Holm's correction; it "
    "holds 0 just where no difference is shown."
)


def ranking_notes(
    ranking: Ranking, few_seeds: Sequence[str] = (), shown: Callable[[str], str] = str
) -> list[str]:
    """Return notes on ranks and untested pairs, with ``few_seeds`` between them."""
    if not ranking.methods:
        return []
    notes = [
        "rank: the places that tests of all pairs leave open; with 95% confidence all true ranks are among "
        "them. So many tests mostly show less than those against one row: ranks may leave open what answers "
        f"and bold settle. They are {describe_tests(ranking)}; --table significance has every pair.",
    ]
    if ranking.left_out:
        names = join_names(map(shown, ranking.left_out))
        notes.append(f"One seed, so no test and no rank: {names}, not counted in the others' ranks.")
    notes += few_seeds
    if untested := ranking.untested:
        methods = dict.fromkeys(name for pair in untested for name in (pair.first, pair.second))
        names = join_names(map(shown, methods))
        notes.append(
            f"Not tested against each other: {names}, which have no seeds; bench stats draws the "
            "items for such tests."
        )
    return notes
