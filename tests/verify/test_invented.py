"""Scores that no suite has, and an average that isn't the suite's, are found wherever they stand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.errors import InputError
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.verified import ONE, found_by_verify, where

Edit = Callable[[dict[str, Any]], object]
CHECK = ("check", "--reference", "results/local", "--results", "results")
REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "mini"


def invented(record: dict[str, Any], metric: str = "SPEARMAN", task: str = "", at: int = 0) -> None:
    """Put scores of another metric among the record's own, which stay as they are."""
    rows = [("TOY", 180), ("avg", 1)] if not task else [(task, 1)]
    new = [{"task": t, "subset": "all", "metric": metric, "value": 0.99, "n": n} for t, n in rows]
    record["scores"][at:at] = new


@pytest.mark.parametrize(
    "edit",
    [
        invented,
        partial(invented, metric="accuracy"),
        partial(invented, at=9),
        partial(invented, task="avg"),
        partial(invented, task="TOY", at=9),
        partial(invented, metric="spearman_last"),  # of a method that doesn't train
        lambda record: record["scores"].insert(
            0, {"task": "TOY", "subset": "dev", "metric": "accuracy", "value": 0.9, "n": 9}
        ),
    ],
)
def test_a_metric_that_the_suite_does_not_have(results: Cli, edit: Edit) -> None:
    forge(ONE, edit)
    assert found_by_verify(results) == {where(ONE): {"score"}}
    for words in (("compare", "noise", "word_overlap"), CHECK):
        code, out, err = results(*words)
        assert (code, "noise" in err, "0.99" in out) == (2, True, False), (out, err)


def test_another_average_is_found_without_the_data(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_data(*asked: object) -> None:
        raise InputError("suite 'toy' needs evaluation data")

    monkeypatch.setattr("bench.eval.rescoring._load_suite", no_data)
    assert found_by_verify(results) == {}
    forge(ONE, invented)
    assert found_by_verify(results) == {where(ONE): {"score"}}
    assert missing_facts(results("verify")[1], "is of SPEARMAN", "suite toy", "of spearman") == []


def test_scores_of_the_last_checkpoint_are_known(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "results" / "local" / "mini" / "esimcse_short" / "seed-1" / "mini.json"
    shutil.copytree(REFERENCE / "esimcse_short" / "seed-1", path.parent)
    code, out, _ = cli("verify")
    assert (code, missing_facts(out, "not checked: scores", "spearman_last (2)")) == (0, []), out
    forge(path, lambda record: record["scores"][-1].update(metric="spearman_final"))
    assert found_by_verify(cli) == {where(path.relative_to(tmp_path)): {"score"}}


def test_scores_of_mteb_without_predictions_are_nobodys(cli: Cli, tmp_path: Path) -> None:
    """bench keeps some of what mteb measures, always: a record that names none was not made by it."""
    source = REFERENCE.parents[1] / "reproduce" / "mini" / "untrained[pooling=avg]" / "no-seed"
    path = tmp_path / "results" / "local" / "mini" / source.parent.name / source.name / "mini-mteb.json"
    path.parent.mkdir(parents=True)
    for kept in source.glob("mini-mteb.*"):
        shutil.copy(kept, path.parent)
    name = where(path.relative_to(tmp_path))
    assert found_by_verify(cli) == {}

    def miscounted(record: dict[str, Any]) -> None:
        for facts in record["tasks"].values():
            facts["items"] += 1

    before = path.read_text()
    forge(path, miscounted)
    assert found_by_verify(cli) == {name: {"tasks"}}
    task, facts = next(iter(json.loads(before)["tasks"].items()))
    counts = f"{facts['items'] + 1} items", f"has {facts['items']} items"
    assert missing_facts(cli("verify")[1], f"{name}: tasks: ", task, *counts) == []

    def without(record: dict[str, Any]) -> None:
        record["predictions"] = None
        for facts in record["tasks"].values():
            facts["pairs"] = 0
        for score in record["scores"]:
            score["value"] = 0.99

    path.write_text(before)
    forge(path, without)
    path.with_suffix(".npz").unlink()
    assert found_by_verify(cli) == {name: {"predictions"}}
