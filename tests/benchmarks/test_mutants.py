"""The planted errors apply and change the code; the gate's answers to them are told apart; false alarms."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.records.record import RunRecord
from bench.records.store import ResultStore
from tests.support.campaigns import make_record

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The script and its parts, as ``python benchmarks/mutants.py`` finds them."""
    names = ("mutations", "mutants", "alarms")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in names}
    yield SimpleNamespace(**modules)
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """The committed reference's cheapest row alone."""
    folder = tmp_path / "reference"
    shutil.copytree(REFERENCE / "mini" / "word_overlap", folder / "mini" / "word_overlap")
    return folder


def planted(scripts: SimpleNamespace, name: str, **changes: str) -> Any:
    (found,) = (each for each in scripts.mutations.MUTATIONS if each.name == name)
    return replace(found, **changes)


def test_every_error_applies_once_and_changes_the_code(scripts: SimpleNamespace) -> None:
    mutations = scripts.mutations
    apart = (*mutations.PROMPTED, *mutations.BIDIRECTIONAL, *mutations.MIRRORED)
    for mutation in (*mutations.MUTATIONS, *apart):
        before = (ROOT / mutation.file).read_text(encoding="utf-8")
        after = ast.parse(mutation.applied(ROOT))  # raises where its text isn't there once
        assert ast.dump(after) != ast.dump(ast.parse(before)), mutation.name


def test_there_are_errors_of_every_kind(scripts: SimpleNamespace) -> None:
    mutations = scripts.mutations.MUTATIONS
    assert len({each.name for each in mutations}) == len(mutations) >= 28
    assert {"metric", "aggregation", "split", "labels shuffled"} <= {each.group for each in mutations}
    assert {"pooling", "tokenisation", "truncation", "precision"} <= {each.group for each in mutations}
    assert {"loss", "temperature", "dropout", "queue", "EMA reversed"} <= {each.group for each in mutations}
    assert {"seed ignored", "checkpoint reversed", "batch order"} <= {each.group for each in mutations}
    questions = {"rescore", "recompute", "retrain", "refused", "known value"}
    assert {each.expected for each in mutations} == questions


@pytest.mark.parametrize(
    ("changes", "times"),
    [({"old": "a text that nobody wrote"}, 0), ({"old": "rankdata"}, 2), ({"file": "bench/gone.py"}, 0)],
)
def test_an_error_that_no_longer_applies_says_so(
    scripts: SimpleNamespace, changes: dict[str, str], times: int
) -> None:
    mutation = planted(scripts, "pearson", **changes)
    with pytest.raises(scripts.mutations.DoesNotApplyError, match="'pearson' no longer applies") as caught:
        mutation.applied(ROOT)
    assert f"stands {times} times in {mutation.file}" in str(caught.value)
    row = scripts.mutants.tried(mutation, REFERENCE, (), 1)
    assert (row.outcome, row.cpu_seconds) == ("does not apply", 0)


def verdict(*statuses: str, drop: float | None = None, **more: Any) -> dict[str, Any]:
    cells = [
        {
            "status": status,
            "question": "recompute",
            "stage": "similarities" if status == "changed" else None,
            "drops": {} if drop is None else {"avg": {"drop": drop}},
        }
        for status in statuses
    ]
    return {"sentence": "in words", "cells": cells, **more}


