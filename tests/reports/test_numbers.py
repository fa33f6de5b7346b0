"""Numbers of tables in csv and json: which cell each is, its unit, all its digits."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from bench.records.store import ResultStore
from bench.render.formats import Screen, csv_cell, grids_csv, render_grids, render_text
from bench.render.grid import Grid, Printed, ScoreCell, format_interval, hide_deviation, plain_text
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.report import render_report
from bench.reports.sections import TABLES, table_grids
from bench.reports.tables.pairwise_tests import run_pairwise_tests
from tests.support.campaigns import make_record
from tests.support.docs_commands import ROOT
from tests.support.standings import campaign as campaign_of
from tests.support.standings import seeds

SCORES = (0.701234, 0.712345, 0.707654)
RUNS = (
    *seeds("a", *SCORES),
    *seeds("b", 0.60123, 0.61321, 0.59876),
    *seeds("c", 0.5987, 0.5954, 0.6033),
    *seeds("once", 0.4),
)


@pytest.fixture(scope="module", params=["mini", pytest.param("minilm-lm", marks=pytest.mark.campaigns)])
def committed(request: pytest.FixtureRequest) -> Campaign:
    store = ResultStore(ROOT / "results", request.param)
    return replace(make_campaign(store, store.records()), pairs=True)


def lines_of(grids: list[Grid]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(grids_csv(grids))))


def rows_of(grids: list[Grid]) -> list[tuple[str, int]]:
    """Name and number of cells of every row, as csv has them."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines_of(grids):
        cells = found.setdefault((line["table"], line["line"]), {})
        assert line["column"] not in cells
        cells[line["column"]] = line["row"]
    return [(name, len(cells)) for cells in found.values() for name in set(cells.values())]


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_rows_of_csv_can_be_put_together_again(name: str, committed: Campaign, campaign: Campaign) -> None:
    for source in (committed, replace(campaign, pairs=True)):
        grids = TABLES[name].grids(source)
        rows = [(str(csv_cell(plain_text(row[0]))), len(row) - 1) for grid in grids for row in grid.rows]
        assert rows_of(grids) == rows


def test_the_deviation_is_a_number_beside_the_average(tmp_path: Path) -> None:
    records = [make_record("simcse", seed, {"STS12": score}) for seed, score in enumerate(SCORES, start=1)]
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    (grid,) = json.loads(render_report(source, "json", "leaderboard"))
    row = dict(zip(grid["header"], grid["rows"][0], strict=True))
    assert (row["avg"]["n"], row["avg"]["sd"]) == (3, stdev(SCORES))
    assert row["sd"] == {"text": "0.56", "value": stdev(SCORES)}
    lines = {line["column"]: line for line in lines_of(table_grids(source, "leaderboard"))}
    assert lines["avg"]["sd"] == lines["sd"]["value"] == str(stdev(SCORES))
    sign = "\N{PLUS-MINUS SIGN}"
    for form, shown in (("text", sign), ("markdown", sign), ("latex", r"\pm"), ("html", "&#177;")):
        assert render_report(source, form, "leaderboard").count(shown) == 1  # that of STS12


def test_a_deviation_in_its_own_column_is_not_left_out() -> None:
    cells = (hide_deviation(ScoreCell(0.5, 0.01, 3)), Printed("1.00", 0.01))
    shown = render_text([Grid("t", ("method", "avg", "sd"), ((30 * "m", *cells),), ())], Screen(20))
    assert "left out" not in shown
    assert {"50.00", "1.00"} <= set(shown.split())


def numbers(line: dict[str, Any], *names: str) -> list[float]:
    return [line[name]["value"] for name in names]


def test_differences_are_in_the_metrics_unit_with_all_digits(tmp_path: Path) -> None:
    source = replace(campaign_of(tmp_path, *RUNS), pairs=True)
    found = run_pairwise_tests(source, source.records)
    matrix, listed = json.loads(render_report(source, "json", "significance"))
    names = {method: place for place, method in enumerate(row[0].split(" ")[1] for row in matrix["rows"])}
    tested = 0
    for pair, row in zip(found.of().pairs, listed["rows"], strict=True):
        line = dict(zip(listed["header"], row, strict=True))
        a, b = names[pair.first], names[pair.second]
        assert numbers(line, "A - B") == [matrix["rows"][a][1 + b]["value"]] == [pair.difference]
        assert matrix["rows"][b][1 + a]["value"] == -pair.difference
        if pair.p is None:
            assert line["p"] == line["low"] == "-"
            continue
        tested += 1
        ends = found.interval(pair.first, pair.second)
        assert ends is not None
        assert numbers(line, "low", "high", "level") == [*ends, pair.level]
        assert numbers(line, "p", "p corrected") == [pair.p, pair.adjusted]
        assert line["interval"] == f"{format_interval(*ends)} ({line['level']['text']})"
    assert tested
    lines = lines_of(table_grids(source, "significance")[1:])
    values = {one["column"]: one["value"] for one in lines if one["line"] == "1"}
    assert all(float(values[name]) for name in ("A - B", "low", "high", "level", "p", "p corrected"))


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_texts_show_how_a_number_is_printed(form: str) -> None:
    def shown(cell: Printed | str) -> str:
        return render_grids([Grid("t", ("m", "x"), (("a", cell),), ())], form)

    for printed in ("+1.20*", "-", "0.0000"):
        assert shown(Printed(printed, 0.0123456)) == shown(printed)
