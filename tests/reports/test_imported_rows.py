"""Every output marks imported rows, and says nothing of seeds where there are none."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bench
from bench.imports.import_records import import_results
from bench.imports.published import PublishedRun
from bench.records.imported import describe_imports
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.render.point_plots import NamePlaces
from bench.render.svg_marks import HEIGHT, WIDTH, text_width
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.campaign_setting import describe_setting
from bench.reports.figures.suite_records import SuiteRecords
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.published import published_results, three_models

UNCHECKED = "nobody here has checked"
SOURCE = "csv:table.csv, CC0"


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results", "board")
    runs = [with_ranks(run) for run in three_models()]
    import_results(store, published_results(*runs, licence="CC0"))
    return store


def with_ranks(run: PublishedRun) -> PublishedRun:
    """The run with two metrics of retrieval for its first task."""
    more = [Score("task1", "all", f"map@{rank}", 0.5, 0) for rank in (1, 10)]
    return replace(run, scores=(*run.scores, *more))


def campaign_of(store: ResultStore) -> Campaign:
    return make_campaign(store, store.records())


def notes_of(campaign: Campaign, table: str) -> str:
    return " ".join(note for grid in table_grids(campaign, table) for note in grid.notes)


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json", "latex", "html"])
@pytest.mark.parametrize(
    "table",
    [
        *("leaderboard", "averages", "categories", "metrics", "significance"),
        *("neighbours", "methods", "efficiency"),
    ],
)
def test_every_table_says_once_that_rows_are_imported(
    store: ResultStore, cli: Cli, table: str, form: str
) -> None:
    where = ("--results", str(store.root.parent), "--campaign", "board")
    code, out, _ = cli("report", *where, "--table", table, "--format", form)
    assert code == 0
    assert out.count(UNCHECKED) == 1
    assert f"({SOURCE})" in out


def test_tables_of_own_rows_stay_as_they_are(store: ResultStore) -> None:
    own = [make_record(method, seed, {"STS12": 0.5 + seed / 10}) for method in "ab" for seed in (1, 2)]
    assert UNCHECKED not in render_report(make_campaign(store, own), "markdown", "significance")
    both = make_campaign(store, [*own, *store.records()])
    assert "imported:board, profile imported: All rows are imported" in render_report(
        both, "markdown", "significance"
    )


def test_every_value_in_csv_has_its_source(store: ResultStore) -> None:
    rows = list(csv.DictReader(io.StringIO(render_report(campaign_of(store), "csv"))))
    assert rows
    assert all(f"Imported ({SOURCE})" in row["note"] for row in rows)
    assert {row["n"] for row in rows if row["task"] == "task1"} == {""}


def test_claims_of_model_cards_are_counted(store: ResultStore) -> None:
    strong, other, weak = three_models()
    facts: tuple[dict[str, Any], ...] = ({"external_tasks": 2}, {"is_external": True}, {"external_tasks": 0})
    runs = [replace(run, facts=one) for run, one in zip((strong, other, weak), facts, strict=True)]
    claimed = ResultStore(store.root.parent, "claimed")
    import_results(claimed, published_results(*runs))
    note = describe_imports(claimed.records())
    assert note.endswith(" 2 rows hold scores of model cards, which mteb didn't measure (@external).")
    assert "model card" not in describe_imports(store.records())


def test_no_table_speaks_of_seeds(store: ResultStore) -> None:
    campaign = campaign_of(store)
    for table in ("categories", "metrics"):
        assert "seed" not in notes_of(campaign, table)
    (grid,) = table_grids(campaign, "neighbours")
    assert grid.header == ("A", "B", "A - B", "now", "tasks")
    assert {row[-1] for row in grid.rows} == {"8"}
    assert "Seeds" not in " ".join(grid.notes)
    seeded = [make_record(name, seed, {"STS12": 0.5 + seed / 10}) for name in "ab" for seed in (1, 2)]
    (grid,) = table_grids(make_campaign(store, seeded), "neighbours")
    assert grid.header[4] == "seeds now"


def test_efficiency_has_no_columns_that_imports_lack(store: ResultStore) -> None:
    campaign = campaign_of(store)
    (grid,) = table_grids(campaign, "efficiency")
    assert grid.header == ("method", "avg", "M params")
    assert {str(row[0]): row[2] for row in grid.rows}["org/strong"] == "110.0"
    assert "--probes" not in notes_of(campaign, "efficiency")
    own = replace(store.records()[0], name="simcse", method="simcse", provenance={})
    mixed = make_campaign(store, [own, *store.records()])
    assert "No GMAC for simcse: bench run" in notes_of(mixed, "efficiency")


def test_one_row_has_no_averages_and_a_choice_is_said(store: ResultStore, cli: Cli) -> None:
    where = ("--results", str(store.root.parent), "--campaign", "board", "--table", "averages")
    code, _, err = cli("report", *where, "--methods", "org/strong")
    assert code == 2
    assert "no two rows with one score a task" in err
    code, out, _ = cli("report", *where, "--methods", "org/strong,lab/weak", "--details")
    assert code == 0
    assert "2 of 3 methods, chosen by --methods; tests, ranks and Borda are of these." in out
    assert "chosen by" not in notes_of(campaign_of(store), "averages")


def test_days_of_imports_are_no_days_of_runs(store: ResultStore) -> None:
    timing = {"started": "2026-11-20T10:00:00+00:00"}
    imported = [replace(record, timing=timing) for record in store.records()]
    assert f" · imported 20 Nov 2026 from {SOURCE}" in describe_setting(imported)
    assert " · 20 Nov 2026" not in describe_setting(imported)
    own = replace(make_record("simcse", 1, {"STS12": 0.5}), timing=timing)
    assert " · 20 Nov 2026 ·" in describe_setting([own])


def test_metrics_are_named_in_words(store: ResultStore) -> None:
    records = [renamed(record) for record in store.records()]
    campaign = make_campaign(store, records)
    (grid,) = table_grids(campaign, "leaderboard")
    assert grid.notes[0].startswith("Main score x 100; ")
    assert SuiteRecords(campaign, records).average == "average, Main score x 100"
    assert "Main_score" not in render_report(campaign, "html")


def renamed(record: RunRecord) -> RunRecord:
    """The record with mteb's name of its metric."""
    scores = [
        replace(score, metric="main_score") if score.metric == "score" else score for score in record.scores
    ]
    return replace(record, scores=tuple(scores))