@pytest.mark.parametrize(
    ("code", "said", "outcome", "by"),
    [
        (0, verdict("equal", "ok", "unclear", "improved"), "missed", ""),
        (1, verdict("equal", "changed"), "caught", "recompute: changed"),
        (1, verdict("regression", "changed"), "caught", "recompute: regression"),
        (1, verdict("ok", overall=verdict("regression")["cells"][0]), "caught", "recompute: regression"),
        (1, verdict("failed"), "caught", "recompute: failed"),
        (1, verdict("ok", wrong_values=verdict("failed")["cells"]), "caught", "recompute: failed"),
        (1, None, "crashed", "exit code 1"),  # an internal error has that code too
        (1, verdict("ok"), "crashed", "exit code and verdict differ"),
        (0, verdict("changed"), "crashed", "exit code and verdict differ"),
        (0, None, "crashed", "exit code 0"),
        (2, None, "refused", "exit code 2"),
        (3, verdict("different"), "refused", "exit code 3"),
        (-9, None, "crashed", "exit code -9"),
        (None, None, "too slow", ""),
    ],
)
def test_outcomes_are_told_apart(
    scripts: SimpleNamespace, code: int | None, said: Mapping[str, Any] | None, outcome: str, by: str
) -> None:
    row = scripts.mutants.judged("name", "group", scripts.mutants.Ran(code, said, "last line", 1.5))
    assert (row.name, row.group, row.outcome, row.by, row.cpu_seconds) == ("name", "group", outcome, by, 1.5)
    assert row.said == ("last line" if said is None or outcome == "crashed" else "in words")
    assert row.stage == ("similarities" if by == "recompute: changed" else "")


def test_the_largest_change_is_shown(scripts: SimpleNamespace) -> None:
    cells = [*verdict("ok", drop=0.02)["cells"], *verdict("ok", drop=-0.4)["cells"], *verdict("ok")["cells"]]
    assert scripts.mutants.moved(cells) == pytest.approx(40)
    assert scripts.mutants.moved(cells[:1]) == pytest.approx(-2)
    assert scripts.mutants.moved(cells[2:]) is None


def test_the_table_and_its_totals(scripts: SimpleNamespace) -> None:
    row = scripts.mutants.Row
    here = [
        row("(nothing)", "", "missed", cpu_seconds=100),
        row("one", "loss", "caught", "retrain: changed", "training of sub1", -1.234, 99.6),
        row("two", "split", "refused", "exit code 3", cpu_seconds=2),
        row("three", "loss", "missed", points=-0.0, cpu_seconds=100),
    ]
    text = scripts.mutants.shown({"here": here, "elsewhere": here[:2]}).splitlines()
    assert text[2] == "| (nothing) |  | passes |  | 100 | passes |  | 100 |"
    assert text[3].startswith("| one | loss | retrain: changed, training of sub1 | -1.23 | 100 | retrain")
    assert text[4] == "| two | split | **REFUSED** (exit code 3) |  | 2 | | | |"
    assert text[5] == "| three | loss | **MISSED** | +0.00 | 100 | | | |"
    assert len({line.count("|") for line in text}) == 1
    assert scripts.mutants.totals("here", here) == "here: 1 of 3 caught, 1 refused, 1 missed; 302 CPU s"


def test_what_a_run_passes_on(scripts: SimpleNamespace) -> None:
    row = scripts.mutants.Row
    unchanged, refused = row("(nothing)", "", "missed"), row("data", "", "refused")
    caught = [row(f"caught {i}", "", "caught") for i in range(22)]
    missed = [row(f"missed {i}", "", "missed") for i in range(3)]
    passed = scripts.mutants.passed
    assert passed([unchanged, *caught, *missed[:2], refused])
    assert not passed([unchanged, *caught, *missed])
    assert not passed([replace(unchanged, outcome="caught"), *caught])
    for outcome in ("crashed", "too slow", "does not apply"):
        assert not passed([unchanged, *caught, row("broken", "", outcome)])


def test_names_are_chosen(scripts: SimpleNamespace) -> None:
    chosen = scripts.mutants.chosen
    assert chosen(None) == [None, *scripts.mutations.MUTATIONS]
    assert [each and each.name for each in chosen("pearson,(nothing)")] == ["pearson", None]
    with pytest.raises(SystemExit, match="--only: no planted error 'spearman'; expected some of"):
        chosen("pearson,spearman")


