from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, f1_score  # type: ignore[import-untyped]

from bench.stats.inputs import make_generator
from bench.stats.labels import average_precision, mcnemar, weighted_f1
from bench.stats.resampling import mean_draws

RNG = np.random.default_rng(2)
COUNTS = np.array([[1] * 40, [2, 0] * 20, RNG.multinomial(40, [1 / 40] * 40)])


def repeated(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.repeat(values, counts)


@pytest.mark.parametrize("classes", [2, 7, 40])
def test_weighted_f1_is_scikit_learns_in_every_draw(classes: int) -> None:
    gold = RNG.permutation(np.arange(40) % classes)
    said = np.where(RNG.random(40) < 0.6, gold, RNG.integers(-1, classes, 40))
    found = weighted_f1(said, gold, COUNTS)
    for value, counts in zip(found, COUNTS, strict=True):
        expected = f1_score(
            repeated(gold, counts), repeated(said, counts), average="weighted", zero_division=0
        )
        assert value == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("digits", [1, 8])  # many ties, and none
def test_average_precision_is_scikit_learns_in_every_draw(digits: int) -> None:
    labels = RNG.integers(0, 2, 40)
    scores = (labels + RNG.normal(size=40)).round(digits)
    found = average_precision(scores, labels, COUNTS)
    for value, counts in zip(found, COUNTS, strict=True):
        expected = average_precision_score(repeated(labels, counts), repeated(scores, counts))
        assert value == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("only_first", "only_second"), [(6, 1), (1, 6), (9, 9), (0, 0), (0, 30)])
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    first = np.array([1] * only_first + [0] * only_second + [1] * 5 + [0] * 3)
    second = np.array([0] * only_first + [1] * only_second + [1] * 5 + [0] * 3)
    found = mcnemar(first, second)
    n = only_first + only_second
    assert (found.only_first, found.only_second, found.n) == (only_first, only_second, n + 8)
    assert found.p == pytest.approx(binomtest(only_first, n).pvalue if n else 1)
    assert found.minimum_p == pytest.approx(min(1, binomtest(0, n).pvalue if n else 1))


def test_means_are_drawn_as_by_hand_and_in_any_company() -> None:
    values = np.vstack([RNG.integers(0, 2, 31), RNG.random(31)])
    chosen = make_generator(1, "draws").integers(0, 31, (150, 31))
    together = mean_draws(values, make_generator(1, "draws"), 150)
    np.testing.assert_allclose(together, values[:, chosen].mean(2).T, rtol=0, atol=1e-14)
    for row, alone in zip(values, together.T, strict=True):
        np.testing.assert_array_equal(mean_draws(row, make_generator(1, "draws"), 150)[:, 0], alone)
