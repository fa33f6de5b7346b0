from __future__ import annotations

import pytest
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.correction import adjust_p_values, benjamini_hochberg, holm

P = {"simcse": 0.01, "whitening": 0.04, "untrained": 0.03, "diffcse": 0.005}


def test_holm_by_hand() -> None:
    family = holm(P, "new method against the baselines")
    adjusted = {name: found.adjusted for name, found in family.comparisons.items()}
    # times 4, 3, 2, 1 from the smallest, never below the one before
    assert adjusted == pytest.approx({"diffcse": 0.02, "simcse": 0.03, "untrained": 0.06, "whitening": 0.06})
    assert [found.p for found in family.comparisons.values()] == list(P.values())
    assert family.caption == "Holm over 4 comparisons (new method against the baselines)"


def test_benjamini_hochberg_by_hand() -> None:
    family = benjamini_hochberg(P, "grid of tau")
    adjusted = {name: found.adjusted for name, found in family.comparisons.items()}
    # times 4 / 1, 4 / 2, 4 / 3, 4 / 4 from the smallest, never above the one after
    assert adjusted == pytest.approx({"diffcse": 0.02, "simcse": 0.02, "untrained": 0.04, "whitening": 0.04})
    assert family.caption == "Benjamini-Hochberg over 4 comparisons (grid of tau)"
    assert benjamini_hochberg({"one": 0.3}, "x").caption == "Benjamini-Hochberg over 1 comparison (x)"


def as_loops(p: list[float], method: str) -> list[float]:
    """The definitions, comparison by comparison; equal p share one result whatever their order."""
    ordered, n = sorted(p), len(p)
    found = []
    for value in p:
        rank = ordered.index(value) + 1 if method == "holm" else n - ordered[::-1].index(value)
        if method == "holm":
            found.append(min(1, max((n - j + 1) * ordered[j - 1] for j in range(1, rank + 1))))
        else:
            found.append(min(1, min(n * ordered[j - 1] / j for j in range(rank, n + 1))))
    return found


@pytest.mark.parametrize("method", ["holm", "fdr_bh"])
@pytest.mark.parametrize("digits", [1, 2, 9])
def test_corrections_are_their_definitions_with_and_without_ties(method: str, digits: int) -> None:
    rng = make_generator(0, f"correction {digits}")
    for n in (1, 2, 7, 20):
        p = (rng.uniform(size=n) ** 2).round(digits).tolist()
        assert adjust_p_values(p, method) == pytest.approx(as_loops(p, method), abs=1e-15)


def test_benjamini_hochberg_is_scipys() -> None:
    values = make_generator(0, "bh").uniform(size=20)
    family = benjamini_hochberg({str(i): p for i, p in enumerate(values)}, "grid")
    expected = stats.false_discovery_control(values)
    assert [found.adjusted for found in family.comparisons.values()] == pytest.approx(expected.tolist())


def test_the_minimum_is_what_the_test_can_give_within_the_family() -> None:
    seeds = 2 / 252  # five seeds against five
    family = holm({f"m{i}": 0.2 for i in range(7)}, "all", {f"m{i}": seeds for i in range(7)})
    assert all(found.minimum == pytest.approx(7 * seeds) for found in family.comparisons.values())
    # where another comparison is ahead of it, one factor is spared
    family = holm({"sure": 0.001, "own": 0.2}, "all", {"own": seeds})
    assert family.comparisons["own"].minimum == pytest.approx(seeds)
    assert family.comparisons["sure"].minimum == 0
    grid = benjamini_hochberg({"sure": 0.001, "own": 0.2}, "all", {"own": seeds})
    assert grid.comparisons["own"].minimum == pytest.approx(seeds)
