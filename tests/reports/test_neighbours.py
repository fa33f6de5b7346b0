"""Verdicts on pairs: the seeds that each needs, and one verdict in every form of the page."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.comparison.questions import DETECT
from bench.errors import InputError
from bench.records.record import RunRecord
from bench.render.grid import format_score
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import group_figures
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.pairwise_tests import ABOVE, BELOW
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.stats.seed_planning import describe_seed_plan, plan_seeds
from bench.stats.spread import spread_of_pairs, spread_of_sides
from tests.support.standings import alone, campaign, seeds

BEST = (0.700, 0.704, 0.709, 0.698, 0.703)
NEXT = (0.699, 0.705, 0.704, 0.697, 0.700)
LAST = (0.500, 0.520, 0.490, 0.505)


def rows(source: Campaign) -> list[dict[str, str]]:
    (grid,) = table_grids(source, "neighbours")
    return [dict(zip(grid.header, map(str, row), strict=True)) for row in grid.rows]


@pytest.fixture
def three(tmp_path: Path) -> Campaign:
    """Two that can't be told apart, and a third far below, of one seed fewer."""
    return campaign(tmp_path, *seeds("best", *BEST), *seeds("next", *NEXT), *seeds("last", *LAST))


def test_each_method_and_the_next(three: Campaign) -> None:
    first, second = rows(three)
    columns = ("A", "B", "now", "seeds now", "A - B")
    assert [first[name] for name in columns] == ["best", "next", "not told apart", "5", "+0.18"]
    assert [second[name] for name in columns] == ["next", "last", "told apart", "5 and 4", "+19.72"]
    assert second["if A - B is true"] == "-"  # shown already
    assert first["if A - B is true"] != "-"
    said = csv.DictReader(io.StringIO(render_report(three, "csv", "neighbours")))
    assert [row["text"] for row in said if row["column"] == "B"] == ["next", "last"]
    assert 'id="neighbours"' in render_report(three, "html")


