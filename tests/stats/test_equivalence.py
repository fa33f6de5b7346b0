from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW  # type: ignore[import-untyped]

from bench.stats.argument_checks import make_generator
from bench.stats.equivalence import (
    DifferenceEstimate,
    DifferenceInterval,
    claim_test,
    equivalence_test,
    estimate_from_interval,
    largest_possible_difference,
    predict_run_difference,
)
from bench.stats.item_statistics import SuiteDraws
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import one_sample, welch
from bench.stats.variance_components import variance_components

A, B = [76.1, 76.4, 75.9, 76.3, 76.0], [75.2, 75.9, 75.6, 75.1, 75.7]


def every_kind(level: float) -> dict[str, tuple[DifferenceInterval, float]]:
    """Each t interval with its standard error computed apart."""
    x, y = np.array(A), np.array(B)
    of_seeds = math.sqrt(x.var(ddof=1) / 5 + y.var(ddof=1) / 5)
    observed = np.r_[x, y][:, None]
    noise = make_generator(0, "noise").normal(size=(200, 1, 1)) * np.r_[np.ones(5), np.zeros(5)][:, None]
    runs = {"a": slice(0, 5), "b": slice(5, 10)}
    sample = SuiteDraws(runs, ("t",), (100,), observed, observed + noise)
    items = noise[:, 0, 0].var(ddof=1)
    of_pairs = (x - y).std(ddof=1) / math.sqrt(5)
    return {
        "welch": (welch(A, B, level), of_seeds),
        "student": (one_sample(A, 75.0, level), x.std(ddof=1) / math.sqrt(5)),
        "paired t": (paired_t(A, B, level), of_pairs),
        "components": (variance_components(sample, "a", "b", level=level), math.sqrt(of_seeds**2 + items)),
        "paired components": (
            variance_components(sample, "a", "b", paired=True, level=level),
            math.sqrt(of_pairs**2 + items),
        ),
    }


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("kind", ["welch", "student", "paired t", "components", "paired components"])
def test_every_t_interval_gives_its_estimate(kind: str, level: float) -> None:
    found, error = every_kind(level)[kind]
    made = estimate_from_interval(found, level)
    assert (made.difference, made.df) == (found.difference, found.df)
    assert made.error == pytest.approx(error)


def test_without_spread_the_error_is_0() -> None:
    assert estimate_from_interval(welch([1, 1], [2, 2])) == DifferenceEstimate(-1.0, 0.0, math.inf)


@pytest.mark.parametrize("margin", [0.2, 0.7, 1.5])
def test_two_one_sided_tests_are_statsmodels(margin: float) -> None:
    found = equivalence_test(estimate_from_interval(welch(A, B)), margin)
    means = CompareMeans(DescrStatsW(A), DescrStatsW(B))
    p = means.ttost_ind(-margin, margin, usevar="unequal")[0]
    lower = means.ttest_ind(alternative="larger", usevar="unequal", value=-margin)[1]
    upper = means.ttest_ind(alternative="smaller", usevar="unequal", value=margin)[1]
    assert (found.p, found.p_lower, found.p_upper) == pytest.approx((p, lower, upper))
    assert (found.low, found.high) == pytest.approx(means.tconfint_diff(0.1, usevar="unequal"))


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (0.0, "equal within"),
        (0.5, "equal within"),
        (-0.5, "equal within"),
        (0.9, "not shown"),
        (-1.2, "not shown"),
        (1.4, "not shown"),  # different from 0, but not by more than the margin
        (1.5, "different"),
        (-1.5, "different"),
    ],
)
def test_verdicts(difference: float, verdict: str) -> None:
    # error 0.2, 8 degrees of freedom: one-sided quantile 1.86, two-sided 2.31
    found = equivalence_test(DifferenceEstimate(difference, 0.2, 8), 1.0)
    assert found.verdict == verdict
    assert (found.verdict == "equal within") == (max(-found.low, found.high) <= 1)
    assert (found.verdict == "equal within") == (found.largest <= 1)
    half = float(stats.t.ppf(0.975, 8)) * 0.2
    assert (found.verdict == "different") == (difference - half >= 1 or difference + half <= -1)
    assert (found.margin, found.level) == (1.0, 0.95)


