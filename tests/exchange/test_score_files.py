"""``bench export --layout csv`` and ``items``: what a reader of the file gets is what the records say."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.data.data_source import DataSource
from bench.data.sentence_clusters import cluster_items
from bench.data.suites import load_suite
from bench.exchange import score_files
from bench.exchange.record_choice import choose_records
from bench.imports.item_table import read_item_table
from bench.imports.score_table import read_score_table
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from tests.support.campaigns import make_record, with_last
from tests.support.cli import Cli, records, refusal
from tests.support.house import ROOT
from tests.support.messages import missing_facts

COMMITTED = ("--results", str(ROOT / "results"), "--campaign")
FEW = ("--set", "noise.scale=2")
Place = tuple[str, str, str]


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def seed_of(record: RunRecord) -> str:
    return "" if record.seed is None else str(record.seed)


def scores_of(found: dict[str, RunRecord]) -> dict[Place, float | None]:
    """By method, seed and task."""
    return {
        (record.method, seed_of(record), task): record.score(task)
        for record in found.values()
        for task in record.tasks
    }


@pytest.fixture
def toy(cli: Cli, tmp_path: Path) -> dict[str, RunRecord]:
    """A campaign of the toy suite: a method with options and seeds, one without a seed, failed cells."""
    base = ("run", "--suite", "toy")
    assert cli(*base, "--methods", "noise,word_overlap", "--seeds", "1-2", *FEW)[0] == 0
    assert cli(*base, "--methods", "broken", "--seeds", "1-2")[0] == 1
    found = {name: record for name, record in records(tmp_path).items() if record.status == "ok"}
    assert len(found) == 4
    return found


def test_a_row_a_score(cli: Cli, tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    code, out, err = cli("export", "--layout", "csv", "--out", "scores.csv")
    assert (code, out) == (0, "scores.csv: 4 scores\n")
    assert "left out: mini broken seed 2 on toy: failed: RuntimeError: no luck" in err
    raw = (tmp_path / "scores.csv").read_bytes()
    assert raw.startswith(b"method,seed,task,metric,score\n")
    assert (raw.count(b"\n"), b"\r" in raw) == (5, False)
    rows = read_rows(tmp_path / "scores.csv")
    written = {(row["method"], row["seed"], row["task"]): float(row["score"]) for row in rows}
    assert written == scores_of(toy)
    assert {(row["method"], row["seed"]) for row in rows} > {("noise[scale=2.0]", "2"), ("word_overlap", "")}
    assert {row["metric"] for row in rows} == {"spearman"}


def test_bench_reads_the_scores_back(cli: Cli, tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    assert cli("export", "--layout", "csv", "--out", "scores.csv")[0] == 0
    results = read_score_table(tmp_path / "scores.csv")
    read = {
        (run.method, "" if run.seed is None else str(run.seed), score.task): (score.metric, score.value)
        for run in results.runs
        for score in run.scores
    }
    expected = {
        (record.method, seed_of(record), task): ("spearman", record.score(task))
        for record in toy.values()
        for task in ("TOY", "avg")
    }
    assert (read, results.left_out) == (expected, {})


def test_a_row_an_item(cli: Cli, tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    assert cli("export", "--layout", "items", "--out", "items.csv")[:2] == (0, "items.csv: 720 items\n")
    rows = read_rows(tmp_path / "items.csv")
    assert list(rows[0]) == ["method", "seed", "task", "metric", "item", "gold", "prediction", "group"]
    (task,) = load_suite("toy")[1]
    gold = [value for subset in task.subsets for value in subset.gold]
    by_run: dict[Place, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_run[row["method"], row["seed"], row["task"]].append(row)
    store = ResultStore(tmp_path / "results", "local")
    predictions = {
        (record.method, seed_of(record), "TOY"): store.predictions(record)["TOY"] for record in toy.values()
    }
    assert by_run.keys() == predictions.keys()
    for place, items in by_run.items():
        assert [row["item"] for row in items] == [str(number) for number in range(1, 181)]
        assert [float(row["gold"]) for row in items] == gold
        written = np.array([float(row["prediction"]) for row in items])
        assert (written.astype(np.float32) == predictions[place]).all()
        texts = [row["prediction"] for row in items]
        assert texts == [str(value) for value in predictions[place]]  # as short as float32 allows
        assert spearmanr(written, gold).statistic == pytest.approx(scores_of(toy)[place], abs=1e-12)
    assert {row["group"] for row in rows} == {"0"}  # each sentence is in several pairs


def test_bench_reads_the_items_back(cli: Cli, tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    assert cli("export", "--layout", "items", "--out", "items.csv")[0] == 0
    results = read_item_table(tmp_path / "items.csv")
    read = {
        (run.method, "" if run.seed is None else str(run.seed), score.task): score.value
        for run in results.runs
        for score in run.scores
        if score.task != "avg"
    }
    assert read == pytest.approx(scores_of(toy), abs=1e-12)


@pytest.mark.data
def test_all_tasks_of_sts7_by_item(cli: Cli, tmp_path: Path, data_dir: Path) -> None:
    base = ("export", "--layout", "items", *COMMITTED, "minilm", "--methods", "word_overlap")
    code, out, err = cli(*base, "--data", str(data_dir), "--out", "items.csv")
    assert (code, out, "left out" in err) == (0, "items.csv: 18,850 items\n", False)
    (run,) = read_item_table(tmp_path / "items.csv").runs
    store = ResultStore(ROOT / "results", "minilm")
    (record,) = (each for each in store.records() if each.method == "word_overlap")
    read = {score.task: score.value for score in run.scores}
    assert read == pytest.approx({task: record.score(task) for task in (*record.tasks, "avg")}, abs=1e-12)
    # items that share a sentence are a group, over tasks too
    pairs = [list(task.all_pairs()) for task in load_suite("sts7", DataSource(data_dir))[1]]
    groups = np.concatenate(cluster_items(pairs)).tolist()
    assert [int(row["group"]) for row in read_rows(tmp_path / "items.csv")] == groups
    # without the data there is no gold
    said = refusal(cli, *base, "--data", str(tmp_path), "--out", "none.csv")
    assert "SentEval" in said
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.slow
def test_classes_by_item_and_what_has_none(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "noise", "--seeds", "1", "--suite", "mini-transfer,mini-contrast")[0] == 0
    base = ("export", "--layout", "items", "--out", "items.csv", "--suite")
    code, _, err = cli(*base, "mini-transfer")
    assert (code, "left out" in err) == (0, False)
    found = records(tmp_path)
    record = next(each for each in found.values() if each.suite == "mini-transfer")
    (run,) = read_item_table(tmp_path / "items.csv").runs
    read = {score.task: score.value for score in run.scores}
    assert read == pytest.approx({task: record.score(task) for task in (*record.tasks, "avg")}, abs=1e-12)
    assert {score.metric for score in run.scores} == {"accuracy"}
    os.remove(tmp_path / "items.csv")
    code, _, err = cli(*base, "mini-contrast")
    assert (code, "nothing of these records can be written" in err) == (2, True)
    assert err.count("left out: mini-contrast") == 5
    assert not (tmp_path / "items.csv").exists()


def test_a_score_that_the_items_do_not_give_is_left_out(
    cli: Cli, tmp_path: Path, toy: dict[str, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a mean over folds; the check is by the score, so the form's own formula must give it."""
    monkeypatch.setattr(score_files, "spearman", lambda *values: 0.125)
    code, _, err = cli("export", "--layout", "items", "--out", "items.csv")
    assert (code, "left out: toy TOY: its score isn't one over all items (4 runs)" in err) == (2, True)


