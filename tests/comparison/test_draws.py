"""Kept draws hide no edited score, and are believed as far as predictions and data don't contradict them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.comparison.item_bootstrap import (
    CampaignRun,
    RefusedError,
    draw_items,
    draws_path,
    read_draws,
)
from bench.errors import BenchError, InputError
from bench.eval import rescoring
from bench.eval.recomputation import NO_DATA
from bench.records.integrity import seal_record
from bench.records.record import NOT_RECOMPUTED, record_to_json
from bench.records.store import ResultStore
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

FEW = ("--draws", "100")
UNCHECKED = f"{NOT_RECOMPUTED}{NO_DATA}"
Facts = dict[str, Any]


@pytest.fixture
def runs(cli: Cli, tmp_path: Path) -> list[CampaignRun]:
    """Two seeds of noise and word_overlap, with draws kept of all."""
    cli("run", "--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", "mini-dev")
    assert cli("stats", *FEW)[0] == 0
    return read(tmp_path)


def read(folder: Path) -> list[CampaignRun]:
    store = ResultStore(folder / "results", "local")
    return [CampaignRun(store, record) for record in store.records()]


def add(run: CampaignRun, points: float) -> None:
    """Edit a record's scores, and make its seal anew."""
    scores = tuple(replace(score, value=score.value + points) for score in run.record.scores)
    run.path.write_text(record_to_json(seal_record(replace(run.record, scores=scores))))


def change_kept(path: Path, change: Callable[[Facts], Any]) -> None:
    with np.load(path) as archive:
        facts, draws = json.loads(archive["facts"].tobytes()), archive["draws"]
    change(facts)
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez(payload, facts=text, draws=draws)
    path.write_bytes(payload.getvalue())


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise InputError("suite 'mini-dev' needs evaluation data")

    monkeypatch.setattr(rescoring, "_load_suite", missing)


def test_without_data_kept_draws_serve_and_it_is_said(
    cli: Cli, runs: list[CampaignRun], no_data: None
) -> None:
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, err) == (0, "")
    assert out.count(UNCHECKED) == 1
    assert not missing_facts(out, "new seeds", "new items")
    code, out, err = cli("compare", "noise", "word_overlap", "--seeds-only", "--format", "json")
    assert (code, err) == (0, "")
    assert sum(UNCHECKED in line for line in json.loads(out)[0]["statements"]) == 1
    code, _, err = cli("stats", *FEW)
    assert (code, err) == (0, "")
    draws_path(runs[0], 100).unlink()
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, out.count(UNCHECKED), out.count("left out: suite")) == (0, 1, 1)


def test_with_data_it_is_not_said(cli: Cli, runs: list[CampaignRun]) -> None:
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, err, UNCHECKED in out) == (0, "", False)


@pytest.mark.parametrize("points", [0.05, -0.05, 2e-9])
def test_kept_draws_refuse_an_edited_score_without_data(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path, no_data: None, points: float
) -> None:
    add(runs[0], points)
    (edited, *_) = read(tmp_path)
    with pytest.raises(RefusedError, match=r"MINI-dev is .*, its predictions give .*edited"):
        read_draws(edited, 100)
    for arguments in (("compare", "noise", "word_overlap"), ("stats",)):
        said = refusal(cli, *arguments, *FEW)
        assert not missing_facts(said, "predictions give", "results/local/mini/noise/seed-1/mini-dev.json")


def test_rounding_is_no_edit(cli: Cli, runs: list[CampaignRun], tmp_path: Path, no_data: None) -> None:
    add(runs[0], 1e-12)
    assert read_draws(read(tmp_path)[0], 100) is not None
    assert cli("stats", *FEW)[0] == 0


def test_a_report_with_items_refuses_it_too(cli: Cli, runs: list[CampaignRun]) -> None:
    assert cli("stats")[0] == 0
    report = ("report", "--format", "html")
    code, out, _ = cli(*report)
    assert code == 0
    add(runs[0], 0.05)
    code, out, err = cli(*report)
    assert (code, missing_facts(out, "its predictions give")) == (1, [])
    assert "its predictions give" in err


def change_observed(facts: Facts) -> None:
    facts["observed"]["MINI-dev"] += 0.05


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (change_observed, "not the draws"),
        (lambda facts: facts.pop("observed"), "KeyError"),
        (lambda facts: facts.update(observed=[]), "not the draws"),
        (lambda facts: facts.update(observed={}), "not the draws"),
        (lambda facts: facts.update(observed={"MINI-dev": "0.1", "avg": None}), "not the draws"),
        (lambda facts: facts.update(version=1), "not the draws"),
    ],
)
def test_draws_that_lie_cost_an_honest_record_nothing(
    cli: Cli, runs: list[CampaignRun], change: Callable[[Facts], Any], fact: str
) -> None:
    path = draws_path(runs[0], 100)
    before = path.read_bytes()
    change_kept(path, change)
    code, _, err = cli("stats", *FEW)
    assert (code, fact in err) == (0, True)
    assert path.read_bytes() == before


def test_draws_that_agree_with_an_edited_score_win_nothing_where_the_data_are(
    cli: Cli, runs: list[CampaignRun], tmp_path: Path
) -> None:
    """Whoever edits a record can edit its draws' file as well."""
    add(runs[0], 0.05)
    (edited, *_) = read(tmp_path)
    said = {name: edited.record.score(name) for name in ("MINI-dev", "avg")}
    change_kept(draws_path(edited, 100), lambda facts: facts.update(observed=said))
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, out) == (2, "")
    assert "its predictions give" in err


def test_a_record_without_predictions_has_no_items(cli: Cli, runs: list[CampaignRun]) -> None:
    """Predictions that a record doesn't name are no reason to believe it, nor to refuse it."""
    stripped = replace(runs[0].record, predictions=None)
    runs[0].path.write_text(record_to_json(seal_record(stripped)))
    runs[0].path.with_suffix(".npz").unlink()
    with pytest.raises(BenchError, match="no predictions are kept"):
        list(draw_items([CampaignRun(runs[0].store, stripped)], draws=100))
    code, out, err = cli("compare", "noise", "word_overlap", *FEW)
    assert (code, err) == (0, "")
    assert "Items: left out: " in out
    assert out.count(f"{NOT_RECOMPUTED}no predictions") == 1
