"""Intervals of single methods over their seeds."""

from __future__ import annotations

import pytest
from scipy import stats

from bench.comparison.campaign_intervals import compute_method_intervals
from tests.support.sides import side


def test_a_method_whose_seeds_agree_has_no_interval_of_width_0() -> None:
    (found,) = compute_method_intervals(side("a", [0.1, 0.1, 0.1]).runs, 0.95)
    assert (found.sd, found.interval) == (0.0, None)


def test_the_interval_is_that_of_students_test() -> None:
    scores = [0.70, 0.72, 0.75]
    (found,) = compute_method_intervals(side("a", scores).runs, 0.9)
    expected = stats.ttest_1samp(scores, 0).confidence_interval(0.9)
    assert found.interval == pytest.approx((expected.low, expected.high))
