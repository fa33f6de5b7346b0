"""Plans: state of every job, read once; keys of cells and stages; inputs shared by plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods, parse_override
from bench.config.spec import RunSpec
from bench.data.corpus import Corpus, read_corpus
from bench.execution.runner import find_pending_jobs, run_plan
from bench.nn.model_folder import hash_model
from bench.plan.plan import Plan, PlanInputs, make_plan
from bench.records import store
from bench.records.fingerprint import ENCODER_FACTS, IN_STAGE, compute_record_key, fact_values
from bench.records.record import RunRecord
from tests.support.cli import Cli

SHORT = ("steps=2", "eval_every=2", "batch_size=8")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    counted: Counter[Path] = Counter()
    read = store._parse_valid_record

    def counting(path: Path, content: bytes) -> RunRecord:
        counted[path] += 1
        return read(path, content)

    monkeypatch.setattr(store, "_parse_valid_record", counting)
    return counted


def test_ten_finished_cells_are_read_at_most_twice(cli: Cli, reads: Counter[Path]) -> None:
    command = ("run", "--methods", "noise", "--seeds", "1-10", "--suite", "toy", "--workers", "1")
    assert cli(*command)[0] == 0
    reads.clear()
    code, _, err = cli(*command)
    assert (code, "10 of 10 cells" in err) == (0, True)
    assert len(reads) == 10
    assert max(reads.values()) <= 2
    reads.clear()
    assert cli(*command, "--dry-run")[0] == 0
    assert set(reads.values()) == {1}


def test_the_state_of_every_job_is_found_once(cli: Cli, tmp_path: Path, reads: Counter[Path]) -> None:
    cli("run", "--methods", "noise,broken", "--seeds", "1-2", "--suite", "toy", "--workers", "1")
    methods = parse_methods("noise,broken")
    plan = make_plan(RunSpec(methods, (1, 2, 3), "mini", suites=("toy",), results=tmp_path / "results"))
    reads.clear()
    states: dict[str, list[str]] = {}
    for job in plan.jobs:  # seed by seed
        states.setdefault(job.cell.method, []).append(plan.status(job))
    assert states == {"noise": ["done", "done", "to do"], "broken": ["done", "failed", "to do"]}
    pending = ["broken seed 2", "noise seed 3", "broken seed 3"]
    assert [job.cell.describe() for job in plan.pending()] == pending
    assert find_pending_jobs(plan) == plan.pending()
    assert set(reads.values()) == {1}


def trained(tmp_path: Path, methods: str, backbone: Path, corpus: Path, **changes: object) -> Plan:
    names = ("simcse", "tncse", "tncse.sub1", "tncse.sub2", "distill")
    overrides = tuple(parse_override(f"{name}.{text}") for name in names for text in SHORT)
    used = tuple(override for override in overrides if override.method in methods)
    spec = RunSpec(
        parse_methods(methods), (1,), "mini", ("toy",), str(backbone), used, corpus=corpus, dev="toy"
    )
    return make_plan(replace(spec, results=tmp_path / "results", **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("methods", ["simcse", "distill:ensemble:simcse+untrained", "ensemble:simcse+simcse"])
def test_records_match_their_plan(methods: str, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    plan = trained(tmp_path, methods, tiny_bert, corpus)
    (job,) = plan.jobs
    (outcome,) = run_plan(plan, on_outcome=lambda _: None)
    record = outcome.record
    assert record is not None
    assert record.status == "ok", record.reason
    assert record.key == job.key == compute_record_key(record)
    assert make_plan(plan.spec).status(job) == "done"


def test_facts_outside_a_stages_key_share_training(tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    def stage_and_key(**changes: object) -> tuple[str, str]:
        (job,) = trained(tmp_path, "simcse", tiny_bert, corpus, **changes).jobs
        return job.cell.stages[0].key, job.key

    stage, key = stage_and_key()
    assert stage_and_key() == (stage, key)
    lowered = stage_and_key(precision="bf16")
    assert (lowered[0] == stage, lowered[1] == key) == (True, False)
    for change in ({"threads": 2}, {"train_precision": "bf16"}, {"ranks": 2}, {"device": "cuda"}):
        other = stage_and_key(**change)
        assert (other[0] == stage, other[1] == key) == (False, False)
    assert stage_and_key(workers=2, force=True, keep_vectors=True) == (stage, key)


def test_the_facts_of_a_stage_are_facts_of_its_cell(tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    (job,) = trained(tmp_path, "simcse", tiny_bert, corpus).jobs
    assert {fact.name for fact in IN_STAGE} <= {fact.name for fact in ENCODER_FACTS}
    said = fact_values(job.record, IN_STAGE)
    assert said["arithmetic of training"] == 2
    assert said["weights"] == job.cell.model.sha256  # type: ignore[union-attr]


@pytest.fixture
def text_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    counted: Counter[Path] = Counter()

    def counting(path: Path, exclude: tuple[int, int] | None = None, column: str | None = None) -> Corpus:
        counted[path] += 1
        return read_corpus(path, exclude, column)

    monkeypatch.setattr("bench.data.training_data.read_corpus", counting)
    return counted


def text_in(spec: RunSpec, inputs: PlanInputs | None = None) -> str:
    corpus = make_plan(spec, inputs).jobs[0].record.training["corpus"]
    return str(corpus["sha256"])


def test_a_text_is_read_once_for_shared_plans(tmp_path: Path, text_reads: Counter[Path]) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("A line of text.\nAnd more.\n" * 64)
    other.write_text("Another line.\nAnd more.\n" * 64)
    specs = [
        RunSpec(parse_methods(methods), (seed,), "mini", corpus=file)
        for methods, seed, file in product(("simcse", "arccon"), (1, 2), (one, other))
    ]
    inputs = PlanInputs()
    shared = [text_in(spec, inputs) for spec in specs]
    assert dict(text_reads) == {one: 1, other: 1}
    assert shared == [text_in(spec) for spec in specs]
    assert len(set(shared)) == 2


def test_a_backbone_is_hashed_once_for_shared_plans(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []

    def counting(path: Path) -> str:
        hashed.append(path)
        return hash_model(path)

    monkeypatch.setattr("bench.nn.model_folder.hash_model", counting)
    own = RunSpec(parse_methods("simcse"), (1,), "mini")
    given = replace(own, backbone=str(tiny_bert))
    inputs = PlanInputs()
    records = [
        make_plan(spec, inputs).jobs[0].record for spec in (own, given, replace(own, seeds=(2,)), given)
    ]
    assert len(hashed) == len(set(hashed)) == 2
    assert [record.backbone == records[0].backbone for record in records] == [True, False, True, False]
    make_plan(own)
    assert len(hashed) == 3


def test_a_plan_of_its_own_sees_what_was_changed(tmp_path: Path) -> None:
    text, inputs = tmp_path / "text.txt", PlanInputs()
    text.write_text("A line of text.\nAnd more.\n" * 64)
    spec = RunSpec(parse_methods("simcse"), (1,), "mini", corpus=text)
    before = text_in(spec, inputs)
    text.write_text("Another line.\nAnd more.\n" * 64)
    assert text_in(spec, inputs) == before
    assert text_in(spec) != before
