"""Rows against one baseline: the family, its intervals and answers, and the rows that may be the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.records.record import RunRecord
from bench.reports.method_family import DEPENDENT, ONE_SEED, SUPERVISED, VARIANT, choose_family
from bench.reports.sections import table_grids
from bench.reports.tables.baseline_family import (
    AHEAD,
    BEHIND,
    EQUAL,
    OPEN,
    BaselineFamily,
    compare_with_baseline,
    find_best,
)
from bench.reports.tables.leaderboard import all_leaderboards, make_leaderboard
from bench.reports.tables.pairwise_tests import ABOVE, BELOW
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.stats.argument_checks import make_generator
from bench.stats.difference_test import PAIRED
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import one_sample
from bench.stats.single_step import common_correlation, correct_family
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import alone, campaign, seeds

NOISE = (0.001, -0.002, 0.0015, -0.0012, 0.0007)
SIMCSE = seeds("simcse", *(0.70 + noise for noise in NOISE), stage="s")


def shifted(method: str, by: float, own: float = 0.1) -> list[RunRecord]:
    """A row of pairs with simcse: its runs, moved, with some noise of their own."""
    values = [0.70 + by + noise - own * other for noise, other in zip(NOISE, NOISE[::-1], strict=True)]
    return seeds(method, *values, stage="s")


def family_of(tmp_path: Path, *records: RunRecord, baseline: str = "simcse") -> BaselineFamily:
    source = campaign(tmp_path, *records)
    family = compare_with_baseline(run_pairwise_tests(source, source.records), baseline, margin=0.005)
    assert family is not None
    return family


def test_four_answers(tmp_path: Path) -> None:
    rows = (shifted("up", 0.05), shifted("down", -0.05), shifted("same", 0.0), shifted("wide", 0.0, own=8.0))
    family = family_of(tmp_path, *SIMCSE, *(record for row in rows for record in row))
    answers = {name: row.answer for name, row in family.rows.items()}
    assert answers == {"up": AHEAD, "down": BEHIND, "same": EQUAL, "wide": OPEN}
    assert (family.paired, family.others) == (4, 0)
    for row in family.rows.values():
        assert row.interval is not None
        assert row.p is not None
        assert (row.p <= 0.05) == (row.interval[0] > 0 or row.interval[1] < 0)
        assert sum(row.interval) / 2 == pytest.approx(row.difference)


def test_one_row_is_a_paired_t_test(tmp_path: Path) -> None:
    x, y = (0.71, 0.74, 0.70, 0.735), (0.70, 0.72, 0.705, 0.71)
    family = family_of(tmp_path, *seeds("x", *x, stage="s"), *seeds("simcse", *y, stage="s"))
    expected = paired_t(x, y)
    row = family.rows["x"]
    assert row.p == pytest.approx(expected.p)
    assert row.interval == pytest.approx((expected.low, expected.high))


def test_rows_without_shared_runs_are_bonferronis(tmp_path: Path) -> None:
    values = {"a": (0.71, 0.75, 0.70, 0.73, 0.72), "b": (0.65, 0.68, 0.66), "simcse": (0.70, 0.72, 0.69)}
    records = [record for name, row in values.items() for record in seeds(name, *row)]
    family = family_of(tmp_path, *records, alone("fixed", 0.6))
    assert (family.paired, family.others) == (0, 3)
    level = 1 - 0.05 / 3
    for name in ("a", "b"):
        x, y = np.array(values[name]), np.array(values["simcse"])
        difference, error = x.mean() - y.mean(), np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
        few = min(len(x), len(y)) - 1
        half = stats.t.ppf((1 + level) / 2, few) * error
        assert family.rows[name].p == pytest.approx(min(1, 6 * stats.t.sf(abs(difference) / error, few)))
        assert family.rows[name].interval == pytest.approx((difference - half, difference + half))
    constant = one_sample(values["simcse"], 0.6, level)
    assert family.rows["fixed"].interval == pytest.approx((-constant.high, -constant.low))


def test_shared_seeds_make_intervals_narrower_than_bonferronis(tmp_path: Path) -> None:
    rng = make_generator(3, "family")
    base = 0.7 + 0.01 * rng.normal(size=6)
    records = seeds("simcse", *base, stage="s")
    for number in range(8):
        records += seeds(f"m{number}", *(0.7 + 0.003 * rng.normal(size=6)), stage="s")
    family = family_of(tmp_path, *records)
    for name in family.rows:
        row = family.rows[name]
        x = [record.score("avg") or 0 for record in records if record.method == name]
        bonferroni = paired_t(x, base, 1 - 0.05 / 8)
        assert row.interval is not None
        assert row.interval[1] - row.interval[0] < bonferroni.high - bonferroni.low


def test_all_intervals_hold_at_once_in_95_percent(tmp_path: Path) -> None:
    """Through the records and the choice of the test, not only through the correction."""
    rng, held = make_generator(11, "at once"), 0
    for number in range(120):
        records = []
        for name in ("simcse", "a", "b", "c", "d", "e"):
            records += seeds(name, *(0.7 + 0.01 * rng.normal(size=5)), stage="s")
        family = family_of(tmp_path / str(number), *records)
        held += all(row.answer in (OPEN, EQUAL) for row in family.rows.values())
    assert held >= 107  # a binomial of 120 and 0.95 is below in 1 of 200


def test_best_rows_are_those_that_no_other_is_shown_to_beat(tmp_path: Path) -> None:
    rows = (shifted("up", 0.05), shifted("near", 0.0499), shifted("down", -0.05))
    source = campaign(tmp_path, *SIMCSE, *(record for row in rows for record in row))
    tests = run_pairwise_tests(source, source.records)
    assert find_best(tests) == {"up", "near"}
    for row in ("simcse", "up", "near", "down"):
        family = compare_with_baseline(tests, row, margin=0.005)
        assert family is not None
        beaten = any(other.interval and other.interval[0] > 0 for other in family.rows.values())
        assert (row in find_best(tests)) is not beaten


def test_best_is_kept_in_95_percent_of_equal_rows(tmp_path: Path) -> None:
    rng, kept = np.random.default_rng(5), 0
    for number in range(100):
        records = []
        for name in "abcd":
            records += seeds(name, *(0.7 + 0.01 * rng.normal(size=4)), stage="s")
        source = campaign(tmp_path / str(number), *records)
        kept += "a" in find_best(run_pairwise_tests(source, source.records))
    assert kept >= 89


def supervised(records: list[RunRecord]) -> list[RunRecord]:
    return [replace(record, training=record.training | {"supervised": True}) for record in records]


THREE = [*SIMCSE, *shifted("tncse", 0.01), *shifted("jtcse", 0.02, own=0.3)]


def test_the_family_is_rows_at_the_profiles_options() -> None:
    records = [
        *THREE,
        *shifted("simcse[steps=280]", 0.03),
        *seeds("once", 0.9),
        *supervised(shifted("labelled", 0.1)),
        alone("untrained", 0.5),
    ]
    family = choose_family(records)
    assert family.tested == ("simcse", "tncse", "jtcse", "untrained")
    assert family.aside == {"simcse[steps=280]": VARIANT, "once": ONE_SEED, "labelled": SUPERVISED}
    assert family.hidden == set(family.aside)
    assert numbers_in(family.describe_hidden()) == [1, 1, 1]
    named = choose_family(records, named=("simcse", "simcse[steps=280]", "once"))
    assert (named.tested, named.hidden) == (("simcse", "simcse[steps=280]", "once"), frozenset())
    assert "labelled" in choose_family(records, rank_supervised=True).tested


def test_with_fewer_than_three_plain_rows_all_are_the_family() -> None:
    records = [*THREE[:10], *shifted("simcse[tau=0.1]", 0.03), *seeds("once", 0.9)]
    family = choose_family(records)
    assert family.tested == ("simcse", "tncse", "simcse[tau=0.1]", "once")
    assert family.hidden == frozenset()


def test_seeds_that_share_a_stage_are_listed_but_not_tested(tmp_path: Path) -> None:
    shared = shifted("shared", 0.2)
    for record in shared:
        record.training["stages"]["simcse"]["key"] = "one training"
    source = campaign(tmp_path, *THREE, *shared)
    family = source.family(source.records)
    assert (family.aside, family.hidden) == ({"shared": DEPENDENT}, frozenset())
    (table,) = all_leaderboards(source)
    row = next(row for row in table.rows if row.method == "shared")
    assert (row.rank, row.against, row.answer) == (None, None, DEPENDENT)


def test_the_leaderboard_prints_the_answers(tmp_path: Path) -> None:
    source = campaign(tmp_path, *THREE, *shifted("worse", -0.05), *shifted("tncse[lr=1]", 0.1))
    (grid,) = table_grids(source, "leaderboard")
    columns = {name: [str(row[grid.header.index(name)]) for row in grid.rows] for name in grid.header}
    assert columns["method"] == ["jtcse", "tncse", "simcse", "worse"]
    assert columns["answer"] == [AHEAD, AHEAD, "baseline", BEHIND]
    assert columns["difference"] == ["+2.00", "+1.00", "-", "-5.00"]
    assert "group" not in grid.header
    note = next(note for note in grid.notes if note.startswith("Against"))
    assert numbers_in(note) == [2, 1, 0, 0.5, 0]
    (whole,) = table_grids(replace(source, all_rows=True), "leaderboard")
    assert str(whole.rows[0][0]) == "tncse[lr=1]"
    assert VARIANT in map(str, whole.rows[0])
    (pairs,) = table_grids(replace(source, family_kind="all"), "leaderboard")
    assert "answer" not in pairs.header


def test_another_baseline_and_its_daggers(tmp_path: Path) -> None:
    source = campaign(tmp_path, *THREE, baseline="tncse")
    for kind in (None, "all"):
        table = make_leaderboard(replace(source, family_kind=kind), source.records)
        signs = {row.method: row.cells["avg"].sign for row in table.rows}
        assert signs == {"simcse": BELOW, "tncse": "", "jtcse": ABOVE}
    plain = make_leaderboard(replace(source, baseline=None), source.records)
    assert not any(row.cells["avg"].sign for row in plain.rows)


@pytest.mark.parametrize(
    ("baseline", "facts"), [("once", (ONE_SEED,)), ("fixed", ()), ("none", ("no finished run",))]
)
def test_a_baseline_that_cannot_be_tested(tmp_path: Path, baseline: str, facts: tuple[str, ...]) -> None:
    records = (
        [*THREE, *seeds("once", 0.9)] if baseline != "fixed" else [alone("fixed", 0.3), *seeds("x", 0.7)]
    )
    source = campaign(tmp_path, *records, baseline=baseline)
    (grid,) = table_grids(source, "leaderboard")
    assert not missing_facts(grid.notes, f"{baseline} can't be", *facts)


def test_collapsed_seeds_are_named(tmp_path: Path) -> None:
    falls = seeds("falls", 0.71, 0.712, 0.40, 0.709, 0.711)
    (grid,) = table_grids(campaign(tmp_path, *THREE, *falls), "leaderboard")
    note = next(note for note in grid.notes if note.startswith("Collapsed seeds"))
    assert "falls" in note
    assert numbers_in(note) == [1, 5, 3]


def test_differences_that_are_all_the_same_are_open(tmp_path: Path) -> None:
    twin = seeds("twin", *(record.score("avg") or 0 for record in SIMCSE), stage="s")
    family = family_of(tmp_path, *SIMCSE, *twin, *shifted("jtcse", 0.02, own=0.3))
    row = family.rows["twin"]
    assert (row.difference, row.interval, row.answer) == (0.0, None, OPEN)


@pytest.mark.parametrize(("count", "answer"), [(5, OPEN), (12, AHEAD)])
def test_a_constant_lead_needs_enough_seeds(tmp_path: Path, count: int, answer: str) -> None:
    values = 0.7 + 0.01 * make_generator(4, "constant").normal(size=count)
    records = [*seeds("simcse", *values, stage="s"), *seeds("up", *(values + 0.01), stage="s")]
    row = family_of(tmp_path, *records).rows["up"]
    assert (row.interval, row.answer) == (None, answer)
    assert row.p is not None
    assert (row.p <= 0.05) == (answer == AHEAD)


def test_many_seeds_and_rows_without_common_seeds(tmp_path: Path) -> None:
    rng = make_generator(2, "many")
    records = []
    for name in ("simcse", "a", "b"):
        records += seeds(name, *(0.7 + 0.01 * rng.normal(size=70)), stage="s")
    assert family_of(tmp_path / "many", *records).paired == 2
    base = seeds("simcse", *(0.7 + 0.01 * rng.normal(size=10)), stage="s")
    first = seeds("a", *(0.7 + 0.01 * rng.normal(size=5)), stage="s")
    others = seeds("b", *(0.7 + 0.01 * rng.normal(size=10)), stage="s")[5:]
    assert family_of(tmp_path / "apart", *base, *first, *others).paired == 2


def test_a_difference_of_pairs_says_so(tmp_path: Path) -> None:
    fewer = shifted("fewer", 0.0)[:3]
    (grid,) = table_grids(campaign(tmp_path, *THREE, *fewer), "leaderboard")
    assert not missing_facts(grid.notes, "Where a row and simcse")
    (grid,) = table_grids(campaign(tmp_path, *THREE), "leaderboard")
    assert missing_facts(grid.notes, "Where a row and simcse")


def test_data_formats_have_the_ends_of_intervals(tmp_path: Path) -> None:
    source = replace(campaign(tmp_path, *THREE), pairs=True)
    (grid,) = table_grids(source, "leaderboard")
    family = family_of(tmp_path, *THREE)
    (row,) = (row for row in grid.rows if str(row[0]) == "jtcse")
    ends = [row[grid.header.index(name)] for name in ("low", "high")]
    assert tuple(getattr(end, "value", None) for end in ends) == family.rows["jtcse"].interval


@pytest.mark.parametrize("seed", range(8))
def test_the_best_rows_are_those_of_every_familys_own_correction(tmp_path: Path, seed: int) -> None:
    rng, records = np.random.default_rng(seed), [alone("fixed", 0.705)]
    for number in range(9):
        size = int(rng.integers(2, 7))
        values = 0.70 + rng.normal(scale=0.004) + rng.normal(scale=0.003, size=size)
        stage = "s" if rng.random() < 0.6 else None
        records += seeds(f"row{number}", *values.tolist(), **({"stage": stage} if stage else {}))
    source = campaign(tmp_path, *records)
    tests = run_pairwise_tests(source, source.records)
    ranking, best = tests.of(), set()
    for row in ranking.methods:
        others = [
            other for other in ranking.methods if other != row and ranking.pair(row, other).p is not None
        ]
        raw = {other: tests.test(other, row, fewest=True) for other in others}
        paired = [other for other in others if raw[other].test == PAIRED]
        sides = []
        for other in paired:
            x, y = tests.scores_by_seed(other), tests.scores_by_seed(row)
            sides.append({seed: x[seed] - y[seed] for seed in sorted(x.keys() & y.keys())})
        common = sorted(set.intersection(*map(set, sides))) if sides else []
        differences = np.array([[side[seed] for side in sides] for seed in common])
        correlation = common_correlation(differences) if len(paired) > 1 else 0.0
        correction = correct_family([len(side) for side in sides], correlation, len(raw) - len(paired))
        ahead = [test.p for test in raw.values() if test.p is not None and test.difference > 0]
        if not ahead or correction.adjust(min(ahead)) > 0.05:
            best.add(row)
    assert find_best(tests) == best
    assert best < set(ranking.methods) or seed not in (0, 1)
