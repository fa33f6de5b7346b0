"""What choosing a checkpoint was worth, and reports of the last one."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.errors import InputError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.record_groups import LAST_NOTE, last_checkpoints
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.pairwise_tests import run_pairwise_tests
from tests.support.campaigns import make_record, probes_of, with_last
from tests.support.cli import Cli
from tests.support.docs_commands import ROOT
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import alone, campaign, seeds

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


def test_the_cost_is_that_of_both_checkpoints(tmp_path: Path) -> None:
    """The other probes and eta, which is of the score, are the selected one's."""
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


def test_every_score_of_the_last_is_there_and_no_other(three: Campaign) -> None:
    source = replace(three, records=tuple(last_checkpoints(three.records)))
    rows = csv.DictReader(io.StringIO(render_report(source, "csv")))
    said = [row for row in rows if row["method"] == "raised"]
    assert {row["metric"] for row in said} == {"spearman"}
    found = {(row["seed"], row["task"]): float(row["value"]) for row in said}
    assert found["1", "STS12"] == pytest.approx(0.69)
    assert len(found) == len(said) == 9


def test_rounded_averages_are_rounded_on_both_sides(tmp_path: Path) -> None:
    """Scores of 0.700064 and 0.70006 print alike: nothing was chosen."""
    (run,) = seeds("a", 0.700064)
    source = make_campaign(ResultStore(tmp_path, "camp"), [with_last(run, 4e-6)], rounded=True)
    assert rows(source)["a"]["unlike"] == "0 of 1"


def test_without_them_it_is_refused() -> None:
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
