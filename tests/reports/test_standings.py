"""Ranks, groups, bold, daggers and differences: one set of tests behind all of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.comparison import item_bootstrap as item_draws
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.render import svg
from bench.render.grid import CAPTION, Grid, ScoreCell
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import group_figures, suite_figures
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.differences import EXACT
from bench.reports.tables.leaderboard import BOLD
from bench.reports.tables.leaderboard_page import page_boards
from bench.reports.tables.pairwise_tests import PairwiseTests
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.stats.item_statistics import SuiteDraws
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import seed_difference
from bench.stats.variance_components import variance_components
from tests.support.item_draws import keep_run_draws
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import alone, campaign, seeds


def bold(grid: Grid) -> dict[str, set[str]]:
    """Methods whose cells are bold, by column."""
    found: dict[str, set[str]] = {}
    for row in grid.rows:
        for name, cell in zip(grid.header, row, strict=True):
            if isinstance(cell, ScoreCell) and cell.mark:
                assert cell.mark == "best"
                found.setdefault(name, set()).add(str(row[0]))
    return found


def column(grid: Grid, name: str) -> list[str]:
    return [str(row[grid.header.index(name)]) for row in grid.rows]


THREE = (
    *seeds("good", 0.800, 0.802, 0.801),
    *seeds("fine", 0.799, 0.801, 0.803),
    *seeds("poor", 0.600, 0.601, 0.602),
    alone("fixed", 0.3),
)


def test_ranks_and_bold_go_together(tmp_path: Path) -> None:
    (grid,) = table_grids(campaign(tmp_path, *THREE), "leaderboard")
    assert column(grid, "method") == ["fine", "good", "poor", "fixed"]
    assert column(grid, "rank") == ["1-2", "1-2", "3", "4"]
    assert column(grid, "seeds") == ["3", "3", "3", "-"]
    assert bold(grid) == {task: {"fine", "good"} for task in ("STS12", "STSB", "avg")}
    assert grid.notes[1] == BOLD
    rank = next(note for note in grid.notes if note.startswith("rank:"))
    assert not missing_facts(rank, "Welch's (3)", "seeds (3)", "Holm over 6")
    (suite,) = table_grids(campaign(tmp_path, *THREE), "sts7")
    assert bold(suite) == {task: {"fine", "good"} for task in ("STS12", "STS-B", "Avg.")}
    assert suite.notes[1].startswith(BOLD)
    assert not any(note.startswith("rank:") for note in suite.notes)


def keep_draws(source: Campaign, rng: np.random.Generator) -> None:
    """Keep draws of the items of all records, with noise that all share and noise of their own."""
    (source.stores[0].root / "stats").mkdir(parents=True)
    shared = 0.01 * rng.normal(size=(item_draws.DRAWS, 2))
    for record in source.records:
        centre = np.array([record.score("STS12"), record.score("STSB")])
        drawn = (centre + shared + 0.002 * rng.normal(size=shared.shape)).astype(np.float32)
        write_draws(source, record, drawn)


def write_draws(source: Campaign, record: RunRecord, drawn: np.ndarray[Any, Any]) -> None:
    keep_run_draws(item_draws.CampaignRun(source.stores[0], record), drawn)


def test_draws_belong_to_the_averages_before_their_rounding(tmp_path: Path) -> None:
    records = (*seeds("x", 0.639574, 0.65, 0.66), *seeds("y", 0.56, 0.57, 0.59))
    store = ResultStore(tmp_path, "camp")
    keep_draws(make_campaign(store, records), np.random.default_rng(5))
    rounded = make_campaign(store, records, rounded=True)
    assert rounded.records[0].score("avg") == pytest.approx(0.6396)
    assert run_pairwise_tests(rounded, rounded.records).with_items
    *scores, average = records[0].scores
    edited = replace(records[0], scores=(*scores, replace(average, value=0.7)))
    source = make_campaign(store, [edited, *records[1:]], rounded=True)
    with pytest.raises(item_draws.RefusedError, match=r"avg is 0\.7"):
        run_pairwise_tests(source, source.records)


def test_with_draws_of_all_items_the_tests_speak_for_seeds_and_items(tmp_path: Path) -> None:
    records = (
        *seeds("x", 0.70, 0.72, 0.69, 0.705, stage="one"),
        *seeds("y", 0.698, 0.717, 0.687, 0.704, stage="one"),
        *seeds("z", 0.60, 0.62, 0.63),
        alone("fixed", 0.3),
    )
    keep_draws(source := campaign(tmp_path, *records), np.random.default_rng(5))
    found = run_pairwise_tests(source, source.records)
    assert found.with_items
    groups = {name: [r for r in records if r.method == name] for name in ("x", "y", "z", "fixed")}
    kept = [item_draws.read_draws(item_draws.CampaignRun(source.stores[0], record)) for record in records]
    drawn = np.stack([np.asarray(one.values, dtype=np.float64) for one in kept if one], axis=1)
    rows, start = {}, 0
    for name, own in groups.items():
        rows[name], start = slice(start, start + len(own)), start + len(own)
    observed = np.array([[record.score("STS12"), record.score("STSB")] for record in records], dtype=float)
    sample = SuiteDraws(rows, ("STS12", "STSB"), (10, 10), observed, drawn)
    for a, b, test in (("x", "y", "paired t"), ("x", "z", "Welch"), ("z", "fixed", "Student")):
        expected = variance_components(
            sample, a, b, paired=test == "paired t", deterministic_b=b == "fixed", level=0.9
        )
        got = found.test(a, b, level=0.9)
        assert got.test == f"{test} + items"
        assert got.p == pytest.approx(expected.p, rel=1e-6)
        assert got.interval == pytest.approx((expected.low, expected.high), rel=1e-6)
        assert expected.items > 0
    one_task = found.test("x", "z", "STSB", level=0.9)
    alone_sample = SuiteDraws(rows, ("STSB",), (10,), observed[:, 1:], drawn[:, :, 1:])
    expected = variance_components(alone_sample, "x", "z", level=0.9)
    assert one_task.interval == pytest.approx((expected.low, expected.high), rel=1e-6)
    (grid,) = table_grids(source, "leaderboard")
    assert not missing_facts(grid.notes, "seeds and items", "variance components")
    (next((source.stores[0].root / "stats").iterdir())).unlink()
    source = campaign(tmp_path, *records)
    found = run_pairwise_tests(source, source.records)
    assert (found.with_items, found.test("x", "z").test) == (False, "Welch")


def test_no_interval_contradicts_its_verdict(tmp_path: Path) -> None:
    records = (*seeds("high", 0.8, 0.8, 0.8), *seeds("low", 0.6, 0.6, 0.6), *seeds("varies", 0.5, 0.6, 0.7))
    source = campaign(tmp_path, *records)
    keep_draws(source, np.random.default_rng(3))
    found = run_pairwise_tests(source, source.records)
    pair = found.of().pair("high", "low")
    assert found.with_items
    assert pair.level is not None
    ends = found.test("high", "low", level=pair.level).interval
    assert ends is not None
    assert (pair.differs, ends[0] > 0) == (False, True)
    assert found.interval("high", "low") is None
    assert found.interval("high", "varies") is not None


def test_equal_scores_give_no_interval_and_no_verdict(tmp_path: Path) -> None:
    records = [
        alone("fixed", 0.3),
        *seeds("mhe", 0.7, 0.7, 0.7),
        *seeds("m_mhe", 0.8, 0.8, 0.8),
        *seeds("varies", 0.5, 0.6, 0.55),
    ]
    source = campaign(tmp_path, *records)
    page = render_report(source, "html")
    pairs = replace(source, pairs=True)
    texts = [page, *(render_report(pairs, form, "significance") for form in ("csv", "json"))]
    for text in (*texts, render_report(source, "latex"), render_report(source, "text", "gains")):
        ends = re.findall(r"\[([+-]?\d+\.\d+), ([+-]?\d+\.\d+)\]", text)
        assert all(low != high for low, high in ends)
    assert "[" in texts[1]
    (board,) = page_boards(source)
    assert {line.row.method for line in board.lines if line.seed_interval} == {"varies"}
    (gains,) = table_grids(source, "gains")
    assert gains.rows[0][3:5] == ("+10.00", "0.3000")  # 2 / C(6, 3), three comparisons
    (figure,) = (one for one in suite_figures(source) if one.name.endswith("-gains"))
    assert [one.spread for one in figure.series] == [(0.0,), (0.0,)]
    assert 'class="spread' not in svg.draw_svg(figure)
    accuracies = (
        *seeds("a", 0.81, 0.84, stage="one"),
        *seeds("b", 0.80, 0.83, stage="one"),
        *seeds("c", 0.79, 0.845, stage="one"),
    )
    source = campaign(tmp_path, *accuracies)
    found = run_pairwise_tests(source, source.records)
    assert (found.test("a", "b").test, found.test("a", "b").p) == ("paired t", 0.5)
    assert set(found.of().intervals.values()) == {(1, 3)}
    flat = campaign(
        tmp_path, *seeds("still", 0.7, 0.7, 0.7), *seeds("varies", 0.5, 0.6, 0.55), alone("f", 0.3)
    )
    found = run_pairwise_tests(flat, flat.records)
    assert found.spread("still", "varies") is None  # which is no fixed score
    assert found.spread("f", "varies") is not None


def test_which_tests_have_the_freedom_of_the_fewer_seeds_is_said(tmp_path: Path) -> None:
    few, many = seeds("a", 0.7, 0.72), seeds("b", *(0.6, 0.61, 0.62, 0.63, 0.64))
    source = campaign(tmp_path, *few, *many)
    (grid,) = table_grids(source, "leaderboard")
    (said,) = (note for note in grid.notes if note.startswith("One of Welch's tests"))
    assert numbers_in(said) == [5, 2, 2, 3]
    (grid,) = table_grids(campaign(tmp_path, *few, *many[:3]), "leaderboard")
    assert said in grid.notes
    (grid,) = table_grids(campaign(tmp_path, *seeds("a", 0.7, 0.72, 0.71), *many), "leaderboard")
    assert said not in grid.notes
    found = run_pairwise_tests(source, source.records).test("a", "b")
    error = (np.var([0.7, 0.72], ddof=1) / 2 + np.var([0.6, 0.61, 0.62, 0.63, 0.64], ddof=1) / 5) ** 0.5
    assert found.p == pytest.approx(2 * stats.t.sf(0.09 / error, 1))
    keep_draws(source, np.random.default_rng(5))
    source = campaign(tmp_path, *few, *many)
    assert run_pairwise_tests(source, source.records).with_items
    (grid,) = table_grids(source, "leaderboard")
    assert said in grid.notes
    (grid,) = table_grids(replace(source, pairs=True), "significance")[-1:]
    assert column(grid, EXACT)[0].startswith("0.")


def test_the_report_in_latex_has_the_diagram_and_text_nothing_of_bold(tmp_path: Path) -> None:
    source = campaign(tmp_path, *THREE)
    text = render_report(source, "latex")
    assert text.count(r"\begin{picture}") == 1
    assert text.index(r"\end{table}") < text.index(r"\begin{figure}")
    whole = render_report(source, "latex", standalone=True)
    assert text in whole
    assert whole.startswith(r"\documentclass")
    assert r"\begin{picture}" not in render_report(source, "latex", "sts7")
    assert "Bold:" in render_report(source, "markdown")
    assert "Bold:" not in render_report(source, "text") + render_report(source, "text", "sts7")


def test_all_rows_are_bold_where_nothing_differs(tmp_path: Path) -> None:
    source = campaign(tmp_path, *seeds("a", 0.70, 0.72), *seeds("b", 0.71, 0.72))
    (grid,) = table_grids(source, "leaderboard")
    assert (bold(grid)["avg"], column(grid, "rank")) == ({"a", "b"}, ["1-2", "1-2"])


def test_a_single_seed_is_set_aside(tmp_path: Path) -> None:
    source = campaign(tmp_path, *THREE, *seeds("once", 0.9))
    (grid,) = table_grids(source, "leaderboard")
    assert column(grid, "method") == ["fine", "good", "poor", "fixed"]
    assert not missing_facts(grid.notes, "Set aside: 1 with", "--all-rows")
    (whole,) = table_grids(replace(source, all_rows=True), "leaderboard")
    assert column(whole, "method") == ["once", "fine", "good", "poor", "fixed"]
    assert column(whole, "rank") == ["-", "1-2", "1-2", "3", "4"]
    assert bold(whole) == bold(grid) == {task: {"fine", "good"} for task in ("STS12", "STSB", "avg")}


def test_without_any_test_numbers_alone_are_marked(tmp_path: Path) -> None:
    (grid,) = table_grids(
        campaign(tmp_path, *seeds("a", 0.7), *seeds("b", 0.6), alone("c", 0.5)), "leaderboard"
    )
    assert "rank" not in grid.header
    assert [cell.mark for row in grid.rows if isinstance(cell := row[4], ScoreCell)] == ["best", "second", ""]
    assert column(grid, "seeds") == ["1", "1", "-"]
    assert grid.notes[1] == CAPTION


def test_runs_that_share_a_stage_are_pairs(tmp_path: Path) -> None:
    x, y = (0.700, 0.720, 0.690, 0.705), (0.698, 0.717, 0.687, 0.704)
    apart = PairwiseTests(source := campaign(tmp_path, *seeds("x", *x), *seeds("y", *y)), source.records)
    shared = (*seeds("x", *x, stage="one"), *seeds("y", *y, stage="one"))
    together = PairwiseTests(source := campaign(tmp_path, *reversed(shared)), source.records)
    welch, paired = apart.test("x", "y"), together.test("x", "y")
    assert (welch.test, paired.test) == ("Welch", "paired t")
    assert welch.p == pytest.approx(seed_difference(x, y).p)
    assert paired.p == pytest.approx(paired_t(x, y).p)
    assert (paired.p or 1) < 0.05 < 0.8 < (welch.p or 0)
    (grid,) = table_grids(source, "leaderboard")
    assert not missing_facts(grid.notes, "paired t", "batches (1)", "Holm over 1")
    assert column(grid, "rank") == ["1", "2"]
    # three seeds in common are pairs, the fourth of each is left out; two are too few
    for most, test, n in ((3, "paired t", 3), (2, "Welch", 4)):
        others = [replace(one, seed=(one.seed or 0) + 9 * ((one.seed or 0) > most)) for one in shared[4:]]
        source = campaign(tmp_path, *shared[:4], *others)
        found = PairwiseTests(source, source.records)
        assert (found.test("x", "y").test, found.sizes("x", "y")) == (test, (n, n))
        assert found.leaves_out is (n == 3)
        (matrix,) = table_grids(source, "significance")
        assert any("pairs of runs" in note for note in matrix.notes) is (n == 3)
        assert str(matrix.rows[0][2]).strip("*") == ("+0.27" if n == 3 else "+0.22")
        assert (found.test("x", "y").p == pytest.approx(paired_t(x[:3], y[:3]).p)) is (n == 3)


def test_items_tell_methods_without_seeds_apart(tmp_path: Path) -> None:
    source = campaign(tmp_path, alone("a", 0.70), alone("b", 0.60), alone("c", 0.59), *seeds("s", 0.4, 0.41))
    (grid,) = table_grids(source, "leaderboard")
    assert not missing_facts(grid.notes, "Not tested", "a, b, c", "bench stats")
    (matrix,) = table_grids(source, "significance")
    assert tuple(map(str, matrix.rows[0][1:4])) == ("", "+10.00?", "+11.00?")
    (source.stores[0].root / "stats").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for record, centre in zip(source.records[:3], (0.70, 0.60, 0.59), strict=True):
        drawn = (centre + 0.01 * rng.normal(size=(item_draws.DRAWS, 2))).astype(np.float32)
        write_draws(source, record, drawn)
    source = campaign(tmp_path, *source.records)  # a report computes its tests once
    found = {(one.first, one.second): one for one in PairwiseTests(source, source.records).of().pairs}
    tests = {pair: one.test for pair, one in found.items() if "s" not in pair}
    assert tests == dict.fromkeys([("a", "b"), ("a", "c"), ("b", "c")], "items' bootstrap")
    assert found["a", "b"].differs
    assert not found["b", "c"].differs
    (grid,) = table_grids(source, "leaderboard")
    assert column(grid, "rank")[:3] == ["1", "2-3", "2-3"]
    assert not missing_facts(grid.notes, "items' bootstrap", "methods (3)")


def test_text_says_nothing_of_bold(tmp_path: Path) -> None:
    source = campaign(tmp_path, *THREE)
    assert "Bold:" in render_report(source, "markdown")
    assert "Bold:" not in render_report(source, "text")
    assert "Bold:" not in render_report(source, "text", "sts7")


def test_the_page_has_ranks_and_the_diagram(tmp_path: Path) -> None:
    text = render_report(campaign(tmp_path, *THREE), "html")
    row = re.search(r'<tbody data-name="fine".*?</tbody>', text, re.DOTALL)
    assert row
    assert "<td>1-2</td>" in row[0]
    fixed = re.search(r'<tbody data-name="fixed".*?</tbody>', text, re.DOTALL)
    assert fixed
    assert re.search(r'<td><a href="#runs-[^"]*" title="[^"]*">-</a></td>', fixed[0])
    assert "[30.00, 30.00]" not in text
    assert '<figure id="figure-mini-sts7-groups"' in text
    none = render_report(campaign(tmp_path, *seeds("a", 0.7)), "html")
    assert "-groups" not in none
    (figure,) = group_figures(campaign(tmp_path, *THREE))
    assert (figure.rows, figure.bars) == (("fine", "good", "poor", "fixed"), ((0, 1),))
    assert figure.series[0].x == pytest.approx((80.1, 80.1, 60.1, 30.0))
    assert numbers_in(figure.alt) == [100, 80.1, 80.1, 60.1, 30]
    assert figure.alt.endswith(": fine, good.")
    assert "Holm over 6" in figure.note
    assert group_figures(campaign(tmp_path, *seeds("a", 0.7), *seeds("b", 0.6))) == []


@pytest.mark.parametrize(
    ("lost", "used"),
    [
        ({"x": {2}, "y": set()}, (1, 3, 4, 5)),  # as many runs as partners
        ({"x": {2}, "y": {4}}, (1, 3, 5)),  # equal numbers, other seeds
    ],
)
def test_runs_without_a_score_of_a_task_leave_their_partner_out(
    tmp_path: Path, lost: dict[str, set[int]], used: tuple[int, ...]
) -> None:
    values = {"x": (0.70, 0.75, 0.69, 0.72, 0.71), "y": (0.69, 0.73, 0.685, 0.70, 0.706)}
    records = [
        replace(record, scores=tuple(s for s in record.scores if s.task != "STSB"))
        if record.seed in lost[method]
        else record
        for method, averages in values.items()
        for record in seeds(method, *averages, stage="one")
    ]
    source = campaign(tmp_path, *records)
    found = run_pairwise_tests(source, source.records)
    x, y = ([values[method][seed - 1] for seed in used] for method in ("x", "y"))
    got = found.test("x", "y", "STSB")
    assert got.test == "paired t"
    assert got.p == pytest.approx(paired_t(x, y).p)
    assert found.test("x", "y").p == pytest.approx(paired_t(values["x"], values["y"]).p)
    assert found.sizes("x", "y") == (5, 5)
    assert not found.leaves_out
