"""``bench probe --along``: probes at every dev evaluation of a training."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import DataError
from bench.execution.encoder_builder import EncoderBuilder
from bench.reports.tables.probe_correlations import Rho
from bench.stages import Stage
from bench.stats.item_statistics import spearman_interval
from bench.stats.seeds import one_sample
from bench.training_probes.command import _ProbingBuilder
from bench.training_probes.evaluations import (
    ProbedEvaluation,
    TrainingProbes,
    read_training_probes,
    write_training_probes,
)
from bench.training_probes.tables import (
    evaluation_figures,
    evaluation_grids,
    evaluation_relations,
    within_relations,
)
from tests.support.cli import Cli
from tests.support.messages import missing_facts

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
    trained: list[tuple[dict[str, Any], dict[str, bytes]]] = []

    def train(self: EncoderBuilder, stage: Stage, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        facts = EncoderBuilder.train_here(self, stage, inputs, out)
        trained.append((facts, weights(out)))
        return facts

    monkeypatch.setattr(_ProbingBuilder, "train_here", train)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    code, out, err = cli("probe", "simcse", "--seeds", "1", "--along", *given, "--format", "json")
    assert code == 0, err
    facts = json.loads((stored / "facts.json").read_text())
    ((again, found),) = trained
    for name in ("dev_curve", "selected_step", "selected_dev", "last_loss", "loss_curve"):
        assert again[name] == facts[name]
    assert found == weights(stored)
    assert found
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == files
    points = json.loads(out)["evaluations"]
    assert [[point["step"], point["dev"]] for point in points] == facts["dev_curve"]
    assert [point["stage"] for point in points] == ["simcse"] * 3
    assert len({point["probes"]["cls_energy"]["value"] for point in points}) == 3
    assert points[0]["probes"]["data"]["suite"] == "toy"
    code, out, err = cli("probe", "simcse", "--seeds", "1", "--along", *given, "--probes", "uniformity")
    assert code == 0, err
    assert not missing_facts(out, "Along training: TOY", "dev set toy", "4 independent")
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ((), ("--along: ", "METHOD")),
        (("untrained",), ("--along: ", "'untrained' trains nothing")),
        (("untrained", "--ranks", "2"), ("--ranks 2: ", "one process")),
        (("untrained", "--compile", "inductor"), ("--compile inductor: ", "uncompiled")),
        (("untrained", "--probes", "cost"), ("--probes: ", "cost along", "expected of cls_energy")),
        (("untrained", "--heatmaps", "maps"), ("--heatmaps: ", "attention maps")),
        (("untrained", "--sentence", "A dog."), ("--sentence: ", "attention maps")),
        (("simcse", "--out", "."), ("not JSON",)),
    ],
)
def test_refusals(cli: Cli, tiny_bert: Path, given: tuple[str, ...], facts: tuple[str, ...]) -> None:
    code, _, err = cli("probe", *given, "--along", "--suite", "toy", "--backbone", str(tiny_bert))
    assert (code, missing_facts(err, *facts)) == (2, []), err


def evaluated(seed: int, step: int, dev: float, energy: float) -> ProbedEvaluation:
    probes = {
        "data": {"tasks": {"T": {}}, "sentences": 3},
        "cls_energy": {"value": energy, "pooling": "cls"},
        "uniformity": {"value": -2 - 0.1 * ((7 * step + 3 * seed) % 11)},
    }
    stages = (f"{seed} sub", f"{seed} joint")
    return ProbedEvaluation("m", seed, "joint", step, dev, probes, stages, stages[-1])


def test_evaluations_of_one_training_count_as_one() -> None:
    found = [
        evaluated(seed, step, 0.5 + 0.1 * step + 0.03 * seed, energy)
        for seed in range(1, 6)
        for step, energy in enumerate((0.3, 0.1 * seed, 0.4 + 0.01 * seed))
    ]
    for seeds in (2, 4, 5):
        some = found[: 3 * seeds]
        energy, _ = evaluation_relations(some, "mini", "toy")
        assert (len(energy.points), energy.independent) == (3 * seeds, seeds)
        assert energy.rho.value is not None
        ends = spearman_interval(energy.rho.value, seeds) if seeds > 3 else (None, None)
        assert (energy.rho.low, energy.rho.high) == ends
        assert (energy.partial.low is None) == (seeds < 5)
    shared = [replace(one, stages=("1 sub", *one.stages)) for one in found]
    assert evaluation_relations(shared, "mini", "toy")[0].independent == 1


def test_the_table_of_evaluations() -> None:
    found = [evaluated(1, step, 0.5, 0.25) for step in (10, 20)]
    found.append(replace(found[0], method="other", seed=None))
    points, within, mechanism = evaluation_grids(found, "mini", "toy")
    assert points.header == ("method", "seed", "stage", "step", "dev", "E_CLS", "uniformity")
    assert points.rows[1] == ("m", "1", "joint", "20", "50.00", "0.2500", "-2.000")
    assert points.rows[2][:4] == ("other", "-", "joint", "10")
    assert within.header[:4] == ("quantity", "trainings", "independent", "rho within a training")
    assert mechanism.header[:4] == ("quantity", "evaluations", "independent", "rho with dev score")
    assert evaluation_relations(found[:2], "mini", "toy")[0].rho == Rho(None)
    assert evaluation_grids([], "mini", "toy") == []


def training(
    seed: int, energies: tuple[float, ...], stages: tuple[str, ...], key: str
) -> list[ProbedEvaluation]:
    """A training whose dev score rises from step to step; uniformity rises once and falls."""
    found = []
    for step, (energy, up) in enumerate(zip(energies, (0, 3, 1, 2, 4), strict=True)):
        point = evaluated(seed, step, 0.1 * step, energy)
        probes = {**point.probes, "uniformity": {"value": -float(up)}}
        found.append(replace(point, method=f"of {stages[0]}", probes=probes, stages=stages, key=key))
    return found


def test_a_quantity_that_rises_in_every_training_and_differs_between_them() -> None:
    up, down, level = (0.1, 0.2, 0.3, 0.4, 0.5), (0.9, 0.8, 0.7, 0.6, 0.5), (0.3,) * 5
    found = [
        *training(1, up, ("a",), "a"),
        *training(2, tuple(one - 9 for one in up), ("b",), "b"),  # far below: all evaluations say little
        *training(3, down, ("c", "d"), "c"),
        *training(3, up, ("c", "d"), "d"),  # shares a stage with the one above: they count as one, of rho 0
        *training(4, level, ("e",), "e"),  # says nothing
    ]
    another_seed = [replace(one, seed=5, stages=("f",), key="f") for one in found if one.seed == 1]
    energy, uniformity = within_relations(found)
    assert (energy.quantity, energy.trainings, energy.independent) == ("E_CLS", 4, 3)
    test = one_sample([1.0, 1.0, 0.0], 0.0)
    mean, low, high = energy.rho.value, energy.rho.low, energy.rho.high
    assert (mean, low, high) == pytest.approx((2 / 3, max(test.low, -1.0), min(test.high, 1.0)))
    assert energy.fixed == 4
    assert energy.partial.value == pytest.approx(2 / 3)
    assert (uniformity.fixed, uniformity.partial) == (0, Rho(None))
    assert uniformity.rho.low is None  # one order in all: no spread over trainings
    assert within_relations([]) == []
    energy, _ = within_relations([*found, *another_seed])
    assert (energy.trainings, energy.independent) == (5, 3)  # seeds of a method count as one, with their mean
    assert energy.rho.value == pytest.approx(2 / 3)


def test_a_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    found = TrainingProbes("mini", "toy", tuple(training(1, (0.1, 0.2, 0.3, 0.4, 0.5), ("a",), "a")))
    path = tmp_path / "camp" / "along.json"
    write_training_probes(path, found)
    assert read_training_probes(path) == found
    text = path.read_text()
    for edited in (
        text.replace('"dev": 0.1', '"dev": 0.7'),
        text.replace('"seed": 1', '"seed": 2'),
        text.replace('"sha256"', '"more": 1, "sha256"'),
        text.replace('"schema": 1', '"schema": 2'),
        text.replace('"step": 3', '"step": "3"'),
        text[:-9],
    ):
        assert edited != text
        path.write_text(edited)
        with pytest.raises(DataError, match=r"along\.json"):
            read_training_probes(path)


@pytest.mark.long
@pytest.mark.slow
def test_a_file_is_continued_and_shown(
    cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results" / "local" / "along.json"
    trained: list[str] = []

    def train(self: _ProbingBuilder, stage: Stage, *more: Any) -> dict[str, Any]:
        trained.append(stage.key)
        return EncoderBuilder.train_here(self, stage, *more)

    monkeypatch.setattr(_ProbingBuilder, "train_here", train)
    given = (*SMALL, "--backbone", str(tiny_bert), "--corpus", str(corpus), "--along", "--out", str(out))
    assert cli("run", "--methods", "simcse", "--seeds", "1", *given[:-3])[0] == 0
    assert cli("probe", "simcse", "--seeds", "1", *given)[0] == 0
    first = read_training_probes(out)
    code, printed, err = cli("probe", "simcse", "--seeds", "1-2", *given)
    assert code == 0, err
    assert len(trained) == len(set(trained)) == 2
    both = read_training_probes(out)
    assert both.evaluations[:3] == first.evaluations
    assert [one.seed for one in both.evaluations] == [1] * 3 + [2] * 3
    out.rename(out.with_name("apart.json"))
    assert cli("probe", "simcse", "--seeds", "1-2", *given)[0] == 0
    assert read_training_probes(out) == both  # as without an interruption
    for other in (("--probes", "uniformity"), ("--on", "mini")):
        code, _, err = cli("probe", "simcse", "--seeds", "1", *given, *other)
        assert (code, missing_facts(err, "other probes", "profile mini")) == (2, []), err
    code, _, err = cli("probe", "simcse", "--seeds", "1", *given, "--strict")
    assert (code, missing_facts(err, "alignment", "at least 4", "--strict")) == (2, []), err
    code, shown, err = cli("report", "--table", "along", "--campaign", "local")
    assert code == 0, err
    assert not missing_facts(shown, "Within trainings: TOY", "dev set toy", "along.json")
    assert next(line for line in printed.splitlines() if line.startswith(" E_CLS")) in shown
    code, page, err = cli("report", "--format", "html", "--campaign", "local")
    assert code == 0, err
    assert "Along training: E_CLS" in page
    code, _, err = cli("probe", "simcse", "--out", str(out))
    assert (code, "--along" in err or "only probes along trainings" in err) == (2, True)


def test_lines_are_the_rows_of_the_table(tmp_path: Path) -> None:
    found = []
    for stage, key in (("joint", "a"), ("sub1", "b")):
        points = training(1, (0.1, 0.2, 0.3, 0.4, 0.5), (key,), key)
        found += [replace(point, method="m", stage=stage) for point in points]
    for point in training(2, (0.5,) * 5, ("c",), "c"):
        probes = {**point.probes, "cls_energy": {"value": 0.5, "pooling": "avg"}}
        found.append(replace(point, method="other", probes=probes))
    write_training_probes(tmp_path / "along.json", TrainingProbes("mini", "toy", tuple(found)))
    energy, uniformity = evaluation_figures(tmp_path / "along.json")
    assert [line.name for line in energy.series] == ["m, joint", "m, sub1"]  # "other" pools no [CLS]
    assert [line.name for line in uniformity.series] == ["m, joint", "m, sub1", "other"]
    assert energy.series[0].x == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5))
    assert energy.series[0].y == pytest.approx((0, 10, 20, 30, 40))
