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
from bench.gate.verdict import Key, cell_name
from bench.records.record import RunRecord
from tests.support.gate_records import record, runs

Values = Any  # (cells, seeds)


def key(number: int) -> Key:
    return ("mini", f"m{number}", "toy")


def cells(then: Values, now: Values, first: int = 1) -> dict[Key, Sides]:
    """Cells with these averages, (cells, seeds); the new seeds begin with this one."""
    return {
        key(i): choose_sides(key(i), runs(was, method=f"m{i}"), runs(is_now, first=first, method=f"m{i}"))
        for i, (was, is_now) in enumerate(zip(then, now, strict=True))
    }


def averaged(compared: dict[Key, Sides]) -> tuple[Key, Sides]:
    found = average_cells(compared)
    assert found is not None
    return found


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
    lows = [measure_drops(sides, 1 - 0.05 / 9)["avg"].low for sides in compared.values()]
    assert all(low is not None and low < 0 for low in lows)
    name, sides = averaged(compared)
    assert (name[0], name[2], cell_name(name)) == ("", "", name[1])
    assert "8 cells" in name[1]
    average = measure_drops(sides, 1 - 0.05 / 9)["avg"]
    expected = stats.ttest_rel(then.mean(0), now.mean(0)).confidence_interval(1 - 0.05 / 9)
    assert (average.low, average.high) == pytest.approx(tuple(expected))
    assert (average.low or 0.0) > 0
    assert average.drop == pytest.approx((then - now).mean())
    assert (sides.test, sides.same_machine) == ("paired t", True)
    assert list_record_seeds(sides.then) == (1, 2, 3, 4, 5)
    assert list(measure_drops(sides, 0.95)) == ["avg"]


def test_the_limit_is_by_the_spread_of_the_means() -> None:
    then, now = noisy(4, 6, 0.0)
    found = averaged(cells(then, now))
    spread = then.mean(0).std(ddof=1)
    expected = stats.t.ppf(0.975, 5) * spread * (2 / 6) ** 0.5
    assert compute_drop_limit(found[1], 0.95) == pytest.approx(expected)
    alone = [smallest_detectable_drop(sides, 0.95, 0.005) or 0.0 for sides in cells(then, now).values()]
    together = smallest_detectable_drop(found[1], 0.95, 0.005)
    assert together is not None
    assert together < 0.8 * np.mean(alone)


def test_cells_that_move_together_keep_their_spread() -> None:
    shared = np.array([0.58, 0.6, 0.62])
    found = averaged(cells([shared, shared, shared], [shared, shared, shared - 0.01]))
    (alone,) = cells([shared], [shared]).values()
    assert compute_drop_limit(found[1], 0.95) == pytest.approx(compute_drop_limit(alone, 0.95))


def test_an_equal_cell_adds_a_drop_of_nothing_seed_by_seed() -> None:
    then, now = noisy(1, 3, 0.02)
    compared = cells(then, now) | {key(7): equal_cell((0.5, 0.7, 0.9))}
    name, sides = averaged(compared)
    assert "2 cells" in name[1]
    average = measure_drops(sides, 0.95)["avg"]
    assert average.drop == pytest.approx((then - now).mean() / 2)
    half = stats.ttest_rel(then[0] / 2, now[0] / 2).confidence_interval(0.95)  # no spread of its own
    assert (average.low, average.high) == pytest.approx(tuple(half))


def test_equal_cells_alone_fell_by_nothing() -> None:
    found = averaged({key(1): equal_cell((0.5, 0.7, 0.9)), key(2): equal_cell((0.4, 0.3, 0.6))})
    average = measure_drops(found[1], 0.95)["avg"]
    assert (average.drop, average.low, average.high) == (0, 0, 0)


def test_cells_without_a_spread_are_left_out() -> None:
    compared = cells(*noisy(2, 3, 0.0))
    compared[key(5)] = choose_sides(key(5), [record(0.6, None)], [record(0.1, None)])
    compared[key(6)] = choose_sides(key(6), runs((0.6, 0.7, 0.8)), runs((0.1,)))
    found = averaged(compared)
    assert "2 cells" in found[0][1]
    assert measure_drops(found[1], 0.95)["avg"].new > 0.5


def test_only_seeds_that_all_cells_have_count() -> None:
    then, now = noisy(2, 4, 0.01)
    compared = cells(then, now)
    fewer = runs(now[1][1:], first=2, method="m1")
    compared[key(1)] = choose_sides(key(1), runs(then[1], method="m1"), fewer)
    found = averaged(compared)
    assert (list_record_seeds(found[1].then), list_record_seeds(found[1].now)) == ((2, 3, 4), (2, 3, 4))
    assert measure_drops(found[1], 0.95)["avg"].drop == pytest.approx((then - now)[:, 1:].mean())
    assert list_record_seeds(found[1].reference) == (1, 2, 3, 4)  # of the limit


def test_other_seeds_are_compared_by_welch() -> None:
    then, now = noisy(2, 4, 0.01)
    found = averaged(cells(then, now, first=11))
    assert found[1].test == "Welch"
    average = measure_drops(found[1], 0.95)["avg"]
    expected = stats.ttest_ind(then.mean(0), now.mean(0), equal_var=False).confidence_interval(0.95)
    assert (average.low, average.high) == pytest.approx(tuple(expected))


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
    found = averaged(compared)
    with pytest.raises(DataError, match="no score"):
        measure_drops(found[1], 0.95)


def as_accuracy(made: RunRecord) -> RunRecord:
    return replace(made, scores=tuple(replace(score, metric="accuracy") for score in made.scores))


def test_metrics_that_differ_are_averaged_as_shares() -> None:
    compared = cells(*noisy(2, 3, 0.01))
    changes: dict[str, Any] = {}
    for side in ("then", "now", "reference", "new"):
        changes[side] = tuple(map(as_accuracy, getattr(compared[key(1)], side)))
    compared[key(1)] = replace(compared[key(1)], **changes)
    found = averaged(compared)
    drops = [measure_drops(sides, 0.95)["avg"].drop for sides in (*compared.values(), found[1])]
    assert drops[-1] == pytest.approx(np.mean(drops[:-1]))
