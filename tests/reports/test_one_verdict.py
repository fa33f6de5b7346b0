"""One page gives one verdict of every pair of methods, in whatever form it says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.records.record import RunRecord
from bench.reports.figures.suite_plots import group_figures
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.pairwise_tests import ABOVE, BELOW
from tests.support.standings import alone, campaign, seeds


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
    """Of every pair: stars, letters, ranks, bold, daggers, diagram, gains and the list of pairs agree."""
    source = campaign(tmp_path, *many(), baseline="m1")
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
    for a, b in combinations(tested, 2):
        assert not (board[a].letters & board[b].letters and frozenset((a, b)) in differ)
    k = len(tested)
    for i, name in enumerate(tested):
        better = sum(frozenset((name, other)) in differ for other in tested[:i])
        worse = sum(frozenset((name, other)) in differ for other in tested[i + 1 :])
        assert board[name].rank == "-".join(map(str, dict.fromkeys((1 + better, k - worse))))
    assert {name for name in names if board[name].bold} == {n for n in tested if "a" in board[n].letters}
    above = {n for n in tested[: tested.index("m1")] if frozenset((n, "m1")) in differ}
    below = {n for n in tested[tested.index("m1") :] if frozenset((n, "m1")) in differ}
    assert above
    assert below
    assert {name: board[name].sign for name in names if board[name].sign} == dict.fromkeys(
        above, ABOVE
    ) | dict.fromkeys(below, BELOW)
    (figure,) = group_figures(source)
    assert [set(figure.rows[first : last + 1]) for first, last in figure.bars] == [
        group
        for letter in sorted(set().union(*(board[name].letters for name in tested)))
        if len(group := {name for name in tested if letter in board[name].letters}) > 1
    ]
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
    letters: set[str]


def page_board(page: str) -> dict[str, OnPage]:
    found = {}
    for name, row in re.findall(
        r'<tbody data-name="[^"]*" data-group="[^"]*" data-method="([^"]*)">(.*?)</tbody>', page, re.DOTALL
    ):
        average, _, rank, letters = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)[:4]
        sign = re.search(r"<sup>(.*?)</sup>", average)
        found[name] = OnPage('class="best"' in average, sign[1] if sign else "", rank, set(letters) - {"-"})
    return found


def page_matrix(page: str) -> dict[frozenset[str], str]:
    section = page.partition('<section id="significance"')[2].partition("</section>")[0]
    rows = re.findall(
        r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', section.partition("</table>")[0], re.DOTALL
    )
    names = [head.split()[1] for head, _ in rows]
    found: dict[frozenset[str], str] = {}
    other_way = {"+": "\N{MINUS SIGN}", "\N{MINUS SIGN}": "+"}
    for name, (_, cells) in zip(names, rows, strict=True):
        for other, cell in zip(names, re.findall(r"<td[^>]*>(.*?)</td>", cells, re.DOTALL), strict=True):
            if name != other:
                known = found.setdefault(frozenset((name, other)), cell)
                assert known == cell or other_way[known] == cell
    return found
