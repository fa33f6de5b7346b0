"""Published results become records, marked as such, and a second import says what changed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from bench.errors import InputError, NotComparableError, StorageError
from bench.eval.recomputation import PUBLISHED
from bench.imports.import_records import import_results
from bench.records.imported import describe_imports, import_facts, is_imported
from bench.records.store import ResultStore
from bench.verify.record_checks import VerifySettings, verify_records
from tests.support.published import published_results, published_run, three_models


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", "board")


def test_records_hold_what_was_published(store: ResultStore) -> None:
    runs = three_models()
    outcome = import_results(store, published_results(*runs, licence="CC0"))
    assert (outcome.added, outcome.updated, outcome.unchanged) == (3, 0, 0)
    records = {record.method: record for record in store.records()}
    assert set(records) == {"org/strong", "org/other", "lab/weak"}
    for run in runs:
        record = records[run.method]
        assert record.scores == run.scores  # to the last digit
        assert is_imported(record)
        assert record.profile == "imported"
        assert not record.training
        assert record.backbone is None
        assert import_facts(record)["n_parameters"] == run.facts["n_parameters"]
    assert "CC0" in describe_imports(records.values())


def test_a_second_import_says_what_changed(store: ResultStore) -> None:
    strong, other, weak = three_models()
    import_results(store, published_results(strong, other, weak))
    path = store.path(next(r for r in store.records() if r.method == "org/other").place)
    kept = path.read_bytes()
    scores = [score.value for score in strong.scores[:-1]]
    moved = published_run("org/strong", [0.5, *scores[1:]], facts=strong.facts)
    outcome = import_results(store, published_results(moved, other))
    assert (outcome.added, outcome.updated, outcome.unchanged) == (0, 1, 1)
    (change,) = outcome.changed
    assert (change.row, change.task, change.then, change.now) == ("org/strong", "task1", 0.81, 0.5)
    assert outcome.gone == ("lab/weak",)
    assert path.read_bytes() == kept  # unchanged rows keep their bytes
    assert len(store.records()) == 3


def test_a_dry_import_writes_nothing(store: ResultStore) -> None:
    outcome = import_results(store, published_results(*three_models()), dry=True)
    assert outcome.added == 3
    assert not store.root.exists()


def test_changed_predictions_alone_are_an_update(store: ResultStore) -> None:
    run = published_run("a", [0.5, 0.7], types=())
    tasks = {name: {**facts, "items": 2} for name, facts in run.tasks.items()}
    scores = tuple(replace(score, n=2) for score in run.scores)
    first = replace(
        run, scores=scores, tasks=tasks, predictions={"task1": np.ones(4, "f4"), "task2": np.ones(4, "f4")}
    )
    other = replace(first, predictions={"task1": np.zeros(4, "f4"), "task2": np.ones(4, "f4")})
    import_results(store, published_results(first))
    assert import_results(store, published_results(first)).unchanged == 1
    outcome = import_results(store, published_results(other))
    assert (outcome.updated, outcome.changed) == (1, ())


def test_rows_on_other_data_are_refused(store: ResultStore) -> None:
    strong, other, _ = three_models()
    import_results(store, published_results(strong))
    newer = published_run("org/other", [0.5] * 8, data="v2")
    with pytest.raises(NotComparableError, match="org/strong stands in this campaign with other tasks"):
        import_results(store, published_results(newer))
    assert [record.method for record in store.records()] == ["org/strong"]
    import_results(store, published_results(other))
    assert len(store.records()) == 2


def test_other_data_of_the_same_rows_are_refused(store: ResultStore) -> None:
    import_results(store, published_results(*three_models()))
    newer = [published_run(run.method, [0.5] * 8, data="v2") for run in three_models()]
    with pytest.raises(NotComparableError, match="with other tasks, metrics or versions"):
        import_results(store, published_results(*newer))


@pytest.mark.parametrize(("first", "second"), [(None, 1), (1, None)])
def test_a_row_has_seeds_in_all_imports_or_in_none(
    store: ResultStore, first: int | None, second: int | None
) -> None:
    import_results(store, published_results(published_run("a", [0.5] * 8, seed=first)))
    with pytest.raises(InputError, match=f"a stands in this campaign {'with' if first else 'without'} seeds"):
        import_results(store, published_results(published_run("a", [0.6] * 8, seed=second)))
    import_results(store, published_results(published_run("b", [0.6] * 8, seed=second)))
    assert len(store.records()) == 2


def test_notes_for_tables_stand_in_every_record(store: ResultStore) -> None:
    results = replace(published_results(*three_models()), table_notes=("3 of 5 models: 2 lack tasks.",))
    import_results(store, results)
    assert {record.notes for record in store.records()} == {("3 of 5 models: 2 lack tasks.",)}


def test_runs_of_other_sources_are_counted(store: ResultStore) -> None:
    import_results(store, published_results(*three_models()))
    other = published_results(published_run("own", [0.5] * 8), label="other.csv")
    assert import_results(store, other).others == 3


def test_a_row_that_was_run_here_is_never_replaced(store: ResultStore) -> None:
    strong, *_ = three_models()
    import_results(store, published_results(strong))
    (record,) = store.records()
    with store.claim(record.place, wait=True):
        store.write(record.place, replace(record, name="mine", provenance={}), None)
    with pytest.raises(InputError, match="org/strong was run here"):
        import_results(store, published_results(strong))


def test_look_alike_names_are_refused(store: ResultStore) -> None:
    run = published_run("org/str\N{CYRILLIC SMALL LETTER O}ng", [0.5] * 8)
    with pytest.raises(InputError, match=r"U\+043E"):
        import_results(store, published_results(run))
    assert not store.root.exists()


def test_imported_rows_are_never_verified(store: ResultStore) -> None:
    import_results(store, published_results(*three_models()))
    verified, _ = verify_records(store.root, VerifySettings())
    assert not verified.findings
    assert len(verified.records) == 3
    assert verified.verified == []
    assert verified.repeatable == []
    assert set(verified.unscored.values()) == {PUBLISHED}


def test_an_edited_import_is_found(store: ResultStore) -> None:
    import_results(store, published_results(*three_models()))
    path = store.path(store.records()[0].place)
    data = json.loads(path.read_text())
    data["scores"][0]["value"] += 0.1
    path.write_text(json.dumps(data))
    verified, _ = verify_records(store.root, VerifySettings())
    assert {finding.check for finding in verified.findings} >= {"seal"}


def test_revisions_of_a_row_have_other_keys(store: ResultStore) -> None:
    rows = [published_run("a", [0.5] * 8, facts={"revision": revision}) for revision in ("1", "2")]
    keys = []
    for number, row in enumerate(rows):
        own = ResultStore(store.root.parent, f"c{number}")
        import_results(own, published_results(row))
        keys += [record.key for record in own.records()]
    assert len(set(keys)) == 2
    assert all(map(math.isfinite, (record.scores[0].value for record in own.records())))


def test_spellings_of_two_imports(store: ResultStore) -> None:
    import_results(store, published_results(published_run("SimCSE", [0.5] * 8)))
    with pytest.raises(InputError, match="simcse stands in this campaign as SimCSE"):
        import_results(store, published_results(published_run("simcse", [0.6] * 8)))
    assert len(store.records()) == 1


def test_one_import_at_a_time(store: ResultStore) -> None:
    store.prepare()
    with (
        FileLock(store.root / ".locks" / "import.lock"),
        pytest.raises(StorageError, match="another import into this campaign"),
    ):
        import_results(store, published_results(*three_models()))
    assert import_results(store, published_results(*three_models())).added == 3
