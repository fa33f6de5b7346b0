"""What many plans share is read once, and only where they ask for the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.data.corpus import Corpus, read_corpus
from bench.nn.model_folder import hash_model
from bench.plan.plan import PlanInputs, make_plan


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each training text was read."""
    counted: Counter[Path] = Counter()

    def counting(path: Path, exclude: tuple[int, int] | None = None, column: str | None = None) -> Corpus:
        counted[path] += 1
        return read_corpus(path, exclude, column)

    monkeypatch.setattr("bench.data.training_data.read_corpus", counting)
    return counted


def text_in(spec: RunSpec, inputs: PlanInputs | None = None) -> str:
    corpus = make_plan(spec, inputs).jobs[0].record.training["corpus"]
    return str(corpus["sha256"])


def test_a_text_is_read_once_for_plans_that_share_what_was_read(tmp_path: Path, reads: Counter[Path]) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("A line of text.\nAnd more.\n" * 64)
    other.write_text("Another line.\nAnd more.\n" * 64)
    specs = [
        RunSpec(parse_methods(methods), (seed,), "mini", corpus=file)
        for methods in ("simcse", "arccon")
        for seed in (1, 2)
        for file in (one, other)
    ]
    inputs = PlanInputs()
    shared = [text_in(spec, inputs) for spec in specs]
    assert dict(reads) == {one: 1, other: 1}
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