def test_imported_items_leave_as_they_came(cli: Cli, tmp_path: Path) -> None:
    lines = ["method,seed,task,item,gold,prediction,group"]
    answers = {"one": "ababab", "two": "abbaab"}
    for method, labels in answers.items():
        lines += [
            f"{method},1,T,{n + 1},{gold},{label},{n // 2}"
            for n, (gold, label) in enumerate(zip("aabbab", labels, strict=True))
        ]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    assert cli("import", "items:in.csv", "--into", "local")[0] == 0
    assert cli("export", "--layout", "items", "--out", "out.csv")[0] == 0
    columns = ("method", "seed", "task", "item", "gold", "prediction", "group")
    rows = [
        [[row[name] for name in columns] for row in read_rows(tmp_path / name)]
        for name in ("in.csv", "out.csv")
    ]
    assert sorted(rows[0]) == sorted(rows[1])
    assert cli("export", "--layout", "csv", "--out", "scores.csv")[0] == 0
    scores = {row["method"]: float(row["score"]) for row in read_rows(tmp_path / "scores.csv")}
    assert scores == {"one": 4 / 6, "two": 4 / 6}


def test_scores_of_last_checkpoints_stay_out(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    record = with_last(make_record("a,b[c=1]", 1, {"STS12": 0.1 + 0.2, "STSB": -1e-17}), 0.25)
    store.write(record.place, record, None)
    code, _, err = cli("export", "--layout", "csv", "--out", "scores.csv")
    assert (code, "note: Scores not recomputed: no predictions." in err) == (0, True)
    rows = [list(row.values()) for row in read_rows(tmp_path / "scores.csv")]
    assert rows == [
        ["a,b[c=1]", "1", "STS12", "spearman", "0.30000000000000004"],
        ["a,b[c=1]", "1", "STSB", "spearman", "-1e-17"],
    ]


@pytest.mark.parametrize("layout", ["csv", "items"])
def test_one_table_has_one_suite_of_one_profile(cli: Cli, tmp_path: Path, layout: str) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for suite, profile in (("sts7", "mini"), ("stsb-dev", "mini"), ("sts7", "minilm")):
        record = make_record("simcse", 1, {"STSB": 0.5}, suite=suite, profile=profile)
        store.write(record.place, record, None)
    base = ("export", "--layout", layout, "--out", "table.csv")
    assert missing_facts(refusal(cli, *base), "2 profiles", "--profile", "mini, minilm") == []
    said = refusal(cli, *base, "--profile", "mini")
    assert missing_facts(said, "2 suites", "--suite", "sts7, stsb-dev") == []
    said = refusal(cli, *base, "--profile", "tiny")
    assert missing_facts(said, "--profile", "'tiny'", "mini, minilm") == []
    assert missing_facts(refusal(cli, *base, "--suite", "sts"), "--suite", "'sts'", "sts7") == []
    assert missing_facts(refusal(cli, *base, "--methods", "simcs"), "--methods", "simcs", "simcse") == []
    if layout == "csv":
        assert cli(*base, "--profile", "mini", "--suite", "sts7")[0] == 0
    else:
        assert not (tmp_path / "table.csv").exists()


def test_other_data_and_other_specifications_share_no_table(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    one = make_record("simcse", 1, {"STSB": 0.5})
    store.write(one.place, one, None)
    base = ("export", "--layout", "csv", "--out", "table.csv")
    seed = make_record("simcse", 2, {"STSB": 0.5}, corpus=("other.txt", 5))
    seed.training["corpus"]["sha256"] = "d" * 64
    store.write(seed.place, seed, None)
    said = refusal(cli, *base, code=3)
    assert missing_facts(said, "simcse", "different specifications", "sts7") == []
    store.path(seed.place).unlink()
    other = replace(
        make_record("tncse", 1, {"STSB": 0.5}),
        tasks={"STSB": {"sha256": "e" * 64, "reference": False, "pairs": 10}},
    )
    store.write(other.place, other, None)
    said = refusal(cli, *base, code=3)
    assert missing_facts(said, "simcse and tncse", "other versions of STSB", "--methods") == []
    assert cli(*base, "--methods", "tncse")[0] == 0


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("export simcse --layout csv --out x", ("METHOD", "not for --layout")),
        ("export --layout csv --out x --seed 1", ("--seed", "not for --layout")),
        ("export --layout csv --out x --vectors t", ("--vectors", "not for --layout")),
        ("export --layout csv --out x --set simcse.lr=1", ("--set", "not for --layout")),
        ("export simcse --seed 1 --out x --methods simcse", ("--methods", "for --layout")),
        ("export --out x", ("METHOD or --layout",)),
        ("export --layout csv --out no/x", ("--out no/x", "no such folder")),
        ("export --layout csv --out here", ("--out here", "exists already")),
        ("export --layout csv --out x", ("no campaign 'local'",)),
        ("export --layout xls --out x", ("--layout", "xls", "mteb", "csv", "items")),
    ],
)
def test_an_export_of_scores_refuses_what_it_does_not_take(
    cli: Cli, tmp_path: Path, words: str, facts: tuple[str, ...]
) -> None:
    (tmp_path / "here").write_text("kept")
    assert missing_facts(refusal(cli, *words.split()), *facts) == []
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert (tmp_path / "here").read_text() == "kept"


