"""In the mini world training pays: SimCSE is at least 5 points above everything untrained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.records.record import RunRecord, parse_record
from tests.conftest import Bench

ROOT = Path(__file__).parents[2]
MARGIN = 0.05


def read(folder: Path) -> list[RunRecord]:
    records = [parse_record(path.read_text(), path.name) for path in sorted(folder.rglob("mini.json"))]
    return [record for record in records if record.method == "simcse" or record.seed is None]


def worst_margin(records: Sequence[RunRecord]) -> float:
    scores = {(record.name, record.method, record.seed): record.score("MINI") for record in records}
    trained = [value for (name, _, _), value in scores.items() if name == "simcse" and value is not None]
    floors = [value for (name, _, _), value in scores.items() if name != "simcse" and value is not None]
    assert len(floors) == 3  # word_overlap, untrained cls and avg
    return min(trained) - max(floors)


def test_committed_records() -> None:
    records = read(ROOT / "results" / "mini")
    assert sorted(record.seed for record in records if record.seed is not None) == [1, 2, 3]
    assert {record.world["seed"] for record in records if record.world} == {1}
    assert all(record.world and any("no benchmark" in note for note in record.notes) for record in records)
    steps = {r.training["stages"]["simcse"]["steps"] for r in records if r.name == "simcse"}
    assert steps == {150}
    assert worst_margin(records) >= MARGIN


@pytest.mark.long  # bench check trains the same simcse wherever these tests run
def test_a_new_run_of_the_default_profile(bench: Bench, tmp_path: Path) -> None:
    methods = "word_overlap,untrained,untrained:avg,simcse"
    done = bench("run", "--methods", methods, "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert "no benchmark" in done.stdout
    assert worst_margin(read(tmp_path / "results" / "local")) >= MARGIN
