"""The average over cells sees what all of them lose, and is a cell like others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.errors import DataError
from bench.gate.drops import (
    Sides,
    average_cells,
    choose_sides,
    compute_drop_limit,
    list_record_seeds,
    measure_drops,
    smallest_detectable_drop,
)
from bench.gate.verdict import Drop, Key, cell_name
from bench.records.record import RunRecord
from tests.support.gate_records import record, runs
from tests.support.messages import numbers_in

Values = Any  # (cells, seeds)


def key(number: int) -> Key:
    return ("mini", f"m{number}", "toy")


def cells(then: Values, now: Values, first: int = 1) -> dict[Key, Sides]:
    """Cells with these averages, (cells, seeds); the new seeds begin with this one."""
    return {
        key(i): choose_sides(key(i), runs(was, method=f"m{i}"), runs(is_now, first=first, method=f"m{i}"))
        for i, (was, is_now) in enumerate(zip(then, now, strict=True))
    }


def averaged(compared: dict[Key, Sides]) -> tuple[str, Sides]:
    """The name and the sides of the average over cells, a row of no profile and no suite."""
    found = average_cells(compared)
    assert found is not None
    (profile, name, suite), sides = found
    assert (profile, suite, cell_name(found[0])) == ("", "", name)
    return name, sides


def fall(sides: Sides, level: float = 0.95) -> Drop:
    return measure_drops(sides, level)["avg"]


def equal_cell(values: Sequence[float]) -> Sides:
    same: tuple[RunRecord, ...] = tuple(runs(values))
    return Sides(same, same[::-1], None, same, same, same_machine=True)


def noisy(count: int, seeds: int, fall: float, seed: int = 11) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    then = 0.6 + 0.02 * random.normal(size=(count, seeds))
    return then, then - fall + 0.015 * random.normal(size=(count, seeds))


def test_a_drop_that_all_cells_share_is_seen_in_the_average_alone() -> None:
    then, now = noisy(8, 5, 0.01)
    compared = cells(then, now)
    assert max(fall(sides, 1 - 0.05 / 9).low or 0.0 for sides in compared.values()) < 0
    name, sides = averaged(compared)
    assert numbers_in(name) == [8]
    average = fall(sides, 1 - 0.05 / 9)
    expected = stats.ttest_rel(then.mean(0), now.mean(0)).confidence_interval(1 - 0.05 / 9)
    assert (average.low, average.high) == pytest.approx(tuple(expected))
    assert (average.low or 0.0) > 0
    assert average.drop == pytest.approx((then - now).mean())
    assert (sides.test, sides.same_machine) == ("paired t", True)
    assert list_record_seeds(sides.then) == (1, 2, 3, 4, 5)
    assert list(measure_drops(sides, 0.95)) == ["avg"]


def test_the_limit_is_by_the_spread_of_the_means() -> None:
    then, now = noisy(4, 6, 0.0)
    _, together = averaged(cells(then, now))
    expected = stats.t.ppf(0.975, 5) * then.mean(0).std(ddof=1) * (2 / 6) ** 0.5
    assert compute_drop_limit(together, 0.95) == pytest.approx(expected)
    alone = [smallest_detectable_drop(sides, 0.95, 0.005) or 0.0 for sides in cells(then, now).values()]
    assert 0 < (smallest_detectable_drop(together, 0.95, 0.005) or 0.0) < 0.8 * np.mean(alone)


def test_cells_that_move_together_keep_their_spread() -> None:
    shared = np.array([0.58, 0.6, 0.62])
    _, together = averaged(cells([shared, shared, shared], [shared, shared, shared - 0.01]))
    (alone,) = cells([shared], [shared]).values()
    assert compute_drop_limit(together, 0.95) == pytest.approx(compute_drop_limit(alone, 0.95))


def test_an_equal_cell_adds_a_drop_of_nothing_seed_by_seed() -> None:
    then, now = noisy(1, 3, 0.02)
    compared = cells(then, now) | {key(7): equal_cell((0.5, 0.7, 0.9))}
    name, sides = averaged(compared)
    average = fall(sides)
    assert numbers_in(name) == [2]
    assert average.drop == pytest.approx((then - now).mean() / 2)
    half = stats.ttest_rel(then[0] / 2, now[0] / 2).confidence_interval(0.95)  # no spread of its own
    assert (average.low, average.high) == pytest.approx(tuple(half))


def test_equal_cells_alone_fell_by_nothing() -> None:
    average = fall(averaged({key(1): equal_cell((0.5, 0.7, 0.9)), key(2): equal_cell((0.4, 0.3, 0.6))})[1])
    assert (average.drop, average.low, average.high) == (0, 0, 0)


def test_cells_without_a_spread_are_left_out() -> None:
    compared = cells(*noisy(2, 3, 0.0))
    compared[key(5)] = choose_sides(key(5), [record(0.6, None)], [record(0.1, None)])
    compared[key(6)] = choose_sides(key(6), runs((0.6, 0.7, 0.8)), runs((0.1,)))
    name, sides = averaged(compared)
    assert numbers_in(name) == [2]
    assert fall(sides).new > 0.5


def test_only_seeds_that_all_cells_have_count() -> None:
    then, now = noisy(2, 4, 0.01)
    compared = cells(then, now)
    fewer = runs(now[1][1:], first=2, method="m1")
    compared[key(1)] = choose_sides(key(1), runs(then[1], method="m1"), fewer)
    _, sides = averaged(compared)
    assert (list_record_seeds(sides.then), list_record_seeds(sides.now)) == ((2, 3, 4), (2, 3, 4))
    assert fall(sides).drop == pytest.approx((then - now)[:, 1:].mean())
    assert list_record_seeds(sides.reference) == (1, 2, 3, 4)  # of the limit


def test_other_seeds_are_compared_by_welch() -> None:
    then, now = noisy(2, 4, 0.01)
    _, sides = averaged(cells(then, now, first=11))
    expected = stats.ttest_ind(then.mean(0), now.mean(0), equal_var=False).confidence_interval(0.95)
    assert (sides.test, fall(sides).low, fall(sides).high) == ("Welch", *map(pytest.approx, expected))


def test_where_there_is_no_average() -> None:
    then, now = noisy(2, 3, 0.0)
    assert average_cells({}) is None
    assert average_cells(cells(then[:1], now[:1])) is None
    mixed = cells(then, now)
    mixed[key(1)] = cells(then, now, first=11)[key(1)]
    assert average_cells(mixed) is None  # pairs in one cell, none in the other
    apart = cells(then, now)
    moved = [replace(r, seed=(r.seed or 0) + 2, method="m1") for r in runs(then[1])]
    apart[key(1)] = choose_sides(key(1), moved, moved)
    assert average_cells(apart) is None  # one seed in common


def test_a_missing_score_is_said() -> None:
    compared = cells(*noisy(2, 3, 0.0))
    broken = tuple(replace(r, scores=r.scores[:1]) for r in compared[key(1)].now)
    compared[key(1)] = replace(compared[key(1)], now=broken)
    with pytest.raises(DataError, match="no score"):
        fall(averaged(compared)[1])


def test_metrics_that_differ_are_averaged_as_shares() -> None:
    compared = cells(*noisy(2, 3, 0.01))
    changes: dict[str, Any] = {}
    for side in ("then", "now", "reference", "new"):
        shares = []
        for made in getattr(compared[key(1)], side):
            scores = tuple(replace(score, metric="accuracy") for score in made.scores)
            shares.append(replace(made, scores=scores))
        changes[side] = tuple(shares)
    compared[key(1)] = replace(compared[key(1)], **changes)
    drops = [fall(sides).drop for sides in compared.values()]
    assert fall(averaged(compared)[1]).drop == pytest.approx(np.mean(drops))
