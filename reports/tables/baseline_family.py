"""A family of rows against one baseline: simultaneous intervals, four answers, and which rows may be best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.comparison.method_family import DEFAULT_BASELINE, find_default_baseline
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import SCALE, no_width, shorten_names
from bench.render.row_names import join_names
from bench.reports.campaign import Campaign
from bench.reports.tables.pairwise_tests import ABOVE, ALPHA, BELOW, PairwiseTests
from bench.reports.tables.task_pairwise import TaskPairwiseTests

if TYPE_CHECKING:
    from bench.stats.single_step import FamilyCorrection

WELL_BEHAVED = ("normal", "spread 4:1", "copies")
"""Designs of the coverage table for which the simultaneous intervals are made."""
_MOST_NAMES, _LONGEST = 12, 40  # of a note, and characters of each
AHEAD, BEHIND, EQUAL, OPEN = "ahead", "behind", "equal", "open"


@dataclass(frozen=True)
class BaselineDifference:
    """A row of the family: row - baseline.

    Args:
        interval: Simultaneous 95% interval; None without a test, and where seeds all score the same.
        p: Adjusted for the family: at most 0.05 exactly if the row is ahead or behind.
        answer: AHEAD, BEHIND, EQUAL (the interval lies within the margin) or OPEN.
        test: Name of the test, or the obstacle to one.
    """

    difference: float
    interval: tuple[float, float] | None
    p: float | None
    answer: str
    test: str


@dataclass(frozen=True)
class BaselineFamily:
    """All rows of a suite against one of them.

    Args:
        baseline: Id of its row.
        rows: By the other rows' ids.
        paired: Number of rows whose differences over shared seeds are corrected by single-step max-t.
        others: Number of the other tested rows, which Bonferroni's inequality adds.
        margin: Largest difference that counts as none, in the metric's unit.
    """

    baseline: str
    rows: Mapping[str, BaselineDifference]
    paired: int
    others: int
    margin: float

    def count(self, answer: str) -> int:
        """Return the number of rows with an answer."""
        return sum(row.answer == answer for row in self.rows.values())


def compare_with_baseline(
    tests: PairwiseTests, baseline: str, *, task: str = AVERAGE, margin: float
) -> BaselineFamily | None:
    """Test every row against the baseline on a task; None where no row can be tested against it."""
    key = "baseline", baseline, task, margin
    if key not in tests.kept:
        tests.kept[key] = _compare_with_baseline(tests, baseline, task, margin)
    family: BaselineFamily | None = tests.kept[key]
    return family


def _compare_with_baseline(
    tests: PairwiseTests, baseline: str, task: str, margin: float
) -> BaselineFamily | None:
    from bench.stats.difference_test import PAIRED

    if isinstance(tests, TaskPairwiseTests):
        return _compare_over_tasks(tests, baseline, task, margin)
    ranking = tests.of(task)
    methods = [method for method in (*ranking.methods, *ranking.left_out) if method != baseline]
    if baseline not in ranking.methods:
        return None
    raw = {method: tests.test(method, baseline, task, fewest=True) for method in methods}
    kinds = [(method, test.test) for method, test in raw.items() if test.p is not None]
    paired = [method for method, kind in kinds if kind == PAIRED]
    others = len(kinds) - len(paired)
    correction = correct_against(tests, baseline, paired, others, task)
    level = correction.level(ALPHA)
    rows = {}
    for method, test in raw.items():
        if test.p is None:
            rows[method] = BaselineDifference(test.difference, None, None, OPEN, test.test)
            continue
        p = correction.adjust(test.p)
        interval = tests.test(method, baseline, task, level, fewest=True).interval
        if interval and (no_width(*interval) or (interval[0] > 0 or interval[1] < 0) != (p <= ALPHA)):
            interval = None  # of seeds that all score the same, p is the lowest that so many can reach
        answer = _name_answer(test.difference, p, interval, margin)
        rows[method] = BaselineDifference(test.difference, interval, p, answer, test.test)
    return BaselineFamily(baseline, rows, len(paired), others, margin)


def _compare_over_tasks(
    tests: TaskPairwiseTests, baseline: str, task: str, margin: float
) -> BaselineFamily | None:
    """Test every row against the baseline over tasks, by Bonferroni's inequality over these rows."""
    from bench.stats.difference_test import OVER_TASKS

    if task != AVERAGE or baseline not in tests.methods:
        return None
    against, rows = tests.tests_of("tasks").against(baseline), {}
    columns = (against.differences, against.low, against.high, against.p)
    for method, *numbers in zip(against.methods, *(column.tolist() for column in columns), strict=True):
        difference, low, high, p = numbers
        interval = (low, high) if isfinite(low) and isfinite(high) else None
        answer = _name_answer(difference, p, interval, margin)
        rows[method] = BaselineDifference(difference, interval, p, answer, OVER_TASKS)
    return BaselineFamily(baseline, rows, 0, len(rows), margin)


