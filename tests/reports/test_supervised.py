"""Supervised rows stand apart in every table, whatever they are called, and nothing of the others moves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.comparison.confounders import describe_confounders
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, sort_runs_by_seed
from bench.records.record import RunRecord, is_supervised, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import group_figures
from bench.reports.record_groups import SUPERVISED_GROUP
from bench.reports.report import render_report
from bench.reports.tables.leaderboard import all_leaderboards
from bench.reports.tables.paper_tables import paper_tables
from bench.reports.tables.suite_tables import sts7_grids
from tests.support.campaigns import make_record
from tests.support.messages import missing_facts

PAIRS = {"name": "nli_for_simcse.csv", "sha256": "d" * 64, "pairs": 275_601}
NOTE = "Supervised, so not ranked with the others: "


def runs(method: str, base: float, spread: float = 0.01, **changes: object) -> list[RunRecord]:
    made = [
        make_record(method, seed, {"STS12": base + spread * (seed % 3), "STSB": base}) for seed in range(1, 5)
    ]
    return [replace(one, **changes) for one in made]  # type: ignore[arg-type]


def learned(records: list[RunRecord], **of_stage: object) -> list[RunRecord]:
    """The same with a stage that learned from pairs, of its own or of a member."""
    found = []
    for one in records:
        stages = {f"teacher/{role}": {**stage, **of_stage} for role, stage in one.training["stages"].items()}
        seconds = {"training_cpu_seconds": dict.fromkeys(stages, 12.5)}
        found.append(replace(one, training={**one.training, "stages": stages}, timing=seconds))
    return found


def source(records: list[RunRecord], store: ResultStore, **changes: object) -> Campaign:
    return replace(make_campaign(store, records), **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "local")


PLAIN = [*runs("b", 0.70), *runs("a", 0.60), *runs("c", 0.69)]
TOP = learned(runs("mine", 0.90), text=PAIRS)  # an alias
FLAGGED = [replace(one, training={**one.training, "supervised": True}) for one in runs("plug", 0.95)]


def test_both_ways_to_say_it_survive_the_file() -> None:
    for one in (TOP[0], FLAGGED[0]):
        assert is_supervised(parse_record(record_to_json(one), "x"))
    assert not any(map(is_supervised, PLAIN))
    copies = learned(runs("x", 0.5), text={"name": "a", "sha256": "b", "paired": True})
    assert not any(map(is_supervised, copies))


def test_nothing_said_of_the_others_depends_on_them(store: ResultStore) -> None:
    (alone,) = all_leaderboards(source(PLAIN, store))
    (with_them,) = all_leaderboards(source([*TOP, *PLAIN, *FLAGGED], store))
    assert [row.method for row in with_them.rows] == ["b", "c", "a", "plug", "mine"]
    assert with_them.rows[:3] == alone.rows
    assert (with_them.bold, with_them.tests) == (alone.bold, alone.tests)
    assert alone.tests
    for row in with_them.rows[3:]:
        assert (row.ranked, row.rank, row.letters, row.group) == (False, None, "", SUPERVISED_GROUP)
        assert not any(cell.mark or cell.sign for cell in row.cells.values())
    (note,) = (note for note in with_them.notes if note not in alone.notes)
    assert not missing_facts(note, f"{NOTE}plug, mine (", "--rank-supervised")


def test_they_are_ranked_where_that_is_asked_for(store: ResultStore) -> None:
    (table,) = all_leaderboards(source([*TOP, *PLAIN, *FLAGGED], store, rank_supervised=True))
    assert [row.method for row in table.rows] == ["plug", "mine", "b", "c", "a"]
    assert all(row.ranked and row.rank for row in table.rows)
    assert not any(note.startswith(NOTE) for note in table.notes)


def test_figures_and_tests_leave_them_out(store: ResultStore) -> None:
    every = [*TOP, *PLAIN, *FLAGGED]
    (figure,) = group_figures(source(every, store))
    assert "mine" not in str(figure)
    (figure,) = group_figures(source(every, store, rank_supervised=True))
    assert "mine" in str(figure)
    assert render_report(source(every, store), "csv", "significance") == render_report(
        source(PLAIN, store), "csv", "significance"
    )
    (grid,) = sts7_grids(source(every, store))
    assert grid.groups[-1][1].endswith(SUPERVISED_GROUP)


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "html"])
def test_every_format_has_the_footnote(store: ResultStore, form: str) -> None:
    assert NOTE in render_report(source([*TOP, *PLAIN], store), form)


def test_the_caption_of_a_paper_says_why_a_row_stands_apart(store: ResultStore) -> None:
    every = [*TOP, *PLAIN, *FLAGGED]
    (table,) = paper_tables(source(every, store, given=("mine", "plug", "b", "c", "a")))
    assert table.caption.endswith(f" {NOTE}mine, plug.")
    assert any(f"{NOTE}mine, plug (" in remark for remark in table.remarks)
    (table,) = paper_tables(source(every, store, rank_supervised=True))
    assert NOTE not in table.caption
    (table,) = paper_tables(source(every, store, baseline="mine"))
    assert not missing_facts(table.caption, "No daggers: mine", "supervised")


def test_daggers_against_one_say_why_there_are_none(store: ResultStore) -> None:
    (table,) = all_leaderboards(source([*TOP, *PLAIN], store, baseline="mine"))
    assert not missing_facts(table.notes, "No daggers: mine", "it is supervised")
    failed = [replace(one, status="failed", scores=()) for one in TOP]
    (table,) = all_leaderboards(source([*failed, *PLAIN], store, baseline="mine"))
    assert not missing_facts(table.notes, "No daggers: mine", "no finished run")
    copied = learned(runs("copied", 0.8), text={"name": "a", "sha256": "b", "paired": True})
    copies = [replace(one, world={"seed": 1}) for one in copied]
    (table,) = all_leaderboards(source([*copies, *PLAIN], store, baseline="copied"))
    assert not missing_facts(table.notes, "No daggers: copied", "own paraphrases")


def test_json_says_who_is_ranked(store: ResultStore) -> None:
    (table,) = json.loads(render_report(source([*TOP, *PLAIN], store), "json"))
    assert {row["method"]: row["ranked"] for row in table["rows"]} == {
        "b": True, "c": True, "a": True, "mine": False,
    }  # fmt: skip


def test_a_report_of_them_alone_has_no_ranks(store: ResultStore) -> None:
    (table,) = all_leaderboards(source([*TOP, *FLAGGED], store))
    assert [(row.method, row.rank) for row in table.rows] == [("plug", None), ("mine", None)]
    assert not table.tests


def test_a_comparison_says_so(store: ResultStore) -> None:
    def group(records: list[RunRecord]) -> Group:
        return Group(records[0].method, tuple(sort_runs_by_seed(CampaignRun(store, one) for one in records)))

    top, plain, flagged = group(TOP), group(PLAIN[:4]), group(FLAGGED)
    one = describe_confounders(top, plain)[0]
    assert (describe_confounders(plain, top)[0], missing_facts(one, "mine is supervised", "and b is")) == (
        one,
        [],
    )
    assert not missing_facts(describe_confounders(top, flagged)[0], "Both are supervised", "mine and plug")
    assert not any("supervised" in line for line in describe_confounders(plain, group(PLAIN[4:8])))