def test_stats_count_records_without_predictions(store: ResultStore, cli: Cli) -> None:
    code, _, err = cli("stats", "--results", str(store.root.parent), "--campaign", "board")
    assert code == 0
    lines = [line for line in err.splitlines() if "no predictions are kept" in line]
    assert len(lines) == 1
    assert lines[0].startswith("3 records, the first ")


def test_frames_leave_out_seeds_and_items_that_nobody_counted(store: ResultStore) -> None:
    results = bench.results(store.root)
    board = results.leaderboard().to_dataframe()
    assert board["seeds"].isna().all()
    long = results.to_dataframe()
    assert long[long.task == "task1"]["n"].isna().all()
    assert set(long[long.task == "avg"]["n"]) == {8}


def test_bold_names_stay_inside_the_plot() -> None:
    name = "a name of a model"
    at = WIDTH - text_width(name) - 10.0, HEIGHT / 2
    plain = NamePlaces([at]).take(name, at)
    strong = NamePlaces([at]).take(name, at, strong=True)
    assert (plain and plain[2], strong and strong[2]) == ("start", "end")


def test_the_report_of_json_says_it(store: ResultStore) -> None:
    (table,) = json.loads(render_report(campaign_of(store), "json", "neighbours"))
    assert UNCHECKED in " ".join(table["notes"])


def test_a_bold_name_at_the_right_edge_ends_there() -> None:
    at = WIDTH - 40.0, HEIGHT / 2
    name = "a long name of a model"
    left = [(at[0] - 30.0 - 4 * place, at[1]) for place in range(40)]  # no room beside it
    assert NamePlaces([at, *left]).take(name, at) is None
    assert NamePlaces([at, *left]).take(name, at, strong=True) == (WIDTH - 4, at[1] - 9, "end")
