from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.clustered_tests import spearman_influence
from bench.stats.difference_test import pair_test
from bench.stats.item_statistics import (
    SuiteDraws,
    contract_share,
    draw_suite,
    expand_share,
    item_difference,
    paired_bootstrap,
    percentile_interval,
)
from bench.stats.item_units import Part, SuiteUnits, UnitSummary, draw_scores
from bench.stats.resampling import IntArray, mean_statistic, spearman_draws, spearman_statistic
from bench.stats.variance_components import variance_components

RNG = np.random.default_rng(3)
LABELS = {
    "one": [np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6, 7])],
    "two": [np.r_[8, 9, 0, 10:25]],
    "three": [np.array([30, 31, 32, 33, 34, 34]), np.array([40, 40, 41, 42, 43, 44, 45])],
}
LARGE = {"one": [np.arange(60) // 3], "two": [np.r_[0, 5, 100:130]]}
"""Enough clusters for statistics."""
SIZES = {task: sum(map(len, parts)) for task, parts in LABELS.items()}


def make(stream: str) -> np.random.Generator:
    return make_generator(5, stream)


def test_summary_counts_items_clusters_and_kish_numbers() -> None:
    found = SuiteUnits(LABELS).summary
    one, two, three = (found.tasks[task] for task in LABELS)
    assert (one.items, one.clusters, one.largest, one.shared) == (12, 8, 3, True)
    assert one.effective == 144 / (4 + 1 + 9 + 1 + 1 + 4 + 1 + 1)
    assert (two.items, two.clusters, two.effective, two.shared) == (18, 18, 18.0, False)
    assert (three.items, three.clusters, three.largest) == (13, 11, 2)
    assert [group.tasks for group in found.linked] == [("one", "two"), ("three",)]
    weights = np.r_[
        [2 / 12 + 1 / 18], [1 / 12, 3 / 12, 1 / 12, 1 / 12, 2 / 12, 1 / 12, 1 / 12], [1 / 18] * 17
    ]
    assert found.linked[0].effective == pytest.approx(weights.sum() ** 2 / (weights @ weights))
    of_three = np.r_[[1 / 12] * 4, 2 / 12, 2 / 14, [1 / 14] * 5]
    assert found.linked[1].effective == pytest.approx(1 / (of_three @ of_three))
    assert (found.items, found.clusters, found.known, found.shared) == (43, 36, True, True)


def test_a_draw_takes_whole_clusters_over_linked_tasks_and_parts_alone() -> None:
    units = SuiteUnits(LABELS)
    drawn: dict[Part, IntArray] = {}
    for rows, counts in units.draw(150, make):
        for part, of_part in counts.items():
            drawn.setdefault(part, np.zeros((150, of_part.shape[1]), dtype=int))[rows] = of_part
    chosen = make("items/one").integers(0, 25, (150, 25))
    labels = np.concatenate([LABELS["one"][0], LABELS["two"][0]])
    expected = np.array([[np.count_nonzero(draw == cluster) for cluster in labels] for draw in chosen])
    np.testing.assert_array_equal(np.hstack([drawn["one", 0], drawn["two", 0]]), expected)
    for number, stream, count in ((0, "items/three", 5), (1, "items/three/1", 6)):
        own = make(stream).integers(0, count, (150, count))
        numbers = np.unique(LABELS["three"][number], return_inverse=True)[1]
        by_hand = [[np.count_nonzero(draw == cluster) for cluster in numbers] for draw in own]
        np.testing.assert_array_equal(drawn["three", number], by_hand)


def test_scores_are_those_of_the_repeated_items() -> None:
    predictions = {task: RNG.normal(size=(2, size)) for task, size in SIZES.items()}
    gold = {task: np.round(RNG.normal(size=SIZES[task]), 1) for task in ("one", "two")}
    parts = np.split(predictions["three"], [6], axis=1)
    statistics = {task: [spearman_statistic(predictions[task], gold[task])] for task in gold}
    found = draw_scores(
        {**statistics, "three": [mean_statistic(part) for part in parts]}, SuiteUnits(LABELS), 120, make
    )
    assert found.shape == (120, 2, 3)
    chosen = make("items/one").integers(0, 25, (120, 25))
    for column, task in enumerate(gold):
        for draw, clusters in enumerate(chosen):
            items = [i for cluster in clusters for i in np.flatnonzero(LABELS[task][0] == cluster)]
            by_hand = [stats.spearmanr(row[items], gold[task][items]).statistic for row in predictions[task]]
            np.testing.assert_allclose(found[draw, :, column], by_hand, atol=1e-12)
    for draw in range(120):
        means = []
        for number, part in enumerate(parts):
            labels = np.unique(LABELS["three"][number], return_inverse=True)[1]
            stream = f"items/three/{number}" if number else "items/three"
            clusters = make(stream).integers(0, labels.max() + 1, (120, labels.max() + 1))[draw]
            means.append(part[:, [i for c in clusters for i in np.flatnonzero(labels == c)]].mean(1))
        np.testing.assert_allclose(found[draw, :, 2], np.mean(means, axis=0), atol=1e-12)


def test_without_shared_texts_it_is_the_plain_bootstrap() -> None:
    rows, gold = RNG.normal(size=(3, 30)), np.round(RNG.normal(size=30), 1)
    statistics = {task: [spearman_statistic(rows, gold)] for task in "ab"}
    found = draw_scores(statistics, SuiteUnits.independent({"a": [30], "b": [30]}), 200, make)
    for column, task in enumerate("ab"):
        plain = spearman_draws(rows, gold, make(f"items/{task}"), 200)
        np.testing.assert_array_equal(found[:, :, column], plain)


def test_draws_spread_as_the_sums_of_influence_by_cluster() -> None:
    labels = RNG.integers(0, 200, 600)
    common = RNG.normal(size=(3, 200))[:, labels]  # of a cluster's gold scores and predictions
    gold, *rows = 2 * common + RNG.normal(size=(3, 600))
    rows = np.stack(rows) + gold
    units = SuiteUnits({"t": [labels]})
    drawn = draw_scores({"t": [spearman_statistic(rows, gold)]}, units, 4000, make)[:, :, 0]
    influence = spearman_influence(rows, gold)
    for values, by_item in ((drawn[:, 0], influence[0]), (drawn.T[0] - drawn.T[1], np.subtract(*influence))):
        expected = np.sqrt(np.sum(np.bincount(labels, by_item / 600) ** 2))
        assert values.std() == pytest.approx(expected, rel=0.06)
        assert expected > 1.1 * np.sqrt(np.sum((by_item / 600) ** 2))  # and not as independent items do


def test_summary_survives_json_and_refuses_others() -> None:
    found = SuiteUnits(LARGE).summary
    text = json.dumps(found.to_json())
    assert UnitSummary.from_json(json.loads(text)) == found

    def changed(path: tuple[Any, ...], value: Any) -> Any:
        whole = json.loads(text)
        place = whole
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return whole

    for path, value in (
        (("tasks", "one", "items"), "60"),
        (("tasks", "one", "items"), 19),
        (("tasks", "one", "effective"), float("nan")),
        (("tasks", "one", "effective"), 1.0),
        (("tasks", "one", "effective"), 9.5),
        (("tasks", "one", "effective"), 21.0),
        (("tasks", "one", "largest"), 0),
        (("tasks", "one", "largest"), 10**9),
        (("tasks", "one", "more"), 1),
        (("tasks", "two", "clusters"), 60),
        (("clusters",), True),
        (("clusters",), 5),
        (("clusters",), 92),
        (("known",), 1),
        (("linked",), []),
        (("linked",), [{"tasks": [], "effective": 20.0}, *found.to_json()["linked"]]),
        (("linked", 0, "effective"), 1e9),
        (("tasks", "four"), {}),
        (("tasks",), []),
    ):
        with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
            UnitSummary.from_json(changed(path, value))


def test_too_few_clusters_and_impossible_labels_are_refused() -> None:
    assert SuiteUnits(LARGE).find_shortage() is None
    assert SuiteUnits.independent({"t": [5]}).find_shortage() is None
    few = {"one": [np.arange(5)], "two": [np.arange(5)]}
    assert "one, two share sentences: as good as 5.0 clusters" in (SuiteUnits(few).find_shortage() or "")
    gold = {"t": np.arange(40.0)}
    rows = {"a": {"t": RNG.normal(size=(2, 40))}, "b": {"t": RNG.normal(size=(2, 40))}}
    for labels, fact in (
        (np.arange(40) // 20, "as good as 2.0 clusters; expected at least 10"),
        (np.zeros(40, dtype=int), "as good as 1.0 clusters"),
        (np.arange(39), "expected 40 whole numbers"),
        (np.arange(40) / 2, "expected 40 whole numbers"),
        (np.arange(80).reshape(40, 2), "expected 40 whole numbers"),
    ):
        with pytest.raises(ValueError, match=fact):
            draw_suite(rows, gold, make_generator(1, "x"), 100, {"t": labels})
    with pytest.raises(ValueError, match="expected 40 whole numbers"):
        draw_suite(rows, gold, make_generator(1, "x"), 100, {})
    with pytest.raises(ValueError, match="more than one cluster"):
        expand_share(0.025, 1.0)


def test_a_task_of_unequal_parts_counts_their_weights() -> None:
    units = SuiteUnits({"t": [np.arange(10), np.r_[0, 10:10009]]}).summary
    assert units.tasks["t"].effective == units.linked[0].effective
    weights = np.r_[0.05 + 0.5 / 10000, [0.05] * 9, [0.5 / 10000] * 9999]
    assert units.tasks["t"].effective == pytest.approx(1 / (weights @ weights))


def test_few_clusters_of_many_items_need_little_memory() -> None:
    largest = 0
    units = SuiteUnits({"t": [np.arange(20_000) % 20]})
    for _, counts in units.draw(1000, make):
        largest = max(largest, counts["t", 0].nbytes)
    assert largest <= 2**20


def test_draws_of_one_dominant_cluster_are_rough() -> None:
    shares = np.r_[[8.0], np.ones(200) / 20]
    drawn = np.stack([RNG.multinomial(201, np.full(201, 1 / 201)) for _ in range(10_000)]) - 1.0
    found = item_difference(drawn @ shares, 0.0, 400, effective=150.0)
    assert found.excess_kurtosis == pytest.approx(1.0, abs=0.25)  # Poisson's kurtosis: one cluster has all
    assert found.is_rough
    even = item_difference(drawn @ np.ones(201) ** 2 + RNG.normal(size=10_000), 0.0, 400, effective=150.0)
    assert not even.is_rough
    assert not item_difference(drawn @ shares, 0.0, 400).is_rough


def test_empty_parts_and_undefined_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="t has no items"):
        SuiteUnits({"t": [np.arange(0)]})
    with pytest.raises(ValueError, match="no tasks"):
        draw_scores({}, SuiteUnits({}), 100, make)
    units = SuiteUnits({"t": [np.array([0, 0, 1, 1])]})
    with pytest.raises(ValueError, match="t: all gold scores are equal"):
        draw_scores({"t": [spearman_statistic([1, 2, 3, 4], [1, 1, 2, 2])]}, units, 100, make)


def test_item_variance_is_that_of_linked_tasks_together() -> None:
    gold = {"one": RNG.normal(size=60), "two": RNG.normal(size=32)}
    predictions = {
        side: {task: scores + RNG.normal(size=(3, len(scores))) for task, scores in gold.items()}
        for side in "ab"
    }
    clusters = {task: LARGE[task][0] for task in gold}
    sample = draw_suite(predictions, gold, make_generator(1, "x"), 400, clusters)
    assert sample.units is not None
    found = variance_components(sample, "a", "b")
    differences = sample.draws[:, :3].mean(1) - sample.draws[:, 3:].mean(1)
    assert found.items == pytest.approx(differences.mean(1).var(ddof=1))
    parts = [sample.observed[side].mean(1).var(ddof=1) / 3 for side in (slice(0, 3), slice(3, 6))]
    freedom = [2, 2, sample.units.linked[0].effective - 1]
    total = [*parts, found.items]
    df = sum(total) ** 2 / sum(v**2 / f for v, f in zip(total, freedom, strict=True))
    half = stats.t.ppf(0.975, df) * np.sqrt(sum(total))
    own = stats.t.ppf(0.975, sum(parts) ** 2 / sum(v**2 / 2 for v in parts)) * np.sqrt(sum(parts))
    assert found.high - found.difference == pytest.approx(max(half, own))
    tests = paired_bootstrap(sample, "a", "b")
    assert [(test.n, test.clusters) for test in tests.values()] == [(60, 20), (32, None), (92, 50)]
    alone = SuiteDraws(sample.rows, sample.tasks, sample.pairs, sample.observed, sample.draws)
    by_task = differences.var(axis=0, ddof=1).sum() / 4
    assert variance_components(alone, "a", "b").items == pytest.approx(by_task)
    assert paired_bootstrap(alone, "a", "b")["avg"].clusters is None


@pytest.mark.parametrize(("level", "effective"), [(0.95, 12.5), (0.99, 57.0), (0.9, 3.0)])
def test_few_clusters_widen_percentiles_as_students_quantile_does(level: float, effective: float) -> None:
    quantiles = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)  # draws of a normal difference
    low, high = percentile_interval(2 + 3 * quantiles, level, effective)
    scale = 3 * np.sqrt(effective / (effective - 1))
    half = stats.t.ppf((1 + level) / 2, effective - 1) * scale
    assert (low, high) == pytest.approx((2 - half, 2 + half), rel=2e-3)
    found = item_difference(2 + 3 * quantiles, 2.0, 100, level, effective)
    assert found.p == pytest.approx(2 * stats.t.sf(2 / scale, effective - 1), rel=2e-3)
    assert (found.low, found.high) == (low, high)
    assert found.minimum_p > 2 / 200_001
    tail = (1 - level) / 2
    assert contract_share(expand_share(tail, effective), effective) == pytest.approx(tail)


def test_an_interval_of_clusters_agrees_with_its_p() -> None:
    drawn = RNG.normal(size=4000)
    for shift in np.linspace(1.8, 3.2, 30):
        found = item_difference(drawn + shift, shift, 50, 0.95, 15.0)
        if abs(found.low) > 0.01:
            assert (found.p < 0.05) == (found.low > 0)
    far = item_difference(drawn + 50, 50.0, 50, 0.95, 15.0)
    assert far.p == far.minimum_p
    beyond = pair_test(
        [50.0], [0.0], deterministic=(True, True), items=drawn + 50, effective=15.0, level=0.999
    )
    scale = drawn.std(ddof=1) * np.sqrt(15 / 14)
    assert beyond.p == pytest.approx(2 * stats.t.sf(50 / scale, 14))
    assert beyond.interval is not None
    assert beyond.interval[0] == pytest.approx(50 - stats.t.ppf(0.9995, 14) * scale, rel=1e-3)


def test_a_small_part_of_a_large_group_is_never_empty() -> None:
    labels = {"small": [np.array([0, 1])], "large": [np.arange(200)]}
    values = {"small": RNG.normal(size=2), "large": RNG.normal(size=200)}
    statistics = {task: [mean_statistic(of_task)] for task, of_task in values.items()}
    found = draw_scores(statistics, SuiteUnits(labels), 2000, make)
    counts: dict[str, IntArray] = {}
    for rows, drawn in SuiteUnits(labels).draw(2000, make):
        for (task, _), of_part in drawn.items():
            counts.setdefault(task, np.zeros((2000, of_part.shape[1]), dtype=int))[rows] = of_part
    assert counts["small"].sum(1).min() == 1
    assert (counts["large"].sum(1) == 200).all()
    np.testing.assert_array_equal(counts["small"], counts["large"][:, :2])
    first = make("items/small").integers(0, 200, (2000, 200))
    kept = (first < 2).any(axis=1)  # the others, 13%, are drawn again
    assert 0.8 < kept.mean() < 0.93
    np.testing.assert_array_equal(counts["large"][kept, 0], (first[kept] == 0).sum(1))
    by_hand = counts["small"] @ values["small"] / counts["small"].sum(1)
    np.testing.assert_allclose(found[:, 0, 0], by_hand)
