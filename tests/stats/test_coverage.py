from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.coverage import TABLE, CoverageRow, find_coverage, read_coverage, write_coverage
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import welch

PLAIN = CoverageRow("welch", "normal", 5, 5, None, "further seeds", 0.95, 0.9561, 20_000, 0.9522, 0.9597)
ROWS = (
    PLAIN,
    replace(PLAIN, n_a=2, n_b=2),
    replace(PLAIN, n_a=2, n_b=10),
    replace(PLAIN, design="spread 3:1", n_a=2, n_b=10),
    replace(PLAIN, design="spread 3:1", n_a=10, n_b=2),
    replace(PLAIN, correlation=0.0),
    replace(PLAIN, correlation=0.9),
    replace(PLAIN, design="items dominate", target="further seeds, further items"),
    replace(PLAIN, design="items dominate", target="further seeds, these items"),
    replace(PLAIN, method="paired t", n_a=4, n_b=4, correlation=0.0),
    replace(PLAIN, method="paired t", n_a=4, n_b=4, correlation=0.99),
    replace(PLAIN, method="student", n_b=1),
)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = (*ROWS, replace(PLAIN, nominal=None), replace(PLAIN, design="a, with a comma"))
    write_coverage(rows, tmp_path / "table.csv")
    assert read_coverage(tmp_path / "table.csv") == rows
    head, first, *_ = (tmp_path / "table.csv").read_text().splitlines()
    assert head == "method,design,n_a,n_b,correlation,target,nominal,measured,simulations,low,high"
    assert first == "welch,normal,5,5,,further seeds,0.95,0.9561,20000,0.9522,0.9597"


def test_the_nearest_numbers_of_seeds() -> None:
    numbers = [(5, 5), (4, 4), (3, 3), (10, 2), (3, 12), (99, 99)]
    rows = [find_coverage("welch", *n, rows=ROWS) for n in numbers]
    assert [(row.n_a, row.n_b) for row in rows] == [(5, 5), (5, 5), (2, 2), (2, 10), (2, 10), (5, 5)]
    assert {(row.correlation, row.design) for row in rows} == {(None, "normal")}


def test_of_two_as_near_the_one_with_fewer_seeds() -> None:
    rows = [replace(PLAIN, n_a=n, n_b=n) for n in (4, 16, 2, 8)]
    assert [find_coverage("welch", n, n, rows=rows).n_a for n in (4, 5, 6, 64)] == [4, 4, 8, 16]
    twice = [replace(PLAIN, n_a=n, n_b=n) for n in (8, 2)]
    assert find_coverage("welch", 4, 4, rows=twice).n_a == 2


def test_unequal_spread_is_not_turned_round() -> None:
    for n in ((2, 10), (10, 2), (3, 9), (9, 3)):
        found = find_coverage("welch", *n, design="spread 3:1", rows=ROWS)
        assert (found.n_a < found.n_b) == (n[0] < n[1])


def test_the_nearest_correlation() -> None:
    found = [find_coverage("paired t", 5, 5, r, rows=ROWS) for r in (None, 0.0, -0.8, 0.8, 0.95, 1.0)]
    assert [row.correlation for row in found] == [0.0, 0.0, 0.0, 0.0, 0.99, 0.99]


def test_a_side_without_seeds_fits_its_own_rows() -> None:
    rows = [replace(PLAIN, n_a=10, n_b=n) for n in (1, 5)]
    found = [find_coverage("welch", *n, rows=rows) for n in ((10, 1), (1, 10), (10, 2), (40, 1))]
    assert [row.n_b for row in found] == [1, 1, 5, 1]
    assert find_coverage("welch", 5, 1, rows=rows[1:]).n_b == 5
    assert find_coverage("welch", 5, 5, rows=rows[:1]).n_b == 1


def test_sides_and_pairs_are_kept_apart() -> None:
    assert find_coverage("welch", 5, 5, 0.8, rows=ROWS).correlation == 0.9
    assert find_coverage("welch", 2, 2, 0.8, rows=ROWS).n_a == 5  # pairs were measured with 5 alone
    assert find_coverage("student", 5, 1, 0.8, rows=ROWS).correlation is None


def test_the_first_target_of_a_design_is_its_own() -> None:
    for target, expected in ((None, "further items"), ("further seeds, these items", "these items")):
        row = find_coverage("welch", 5, 5, design="items dominate", target=target, rows=ROWS)
        assert row.target == f"further seeds, {expected}"


