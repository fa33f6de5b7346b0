"""Stages: trained once, used again after an upgrade or elsewhere; records that repeat from themselves."""

from __future__ import annotations

import json
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.repetition import RerunDifference
from bench.execution.stage_cache import StageCache, _hash_files
from bench.method_card import MethodCard
from bench.plan.cell import Cell
from bench.records import environment as provenance
from bench.records.fingerprint import MACHINE, find_fact_differences, machine_differences, machine_facts
from bench.records.record import RunRecord
from bench.stages import Stage
from bench.verify import rerun_sample
from bench.verify.findings import Verification
from tests.support.cli import Cli, records
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts, numbers_in
from tests.support.train import spec
from tests.support.training import arguments

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


def record_path(tmp_path: Path, part: str) -> Path:
    return tmp_path / "results" / "local" / next(name for name in records(tmp_path) if part in name)


def test_equal_or_the_digit_that_differs(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise[scale=2.5],word_overlap", "--seeds", "3", "--suite", "toy")
    for part in ("noise", "word_overlap"):
        code, out, _ = cli("verify", str(record_path(tmp_path, part)), "--rerun")
        assert (code, out.partition(":")[0]) == (0, "equal")
    path = record_path(tmp_path, "noise")
    was = json.loads(path.read_text())["scores"][0]["value"]
    forge(path, lambda record: record["scores"][0].update(value=was + 1e-15))
    code, out, _ = cli("verify", str(path), "--rerun")
    assert (code, out.count("\n")) == (1, 1)
    assert not missing_facts(out, "TOY all spearman:", repr(was + 1e-15), repr(was))
    forge(path, lambda record: record["timing"].update(processor="another one"))
    code, out, _ = cli("verify", str(path), "--rerun")
    assert (code, out.count("\n")) == (1, 2)
    assert "CPU then another one" in out
    forge(path, lambda record: record.update(version=0))
    code, _, err = cli("verify", str(path), "--rerun")
    assert (code, missing_facts(err, "version then 0,", "now 1")) == (3, [])
    forge(path, lambda record: record.update(version=1), "kept")
    code, _, err = cli("verify", str(path), "--rerun")
    assert (code, "changed since" in err) == (2, True)
    assert "nowhere.json:" in cli("verify", "nowhere.json", "--rerun")[2]


def test_training_is_repeated(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    assert cli(*arguments(tiny_bert, corpus))[0] == 0
    path = record_path(tmp_path, "simcse")
    code, _, err = cli("verify", str(path), "--rerun")
    assert (code, missing_facts(err, "'tiny-bert'", "--model FOLDER")) == (2, [])
    code, out, err = cli("verify", str(path), "--rerun", "--model", str(tiny_bert), "--corpus", str(corpus))
    assert (code, out.partition(":")[0]) == (0, "equal"), err


@pytest.mark.slow
def test_predictions_and_training_compared(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    assert cli(*arguments(tiny_bert, corpus))[0] == 0
    path, given = record_path(tmp_path, "simcse"), ("--model", str(tiny_bert), "--corpus", str(corpus))
    whole = {file: file.read_bytes() for file in (path, path.with_suffix(".npz"))}

    def stage(record: dict[str, Any], **facts: Any) -> None:
        record["training"]["stages"]["simcse"] |= facts

    step = json.loads(whole[path])["training"]["stages"]["simcse"]["steps"]
    forge(path, partial(stage, steps=step + 1))
    code, out, err = cli("verify", str(path), "--rerun", *given)
    assert (code, out.partition(":")[0], numbers_in(out)) == (1, "simcse steps", [step + 1, step]), err
    path.write_bytes(whole[path])
    forge(path, partial(stage, dev_curve=[[0, 0.5]]))
    assert cli("verify", str(path), "--rerun", *given)[1].startswith("simcse dev_curve: ")
    path.write_bytes(whole[path])
    forge_predictions(path, lambda values: values * np.float32(1.001))  # in the same order
    assert json.loads(path.read_text())["scores"][:2] == json.loads(whole[path])["scores"][:2]
    code, out, _ = cli("verify", str(path), "--rerun", *given)
    assert (code, "predictions: then '" in out) == (1, True)
    forge(path, lambda record: record["timing"].update(processor="another one"))
    assert "predictions" not in cli("verify", str(path), "--rerun", *given)[1]


def test_members_keep_their_options(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    short = ["steps=2", "eval_every=2", "batch_size=8"]
    sets = [f"{method}.{text}" for method in ("simcse", "distill") for text in (*short, "lr=3e-4")]
    given = [text for option in sets for text in ("--set", option)]
    for method in ("distill:ensemble:simcse+untrained", "ensemble:simcse[text=train]+simcse[tau=0.2]"):
        code, _, err = cli(
            "run", "--methods", method, "--seeds", "1", "--suite", "toy", "--backbone", str(tiny_bert),
            "--corpus", str(corpus), "--dev", "toy", *(given if "distill" in method else given[:8]),
        )  # fmt: skip
        assert code == 0, err
    paths = list((tmp_path / "results").rglob("toy.json"))
    assert len(paths) == 2
    for path in paths:
        code, out, err = cli(
            "verify", str(path), "--rerun", "--model", str(tiny_bert), "--corpus", str(corpus)
        )
        assert (code, out.partition(":")[0]) == (0, "equal"), err


def test_a_failed_record_is_not_repeated(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "broken", "--seeds", "2", "--suite", "toy")
    code, _, err = cli("verify", str(record_path(tmp_path, "broken")), "--rerun")
    assert (code, missing_facts(err, "failed", "(RuntimeError")) == (2, [])
