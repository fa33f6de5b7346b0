"""A record says that it was imported exactly if it was, and its tasks are those that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.imports.import_records import import_results
from bench.imports.score_table import read_score_table
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.verify.record_checks import VerifySettings, verify_records
from tests.support.campaigns import make_record


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    file = tmp_path / "table.csv"
    file.write_text("method,A,B\none,0.5,0.6\ntwo,0.4,0.3\n")
    made = ResultStore(tmp_path / "results", "board")
    import_results(made, read_score_table(file))
    return made


def findings(store: ResultStore, change: Callable[[RunRecord], RunRecord]) -> set[str]:
    """What verify says of a campaign whose first record was changed, and sealed again."""
    record = store.records()[0]
    store.path(record.place).unlink()
    changed = change(record)
    store.write(changed.place, changed, None)
    return {finding.what for finding in verify_records(store.root, VerifySettings())[0].findings}


def with_source(record: RunRecord, **source: Any) -> RunRecord:
    return replace(record, provenance={"imported": {**record.provenance["imported"], **source}})


def test_an_import_is_sound(store: ResultStore) -> None:
    assert findings(store, lambda record: record) == set()


def test_an_import_that_poses_as_a_run(store: ResultStore) -> None:
    said = findings(store, lambda record: replace(record, name="mine"))
    assert any("whose results are imported" in what for what in said)
    assert any("doesn't say that it is one" in what for what in said)
    bare = findings(store, lambda record: replace(record, name="mine2", provenance={}))
    assert any("whose results are imported" in what for what in bare)


def test_a_source_is_named(store: ResultStore) -> None:
    assert "it says that it was imported, and names no source" in findings(
        store, lambda record: replace(record, provenance={})
    )


def test_a_run_that_poses_as_an_import(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "own")
    record = make_record("untrained", None, {"TOY": 0.7}, suite="toy")
    store.prepare()
    posing = replace(record, name="imported:untrained", predictions=None)
    store.write(posing.place, posing, None)
    said = {finding.what for finding in verify_records(store.root, VerifySettings())[0].findings}
    assert "results of suite toy can't be imported" in said
    assert "it says that it was imported, and names no source" in said


def test_other_tasks_under_an_old_identity(store: ResultStore) -> None:
    def rename(record: RunRecord) -> RunRecord:
        tasks = {("C" if name == "A" else name): facts for name, facts in record.tasks.items()}
        scores = [replace(score, task="C") if score.task == "A" else score for score in record.scores]
        return replace(record, tasks=tasks, scores=tuple(scores))

    assert any("the identity of C" in what for what in findings(store, rename))