def test_rows_are_kept_until_anything_changes(scripts: SimpleNamespace, tmp_path: Path) -> None:
    table, file = scripts.mutants.Table, tmp_path / "rows.json"
    mutation = planted(scripts, "pearson")
    row = scripts.mutants.Row("pearson", "metric", "caught", "rescore: changed", "scores", -1.0, 3.0, "said")
    table(file, "key", "here").add(mutation, row)
    table(file, "key", "elsewhere").add(None, replace(row, name="(nothing)"))
    assert table(file, "key", "here").find(mutation) == row
    assert table(file, "key", "elsewhere").find(None) == replace(row, name="(nothing)")
    assert table(file, "key", "elsewhere").find(mutation) is None
    assert table(file, "other", "here").find(mutation) is None
    assert table(file, "key", "here").find(replace(mutation, new="x, y = gold, gold")) is None
    assert table(None, "key", "here").find(mutation) is None


def test_the_key_follows_code_reference_and_options(scripts: SimpleNamespace, reference: Path) -> None:
    key = scripts.mutants.fingerprint
    first = key(reference, ("--strict",), False)
    assert first == key(reference, ("--strict",), False)
    assert first != key(reference, (), False)
    assert first != key(reference, ("--strict",), True)
    next(reference.rglob("*.npz")).write_bytes(b"other")
    assert first != key(reference, ("--strict",), False)


def test_a_reference_from_elsewhere(scripts: SimpleNamespace, reference: Path) -> None:
    (before,) = ResultStore(reference.parent, reference.name).records()
    with scripts.mutants.from_elsewhere(reference) as folder:
        store = ResultStore(folder.parent, folder.name)
        (record,) = store.records()  # whole, and sealed anew
        assert record.timing["processor"] == "another processor" != before.timing["processor"]
        assert store.predictions(record).keys() == {"MINI"}
        assert (record.scores, record.key) == (before.scores, before.key)
    assert not folder.exists()


@pytest.mark.slow
def test_the_gate_judges_the_copy(scripts: SimpleNamespace, reference: Path) -> None:
    """A whole gate of one cell, in a process of its own; the checkout stays as it is."""
    error = planted(scripts, "case_kept")
    before = (ROOT / error.file).read_bytes()
    row = scripts.mutants.tried(error, reference, (), 120)
    assert row.outcome == "caught", row
    assert row.points == pytest.approx(-3.47, abs=0.01)
    assert 0.5 < row.cpu_seconds < 60
    assert scripts.mutants.tried(None, reference, (), 120).outcome == "missed"
    assert (ROOT / error.file).read_bytes() == before


def test_a_gate_is_stopped_at_its_limit(scripts: SimpleNamespace, reference: Path) -> None:
    assert scripts.mutants.tried(None, reference, (), 0.05).outcome == "too slow"


@pytest.fixture
def rows() -> dict[str, list[RunRecord]]:
    """Two rows of three seeds."""
    return {
        name: [make_record(name, seed, {"MINI": 0.5}, suite="mini") for seed in (1, 2, 3)]
        for name in ("one", "two")
    }