def test_a_contradicting_record_is_refused(cli: Cli, tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    store = ResultStore(tmp_path / "results", "local")
    (record,) = (each for each in toy.values() if each.method == "word_overlap")
    scores = tuple(replace(score, value=0.99) for score in record.scores)
    store.write(record.place, replace(record, scores=scores), store.predictions(record))
    said = refusal(cli, "export", "--layout", "csv", "--out", "scores.csv")
    assert missing_facts(said, "word_overlap", "its predictions give") == []
    # another row isn't concerned
    assert cli("export", "--layout", "csv", "--methods", "noise[scale=2.0]", "--out", "scores.csv")[0] == 0


def test_a_table_is_written_whole_or_not_at_all(
    tmp_path: Path, cli: Cli, toy: dict[str, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())

    def fail(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(score_files, "format_seed", fail)
    code, _, err = cli("export", "--layout", "csv", "--out", "scores.csv")
    assert (code, "No space left on device" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_records_come_in_the_order_of_methods(tmp_path: Path, toy: dict[str, RunRecord]) -> None:
    store = ResultStore(tmp_path / "results", "local")
    chosen = choose_records(store, None, methods="word_overlap,noise[scale=2.0]")
    assert [record.method for record in chosen.records] == ["word_overlap", *["noise[scale=2.0]"] * 2]
    assert chosen.left_out.lines() == []


def test_similarities_of_mteb_by_item(cli: Cli, tmp_path: Path) -> None:
    words = ("--suite", "mini-mteb", "--methods", "untrained[pooling=avg]")
    code, out, err = cli("export", "--layout", "items", *COMMITTED, "reproduce", *words, "--out", "items.csv")
    assert (code, out) == (0, "items.csv: 200 items\n")
    assert err.count("left out: mini-mteb Mini") == 7
    rows = read_rows(tmp_path / "items.csv")
    (record,) = (
        each
        for each in ResultStore(ROOT / "results", "reproduce").records()
        if (each.method, each.suite) == ("untrained[pooling=avg]", "mini-mteb")
    )
    gold, predicted = ([float(row[name]) for row in rows] for name in ("gold", "prediction"))
    assert spearmanr(predicted, gold).statistic == pytest.approx(record.score("MiniSTS"), abs=1e-12)
    assert {(row["task"], row["metric"]) for row in rows} == {("MiniSTS", "spearman")}