def test_the_largest_possible_difference_is_the_smallest_margin() -> None:
    found = DifferenceEstimate(-0.3, 0.2, 5)
    assert largest_possible_difference(found, 0.9) == pytest.approx(0.3 + 0.2 * stats.t.ppf(0.9, 5))
    largest = largest_possible_difference(found)
    assert equivalence_test(found, largest * 0.999).verdict == "not shown"
    assert equivalence_test(found, largest * 1.001).verdict == "equal within"
    assert equivalence_test(found, 1.0).largest == largest


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.0, "equal within"), (0.29, "equal within"), (-0.31, "different")]
)
def test_without_spread_the_difference_decides(difference: float, verdict: str) -> None:
    found = equivalence_test(DifferenceEstimate(difference, 0.0, math.inf), 0.3)
    assert found.verdict == verdict
    assert (found.low, found.high, found.largest) == (difference, difference, abs(difference))
    assert found.p == (verdict != "equal within")


def test_an_infinite_df_is_the_normal_distribution() -> None:
    found = equivalence_test(DifferenceEstimate(0.0, 1.0, math.inf), 2.0)
    assert found.p == pytest.approx(stats.norm.sf(2))
    assert found.largest == pytest.approx(stats.norm.ppf(0.95))


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(0.5, "supported"), (0.9, "not supported"), (1.3, "not supported"), (1.5, "contradicted")],
)
def test_claims(size: float, verdict: str) -> None:
    # difference 1, error 0.2, 5 degrees of freedom: bounds 1 -+ 0.403
    found = claim_test(DifferenceEstimate(1.0, 0.2, 5), size)
    assert found.verdict == verdict
    assert (found.low, found.high) == pytest.approx((1 - 2.015 * 0.2, 1 + 2.015 * 0.2), abs=1e-3)
    assert found.p == pytest.approx(stats.t.sf((1 - size) / 0.2, 5))
    assert found.p_against == pytest.approx(1 - found.p)
    assert (found.size, found.level) == (size, 0.95)


def test_a_claim_of_scipys_one_sided_test() -> None:
    found = claim_test(estimate_from_interval(welch(A, B)), 0.3, level=0.9)
    test = stats.ttest_ind(np.array(A) - 0.3, B, equal_var=False, alternative="greater")
    assert found.p == pytest.approx(test.pvalue)
    assert found.low - 0.3 == pytest.approx(test.confidence_interval(0.9).low)
    worse = claim_test(estimate_from_interval(welch(B, A)), -1.5)  # not inferior by more than 1.5
    assert worse.verdict == "supported"


@pytest.mark.parametrize(("size", "verdict"), [(0.9, "supported"), (1.1, "contradicted")])
def test_a_claim_without_spread(size: float, verdict: str) -> None:
    assert claim_test(DifferenceEstimate(1.0, 0.0, math.inf), size).verdict == verdict


def test_one_run_each_by_hand() -> None:
    # variances 1 and 4, 3 runs each: V = 4 / 3 + 16 / 3
    low, high = predict_run_difference([1, 2, 3], [3, 5, 7])
    parts = [1 * 4 / 3, 4 * 4 / 3]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 2)
    half = stats.t.ppf(0.975, df) * math.sqrt(sum(parts))
    assert (low, high) == pytest.approx((-3 - half, -3 + half))
    # of two runs and three the fewer's degree of freedom alone: V = 4 / 3 + 4.5 x 3 / 2
    low, high = predict_run_difference([1, 2, 3], [3, 6])
    half = stats.t.ppf(0.975, 1) * math.sqrt(4 / 3 + 4.5 * 3 / 2)
    assert (low, high) == pytest.approx((-2.5 - half, -2.5 + half))
    # against a fixed score: Student's prediction interval
    half = stats.t.ppf(0.95, 2) * math.sqrt(4 / 3)
    assert predict_run_difference([1, 2, 3], [5], 0.9) == pytest.approx((-3 - half, -3 + half))
    assert predict_run_difference([5], [1, 2, 3], 0.9) == pytest.approx((3 - half, 3 + half))
    assert predict_run_difference([1, 1], [3]) == (-2, -2)


@pytest.mark.long
@pytest.mark.slow
def test_at_the_margin_it_errs_as_often_as_promised() -> None:
    """3,000 simulations of paired seeds whose true difference is the margin: 5% +- 1.3 points."""
    d = 0.1 * make_generator(0, "size").normal(size=(3000, 4)) + 1.0
    estimates = [estimate_from_interval(paired_t(row, np.zeros(4))) for row in d]
    said = [equivalence_test(found, 1.0).verdict for found in estimates]
    assert abs(np.mean([verdict == "equal within" for verdict in said]) - 0.05) < 0.013
    assert np.mean([verdict == "different" for verdict in said]) < 0.05
    supported = [claim_test(found, 1.0).verdict == "supported" for found in estimates]
    assert abs(np.mean(supported) - 0.05) < 0.013
