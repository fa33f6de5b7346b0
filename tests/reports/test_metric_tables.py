"""Metrics by method, kinds of task, cost and what papers print of them; the choice of a checkpoint."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.data.published_tables import load_figures
from bench.errors import InputError
from bench.records.record import RunRecord, Score
from bench.records.store import ResultStore
from bench.render.grid import Grid, Quoted, ScoreCell, plain_text
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.record_groups import LAST_NOTE, last_checkpoints
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.efficiency import published_costs
from bench.reports.tables.retrieval_metrics import KINDS
from bench.reports.tables.row_tests import run_pairwise_tests
from tests.support.campaigns import kinds_record, make_record, probes_of, with_last
from tests.support.cli import Cli
from tests.support.docs_commands import ROOT
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import alone, campaign, seeds

FIFTEEN = tuple(f"{name}@{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10))
RETRIEVAL = {"R1": "Retrieval", "R2": "Retrieval"}


def table(name: str, records: Sequence[RunRecord]) -> Grid:
    (grid,) = table_grids(make_campaign(ResultStore(Path("nowhere"), "camp"), records), name)
    return grid


def means(row: Sequence[object]) -> list[float | None]:
    return [cell.mean for cell in row if isinstance(cell, ScoreCell)]


def test_metrics_are_rows_and_methods_columns() -> None:
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


def test_means_of_metrics_are_over_all_retrieval_tasks() -> None:
    low, high = kinds_record("mhe", 1, RETRIEVAL), kinds_record("mhs", 1, RETRIEVAL)
    high = replace(high, scores=tuple(replace(s, value=s.value + 0.1) for s in high.scores))
    assert table("metrics", [low, high]).header == ("metric", "mhs", "mhe")
    record = kinds_record("mhe", 1, RETRIEVAL)
    lacking = replace(record, scores=tuple(s for s in record.scores if (s.task, s.metric) != ("R2", "map@1")))
    rows = {row[0]: row[1] for row in table("metrics", [lacking]).rows}
    assert plain_text(rows["map@1"]) == plain_text(rows["mean"]) == "-"
    assert plain_text(rows["map@10"]) != "-"
    grid = table("metrics", [kinds_record("simcse", 1)])
    assert [row[0] for row in grid.rows] == ["map@1", "map@10", "ndcg@10", "recall@1", "mean"]
    assert "2 of 3 tasks" in grid.notes[0]


@pytest.mark.parametrize("name", ["metrics", "categories"])
def test_other_suites_have_no_such_table(name: str) -> None:
    record = make_record("simcse", 1, {"STS12": 0.5, "STSB": 0.6})
    last = (*record.scores, Score("STS12", "all", "spearman_last", 0.4, 10))
    with pytest.raises(InputError, match="no suite has"):
        table(name, [replace(record, scores=last)])


def test_kinds_of_task_are_columns_and_an_unknown_one_stands_last() -> None:
    grid = table("categories", [kinds_record("simcse", seed) for seed in (1, 2)])
    assert grid.header == ("method", "Class. 1", "Retr. 2", "Avg. 3")
    (row,) = grid.rows
    assert means(row) == pytest.approx([0.315, 0.165, 0.215])
    assert grid.groups == ()
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


def test_a_table_without_a_printed_method_is_ours_alone_and_all_are_csv_too() -> None:
    assert table("efficiency", [cost("mhe")]).header[-1] == "training CPU s"
    accuracy = make_record("simcse", 1, {"MR": 0.8}, suite="transfer7", metric="accuracy")
    assert table("efficiency", [accuracy]).header[-1] == "training CPU s"
    campaign = make_campaign(ResultStore(Path("nowhere"), "camp"), [kinds_record("simcse", 1)])
    for name in ("metrics", "categories"):
        rows = list(csv.reader(io.StringIO(render_report(campaign, "csv", name))))
        assert len(rows) > 1


STEADY, RAISED = (0.70, 0.73, 0.71), (0.74, 0.75, 0.73)
GAINS = (0.05, 0.04, 0.0)


def union(record: RunRecord) -> RunRecord:
    """The record of a method whose stages are all its members'."""
    stages = {f"twin/{role}": facts for role, facts in record.training["stages"].items()}
    return replace(record, training={**record.training, "stages": stages})


