"""Tests over tasks, of one pair and of all pairs at once."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.joint_flips import correct_by_flips, draw_signs
from bench.stats.task_averages import AVERAGES, TaskScores, borda_points, task_weights
from bench.stats.task_tests import TaskTests, compare_tasks, task_pair_test

TYPES = ("sts",) * 5 + ("retrieval",) * 3 + ("reranking",) * 2 + ("summary",)


def make_table(methods: int = 6, types: tuple[str, ...] = TYPES, gap: float = 0.6) -> TaskScores:
    rng = make_generator(5, "table")
    noise = rng.normal(size=(methods, len(types))) + 5 * rng.normal(size=len(types))
    names = tuple(f"m{number}" for number in range(methods))
    return TaskScores(names, noise + gap * np.arange(methods)[:, None], types)


def step_down(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Adjusted p of all pairs by all flips, computed pair by pair as Westfall and Young describe it."""
    count, tasks = scores.shape
    signs = np.array(list(product([1.0, -1.0], repeat=tasks)))
    pairs, sizes = list(combinations(range(count), 2)), []
    for i, j in pairs:
        gaps = weights * (scores[i] - scores[j])
        sizes.append(np.abs(signs @ gaps) / np.sqrt((gaps**2).sum()))
    flipped = np.array(sizes)
    order, adjusted, highest = np.argsort(-flipped[:, 0]), np.ones((count, count)), 0.0
    for place, pair in enumerate(order):
        largest = flipped[order[place:]].max(axis=0)
        highest = max(highest, float((largest >= flipped[pair, 0] - 1e-9).mean()))
        adjusted[pairs[pair]] = adjusted[pairs[pair][::-1]] = highest
    return adjusted


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


@pytest.mark.parametrize("average", AVERAGES)
def test_all_pairs_are_westfall_and_youngs_step_down(average: str) -> None:
    table = make_table(5, TYPES[:9])
    tests = compare_tasks(table, average)
    expected = step_down(table.points(average), task_weights(9, table.types, average))
    assert tests.family.exact
    assert tests.family.adjusted == pytest.approx(expected)
    assert np.array_equal(tests.adjusted, np.maximum(tests.family.adjusted, tests.p))


def test_random_flips_come_near_to_all_flips() -> None:
    table = make_table()
    exact, random = compare_tasks(table), compare_tasks(table, draws=1000)
    assert exact.family.exact
    assert not random.family.exact
    assert random.adjusted == pytest.approx(exact.adjusted, abs=0.06)
    assert np.array_equal(random.adjusted, compare_tasks(table, draws=1000).adjusted)
    assert not np.array_equal(random.adjusted, compare_tasks(table, draws=1000, seed=1).adjusted)


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


@pytest.mark.parametrize("draws", [500, 10_000])
@pytest.mark.parametrize("average", AVERAGES)
def test_an_interval_excludes_zero_exactly_if_the_pair_differs(average: str, draws: int) -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25), average, draws=draws)
    assert 0 < intervals_agree(tests) < 66
    for baseline in tests.methods:
        family = tests.against(baseline)
        excludes = (family.low > 0) | (family.high < 0)
        assert np.array_equal(excludes, family.p <= 0.05)
        assert ((family.low < family.differences) & (family.differences < family.high)).all()


def test_the_family_of_a_baseline_is_smaller_than_that_of_all_pairs() -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25))
    others = [place for place in range(12) if place != 4]
    family = tests.against("m4")
    assert family.methods == tuple(f"m{place}" for place in others)
    single = tests.family.steps[0].min()
    assert (tests.family.critical < single).all()
    assert (family.p >= tests.p[others, 4]).all()


def test_a_method_that_may_be_best_is_behind_no_other() -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25))
    for place, name in enumerate(tests.methods):
        family = tests.against(name)
        assert tests.may_be_best[place] == (not (family.low > 0).any())
    assert tests.may_be_best[int(tests.scores.argmax())]
    assert 0 < tests.may_be_best.sum() < 12


def test_the_ranking_has_the_tests_and_their_rank_sets() -> None:
    tests = compare_tasks(make_table(12, TYPES * 2, gap=0.25))
    ranking = tests.ranking()
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
    whole = compare_tasks(table, draws=1000)
    moved = TaskScores(tuple(table.methods[i] for i in order), table.values[order] + np.arange(11) * 3.0)
    other = compare_tasks(moved, draws=1000)
    assert other.adjusted == pytest.approx(whole.adjusted[np.ix_(order, order)])
    assert other.p == pytest.approx(whole.p[np.ix_(order, order)])


@pytest.mark.parametrize("average", AVERAGES)
def test_methods_alike_to_the_digit_do_not_differ(average: str) -> None:
    values = np.repeat(make_table().values[:2], 2, axis=0)
    tests = compare_tasks(TaskScores(("a", "a2", "b", "b2"), values, TYPES), average)
    assert tests.p[0, 1] == tests.adjusted[0, 1] == tests.family.against[0, 1] == 1
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


def test_all_flips_are_taken_where_they_are_few() -> None:
    rng = make_generator(1, "signs")
    signs, exact = draw_signs(10, rng)
    assert exact
    assert len({tuple(row) for row in np.concatenate([signs, -signs]).tolist()}) == 2**10
    signs, exact = draw_signs(15, rng)
    assert not exact
    assert signs.shape == (10_000, 15)
    assert abs(float(signs.mean())) < 0.01


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


def test_one_task_of_half_the_weight_leaves_no_simultaneous_interval() -> None:
    table = make_table(3, ("summary", *["sts"] * 5), gap=3.0)
    tests = compare_tasks(table, "types")
    assert 1 / (task_weights(6, table.types, "types") ** 2).sum() == pytest.approx(10 / 3)
    assert tests.family.critical[1] ** 2 > 10 / 3
    assert np.isnan(tests.against("m1").low).all()
    assert tests.pair("m2", "m0", 0.95).interval is not None
    assert tests.p.min() >= 2**-5


def test_flips_of_other_methods_or_tasks_are_refused() -> None:
    signs = np.ones((4, 6))
    with pytest.raises(ValueError, match=r"expected \(m, m\), \(m, tasks\), \(draws, tasks\)"):
        correct_by_flips(np.ones((3, 3)), np.ones((2, 6)), signs)
    with pytest.raises(ValueError, match=r"signs \(4, 6\)"):
        correct_by_flips(np.ones((2, 2)), np.ones((2, 5)), signs)


def test_unknown_averages_and_methods_are_refused() -> None:
    table = TaskScores(("a", "b"), make_table(2).values)
    with pytest.raises(ValueError, match="expected one of tasks, types, borda"):
        compare_tasks(table, "median")
    with pytest.raises(ValueError, match="without types"):
        compare_tasks(table, "types")
    with pytest.raises(ValueError, match="'c' is none of the 2 methods"):
        compare_tasks(table).against("c")