@pytest.mark.parametrize("same", [True, False])
def test_gates_over_unchanged_code(
    scripts: SimpleNamespace, rows: Any, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    pool = {
        name: {str(seed): start + seed / 100 for seed in range(8)}
        for name, start in (("one", 0), ("two", 0.5))
    }
    seen: list[tuple[list[RunRecord], list[RunRecord]]] = []

    def judge(then: list[RunRecord], now: list[RunRecord], *, tolerance: float) -> Any:
        assert tolerance == 0.001
        seen.append((then, now))
        return SimpleNamespace(exit_code=int(len(seen) % 4 == 1))

    monkeypatch.setattr(scripts.alarms, "judge", judge)
    assert scripts.alarms.alarms(rows, pool, same_numbers=same, tolerance=0.001, gates=8) == 2
    for then, now in seen:
        cells = {record.method for record in then}
        assert len(cells) == 10
        for cell in cells:
            one, other = ([record for record in side if record.method == cell] for side in (then, now))
            assert [record.seed for record in one] == [1, 2, 3]
            assert [record.seed for record in other] == ([1, 2, 3] if same else [4, 5, 6])
            drawn = {record.score("avg") for record in (*one, *other)}
            assert len(drawn) == 6
            assert drawn <= set(pool[cell.split("-")[0]].values())


def test_a_difference_is_counted(
    scripts: SimpleNamespace, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real judge: draws of one method pass, and where the new ones fall by 20 points every gate fails."""
    pool = {name: {str(seed): 0.5 + seed / 1000 for seed in range(8)} for name in rows}
    count = scripts.alarms.alarms
    assert count(rows, pool, same_numbers=False, tolerance=0.005, gates=5) == 0
    drawn = scripts.alarms.drawn

    def worse(template: RunRecord, cell: int, seed: int, value: float, processor: str) -> RunRecord:
        return drawn(template, cell, seed, value - 0.2 * (processor == "another"), processor)  # type: ignore[no-any-return]

    monkeypatch.setattr(scripts.alarms, "drawn", worse)
    assert count(rows, pool, same_numbers=False, tolerance=0.005, gates=5) == 5


def test_a_pool_is_trained_once(
    scripts: SimpleNamespace, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, int]] = []

    def score(record: RunRecord, seed: int) -> float:
        trained.append((record.method, seed))
        return seed / 10_000

    monkeypatch.setattr(scripts.alarms, "score", score)
    file = tmp_path / "pool.json"
    assert scripts.alarms.fill(file, rows, 2)["two"] == {"1001": 0.1001, "1002": 0.1002}
    assert scripts.alarms.fill(file, rows, 3).keys() == {"one", "two"}
    assert trained == [(name, seed) for seeds in ((1001, 1002), (1003,)) for name in rows for seed in seeds]
    assert all(len(scores) == 3 for scores in json.loads(file.read_text()).values())
    other = {"one": [replace(rows["one"][0], options={"lr": 1.0})]}
    scripts.alarms.fill(file, other, 1)
    assert trained[-1] == ("one", 1001)  # other options, other scores
    with pytest.raises(SystemExit, match="one has 3 seeds in the pool, a gate needs 6"):
        scripts.alarms.alarms(
            rows, scripts.alarms.fill(file, rows, 3), same_numbers=True, tolerance=0.005, gates=1
        )


def test_the_share_of_false_alarms_decides(
    scripts: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One row of five seeds; its pool is filled already. 5 of 100 gates may fail, 6 may not."""
    alarms = scripts.alarms
    store = ResultStore(tmp_path, "reference")
    store.prepare()
    for seed in range(1, 6):
        made = make_record("row", seed, {"MINI": 0.5 + seed / 1000}, suite="mini")
        store.write(made.place, made, {"MINI": np.full(1800, seed, dtype=np.float32)})
    monkeypatch.setattr(alarms, "score", lambda record, seed: seed / 10_000)
    found = {(True, 0.005): 5, (False, 0.005): 0, (True, 0.0): 5, (False, 0.0): 5}
    monkeypatch.setattr(
        alarms, "alarms", lambda *_, same_numbers, tolerance, gates: found[same_numbers, tolerance]
    )
    count = partial(alarms.count_alarms, tmp_path / "reference", tmp_path / "pool.json", seeds=10, gates=100)
    assert count() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row: 10 seeds, mean 10.05, sd 0.03 points"
    assert lines[1].endswith("same numbers, tolerance 0.5: 5 of 100 gates fail, 5.0% [1.6, 11.3]")
    assert [line.split(", ")[2:4] for line in lines[2:]] == [
        ["other seeds", "tolerance 0.5: 0 of 100 gates fail"],
        ["same numbers", "tolerance 0: 5 of 100 gates fail"],
        ["other seeds", "tolerance 0: 5 of 100 gates fail"],
    ]
    found[False, 0.0] = 6
    assert count() == 1