def _name_answer(difference: float, p: float, interval: tuple[float, float] | None, margin: float) -> str:
    if p <= ALPHA:
        return AHEAD if difference > 0 else BEHIND
    if interval is not None and -margin < interval[0] and interval[1] < margin:
        return EQUAL
    return OPEN


def correct_against(
    tests: PairwiseTests, baseline: str, paired: Sequence[str], others: int, task: str
) -> FamilyCorrection:
    """Return the correction of a family of tests: of ``paired`` rows, and of a number of others."""
    from bench.stats.single_step import common_correlation, correct_family

    counts, differences = tests.paired_differences(paired, baseline, task)
    correlation = common_correlation(differences) if len(paired) > 1 else 0.0
    return correct_family(counts, correlation, others)


def find_best(tests: PairwiseTests, task: str = AVERAGE) -> frozenset[str]:
    """Return the rows that may be the best: against which no other row's simultaneous interval is above 0.

    Each row is the baseline of a family of its own (Hsu 1984, Ann. Statist. 12, 1136). The best row is among
    them with a chance of at least 95%. Empty if nothing was tested.
    """
    if ("best", task) not in tests.kept:
        tests.kept["best", task] = _find_best(tests, task)
    best: frozenset[str] = tests.kept["best", task]
    return best


def _find_best(tests: PairwiseTests, task: str) -> frozenset[str]:
    from bench.stats.difference_test import PAIRED

    if isinstance(tests, TaskPairwiseTests):
        return tests.list_best() if task == AVERAGE else frozenset()
    table, best = tests.table(task), []
    has_test, is_paired = ~np.isnan(table.p), table.find(PAIRED)
    for place in table.tested:
        ahead = has_test[place] & (table.differences[:, place] > 0)
        # against one row, Welch's test has the degrees of freedom of the fewer seeds, see pair_test
        if ahead.any() and (least := float(table.fewest[place, ahead].min())) <= ALPHA:
            # above ALPHA no correction is needed, as it only raises p
            paired = [table.methods[other] for other in np.flatnonzero(is_paired[place])]
            count = int(has_test[place].sum())
            if least * count <= ALPHA / 2:
                continue  # so far below that Bonferroni's inequality settles it
            others = count - len(paired)
            correction = correct_against(tests, table.methods[place], paired, others, task)
            if correction.adjust(least) <= ALPHA:
                continue
        best.append(table.methods[place])
    return frozenset(best)


def compare_family(
    campaign: Campaign, records: Sequence[RunRecord], tests: PairwiseTests
) -> tuple[BaselineFamily | None, list[str]]:
    """Return the family of one profile and suite against its baseline, if it has one, and the notes on it."""
    family, ranking = campaign.family(records), tests.of()
    notes = [note for note in (family.describe_hidden(),) if note and not campaign.all_rows]
    baseline = campaign.baseline or find_default_baseline(ranking.methods)
    against = None
    if baseline is not None and campaign.family_kind != "all":
        against = compare_with_baseline(tests, baseline, margin=campaign.margin)
    if against is not None:
        notes = [*_family_notes(campaign, against, tests), *notes]
    elif baseline is not None and baseline not in ranking.methods:
        why = family.aside.get(baseline) or _name_obstacle(campaign, tests, baseline)
        notes.insert(0, f"{campaign.shown(baseline)} can't be the baseline ({why}).")
    elif baseline is None and ranking.methods and campaign.family_kind != "all":
        notes.insert(0, f"No baseline: {DEFAULT_BASELINE} isn't tested here; name another (--baseline).")
    elif baseline is not None and campaign.baseline is not None:
        notes.insert(0, f"{ABOVE} above, {BELOW} below {campaign.shown(baseline)} by the tests of all pairs.")
    if ranking.methods:
        notes.insert(0, _best_note(campaign, tests))
    return against, [*notes, *_collapse_notes(campaign, tests)]