@pytest.fixture
def three(tmp_path: Path) -> Campaign:
    """``raised`` is ahead by its chosen checkpoints alone; ``joined`` is a union; ``fixed`` doesn't train."""
    raised = [with_last(run, gain) for run, gain in zip(seeds("raised", *RAISED), GAINS, strict=True)]
    steady = [with_last(run, 0.0) for run in seeds("steady", *STEADY)]
    joined = [union(with_last(run, 0.0)) for run in seeds("joined", 0.6, 0.61)]
    return campaign(tmp_path, *raised, *steady, *joined, alone("fixed", 0.5))


def rows(source: Campaign) -> dict[str, dict[str, str]]:
    (grid,) = table_grids(source, "checkpoints")
    named = (dict(zip(grid.header, map(str, row), strict=True)) for row in grid.rows)
    return {row["method"]: row for row in named}


def test_what_choosing_was_worth(three: Campaign) -> None:
    found = rows(three)
    assert list(found) == ["raised", "steady"]
    raised, steady = found.values()
    columns = ("selected - last", "unlike", "rank", "rank by last")
    assert [raised[name] for name in columns] == ["+3.00", "2 of 3", "1", "2"]
    low, high = stats.t.interval(0.95, 2, np.mean(GAINS), stats.sem(GAINS))
    assert raised["95% interval"] == f"[{100 * low:+.2f}, {100 * high:+.2f}]"
    assert (steady["selected - last"], steady["95% interval"], steady["unlike"]) == ("+0.00", "-", "0 of 3")
    (grid,) = table_grids(three, "checkpoints")
    (note,) = (note for note in grid.notes if note.startswith("Of 6 runs"))
    assert numbers_in(note.replace("%", "")) == [6, 33, 1, 33, 2, 33]
    assert not [note for note in grid.notes if "rho" in note]  # of two methods


def test_supervised_rows_stand_apart(tmp_path: Path) -> None:
    steady = [with_last(run, 0.0) for run in seeds("steady", *STEADY)]
    labelled = [with_last(run, 0.2) for run in seeds("labelled", 0.9, 0.91, 0.92)]
    labelled = [replace(run, training={**run.training, "supervised": True}) for run in labelled]
    source = campaign(tmp_path, *labelled, *steady)
    assert [(name, row["rank"], row["rank by last"]) for name, row in rows(source).items()] == [
        ("steady", "1", "1"),
        ("labelled", "-", "-"),
    ]
    (grid,) = table_grids(source, "checkpoints")
    (note,) = (note for note in grid.notes if note.startswith("Of 3 runs"))
    assert "in 0%" in note
    assert not missing_facts(grid.notes[-1], "Supervised", "labelled")
    assert next(iter(rows(replace(source, rank_supervised=True, kept={})))) == "labelled"
    (grid,) = table_grids(campaign(tmp_path, *labelled), "checkpoints")  # none to be ranked
    assert not any(note.startswith("Of ") for note in grid.notes)


def test_the_order_of_four_methods(tmp_path: Path) -> None:
    """By the selected checkpoint a b c d, by the last a c b d: rho = 1 - 6 * 2 / (4 * 15)."""
    made = {"a": (0.8, 0.0), "b": (0.7, 0.15), "c": (0.6, 0.0), "d": (0.5, 0.0)}
    records = [with_last(run, gain) for name, (score, gain) in made.items() for run in seeds(name, score)]
    source = campaign(tmp_path, *records)
    (grid,) = table_grids(source, "checkpoints")
    assert numbers_in(grid.notes[-1]) == [4, 0.8]
    assert [row["rank by last"] for row in rows(source).values()] == ["1", "3", "2", "4"]