def test_the_verdict_is_the_leaderboard_s(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    records = [
        record for i in range(6) for record in seeds(f"m{i}", *(0.5 + 0.015 * i + 0.006 * rng.normal(size=5)))
    ]
    source = campaign(tmp_path, *records)
    ranking = run_pairwise_tests(source, source.records).of()
    found = rows(source)
    assert [(row["A"], row["B"]) for row in found] == list(pairwise(ranking.methods))
    told = [row["now"] == "told apart" for row in found]
    assert told == [ranking.pair(row["A"], row["B"]).differs for row in found]
    assert 0 < sum(told) < len(told)


def test_numbers_are_the_plan_s_at_the_pair_s_level(three: Campaign) -> None:
    first, second = rows(three)
    half = f"to show {format_score(DETECT)} points"
    close, far = spread_of_sides(BEST, NEXT), spread_of_sides(NEXT, LAST)
    difference = float(np.mean(BEST) - np.mean(NEXT))
    level = 1 - 0.05 / 3
    assert first[half] == describe_seed_plan(plan_seeds(DETECT, close, level=level))
    assert first["if A - B is true"] == describe_seed_plan(plan_seeds(difference, close, level=level))
    assert second[half] == describe_seed_plan(plan_seeds(DETECT, far, level=1 - 0.05 / 2))
    assert first[half] != describe_seed_plan(plan_seeds(DETECT, close, level=0.95))  # of one chosen before


def test_runs_that_share_a_stage_are_pairs(tmp_path: Path) -> None:
    shared = (0.70, 0.74, 0.66, 0.71, 0.69)
    near = tuple(np.add(shared, (0.002, -0.001, 0.001, 0.003, 0.0)).tolist())
    paired = rows(campaign(tmp_path / "a", *seeds("a", *shared, stage="s"), *seeds("b", *near, stage="s")))
    apart = rows(campaign(tmp_path / "b", *seeds("a", *shared), *seeds("b", *near)))
    half = f"to show {format_score(DETECT)} points"
    plan = plan_seeds(DETECT, spread_of_pairs(near, shared), level=0.95)
    assert paired[0][half] == describe_seed_plan(plan)
    assert apart[0][half] == describe_seed_plan(plan_seeds(DETECT, spread_of_sides(near, shared), level=0.95))
    assert (" pairs " in paired[0][half], " per side " in apart[0][half]) == (True, True)


def test_methods_without_seeds_and_with_one(tmp_path: Path) -> None:
    found = rows(campaign(tmp_path, *seeds("a", *BEST), alone("fixed", 0.69), alone("other", 0.3)))
    assert [(row["A"], row["B"], row["seeds now"]) for row in found][:1] == [("a", "fixed", "5 and 1")]
    half = f"to show {format_score(DETECT)} points"
    assert found[0][half] != "-"
    assert not [row for row in found if (row["A"], row["B"]) == ("fixed", "other") and row[half] != "-"]
    source = campaign(tmp_path, *seeds("once", 0.5), *seeds("twice", 0.6))
    with pytest.raises(InputError, match="no two methods"):
        table_grids(source, "neighbours")


def many(spread: float = 0.004) -> list[RunRecord]:
    """Eleven methods: a loss and its modification, some in pairs, one without seeds, one with one seed."""
    rng = np.random.default_rng(3)
    shared = rng.normal(size=5)
    found = [alone("fixed", 0.3), *seeds("once", 0.2)]
    for number, name in enumerate(("mhe", "m_mhe", *(f"m{i}" for i in range(7)))):
        own = rng.normal(size=5) + 2 * shared * (number % 2)
        stage = "one" if number % 2 else ""
        found += seeds(name, *(0.5 + 0.004 * number + spread * own), stage=stage)
    return found


def test_one_page_gives_one_verdict(tmp_path: Path) -> None:
    every = tuple(dict.fromkeys(record.method for record in many()))
    source = campaign(tmp_path, *many(), baseline="m1", family_kind="all", named=every)
    source = replace(source, names=dict(zip(every, every, strict=True)))
    page = render_report(source, "html")
    board, matrix = page_board(page), page_matrix(page)
    names = list(board)
    assert len(names) == 11
    tested = [name for name in names if name != "once"]
    differ = {pair for pair, sign in matrix.items() if sign in "+\N{MINUS SIGN}"}
    assert 10 < len(differ) < 40
    assert {pair for pair, sign in matrix.items() if sign == "?"} == {
        frozenset(("once", name)) for name in tested
    }
    k = len(tested)
    for i, name in enumerate(tested):
        better = sum(frozenset((name, other)) in differ for other in tested[:i])
        worse = sum(frozenset((name, other)) in differ for other in tested[i + 1 :])
        assert board[name].rank == "-".join(map(str, dict.fromkeys((1 + better, k - worse))))
    assert tested[0] in {name for name in names if board[name].bold} < set(tested)
    above = {n for n in tested[: tested.index("m1")] if frozenset((n, "m1")) in differ}
    below = {n for n in tested[tested.index("m1") :] if frozenset((n, "m1")) in differ}
    assert above
    assert below
    assert {name: board[name].sign for name in names if board[name].sign} == dict.fromkeys(
        above, ABOVE
    ) | dict.fromkeys(below, BELOW)
    (figure,) = group_figures(source)
    for first, last in figure.bars:
        joined = map(frozenset, combinations(figure.rows[first : last + 1], 2))
        assert differ.isdisjoint(joined)
    (gains,) = table_grids(source, "gains")
    assert str(gains.rows[0][3]).endswith("*") == (frozenset(("mhe", "m_mhe")) in differ)
    _, pairs = table_grids(replace(source, pairs=True), "significance")
    for row in pairs.rows:
        one = dict(zip(pairs.header, map(str, row), strict=True))
        differs = frozenset((one["A"], one["B"])) in differ
        assert (one["verdict"] == "differs") == differs
        if one["p"] != "-":
            assert (float(one["p corrected"]) <= 0.05) == differs
            low, high = map(float, one["interval"].partition("]")[0].strip("[").split(", "))
            assert (low > 0 or high < 0) == differs
            assert "paired t" in one["test"] or "paired" not in one["test"]
    assert {row[3] for row in pairs.rows} == {"paired t", "Welch", "Student", "-"}
    captions = re.findall(r"Holm over (\d+) ", page)
    assert set(captions) == {"45"}
    assert len(captions) >= 4  # of the leaderboard, the differences, the diagram, the gains


@dataclass(frozen=True)
class OnPage:
    """A method's row of the leaderboard as the page has it."""

    bold: bool
    sign: str
    rank: str


def page_board(page: str) -> dict[str, OnPage]:
    found = {}
    tags = r'<tbody data-name="[^"]*" data-group="[^"]*" data-method="([^"]*)" data-id="[^"]*">(.*?)</tbody>'
    for name, row in re.findall(tags, page, re.DOTALL):
        average, _, rank = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)[:3]
        sign = re.search(r"<sup>(.*?)</sup>", average)
        found[name] = OnPage('class="best"' in average, sign[1] if sign else "", rank)
    return found


def page_matrix(page: str) -> dict[frozenset[str], str]:
    section = page.partition('<section id="significance"')[2].partition("</section>")[0]
    matrix = section.partition('class="signs"')[2].partition("</table>")[0]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', matrix, re.DOTALL)
    names = [head.split()[1] for head, _ in rows]
    found: dict[frozenset[str], str] = {}
    other_way = {"+": "\N{MINUS SIGN}", "\N{MINUS SIGN}": "+"}
    for name, (_, cells) in zip(names, rows, strict=True):
        for other, cell in zip(names, re.findall(r"<td[^>]*>(.*?)</td>", cells, re.DOTALL), strict=True):
            if name != other:
                known = found.setdefault(frozenset((name, other)), cell)
                assert known == cell or other_way[known] == cell
    return found
