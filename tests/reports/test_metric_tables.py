"""Metrics by method, kinds of task, and what papers print of them and of cost."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.published_tables import load_figures
from bench.errors import InputError
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.render.grid import Grid, Quoted, ScoreCell, plain_text
from bench.reports.campaign import make_campaign
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.efficiency import published_costs
from bench.reports.tables.metrics import KINDS
from tests.support.campaigns import kinds_record, make_record

FIFTEEN = tuple(f"{name}@{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10))
RETRIEVAL = {"R1": "Retrieval", "R2": "Retrieval"}


def table(name: str, records: Sequence[RunRecord]) -> Grid:
    (grid,) = table_grids(make_campaign(ResultStore(Path("nowhere"), "camp"), records), name)
    return grid


def means(row: Sequence[object]) -> list[float | None]:
    return [cell.mean for cell in row if isinstance(cell, ScoreCell)]


def test_metrics_are_rows_and_methods_columns() -> None:
    """Each is the mean over the tasks, then over seeds; the last row the mean of the metrics."""
    places = [(method, seed) for method in ("mhe", "simcse") for seed in (1, 2)]
    records = [kinds_record(*place, RETRIEVAL, tuple(reversed(FIFTEEN))) for place in places]
    grid = table("metrics", records)
    assert grid.header == ("metric", "mhe", "simcse", "published simcse")
    assert [row[0] for row in grid.rows] == [*FIFTEEN, "mean"]
    tasks = {name: (0.1, 0.2) for name in FIFTEEN}
    for place, (name, row) in enumerate(zip(FIFTEEN, grid.rows, strict=False)):
        expected = sum(tasks[name]) / 2 + 0.015 + 0.1 * (len(FIFTEEN) - 1 - place)
        assert means(row) == pytest.approx([expected] * 2)
        assert [cell.sd for cell in row if isinstance(cell, ScoreCell)] == pytest.approx([0.01 / 2**0.5] * 2)
    assert means(grid.rows[-1]) == pytest.approx([0.15 + 0.015 + 0.7] * 2)
    figures = (f for f in load_figures() if (f.section, f.method) == ("retrieval_metrics", "simcse"))
    printed = {figure.metric: figure.text for figure in figures}
    quoted = [row[-1] for row in grid.rows]
    texts = [cell.text for cell in quoted if isinstance(cell, Quoted)]
    assert texts == [*(printed[n] for n in FIFTEEN), "11.83"]
    assert all(cell.grey for cell in quoted if isinstance(cell, Quoted))
    assert "mean over 2 tasks" in grid.notes[0]


def test_best_method_stands_first() -> None:
    low, high = kinds_record("mhe", 1, RETRIEVAL), kinds_record("mhs", 1, RETRIEVAL)
    high = replace(high, scores=tuple(replace(s, value=s.value + 0.1) for s in high.scores))
    assert table("metrics", [low, high]).header == ("metric", "mhs", "mhe")


def test_a_metric_that_a_task_lacks_is_no_mean_of_the_others() -> None:
    record = kinds_record("mhe", 1, RETRIEVAL)
    lacking = replace(record, scores=tuple(s for s in record.scores if (s.task, s.metric) != ("R2", "map@1")))
    rows = {row[0]: row[1] for row in table("metrics", [lacking]).rows}
    assert plain_text(rows["map@1"]) == plain_text(rows["mean"]) == "-"
    assert plain_text(rows["map@10"]) != "-"


def test_metrics_of_a_mixed_suite_are_of_its_retrieval_tasks() -> None:
    grid = table("metrics", [kinds_record("simcse", 1)])
    assert [row[0] for row in grid.rows] == ["map@1", "map@10", "ndcg@10", "recall@1", "mean"]
    assert "2 of 3 tasks" in grid.notes[0]


@pytest.mark.parametrize("name", ["metrics", "categories"])
def test_other_suites_have_no_such_table(name: str) -> None:
    record = make_record("simcse", 1, {"STS12": 0.5, "STSB": 0.6})
    last = (*record.scores, Score("STS12", "all", "spearman_last", 0.4, 10))
    with pytest.raises(InputError, match="no suite has"):
        table(name, [replace(record, scores=last)])


def test_kinds_of_task_are_columns() -> None:
    grid = table("categories", [kinds_record("simcse", seed) for seed in (1, 2)])
    assert grid.header == ("method", "Class. 1", "Retr. 2", "Avg. 3")
    (row,) = grid.rows
    assert means(row) == pytest.approx([0.315, 0.165, 0.215])
    assert grid.groups == ()


def test_an_unknown_kind_stands_last() -> None:
    kinds = {"A": "BitextMining", "B": "STS", "C": "STS"}
    assert table("categories", [kinds_record("simcse", 1, kinds)]).header[1:3] == ("STS 2", "BitextMining 1")


def test_the_paper_stands_beside_its_suite() -> None:
    kinds = {kind: kind for kind in reversed(KINDS)}
    ours = kinds_record("simcse", 1, kinds, suite="unsee", profile="bert-base")
    grid = table("categories", [ours])
    heads = ("Class.", "Clust.", "PairClass.", "Rerank.", "Retr.", "STS", "Summ.")
    assert grid.header == ("method", *(f"{head} 1" for head in heads), "Avg. 7")
    assert [place for place, _ in grid.groups] == [0, 1]
    rows = {str(row[0]): row[1:] for row in grid.rows[1:]}
    texts = ["62.50", "29.04", "70.33", "46.47", "20.29", "74.33", "31.15", "45.45"]
    assert [cell.text for cell in rows["SimCSE"] if isinstance(cell, Quoted)] == texts
    assert not any(cell.grey for cell in rows["SimCSE"] if isinstance(cell, Quoted))  # our text and backbone
    assert all(cell.grey for cell in rows["UNSEE-BYOL"] if isinstance(cell, Quoted))
    assert len(rows) == len({f.method for f in load_figures() if f.section == "mteb_english"})
    other = replace(ours, backbone={"name": "mini", "sha256": "d" * 64})
    cells = [cell for row in table("categories", [other]).rows[1:] for cell in row[1:]]
    assert all(isinstance(cell, Quoted) and cell.grey for cell in cells)


def cost(method: str, name: str = "", parts: int = 1, **more: str) -> RunRecord:
    record = make_record(method, 1, {"STS12": 0.7, "STSB": 0.8}, name=name, parts=parts, suite="sts7")
    return replace(record, options=dict(more), probes={"version": 1, "data": {}, "cost": {"gmac": 5.4}})


def test_published_cost_stands_beside_ours() -> None:
    pair = "esimcse[text=a+sick]+esimcse[text=b+sick]"
    records = [
        cost("simcse"),
        cost("simcse[pooling=avg]", pooling="avg"),
        cost("tncse", parts=2),
        cost("jtcse_d"),
        cost(f"ensemble:{pair}", "ensemble", 2, of=pair),
        cost("ensemble:simcse+esimcse", "ensemble", 2, of="simcse+esimcse"),
    ]
    grid = table("efficiency", records)
    assert grid.header[-3:] == ("published avg", "published GMAC", "published eta")
    rows = {str(row[0]): row for row in grid.rows}
    assert [plain_text(cell) for cell in rows["simcse"][2:4]] == ["5.400", "13.89"]
    quoted = {name: [cell.text for cell in row if isinstance(cell, Quoted)] for name, row in rows.items()}
    assert quoted["simcse"] == ["76.25", "5.40", "14.12"]
    assert quoted["tncse"] == ["79.58", "10.90", "7.30"]
    assert quoted["jtcse_d"] == ["79.89", "5.40", "14.79"]
    assert quoted[f"ensemble:{pair}"] == ["78.51", "10.90", "7.20"]
    assert quoted["simcse[pooling=avg]"] == quoted["ensemble:simcse+esimcse"] == []  # the paper has none
    grey = {name: [cell.grey for cell in row if isinstance(cell, Quoted)] for name, row in rows.items()}
    assert grey["simcse"] == [False] * 3
    assert grey["tncse"] == [True] * 3  # of a text that the table doesn't name
    alone = {name for name in rows if name not in {record.method for record in records}}
    assert {"EDFSE", "EDFSE D", "SimCSE x 2", "JTCSE", "TNCSE D", "ESimCSE"} <= alone
    assert len(grid.rows) == len(records) + len(published_costs()) - 4
    assert grid.groups[-1] == (len(records), "published only")


def test_a_table_without_a_printed_method_is_ours_alone() -> None:
    assert table("efficiency", [cost("mhe")]).header[-1] == "training CPU s"
    accuracy = make_record("simcse", 1, {"MR": 0.8}, suite="transfer7", metric="accuracy")
    assert table("efficiency", [accuracy]).header[-1] == "training CPU s"


def test_the_tables_are_csv_too() -> None:
    campaign = make_campaign(ResultStore(Path("nowhere"), "camp"), [kinds_record("simcse", 1)])
    for name in ("metrics", "categories"):
        rows = list(csv.reader(io.StringIO(render_report(campaign, "csv", name))))
        assert len(rows) > 1