def test_a_report_of_the_last_checkpoints(three: Campaign) -> None:
    source = replace(three, records=tuple(last_checkpoints(three.records)))
    ranking = run_pairwise_tests(source, source.records).of()
    assert ranking.pair("steady", "raised").difference == pytest.approx(2.14 / 3 - 0.71)
    ranking = run_pairwise_tests(three, three.records).of()
    assert ranking.pair("raised", "steady").difference == pytest.approx(0.74 - 2.14 / 3)
    text = render_report(source, "text")
    assert not missing_facts(text, LAST_NOTE, "joined joins checkpoints")
    assert LAST_NOTE not in render_report(three, "text")
    kept = {record.method: record for record in source.records}
    assert (kept["raised"].predictions, kept["raised"].probes) == (None, {})
    assert kept["fixed"] == next(record for record in three.records if record.method == "fixed")
    with pytest.raises(InputError, match="last checkpoint"):
        table_grids(source, "checkpoints")
    rows = csv.DictReader(io.StringIO(render_report(source, "csv")))
    said = [row for row in rows if row["method"] == "raised"]
    assert {row["metric"] for row in said} == {"spearman"}
    found = {(row["seed"], row["task"]): float(row["value"]) for row in said}
    assert found["1", "STS12"] == pytest.approx(0.69)
    assert len(found) == len(said) == 9


def test_the_cost_is_that_of_both_checkpoints(tmp_path: Path) -> None:
    probes = probes_of(1)
    probes["cost"] = {"gmac": 1.5, "parameters": 2_000_000, "eta": 46.0, "eta_suite": "sts7"}
    probed = [replace(with_last(run, 0.2), probes=probes) for run in seeds("a", 0.7, 0.72)]
    source = campaign(tmp_path, *probed)
    source = replace(source, records=tuple(last_checkpoints(source.records)), last=True)
    cost = {"gmac": 1.5, "parameters": 2_000_000}
    assert source.records[0].probes == {"version": 1, "data": probes["data"], "cost": cost}
    (grid,) = table_grids(source, "efficiency")
    row = dict(zip(grid.header, map(str, grid.rows[0]), strict=True))
    assert (row["GMAC"], row["eta"], row["M params"]) == ("1.500", "34.00", "2.0")
    assert not any(note.startswith("No GMAC") for note in grid.notes)
    for name in ("probes", "mechanism", "checkpoints"):
        with pytest.raises(InputError, match="selected checkpoint") as error:
            table_grids(source, name)
        assert "--checkpoint last" in (error.value.hint or "")
    assert "Probes: it is of" in render_report(source, "html")


def test_averages_are_rounded_on_both_sides_and_refused_without_a_last(tmp_path: Path) -> None:
    (run,) = seeds("a", 0.700064)
    source = make_campaign(ResultStore(tmp_path, "camp"), [with_last(run, 4e-6)], rounded=True)
    assert rows(source)["a"]["unlike"] == "0 of 1"
    record = make_record("simcse", 1, {"MR": 0.8}, suite="transfer7", metric="accuracy")
    with pytest.raises(InputError, match="simcse seed 1 on transfer7"):
        last_checkpoints([record])
    failed = replace(record, status="failed", scores=())
    assert last_checkpoints([failed]) == [failed]


def test_the_command_on_committed_records(cli: Cli) -> None:
    where = ("--results", str(ROOT / "results"), "--campaign", "views")
    code, out, err = cli("report", *where, "--checkpoint", "last")
    assert (code, LAST_NOTE in out) == (0, True), err
    code, table, err = cli("report", *where, "--table", "checkpoints", "--format", "csv")
    assert code == 0, err
    crop = [run for run in ResultStore(ROOT / "results", "views").records() if run.method == "crop"]
    gains = [(run.score("avg") or 0) - (run.score("avg", metric="spearman_last") or 0) for run in crop]
    cells = {(row["row"], row["column"]): row["text"] for row in csv.DictReader(io.StringIO(table))}
    assert cells["crop", "selected - last"] == f"{100 * np.mean(gains):+.2f}"
    assert np.mean(gains) > 0.01
    code, out, err = cli("report", *where, "--checkpoint", "last", "--table", "checkpoints")
    assert (code, out, err.count("\n"), "selected checkpoint" in err) == (2, "", 1, True)
    code, _, err = cli("report", *where, "--checkpoint", "first")
    assert (code, missing_facts(err, "'first'", "'selected', 'last'")) == (2, [])
