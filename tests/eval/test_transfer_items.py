"""Predicted classes of transfer tasks: scored again, drawn, tested and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import f1_score  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

from bench.comparison.item_bootstrap import NOT_AGAIN
from bench.data.suites import TRANSFER
from bench.data.tasks import LabelledTask
from bench.encoder import FloatArray
from bench.errors import BenchError
from bench.eval.rescoring import rescore_record
from bench.eval.transfer_items import order_by_length, scored_items
from bench.eval.transfer_suite import TransferSuite
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.stats.inputs import make_generator
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts

Tasks = dict[str, LabelledTask]
FEW = ("--draws", "200")
tasks = pytest.fixture(lambda transfer_tasks: transfer_tasks)


def gold_of(task: LabelledTask) -> NDArray[np.intp]:
    """Classes of the tested items, by hand."""
    splits = [split for split in task.splits if split.name == "test"] or list(task.splits)
    classes = sorted({label for split in task.splits for label in split.labels})
    return np.array([classes.index(label) for split in splits for label in split.labels])


def guesses(tasks: Tasks, seed: int, wrong: float) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    predictions = {}
    for name, task in tasks.items():
        gold = gold_of(task)
        missed = rng.random(len(gold)) < wrong
        predictions[name] = np.where(missed, (gold + 1) % (gold.max() + 1), gold).astype(np.float32)
    return predictions


def unscored(tasks: Tasks, method: str, seed: int) -> RunRecord:
    facts = {name: {"items": t.items, "sha256": t.sha256, "reference": False} for name, t in tasks.items()}
    made = make_record(method, seed, {"MR": 0.5}, suite="transfer7", metric="accuracy", name="noise")
    return replace(made, tasks=facts, options={"of": method}, probes={})


@pytest.fixture
def store(tasks: Tasks, tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results", "local")
    for number, (method, wrong) in enumerate((("one", 0.2), ("two", 0.4))):
        for seed in (1, 2):
            made = unscored(tasks, method, seed)
            predictions = guesses(tasks, 10 * number + seed, wrong)
            scores = TransferSuite("transfer7").rescore(list(tasks.values()), predictions, made)
            store.write(made.place, replace(made, scores=scores), predictions)
    return store


def record_of(store: ResultStore, method: str, seed: int) -> RunRecord:
    (record,) = (r for r in store.records() if (r.method, r.seed) == (method, seed))
    return record


def folds_by_hand(task: LabelledTask) -> list[NDArray[np.intp]]:
    """Rows of each of SentEval's ten folds, in the task's order."""
    gold, split = gold_of(task), scored_items(task).items
    order = order_by_length(split, {name: number for number, name in enumerate(scored_items(task).classes)})
    parts = StratifiedKFold(10, shuffle=True, random_state=1111).split(order, gold[order])
    return [order[held_out] for _, held_out in parts]


def test_scores_are_means_over_folds_or_those_of_the_test_split(tasks: Tasks) -> None:
    predictions = guesses(tasks, 3, 0.3)
    made = unscored(tasks, "one", 1)
    scores = TransferSuite("transfer7").rescore(list(tasks.values()), predictions, made)
    found = {(score.task, score.metric): score for score in scores}
    pooled = 0
    for name, task in tasks.items():
        right, gold = predictions[name] == gold_of(task), gold_of(task)
        folded = name not in ("SST2", "TREC", "MRPC")
        parts = folds_by_hand(task) if folded else [np.arange(len(gold))]
        assert sorted(np.concatenate(parts)) == list(range(len(gold)))
        assert found[name, "accuracy"].value == pytest.approx(np.mean([right[p].mean() for p in parts]))
        assert found[name, "accuracy"].n == len(gold)
        pooled += abs(found[name, "accuracy"].value - right.mean()) < 1e-6
    assert pooled < len(tasks)  # folds of unequal size: the mean over items is another number
    assert found["MRPC", "f1"].value == pytest.approx(f1_score(gold_of(tasks["MRPC"]), predictions["MRPC"]))
    assert found["avg", "accuracy"].value == pytest.approx(
        np.mean([found[name, "accuracy"].value for name in TRANSFER])
    )
    with pytest.raises(BenchError, match="MR: 47 predictions for 48"):
        TransferSuite("transfer7").rescore([tasks["MR"]], {"MR": predictions["MR"][1:]}, made)


@pytest.mark.parametrize("task", TRANSFER)
def test_one_edited_class_is_found(store: ResultStore, tasks: Tasks, task: str) -> None:
    record = record_of(store, "one", 1)
    predictions = store.predictions(record)
    assert rescore_record(record, tasks, predictions).wrong == ()
    gold = gold_of(tasks[task])
    row = int(np.flatnonzero(predictions[task] != gold)[0])
    predictions[task][row] = gold[row]
    found = rescore_record(record, tasks, predictions).wrong
    wrong = {line.split(" is ")[0] for line in found}
    assert {f"{task} all accuracy", "avg all accuracy"} <= wrong
    assert ("MRPC all f1" in wrong) == (task == "MRPC")
    assert len(found) == 2 + (task == "MRPC")


def as_json(cli: Cli, *arguments: str) -> Any:
    code, out, err = cli(*arguments, "--format", "json", *FEW)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_checkpoints_are_compared_over_items(cli: Cli, store: ResultStore, tasks: Tasks, data: Path) -> None:
    (found,) = as_json(cli, "compare", "one#1", "two#1", "--data", str(data))
    sides = [store.predictions(record_of(store, method, 1)) for method in ("one", "two")]
    (pair,) = found["item_level"]["checkpoints"]
    assert (pair["williams"], pair["steiger"]) == ({}, {})
    for name in ("MRPC", "MR"):
        gold = gold_of(tasks[name])
        right = np.stack([side[name] == gold for side in sides])
        weights = np.ones(len(gold))
        for part in folds_by_hand(tasks[name]) if name == "MR" else ():
            weights[part] = len(gold) / (10 * len(part))
        chosen = make_generator(1, f"items/{name}").integers(0, len(gold), (200, len(gold)))
        a, b = np.clip((weights * right)[:, chosen].mean(2), 0, 1)
        d = found["item_level"]["tasks"][name]
        assert (d["low"], d["high"]) == pytest.approx(np.quantile(a - b, [0.025, 0.975]), abs=1e-6)
        assert d["low"] <= d["difference"] <= d["high"]
        only = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
        test = pair["mcnemar"][name]
        assert (test["only_first"], test["only_second"], test["n"]) == (*only, len(gold))
        assert test["p"] == pytest.approx(binomtest(only[0], sum(only)).pvalue)
    assert "one#1 - two#1 = +" in found["verdict"]
    statements = " ".join(found["statements"])
    assert missing_facts(statements, "McNemar", "Williams", NOT_AGAIN) == ["Williams", NOT_AGAIN]
    code, out, _ = cli("compare", "one", "two", "--data", str(data), *FEW)
    assert code == 0
    assert not missing_facts(out, "tasks (of 7)", "further test items: ")


def test_every_record_has_intervals(cli: Cli, store: ResultStore, data: Path) -> None:
    found = as_json(cli, "stats", "--data", str(data))
    assert len(found["records"]) == 4
    for record in found["records"]:
        for name in (*TRANSFER, "avg"):
            low, high = record["intervals"][name]
            assert 0 < low < record["scores"][name] < high <= 1


def test_what_two_runs_classify_differently(
    cli: Cli, store: ResultStore, tasks: Tasks, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    asked = ("--data", str(data), "--task", "TREC", "-n", "200")
    code, out, err = cli("diff", "one", "two", "--seed", "2", *asked)
    assert (code, err) == (0, "")
    a, b = (store.predictions(record_of(store, method, 2))["TREC"] for method in ("one", "two"))
    gold, classes = gold_of(tasks["TREC"]), scored_items(tasks["TREC"]).classes
    (split,) = (split for split in tasks["TREC"].splits if split.name == "test")
    change = (b == gold).astype(int) - (a == gold)
    differs = np.flatnonzero(a != b)
    order = sorted(differs, key=lambda i: change[i] == 0)
    lines = [line for line in out.splitlines()[4:-1] if line.strip()]
    assert not missing_facts(out, "TREC (72 items)", "one, seed 2", "two, seed 2")
    assert len(lines) == len(differs)
    for i, line in zip(order, lines, strict=True):
        words = {1: "right in B", -1: "right in A", 0: "wrong in both"}[change[i]]
        shown = [words, *(classes[int(side[i])] for side in (a, b, gold)), split.first[i]]
        assert " ".join(line.split()) == " ".join(shown)


def better(facts: dict[str, Any]) -> None:
    for score in facts["scores"]:
        score["value"] += {"MR": 0.05, "avg": 0.05 / 7}.get(score["task"], 0)


def test_edited_accuracy(cli: Cli, store: ResultStore, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = ("compare", "one#1", "two#1", *FEW)
    monkeypatch.delenv("BENCH_DATA", raising=False)
    code, _, err = cli(*compared)
    assert (code, "needs evaluation data" in err) == (2, True)
    assert cli(*compared, "--data", str(data))[0] == 0
    code, out, err = cli(*compared)  # the draws are kept
    assert (code, err) == (0, "")
    assert out.count(NOT_AGAIN) == 1
    assert "McNemar" not in out
    code, out, err = cli("stats", *FEW)
    assert code == 0
    assert not missing_facts(err, "items left out", "needs evaluation data")  # seed 2 has no draws
    path = store.path(record_of(store, "one", 1).place)
    forge(path, better)
    for arguments in (compared, (*compared, "--data", str(data)), ("stats", *FEW)):
        code, out, err = cli(*arguments)
        assert (code, out, str(path.relative_to(Path.cwd())) in err) == (2, "", True)
        assert "predictions give 0." in err
