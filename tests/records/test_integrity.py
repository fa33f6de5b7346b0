"""Averages of parts that no item stands behind: a fault of that record, not of the command that reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import DataError
from bench.records.integrity import find_record_faults, seal_record
from bench.records.record import RunRecord, Score, parse_record, record_to_json
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts

RECORD = RunRecord("mini", "noise", "noise", 1, {}, None, 1, "toy", {}, "", "ok")
EMPTY = (Score("TOY", "x", "spearman", 0.9, 0), Score("TOY", "wmean", "spearman", 0.9, 180))


def of_tasks(*scores: Score, **facts: int) -> RunRecord:
    tasks = {"TOY": {"sha256": "0", "reference": True, **facts}}
    return seal_record(replace(RECORD, tasks=tasks, scores=scores))


@pytest.mark.parametrize("facts", [{"items": 0}, {}])
def test_parts_without_items_are_a_fault_of_their_average(facts: dict[str, int]) -> None:
    record = of_tasks(Score("TOY", "all", "spearman", 0.9, 0), *EMPTY, **facts)
    assert parse_record(record_to_json(record), "x") == record  # mteb may not tell how many items there are
    (fault,) = find_record_faults(record)
    assert fault.check == "average"
    assert not missing_facts(fault.what, "TOY wmean spearman", "0.9", "no items")


@pytest.mark.parametrize("facts", [{"pairs": 2}, {"items": 2}])
@pytest.mark.parametrize("empty", [EMPTY[0], Score("avg", "all", "spearman", 0.9, 0)])
def test_a_score_of_no_items_is_none(facts: dict[str, int], empty: Score) -> None:
    record = of_tasks(Score("TOY", "all", "spearman", 0.9, 2), empty, **facts)
    with pytest.raises(DataError, match=f"{empty.task} {empty.subset} spearman is of no items"):
        parse_record(record_to_json(record), "x")


def test_an_average_of_no_tasks_is_none_either() -> None:
    record = of_tasks(*(Score(task, "all", "spearman", 0.9, 0) for task in ("TOY", "avg")), items=0)
    with pytest.raises(DataError, match="avg all spearman is of no items"):
        parse_record(record_to_json(record), "x")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("verify",), 1),
        (("report",), 1),
        (("compare", "noise", "word_overlap"), 2),
        (("stats",), 2),
        (("bundle", "local", "--out", "b.zip"), 1),
        (("site", "--out", "site"), 1),
        (("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy"), 0),  # once more, and named
    ],
)
def test_commands_name_such_a_record(cli: Cli, tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", "toy")
    assert cli(*run)[0] == 0
    path = tmp_path / "results/local/mini/noise/seed-1/toy.json"
    record = records(tmp_path)["mini/noise/seed-1/toy.json"]
    path.write_text(record_to_json(seal_record(replace(record, scores=(*record.scores, *EMPTY)))))
    found, out, err = cli(*command)
    assert found == code, err
    said = "in doubt: campaign local" if command[0] == "site" else "TOY x spearman is of no items"
    assert said in out + err