def _name_obstacle(campaign: Campaign, tests: PairwiseTests, baseline: str) -> str:
    if baseline not in tests.of().left_out:
        return "it has no finished run in this table"
    alone = f"{campaign.shown(baseline)} has one seed"
    pairs = [pair for pair in tests.of().pairs if baseline in (pair.first, pair.second)]
    return "it has one seed" if any(pair.test == alone for pair in pairs) else "no other row has two seeds"


def _best_note(campaign: Campaign, tests: PairwiseTests) -> str:
    """Name the rows that may be the best on average, which a text without styles can't show."""
    best = find_best(tests)
    shown = (campaign.shown(method) for method in tests.of().methods if method in best)
    names = list(shorten_names(shown, _LONGEST).values())
    if len(names) == len(tests.of().methods):
        return "May be the best on average: any of the tested rows."
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"May be the best on average: {join_names(names[:_MOST_NAMES])}{more}."


def _family_notes(campaign: Campaign, family: BaselineFamily, tests: PairwiseTests) -> list[str]:
    tested, margin = family.paired + family.others, f"{SCALE * family.margin:g}"
    counts = f"{family.count(AHEAD)} ahead, {family.count(BEHIND)} behind"
    still_open = sum(row.answer == OPEN and row.p is not None for row in family.rows.values())
    counts += f", {family.count(EQUAL)} equal within {margin} points, {still_open} open"
    how = "single-step max-t over paired seeds"
    if tested == 1:
        how = "no correction"
    elif not family.paired:
        how = "Bonferroni"
    elif family.others:
        how += f" for {family.paired} of them, Bonferroni for {family.others}"
    baseline = campaign.shown(family.baseline)
    scope = f"all {tested} rows at once" if tested > 1 else "one row"
    legend = f" {ABOVE} ahead, {BELOW} behind." * (campaign.baseline is not None)
    notes = [
        f"Against {baseline}: {counts}.{legend}",
        f"difference: the row's average minus {baseline}'s, with 95% intervals that hold for {scope} "
        f"({how}). p is the interval's own.",
        *[describe_family_coverage()] * (not tests.over_tasks),
    ]
    if any(_leaves_out(tests, method, family.baseline) for method in family.rows):
        notes.insert(
            2, f"Where a row and {baseline} lack some of each other's seeds, it is that of the pairs."
        )
    return notes


def _leaves_out(tests: PairwiseTests, method: str, baseline: str) -> bool:
    """True if the test of two methods leaves out some of their seeds."""
    whole = len(tests.scores_by_seed(method)), len(tests.scores_by_seed(baseline))
    return min(whole) > 0 and tests.sizes(method, baseline) != whole


def describe_family_coverage() -> str:
    """Say how often the simultaneous intervals held in simulations, where they are made for and elsewhere."""
    from bench.stats.coverage import read_coverage

    rows = [row for row in read_coverage() if row.method in ("max-t", "bonferroni")]
    shares: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        shares[row.design.startswith(WELL_BEHAVED)].append(100 * row.measured)
    good, bad = shares[True], shares[False]
    normal, others = f"{min(good):.1f} to {max(good):.1f}%", f"{min(bad):.0f} to {max(bad):.0f}%"
    return (
        "The intervals are for scores that are roughly normal over seeds: measured, all hold at once in "
        f"{normal}; in {others} where runs collapse, or scores are skewed with spreads 4:1."
    )


def _collapse_notes(campaign: Campaign, tests: PairwiseTests) -> list[str]:
    """A note on seeds far below the others of their row, which no t interval allows for.

    Far is meant by the spread of the row and by that of most rows, as a few seeds may agree by chance.
    """
    from bench.stats.outliers import LEAST_NAMED, find_outliers, outlier_limit, scaled_mad

    rows = {}
    for method in tests.methods:
        scores = tests.scores_by_seed(method)
        if len(scores) >= LEAST_NAMED:
            rows[method] = scores
    spreads = [scaled_mad(list(scores.values())) for scores in rows.values()]
    named = []
    for method, scores in rows.items():
        seeds, values = list(scores), np.array(list(scores.values()))
        falls = np.median(values) - values
        least = outlier_limit(len(values)) * median(spreads)
        low = [str(seeds[place]) for place in find_outliers(values) if falls[place] > least]
        if low:
            named.append(f"{campaign.shown(method)} ({len(low)} of {len(seeds)}: {', '.join(low)})")
    if not rows:
        return []
    if not named:
        return ["No run of a row of four seeds or more lies far below the row's others."]
    return [
        f"Collapsed seeds, far below the row's others: {'; '.join(named)}. Such intervals are too narrow."
    ]
