"""Tests over tasks, of one pair and of all pairs at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.task_averages import AVERAGES, TaskScores, borda_points
from bench.stats.task_tests import TaskTests, compare_tasks, task_pair_test

TYPES = ("sts",) * 5 + ("retrieval",) * 3 + ("reranking",) * 2 + ("summary",)


def make_table(methods: int = 6, types: tuple[str, ...] = TYPES, gap: float = 0.6) -> TaskScores:
    rng = make_generator(5, "table")
    noise = rng.normal(size=(methods, len(types))) + 5 * rng.normal(size=len(types))
    names = tuple(f"m{number}" for number in range(methods))
    return TaskScores(names, noise + gap * np.arange(methods)[:, None], types)


def test_borda_points_share_ties_as_mteb_does() -> None:
    points = borda_points([[0.5, 0.9, 0.1], [0.5, 0.8, 0.3], [0.4, 0.8, 0.2], [0.1, 0.8, 0.4]])
    assert points.tolist() == [[2.5, 3, 0], [2.5, 1, 2], [1, 1, 1], [0, 1, 3]]


@pytest.mark.parametrize("average", AVERAGES)
def test_scores_are_the_averages(average: str) -> None:
    table = make_table()
    values, places = table.values, np.unique(TYPES, return_inverse=True)[1]
    expected = {
        "tasks": values.mean(axis=1),
        "types": np.mean([values[:, places == kind].mean(axis=1) for kind in range(4)], axis=0),
        "borda": (6 - stats.rankdata(-values, axis=0)).mean(axis=1),
    }
    assert compare_tasks(table, average).scores == pytest.approx(expected[average])


@pytest.mark.parametrize("types", [(), TYPES])
def test_a_pair_on_the_average_over_tasks_is_tested_by_paired_t(types: tuple[str, ...]) -> None:
    a, b = make_table().values[[3, 0]]
    test, expected = task_pair_test(a, b, types, level=0.9), stats.ttest_rel(a, b)
    assert test.p == pytest.approx(expected.pvalue)
    assert test.interval == pytest.approx(tuple(expected.confidence_interval(0.9)))


@pytest.mark.parametrize("average", AVERAGES)
def test_a_pair_alone_and_among_all_is_the_same_test(average: str) -> None:
    table = make_table()
    tests, points = compare_tasks(table, average), table.points(average)
    alone = task_pair_test(points[4], points[1], TYPES, average=average, level=0.95)
    pair = tests.pair("m4", "m1", 0.95)
    assert (pair.difference, pair.p) == pytest.approx((alone.difference, alone.p))
    assert pair.interval == pytest.approx(alone.interval)
    assert pair.test == alone.test
    assert alone.interval is not None
    assert (alone.interval[0] > 0) == (alone.p is not None and alone.p < 0.05)


def intervals_agree(tests: TaskTests) -> int:
    """Return the number of pairs whose interval excludes 0; these must be those that differ."""
    found = 0
    for i, j in combinations(range(len(tests.methods)), 2):
        ends = tests.interval(tests.methods[i], tests.methods[j])
        assert ends is not None
        excludes = ends[0] > 0 or ends[1] < 0
        assert excludes == tests.differs[i, j]
        found += excludes
    return found


@pytest.mark.parametrize("average", AVERAGES)
def test_an_interval_excludes_zero_exactly_if_the_pair_differs(average: str) -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25), average)
    assert 0 < intervals_agree(tests) < 66
    for baseline in tests.methods:
        family = tests.against(baseline)
        excludes = (family.low > 0) | (family.high < 0)
        assert np.array_equal(excludes, family.p <= 0.05)
        assert ((family.low < family.differences) & (family.differences < family.high)).all()


def test_a_method_that_may_be_best_is_behind_no_other() -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25))
    for place, name in enumerate(tests.methods):
        family = tests.against(name)
        assert tests.may_be_best[place] == (not (family.low > 0).any())
    assert tests.may_be_best[int(tests.scores.argmax())]
    assert 0 < tests.may_be_best.sum() < 12


def test_the_ranking_has_the_tests_and_their_rank_sets() -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25))
    ranking = tests.ranking
    assert ranking.methods[0] == tests.methods[int(tests.scores.argmax())]
    assert [ranking.intervals[name] for name in tests.methods] == list(
        map(tuple, tests.rank_intervals.tolist())
    )
    for pair in ranking.pairs[::7]:
        assert pair.difference >= 0
        assert pair.level is not None
        alone = tests.pair(pair.first, pair.second, pair.level).interval
        assert alone == pytest.approx(tests.interval(pair.first, pair.second))
    assert ranking.caption.endswith("over 66 comparisons (all pairs of methods)")


def test_what_all_methods_share_and_their_order_change_nothing() -> None:
    table, order = make_table(), np.array([3, 0, 5, 1, 4, 2])
    whole = compare_tasks(table)
    moved = TaskScores(tuple(table.methods[i] for i in order), table.values[order] + np.arange(11) * 3.0)
    other = compare_tasks(moved)
    assert other.adjusted == pytest.approx(whole.adjusted[np.ix_(order, order)])
    assert other.p == pytest.approx(whole.p[np.ix_(order, order)])


@pytest.mark.parametrize("average", AVERAGES)
def test_methods_alike_to_the_digit_do_not_differ(average: str) -> None:
    values = np.repeat(make_table().values[:2], 2, axis=0)
    tests = compare_tasks(TaskScores(("a", "a2", "b", "b2"), values, TYPES), average)
    assert tests.p[0, 1] == tests.adjusted[0, 1] == tests.against("a").p[0] == 1
    assert tests.differences[0, 1] == 0
    assert not np.isnan(tests.adjusted).any()
    assert tests.interval("a", "a2") is None
    assert np.isnan(tests.against("a").low[0])
    assert tests.p[0, 2] == tests.p[1, 3] < 1


def test_a_constant_difference_gets_the_lowest_p_of_so_many_signs() -> None:
    values = make_table(2).values
    tests = compare_tasks(TaskScores(("a", "b"), np.stack([values[0], values[0] + 0.1])))
    assert tests.p[0, 1] == pytest.approx(2.0**-10)
    assert tests.adjusted[0, 1] == pytest.approx(2.0**-10)


@pytest.mark.parametrize("design", ["normal", "heavy"])
def test_equal_methods_differ_in_at_most_five_percent_of_tables(design: str) -> None:
    rng, corrected, single = make_generator(3, design), 0, 0
    for _ in range(300):
        noise = rng.normal(size=(8, 8)) if design == "normal" else rng.standard_t(3, (8, 8))
        tests = compare_tasks(TaskScores(tuple("abcdefgh"), noise))
        corrected += bool(tests.differs.any())
        single += bool((tests.p <= 0.05).any())
    assert corrected <= stats.binom.ppf(0.999, 300, 0.05)
    assert single >= 100


@pytest.mark.parametrize("means", [0.0, 2.0])
def test_the_average_over_types_is_covered_though_one_task_has_a_quarter_of_the_weight(means: float) -> None:
    rng, held = make_generator(4, "types"), 0
    own = np.repeat([means, -means, means, -means], [5, 3, 2, 1])
    for _ in range(1000):
        ends = task_pair_test(
            own + rng.normal(size=11), np.zeros(11), TYPES, average="types", level=0.9
        ).interval
        held += ends is not None and ends[0] <= 0 <= ends[1]
    assert 870 <= held <= (930 if means == 0 else 1000)


def test_too_few_tasks_are_refused_with_the_least_p() -> None:
    with pytest.raises(ValueError, match=r"5 task\(s\); expected at least 6: .* no p below 0\.0625"):
        TaskScores(("a", "b"), np.zeros((2, 5)))
    with pytest.raises(ValueError, match="expected at least 6"):
        task_pair_test(np.zeros(3), np.ones(3))


@pytest.mark.parametrize(
    ("methods", "values", "types", "words"),
    [
        (("a", "a"), np.zeros((2, 6)), (), "1 of them distinct"),
        (("a",), np.zeros((1, 6)), (), "at least 2"),
        (("a", "b"), np.zeros((2, 6)), ("sts",), "1 types of 6 tasks"),
        (("a", "b"), np.full((2, 6), np.nan), (), "not finite"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    methods: tuple[str, ...], values: FloatArray, types: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        TaskScores(methods, values, types)


def test_a_pair_needs_the_same_tasks() -> None:
    with pytest.raises(ValueError, match=r"a \(7,\) against b \(6,\); expected \(T,\)"):
        task_pair_test(np.zeros(7), np.zeros(6))


def test_unknown_averages_and_methods_are_refused() -> None:
    table = TaskScores(("a", "b"), make_table(2).values)
    with pytest.raises(ValueError, match="expected one of tasks, types, borda"):
        compare_tasks(table, "median")
    with pytest.raises(ValueError, match="without types"):
        compare_tasks(table, "types")
    with pytest.raises(ValueError, match="'c' is none of the 2 methods"):
        compare_tasks(table).against("c")
