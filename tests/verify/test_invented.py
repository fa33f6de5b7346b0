"""Scores and averages that no suite has, and grids of sweeps with cells of other methods."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override
from bench.config.run_spec import RunSpec
from bench.config.sweep_manifest import Manifest, save_manifest
from bench.config.sweeps import SWEEPS, Backbone
from bench.errors import InputError
from bench.plan.cell_expansion import make_cells
from bench.registry import discover
from bench.verify.findings import Verification
from bench.verify.sweep_checks import verify_grids
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.house import ROOT
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
    assert (code, missing_facts(out, "as recorded: scores", "spearman_last (2)")) == (0, []), out
    forge(path, lambda record: record["scores"][-1].update(metric="spearman_final"))
    assert found_by_verify(cli) == {where(path.relative_to(tmp_path)): {"score"}}


def test_scores_of_mteb_without_predictions_are_nobodys(cli: Cli, tmp_path: Path) -> None:
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


CELL = ["4", "jtcse", "jtcse[caels=4]"]


def found(folder: Path, points: list[list[str]], profile: str = "mini") -> list[str]:
    """What is wrong with a grid of sweep caels."""
    rows = tuple((row, column, method) for row, column, method in points)
    save_manifest(Manifest("caels", profile, ("mini",), (1,), rows), folder / "camp")
    verified = Verification()
    verify_grids(folder / "camp", folder, verified)
    assert {(each.where, each.check) for each in verified.findings} <= {
        (f"camp/sweeps/{profile}-caels.json", "grid")
    }
    return [each.what for each in verified.findings]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["mini", "mini-equal"])
@pytest.mark.parametrize("override", [(), ("simcse.batch_size=8", "jtcse.lr=1e-3")])
def test_every_sweeps_own_grid_is_whole(tmp_path: Path, profile: str, override: tuple[str, ...]) -> None:
    spec = RunSpec((), (1,), profile, overrides=tuple(map(parse_override, override)))
    loaded = profiles.load_profile(profile)
    for name, sweep in SWEEPS.items():
        points = []
        for point in sweep.points(Backbone(4, True)):
            (request,) = parse_methods(point.method)
            card = discover().get(request.name).card
            cells = make_cells(request, card, spec, loaded, profile, None, 0, lambda load: None)
            points.append((point.row, point.column, cells[0].method))
        save_manifest(Manifest(name, profile, ("mini",), (1,), tuple(points)), tmp_path / "camp")
    verified = Verification()
    verify_grids(tmp_path / "camp", tmp_path, verified)
    assert (verified.findings, verified.unchecked) == ([], {})


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (["4", "jtcse", "jtcse[caels=2]"], "not of jtcse[caels=2]"),
        (["4", "jtcse", "jtcse"], "not of jtcse"),  # mini's own number is another
        (["4", "jtcse", "tncse"], "not of tncse"),
        (["4", "jtcse", "x=jtcse[caels=4]"], "not of x=jtcse[caels=4]"),
        (["4", "jtcse", "no]method["], "not of no]method["),
        (["4", "tncse", "jtcse[caels=4]"], "no cell '4', 'tncse'"),
        (["four", "jtcse", "jtcse[caels=4]"], "'four' is"),
    ],
)
def test_a_false_cell_is_found(tmp_path: Path, cell: list[str], what: str) -> None:
    (said,) = found(tmp_path, [["0", "jtcse", "jtcse[caels=0]"], cell])
    assert what in said


def test_what_is_the_same_said_otherwise_and_an_unknown_profile_are_none(tmp_path: Path) -> None:
    assert found(tmp_path, [["4", "jtcse", "jtcse[caels=4,lr=0.1]"]]) == []
    assert found(tmp_path, [CELL], "mini@0123abcd") == []
    save_manifest(Manifest("caels", "own", ("mini",), (1,), (("4", "jtcse", "jtcse"),)), tmp_path / "camp")
    verified = Verification()
    verify_grids(tmp_path / "camp", tmp_path, verified)
    assert verified.findings == []
    (unchecked,) = verified.unchecked
    assert missing_facts(unchecked, "defaults", "profile own") == []


def test_bench_verify_looks_at_grids(results: Cli, tmp_path: Path) -> None:
    file = tmp_path / "results/local/sweeps/mini-caels.json"
    grid = Manifest("caels", "mini", ("toy",), (1,), (("4", "jtcse", "noise"),))
    save_manifest(grid, tmp_path / "results/local")
    code, out, _ = results("verify")
    assert (code, out.count("grid: ")) == (1, 1)
    assert missing_facts(out, "local/sweeps/mini-caels.json: grid: ", "'4', 'jtcse'", "jtcse[caels=4]") == []
    file.write_text(json.dumps({"sweep": "caels"}))
    code, out, _ = results("verify")
    assert (code, missing_facts(out, "mini-caels.json: grid: ", "damaged")) == (1, [])
    assert out.count("run bench sweep") == 1
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere.json")
    assert "grid: a link" in results("verify")[1]
    file.unlink()
    assert results("verify")[0] == 0


RESULTS = ROOT / "results"


@pytest.mark.parametrize("campaign", ["mini", "mini-equal"])
def test_a_run_of_committed_cells_is_done_already(cli: Cli, campaign: str) -> None:
    (profile,) = (path.name for path in (RESULTS / campaign).iterdir() if path.name.startswith("mini"))
    methods = sorted(path.name for path in (RESULTS / campaign / profile).iterdir() if path.is_dir())
    assert len(methods) > 8
    asked = ("--profile", profile, "--methods", ",".join(methods), "--seeds", "1", "--campaign", campaign)
    code, out, err = cli("run", *asked, "--results", str(RESULTS), "--dry-run", as_is=True)
    assert code == 0, err
    assert re.search(rf"^0 of {len(methods)} cells to run", out, re.M), out
