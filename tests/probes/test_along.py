"""``bench probe --along``: probes at every dev evaluation, of the same training as without."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.probes.along import Evaluated
from bench.reports.tables.along import along_grids, along_relations
from bench.reports.tables.relation import Rho
from bench.run.along import _Along
from bench.run.builder import Builder
from bench.stages import Stage
from bench.stats.items import spearman_interval
from tests.support.cli import Cli

SMALL = ("--suite", "toy", "--dev", "toy", "--set", "simcse.steps=6", "--set", "simcse.eval_every=2",
         "--set", "simcse.batch_size=4", "--set", "simcse.lr=1e-3")  # fmt: skip


def weights(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.safetensors")}


def test_the_training_is_the_same_as_without_and_nothing_is_kept(
    cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (*SMALL, "--backbone", str(tiny_bert), "--corpus", str(corpus))
    assert cli("run", "--methods", "simcse", "--seeds", "1", *given)[0] == 0
    results = tmp_path / "results"
    (stored,) = (path for path in (results / ".stages").iterdir() if path.is_dir())
    files = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    anew: list[tuple[dict[str, Any], dict[str, bytes]]] = []

    def train(self: Builder, stage: Stage, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        facts = Builder.train_here(self, stage, inputs, out)
        anew.append((facts, weights(out)))
        return facts

    monkeypatch.setattr(_Along, "train_here", train)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    code, out, err = cli("probe", "simcse", "--seeds", "1", "--along", *given, "--format", "json")
    assert code == 0, err
    facts = json.loads((stored / "facts.json").read_text())
    ((trained, found),) = anew
    for name in ("dev_curve", "selected_step", "selected_dev", "last_loss", "loss_curve"):
        assert trained[name] == facts[name]
    assert found == weights(stored)
    assert found
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == files
    points = json.loads(out)["evaluations"]
    assert [[one["step"], one["dev"]] for one in points] == facts["dev_curve"]
    assert [one["stage"] for one in points] == ["simcse"] * 3
    assert len({one["probes"]["cls_energy"]["value"] for one in points}) == 3
    assert points[0]["probes"]["data"]["suite"] == "toy"
    code, out, err = cli("probe", "simcse", "--seeds", "1", "--along", *given, "--probes", "uniformity")
    assert code == 0, err
    assert "Along training: TOY, 156 sentences; dev set toy, profile mini" in out
    assert "An interval takes 4 independent ones, with uniformity fixed 5." in out
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "--along: no METHOD to train"),
        (("untrained",), "--along: 'untrained' trains nothing itself"),
        (("untrained", "--ranks", "2"), "--ranks 2: trainings are probed in one process"),
        (("untrained", "--compile", "inductor"), "--compile inductor: trainings are probed uncompiled"),
        (("untrained", "--probes", "cost"), "--probes: cost along a training; expected of cls_energy"),
        (("untrained", "--heatmaps", "maps"), "--heatmaps: there are no attention maps along a training"),
        (("untrained", "--sentence", "A dog."), "--sentence: there are no attention maps along a training"),
    ],
)
def test_refusals(cli: Cli, tiny_bert: Path, given: tuple[str, ...], message: str) -> None:
    code, _, err = cli("probe", *given, "--along", "--suite", "toy", "--backbone", str(tiny_bert))
    assert (code, message in err) == (2, True), err


def evaluated(seed: int, step: int, dev: float, energy: float) -> Evaluated:
    probes = {
        "data": {"tasks": {"T": {}}, "sentences": 3},
        "cls_energy": {"value": energy, "pooling": "cls"},
        "uniformity": {"value": -2 - 0.1 * ((7 * step + 3 * seed) % 11)},
    }
    return Evaluated("m", seed, "joint", step, dev, probes, (f"{seed} sub", f"{seed} joint"))


def test_evaluations_of_one_training_count_as_one() -> None:
    found = [
        evaluated(seed, step, 0.5 + 0.1 * step + 0.03 * seed, energy)
        for seed in range(1, 6)
        for step, energy in enumerate((0.3, 0.1 * seed, 0.4 + 0.01 * seed))
    ]
    for seeds in (2, 4, 5):
        some = found[: 3 * seeds]
        energy, _ = along_relations(some, "mini", "toy")
        assert (len(energy.points), energy.independent) == (3 * seeds, seeds)
        assert energy.rho.value is not None
        ends = spearman_interval(energy.rho.value, seeds) if seeds > 3 else (None, None)
        assert (energy.rho.low, energy.rho.high) == ends
        assert (energy.partial.low is None) == (seeds < 5)
    shared = [replace(one, stages=("1 sub", *one.stages)) for one in found]
    assert along_relations(shared, "mini", "toy")[0].independent == 1


def test_the_table_of_evaluations() -> None:
    found = [evaluated(1, step, 0.5, 0.25) for step in (10, 20)]
    points, mechanism = along_grids([*found, replace(found[0], method="other", seed=None)], "mini", "toy")
    assert points.header == ("method", "seed", "stage", "step", "dev", "E_CLS", "uniformity")
    assert points.rows[1] == ("m", "1", "joint", "20", "50.00", "0.2500", "-2.000")
    assert points.rows[2][:4] == ("other", "-", "joint", "10")
    assert mechanism.header[:4] == ("quantity", "evaluations", "independent", "rho with dev score")
    assert along_relations(found, "mini", "toy")[0].rho == Rho(None)
    assert along_grids([], "mini", "toy") == []