@pytest.mark.parametrize(
    ("nominal", "share", "keeps", "exact"),
    [
        (0.95, 0.931, True, True),
        (0.95, 0.929, False, False),
        (0.95, 0.98, True, False),
        (0.05, 0.069, True, True),
        (0.05, 0.071, False, False),
        (0.05, 0.001, True, False),
        (None, 0.5, None, None),
    ],
)
def test_a_promise(nominal: float | None, share: float, keeps: bool | None, exact: bool | None) -> None:
    row = replace(PLAIN, nominal=nominal, measured=share)
    assert (row.keeps, row.exact) == (keeps, exact)


@pytest.fixture(scope="module")
def table() -> tuple[CoverageRow, ...]:
    return read_coverage()


def test_the_table_is_as_the_benchmark_writes_it(table: tuple[CoverageRow, ...], tmp_path: Path) -> None:
    write_coverage(table, tmp_path / TABLE.name)
    assert (tmp_path / TABLE.name).read_bytes() == TABLE.read_bytes()


def test_the_table_has_every_setting_once_and_enough_simulations(table: tuple[CoverageRow, ...]) -> None:
    keys = [(row.method, row.design, row.n_a, row.n_b, row.correlation, row.target) for row in table]
    assert len(set(keys)) == len(keys)
    least = {"sentences": 400}  # a suite of 18,850 pairs takes two CPU seconds a simulation
    assert all(row.simulations >= least.get(row.design.split()[0], 1000) for row in table)
    total = np.array([row.simulations for row in table])
    count = np.round(np.array([row.measured for row in table]) * total)
    low = np.where(count > 0, stats.beta.ppf(0.005, np.maximum(count, 1), total - count + 1), 0)
    high = np.where(count < total, stats.beta.ppf(0.995, count + 1, np.maximum(total - count, 1)), 1)
    assert [row.low for row in table] == pytest.approx(list(low), abs=1e-4)  # Clopper and Pearson
    assert [row.high for row in table] == pytest.approx(list(high), abs=1e-4)
    assert [row.measured for row in table] == [round(share, 5) for share in count / total]


def own_settings(table: tuple[CoverageRow, ...]) -> Iterator[CoverageRow]:
    """Rows of the intervals that a verdict rests on, in the settings that they are for."""
    for row in table:
        if row.method in ("student", "paired t") and row.design == "normal":
            yield row
        if row.method == "welch" and row.design == "normal" and row.correlation is None:
            yield row
        if row.method in ("components", "components, paired") and row.target.endswith("further items"):
            yield row


def test_default_intervals_hold_in_their_own_settings(table: tuple[CoverageRow, ...]) -> None:
    rows = list(own_settings(table))
    assert len({row.method for row in rows}) == 5
    assert [row for row in rows if row.n_b in (1, row.n_a) and not row.keeps] == []


def test_rank_correlations_hold_but_where_both_sides_follow_what_is_held_fixed(
    table: tuple[CoverageRow, ...],
) -> None:
    rows = [row for row in table if row.method in ("rank correlation", "partial rank correlation")]
    assert {(row.n_a, row.correlation) for row in rows} == {
        (n, r) for n in (5, 10, 20, 40) for r in (0, 0.6, 0.9)
    }
    assert {row.design for row in rows} == {"normal", "normal, z 0.5", "normal, z 0.9"}
    assert all(row.keeps for row in rows if row.design != "normal, z 0.9")
    assert min(row.measured for row in rows) > 0.88


@pytest.mark.parametrize(("method", "r"), [("welch", None), ("paired t", 0.9), ("welch", 0.9)])
def test_a_row_is_what_a_small_simulation_gives(method: str, r: float | None) -> None:
    """2,000 simulations of three seeds per side."""
    rng = make_generator(7, f"row/{method}/{r}")
    a, b = rng.normal(size=(2, 2000, 3))
    b = b if r is None else r * a + np.sqrt(1 - r**2) * b
    tool = welch if method == "welch" else paired_t
    tests = [tool(x, y) for x, y in zip(a, b, strict=True)]
    held = [d.low <= 0 <= d.high for d in tests]
    assert held == [d.p > 0.05 for d in tests]
    row = find_coverage(method, 3, 3, r)
    assert (row.n_a, row.n_b, row.correlation) == (3, 3, r)
    assert abs(np.mean(held) - row.measured) < 0.016
