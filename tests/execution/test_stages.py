"""Stages: trained once, the free ones first, and used again after an upgrade or elsewhere."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bench.card import MethodCard
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.repetition import RerunDifference
from bench.execution.stage_cache import StageCache, _hash_files
from bench.plan.cell import Cell
from bench.records import environment as provenance
from bench.records.fingerprint import MACHINE, find_fact_differences, machine_differences, machine_facts
from bench.records.record import RunRecord
from bench.stages import Stage
from bench.verify import rerun_sample
from bench.verify.findings import Verification
from tests.support.cli import Cli, records
from tests.support.train import spec

CARD = MethodCard(name="m", kind="test", summary="", version=1)


def test_stages_free_of_other_processes_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = (spec("sub1"), spec("sub2"), spec("joint", inputs=("sub1", "sub2")))
    stages = tuple(Stage(s, 1, s.role[-1] * 64) for s in specs)
    order: list[tuple[str, list[str]]] = []
    second = threading.Event()

    def note(self: EncoderBuilder, stage: Stage, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
        order.append((stage.spec.role, sorted(inputs)))
        if stage.spec.role == "sub2":
            second.set()
        return {}

    monkeypatch.setattr(EncoderBuilder, "_train_stage", note)
    builder = EncoderBuilder(Cell("mini", "m", CARD, (), None, 1, stages), "cpu", None, StageCache(tmp_path))
    elsewhere = FileLock(tmp_path / f".{stages[0].key}.lock")
    elsewhere.acquire()
    worker = threading.Thread(target=builder.folders)
    worker.start()
    assert second.wait(10)  # trained although the first is locked
    elsewhere.release()
    worker.join(10)
    assert order == [("sub2", []), ("sub1", ["sub2"]), ("joint", ["sub1", "sub2"])]
    assert list(builder.folders()) == ["sub2", "sub1", "joint"]


STEPS = ("--set", "simcse.steps=2", "--set", "simcse.eval_every=2")
NAMED = ("--methods", "simcse", "--seeds", "1", "--suite", "toy", *STEPS)


@pytest.fixture
def first(cli: Cli, tmp_path: Path) -> RunRecord:
    return of(cli, tmp_path, "first")


def of(cli: Cli, tmp_path: Path, campaign: str) -> RunRecord:
    code, _, err = cli("run", *NAMED, "--campaign", campaign)
    assert code == 0, err
    (record,) = records(tmp_path, campaign).values()
    return record


def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch and another processor from here on."""
    real = provenance._package_version
    monkeypatch.setattr(
        provenance, "_package_version", lambda name: "99.1" if name == "torch" else real(name)
    )
    monkeypatch.setattr(provenance, "_processor_name", lambda: "EPYC")


def stage_of(tmp_path: Path) -> Path:
    (stage,) = (path for path in (tmp_path / "results" / ".stages").iterdir() if path.is_dir())
    return stage


def test_a_stage_keeps_what_trained_it_and_its_records_say_no_more(first: RunRecord, tmp_path: Path) -> None:
    facts = json.loads((stage_of(tmp_path) / "facts.json").read_text())
    made = facts["made_with"]
    assert made.keys() == {"python", "platform", "versions", "device", "processor"}
    for name in made.keys() - {"processor"}:
        assert made[name] == first.provenance[name]
    assert made["processor"] == first.timing["processor"]
    assert "trained_with" not in first.provenance
    assert "training_processor" not in first.timing
    assert "made_with" not in first.training["stages"]["simcse"]


@pytest.mark.long
def test_environments(cli: Cli, tmp_path: Path, first: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(monkeypatch)
    later = of(cli, tmp_path, "later")
    torch, processor = first.provenance["versions"]["torch"], first.timing["processor"]
    assert later.provenance.pop("trained_with") == {"simcse": {"versions": {"torch": torch}}}
    assert later.timing["training_processor"] == {"simcse": processor}
    assert later.provenance["versions"]["torch"] == "99.1"
    assert (later.key, later.scores, later.training) == (first.key, first.scores, first.training)


@pytest.mark.slow
def test_honest_records(cli: Cli, tmp_path: Path, first: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(monkeypatch)
    later = of(cli, tmp_path, "later")
    shutil.rmtree(tmp_path / "results" / ".stages")
    again = of(cli, tmp_path, "again")  # as a repetition does: trained by what evaluates
    torch, processor = first.provenance["versions"]["torch"], first.timing["processor"]
    assert machine_differences([later], [again]) == (
        ("torch", [f"99.1 (in training {torch})"], ["99.1"]),
        ("CPU", [f"EPYC (in training {processor})"], ["EPYC"]),
    )
    assert machine_facts(later) != machine_facts(again)
    differences = find_fact_differences(later, again, MACHINE)
    assert {difference.fact for difference in differences} == {"version of", "CPU"}
    differs = [RerunDifference("scores", "TOY all spearman", 0.5, 0.6)]
    monkeypatch.setattr(rerun_sample, "rerun_record", lambda record, data: (differs, again))
    verified = Verification()
    rerun_sample.repeat_sample(verified, [("later", later)], 1, None, lambda _: None)
    assert not verified.findings


@pytest.mark.long
def test_an_older_stage(cli: Cli, tmp_path: Path, first: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(tmp_path)
    facts: dict[str, Any] = json.loads((stage / "facts.json").read_text())
    del facts["made_with"]
    (stage / "facts.json").write_text(json.dumps(facts))
    (stage / "MANIFEST.json").write_text(json.dumps(_hash_files(stage)))
    before = stage.stat().st_mtime_ns
    upgrade(monkeypatch)
    later = of(cli, tmp_path, "later")
    assert stage.stat().st_mtime_ns == before
    assert "trained_with" not in later.provenance
    assert "training_processor" not in later.timing
    assert later.scores == first.scores
