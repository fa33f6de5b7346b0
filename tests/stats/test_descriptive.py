from __future__ import annotations

import numpy as np
import pytest

from bench.stats.inputs import FloatArray, make_generator
from bench.stats.summaries import almost_stochastic_order, interquartile_mean, performance_profile


def test_iqm_by_hand() -> None:
    # two of eight off at either end
    assert interquartile_mean([[1, 2, 3, 100], [5, 6, 7, -9]]) == (2 + 3 + 5 + 6) / 4
    assert interquartile_mean([[1.0, 2.0, 6.0]]) == 3


def test_performance_profile_by_hand() -> None:
    scores = [[0.7, 0.8], [0.7, 0.9]]
    np.testing.assert_allclose(performance_profile(scores, [0.6, 0.7, 0.85, 0.9]), [1, 0.5, 0.25, 0])


def violation(a: FloatArray, b: FloatArray) -> float:
    """The violation ratio as a loop over a fine grid of quantiles."""
    a, b, steps = np.sort(a), np.sort(b), len(a) * len(b)
    against = total = 0.0
    for i in range(steps):
        gap = a[i * len(a) // steps] - b[i * len(b) // steps]
        total += gap**2
        against += gap**2 if gap < 0 else 0
    return against / total


@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 8), (5, 7)])
def test_aso_is_the_loop(n: int, m: int) -> None:
    data = make_generator(0, f"aso {n} {m}")
    a, b = data.normal(size=n) + 0.5, data.normal(size=m)
    rng = make_generator(1, "draws")
    draws_a, draws_b = rng.choice(a, (200, n)), rng.choice(b, (200, m))
    ratios = [violation(x, y) for x, y in zip(draws_a, draws_b, strict=True)]
    expected = min(1, violation(a, b) + 1.6448536269514722 * float(np.std(ratios)))
    assert expected > 0
    assert almost_stochastic_order(a, b, make_generator(1, "draws"), draws=200) == pytest.approx(expected)


def test_aso_of_methods_apart_and_of_equals() -> None:
    low, high = np.arange(5.0), np.arange(6.0) + 10
    assert almost_stochastic_order(high, low, make_generator(0, "apart")) == 0
    assert almost_stochastic_order(low, high, make_generator(0, "apart")) == 1
    assert almost_stochastic_order([1.0] * 5, [1.0] * 5, make_generator(0, "equal")) == 0.5
