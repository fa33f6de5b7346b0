"""What the gate says that it sees is what it fails, by simulation through its own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.gate.drops import Sides, choose_sides, compute_drop_limit, smallest_detectable_drop
from bench.gate.judge import judge
from tests.support.gate_records import OTHER, record, runs

KEY = ("mini", "noise", "toy")
SD = 0.02
REFERENCE = runs((0.60, 0.61, 0.62))


def sides(then: Sequence[float], new: int, first: int = 1, **changes: Any) -> Sides:
    """A reference of seeds 1.., and new runs from this seed on."""
    return choose_sides(KEY, runs(then), runs([0.5] * new, first=first, **changes))


def sight(cell: Sides, level: float = 0.95, tolerance: float = 0.005, **more: float) -> float:
    found = smallest_detectable_drop(cell, level, tolerance, **more)
    assert found is not None
    return found


def spread(seeds: int) -> list[float]:
    """Scores with a standard deviation of 2 points."""
    found = np.linspace(-1, 1, seeds)
    return list(0.6 + SD * found / found.std(ddof=1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("then", "new", "first", "correlation", "tolerance"),
    [
        (3, 3, 1, 0.0, 0.005),
        (3, 3, 1, 0.0, 0.0),
        (6, 6, 1, 0.9, 0.005),
        (6, 3, 1, 0.0, 0.005),  # three of the reference's seeds are pairs
        (5, 3, 11, 0.0, 0.005),  # Welch
        (6, 3, 11, 0.0, 0.005),  # of uneven sides
        (4, 1, 2, 0.0, 0.005),
    ],
)
def test_a_drop_of_that_size_fails_with_the_chance_that_is_said(
    then: int, new: int, first: int, correlation: float, tolerance: float
) -> None:
    """Over references and new runs; half of it fails clearly less often."""
    random, gates = np.random.default_rng(7), 150
    failed = {1.0: 0, 0.5: 0}
    for _ in range(gates):
        shared, one, other = random.normal(size=(3, 20))
        was, is_now = (
            0.6 + SD * (correlation**0.5 * shared + (1 - correlation) ** 0.5 * own) for own in (one, other)
        )
        reference, now = runs(was[:then]), is_now[first - 1 : first - 1 + new]
        chosen = choose_sides(KEY, reference, runs(now, first=first, provenance=OTHER))
        found = sight(chosen, tolerance=tolerance, correlation=correlation)
        for share in failed:
            made = runs(now - share * found, first=first, provenance=OTHER)
            failed[share] += judge(reference, made, tolerance=tolerance).exit_code
    error = (0.8 * 0.2 / gates) ** 0.5
    assert failed[1.0] / gates == pytest.approx(0.8, abs=2.5 * error)
    assert failed[0.5] / gates < 0.55


def test_a_reference_of_one_seed_has_no_spread_to_say_it_from() -> None:
    assert smallest_detectable_drop(sides([0.6], 1), 0.95, 0.005) is None
    assert smallest_detectable_drop(sides([0.6], 3), 0.95, 0.005) is None


def test_an_equal_cell_sees_what_it_would_if_it_changed() -> None:
    tested = choose_sides(KEY, REFERENCE, runs((0.5, 0.5, 0.5)))
    equal = Sides(tuple(REFERENCE), tuple(REFERENCE), None, tuple(REFERENCE), tuple(REFERENCE), True)
    assert tested.test == "paired t"
    assert sight(equal) == sight(tested) == sight(choose_sides(KEY, REFERENCE, runs((0.1, 0.9, 0.3))))


def test_it_is_beyond_what_fails_by_chance() -> None:
    """A drop of the limit's size fails half the time only."""
    cell = sides(spread(5), 5)
    assert sight(cell, power=0.5) <= (compute_drop_limit(cell, 0.95) or 0.0) < sight(cell, power=0.8)


def test_more_seeds_pairs_that_are_alike_and_fewer_cells_see_more() -> None:
    found = [sight(sides(spread(n), n)) for n in (2, 3, 5, 10, 20)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.02 < found[1]
    five = sides(spread(5), 5)
    alike = [sight(five, correlation=r) for r in (0, 0.5, 0.9, 0.99)]
    assert alike == sorted(alike, reverse=True)
    assert alike[-1] < alike[0] / 3
    cells = [sight(five, 1 - 0.05 / tested) for tested in (1, 3, 10)]
    assert cells == sorted(cells)


def test_the_unit_is_the_scores() -> None:
    doubled = [2 * value for value in spread(4)]
    one, two = (sight(sides(scores, 4), tolerance=0.0) for scores in (spread(4), doubled))
    assert two == pytest.approx(2 * one)


def test_it_is_never_below_the_tolerance() -> None:
    assert sight(choose_sides(KEY, [record(0.6, None)], [record(0.59, None)])) == 0.005  # deterministic
    assert sight(sides([0.6, 0.6, 0.6], 3)) == 0.005  # seeds that agree
    assert sight(sides([0.6, 0.6, 0.6], 3, first=7)) == 0.005
    assert sight(sides(spread(20), 20), tolerance=0.3, power=0.1) == 0.3


def test_one_pair_fails_by_the_tolerance_here_and_by_the_spread_elsewhere() -> None:
    here, elsewhere = sides(spread(3), 1), sides(spread(3), 1, provenance=OTHER)
    assert 0.005 < sight(here) < sight(elsewhere)


@pytest.mark.parametrize(("power", "correlation"), [(0.0, 0.0), (1.0, 0.0), (0.8, 1.0), (0.8, -0.1)])
def test_what_is_no_chance_is_refused(power: float, correlation: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        smallest_detectable_drop(sides(spread(3), 3), 0.95, 0.005, power, correlation=correlation)


def test_the_order_of_records_is_of_no_account() -> None:
    cell = sides(spread(5), 5)
    turned = replace(cell, reference=cell.reference[::-1])
    assert sight(turned) == pytest.approx(sight(cell))
