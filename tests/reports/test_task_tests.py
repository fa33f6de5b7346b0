"""Rows with one score a task, without seeds and items, are tested over tasks; every output says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.comparison.task_evidence import LEAST_TASKS, has_only_tasks
from bench.imports.import_records import import_results
from bench.imports.published import PublishedRun
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.cost_plots import cost_figures
from bench.reports.figures.suite_records import SuiteRecords
from bench.reports.record_groups import by_profile_and_suite
from bench.reports.tables.baseline_family import AHEAD, BEHIND, OPEN, compare_with_baseline, find_best
from bench.reports.tables.leaderboard import make_leaderboard
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.task_averages import average_grid
from bench.reports.tables.task_pairwise import TaskPairwiseTests
from bench.stats.task_averages import MIN_TASKS, TaskScores
from bench.stats.task_tests import compare_tasks
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.published import TYPES, published_results, published_run, three_models


def board(tmp_path: Path, *runs: PublishedRun) -> ResultStore:
    store = ResultStore(tmp_path / "results", "board")
    import_results(store, published_results(*(runs or three_models())))
    return store


def table_of(store: ResultStore) -> tuple[Campaign, list[RunRecord], TaskPairwiseTests]:
    campaign = make_campaign(store, store.records())
    (records,) = by_profile_and_suite(campaign.records)
    tests = run_pairwise_tests(campaign, records)
    assert isinstance(tests, TaskPairwiseTests)
    return campaign, records, tests


def test_the_tests_are_those_of_the_statistics(tmp_path: Path) -> None:
    campaign, records, tests = table_of(board(tmp_path))
    runs = three_models()
    scores = np.array([[score.value for score in run.scores[:-1]] for run in runs])
    direct = compare_tasks(TaskScores(tuple(run.method for run in runs), scores, TYPES))
    ranking = tests.of()
    assert ranking.methods[-1] == "lab/weak"
    for pair in ranking.pairs:
        i, j = (direct.methods.index(name) for name in (pair.first, pair.second))
        assert pair.p == pytest.approx(direct.p[i, j], rel=1e-12)
        assert pair.adjusted == pytest.approx(direct.adjusted[i, j])
    assert ranking.intervals == {"org/strong": (1, 2), "org/other": (1, 2), "lab/weak": (3, 3)}
    assert find_best(tests) == {"org/strong", "org/other"}
    family = compare_with_baseline(tests, "org/other", margin=0.005)
    assert family is not None
    assert family.rows["lab/weak"].answer == BEHIND
    assert family.rows["org/strong"].answer in (OPEN, "equal")
    weak = compare_with_baseline(tests, "lab/weak", margin=0.005)
    assert weak is not None
    assert {row.answer for row in weak.rows.values()} == {AHEAD}
    table = make_leaderboard(campaign, records)
    assert table.over_tasks
    assert {row.method: row.rank for row in table.rows} == ranking.intervals


def test_the_least_number_of_tasks_is_that_of_the_statistics() -> None:
    assert LEAST_TASKS == MIN_TASKS


def test_a_single_task_is_not_tested(tmp_path: Path) -> None:
    _, _, tests = table_of(board(tmp_path))
    assert find_best(tests, "task1") == frozenset()
    assert compare_with_baseline(tests, "org/other", task="task1", margin=0.005) is None
    assert np.isnan(tests.table("task1").p).all()


def test_the_unit_is_said_by_every_output(tmp_path: Path, cli: Cli) -> None:
    board(tmp_path)
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    for form in ("markdown", "json", "html", "latex"):
        code, out, _ = cli("report", *where, "--format", form)
        assert code == 0
        assert "Unit of the tests: the task (8" in out, form
        assert "nobody here has checked" in out, form
    code, out, _ = cli("report", *where, "--details")
    assert "Unit of the tests: the task (8" in out
    code, out, _ = cli("compare", "strong", "weak", *where, "--details")
    assert code == 0
    assert "new tasks of this kind" in out
    assert "Unit of the tests: the task (8" in out


def test_compare_over_tasks_agrees_with_the_leaderboard(tmp_path: Path, cli: Cli) -> None:
    _, _, tests = table_of(board(tmp_path))
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    code, out, _ = cli("compare", "org/strong", "lab/weak", *where, "--format", "json")
    assert code == 0
    (facts,) = json.loads(out)
    single = tests.test("org/strong", "lab/weak", level=0.95)
    assert facts["test"] == "tasks"
    assert facts["p"] == pytest.approx(single.p)
    assert facts["interval"] == pytest.approx(single.interval)
    assert facts["difference"] == pytest.approx(single.difference)
    assert facts["findings"][0]["speaks_for"] == "tasks"


@pytest.mark.parametrize("scope", ["seeds", "items", "both"])
def test_what_the_data_cannot_say_is_refused(tmp_path: Path, cli: Cli, scope: str) -> None:
    board(tmp_path)
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    code, _, err = cli("compare", "strong", "weak", *where, "--for", scope)
    assert code == 2
    assert "imported without seeds and items; expected --for tasks" in err


def test_few_tasks_and_seeds_are_not_tested_over_tasks(tmp_path: Path, cli: Cli) -> None:
    few = [published_run(name, [0.5, 0.6 + shift], types=()) for name, shift in (("a", 0.1), ("b", 0.0))]
    store = board(tmp_path, *few)
    assert not has_only_tasks(store.records())
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    code, _, err = cli("compare", "a", "b", *where)
    assert code == 2
    assert "6 tasks or more to test over, and these have 2" in err
    code, out, _ = cli("report", *where, "--details")
    assert "nor items; they have 2 tasks, and a test over tasks needs 6." in out
    seeded = [published_run("a", [0.5 + s / 100] * 8, seed=s) for s in (1, 2, 3)]
    records = ResultStore(tmp_path / "other" / "results", "board")
    import_results(records, published_results(*seeded))
    assert not has_only_tasks(records.records())


def test_equal_rows_differ_in_nothing(tmp_path: Path) -> None:
    strong, other, weak = three_models()
    scores = [score.value for score in strong.scores[:-1]]
    twins = [published_run(name, scores) for name in ("twin1", "twin2")]
    _, _, tests = table_of(board(tmp_path, strong, other, weak, *twins))
    pair = tests.of().pair("twin1", "twin2")
    assert (pair.difference, pair.p, pair.differs) == (0.0, 1.0, False)
    family = compare_with_baseline(tests, "twin1", margin=0.005)
    assert family is not None
    assert family.rows["twin2"].p == 1.0


def test_three_averages_have_their_own_ranks(tmp_path: Path) -> None:
    campaign, records, tests = table_of(board(tmp_path))
    grid = average_grid(campaign, records)
    assert grid is not None
    averages = "mean over tasks", "mean over types", "Borda, % of points"
    assert grid.header[1::2] == averages
    assert grid.header[2::2] == ("rank", "rank by types", "rank by Borda")
    assert tests.average_names == ("tasks", "types", "borda")
    shares = {str(row[0]): row[5].mean for row in grid.rows}  # type: ignore[union-attr]
    assert shares["lab/weak"] == 0.0
    points = tests.tests_of("borda")
    strong = points.scores[points.methods.index("org/strong")]
    assert shares["org/strong"] == pytest.approx(strong / 2)  # of two points a task
    assert sum(value or 0.0 for value in shares.values()) == pytest.approx(3 / 2)


def test_score_is_drawn_against_size(tmp_path: Path) -> None:
    campaign, records, _ = table_of(board(tmp_path))
    (figure,) = [f for f in cost_figures(SuiteRecords(campaign, records)) if f.name.endswith("size")]
    points = {
        label: (x, y)
        for series in figure.series
        for label, x, y in zip(series.labels, series.x, series.y, strict=True)
    }
    assert {label: x for label, (x, _) in points.items()} == {"strong": 110.0, "other": 7000.0, "weak": 22.0}
    front = figure.series[0].labels
    assert front == ("weak", "strong")


def test_all_baselines_are_on_the_page(tmp_path: Path, cli: Cli) -> None:
    board(tmp_path)
    code, out, _ = cli(
        "report", "--results", str(tmp_path / "results"), "--campaign", "board", "--format", "html"
    )
    assert code == 0
    data = json.loads(out.split('class="answers" data-place="1">')[1].split("</script>")[0])
    assert len(data["against"]) == 3
    assert "Tests are over tasks" in out
    assert "SimCSE" not in out


def test_a_result_of_an_unknown_seed_is_no_fixed_score(tmp_path: Path, cli: Cli) -> None:
    seeded = [published_run("mine", [0.5 + seed / 100] * 8, seed=seed) for seed in (1, 2, 3)]
    store = board(tmp_path, *seeded, published_run("paper", [0.3] * 8))
    campaign = make_campaign(store, store.records())
    (records,) = by_profile_and_suite(campaign.records)
    table = make_leaderboard(campaign, records)
    assert {row.method: row.aside for row in table.rows} == {
        "mine": "",
        "paper": "one result, of an unknown seed",
    }
    code, _, err = cli(
        "compare", "mine", "paper", "--results", str(tmp_path / "results"), "--campaign", "board"
    )
    assert code == 2
    assert "paper is one result of an unknown seed" in err


def test_imported_rows_are_marked_beside_own_rows(tmp_path: Path, cli: Cli) -> None:
    store = board(tmp_path)
    own = make_record("simcse", 1, {"TOY": 0.7}, suite="toy")
    store.write(own.place, own, None)
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    for form in ("text", "markdown", "latex", "html"):
        code, out, _ = cli("report", *where, "--format", form)
        assert code == 0
        for name in ("strong", "other", "weak"):
            assert f"{name} (imported)" in out, form
        assert "SimCSE (imported)" not in out
    code, out, _ = cli("compare", "strong (imported)", "weak (imported)", *where)
    assert code == 0


def test_only_models_of_a_hub_lose_their_organisation(tmp_path: Path, cli: Cli) -> None:
    names = ("SimCSE w/ MLM", "mean/max pooling", "org/model (dim=8)")
    board(tmp_path, *(published_run(name, [0.5 + place / 10] * 8) for place, name in enumerate(names)))
    where = ("--results", str(tmp_path / "results"), "--campaign", "board")
    _, out, _ = cli("report", *where)
    for name in ("SimCSE w/ MLM", "mean/max pooling", "model (dim=8)"):
        assert f" {name} " in out
    assert "org/model" not in out
