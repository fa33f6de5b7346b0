from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from bench.stats.item_statistics import spearman_interval
from bench.stats.rank_correlation import rank_correlation


def test_it_is_scipys_also_with_ties() -> None:
    rng = np.random.default_rng(1)
    for n in (4, 7, 30):
        x, y = rng.integers(0, 5, (2, n)).tolist()
        x[:2], y[:2] = [0, 1], [0, 1]
        found = rank_correlation(x, y, 0.9)
        assert found.rho == pytest.approx(spearmanr(x, y).statistic)
        assert found.tau == pytest.approx(kendalltau(x, y).statistic)
        assert (found.low, found.high) == spearman_interval(found.rho or 0.0, n, 0.9)
        assert (found.n, found.level) == (n, 0.9)


@pytest.mark.parametrize(
    ("x", "y", "rho"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 1, 1, 1), (1, 2, 3, 4), None),
        ((1, 2, 3, 4), (5, 5, 5, 5), None),
        ((), (), None),
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 1.0),  # 1 - 2e-16 in floating point
        ((1, 2, 3, 4, 5), (5, 4, 3, 2, 1), -1.0),
        ((1, 1, 3, 4), (2, 2, 5, 7), 1.0),
    ],
)
def test_what_has_no_interval(x: tuple[float, ...], y: tuple[float, ...], rho: float | None) -> None:
    found = rank_correlation(x, y)
    assert (found.rho, found.low, found.high) == (rho, None, None)
    assert found.tau == (None if rho is None else pytest.approx(rho))


def test_bad_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="4 and 5 numbers"):
        rank_correlation((1, 2, 3, 4), (1, 2, 3, 4, 5))
    with pytest.raises(ValueError, match="finite"):
        rank_correlation((1, 2, 3, float("nan")), (1, 2, 3, 4))
