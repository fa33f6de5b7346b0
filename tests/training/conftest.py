"""Losses and gradients of every objective in one process, and helpers of trainings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.data.corpus import Corpus, make_corpus
from bench.data.toy_suite import make_toy_task
from bench.records.fingerprint import compute_family_key, find_fact_differences
from bench.records.record import RunRecord
from bench.training.pretraining import PretrainSettings
from tests.support.cli import Cli
from tests.support.rank_work import Found, Gradients, alone
from tests.support.ranks import CASES, largest

SETTINGS = PretrainSettings(
    layers=2, hidden=16, heads=2, vocabulary=150, max_length=24, steps=12, batch_size=8, lr=1e-3, warmup=0.25,
    mask=0.2, weight_decay=0.01,
)  # fmt: skip


@pytest.fixture(scope="session")
def objectives(tiny_bert: Path, tiny_mlm: Path, tmp_path_factory: pytest.TempPathFactory) -> Gradients:
    """Loss and gradients of every kind of objective: float64, three batches of five, one of them short."""
    subs = tmp_path_factory.mktemp("sub")
    shutil.copytree(tiny_bert, subs / "selected")
    return Gradients(CASES, tiny_bert, tiny_mlm, subs)


@pytest.fixture(scope="session")
def found_alone(objectives: Gradients) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = alone(objectives)
    return found


def check_equal(found: dict[str, list[Found]], expected: dict[str, list[Found]]) -> None:
    """Check that losses and gradients are equal up to rounding, and that there are some."""
    assert found.keys() == expected.keys()
    for name, steps in expected.items():
        assert len(steps) == len(found[name]) == 3
        assert max(largest(gradients) for _, gradients in steps) > 1e-3, name
        for step, ((loss, gradients), (ours, own)) in enumerate(zip(steps, found[name], strict=True)):
            assert ours == pytest.approx(loss, rel=1e-10, abs=1e-10), (name, step)
            assert own.keys() == gradients.keys(), (name, step)
            apart = {parameter: own[parameter] - gradient for parameter, gradient in gradients.items()}
            assert largest(apart) < 1e-10 * max(1.0, largest(gradients)), (name, step)


def rerun_all(cli: Cli, campaign: Path, model: Path, corpus: Path) -> None:
    for path in campaign.glob("*/*/*/*.json"):
        code, out, err = cli("verify", str(path), "--rerun", "--model", str(model), "--corpus", str(corpus))
        assert code == 0, out + err


def check_one_difference(one: RunRecord, other: RunRecord, difference: str) -> None:
    """Check that one fact, which is part of the keys, separates two records."""
    assert [str(each) for each in find_fact_differences(one, other)] == [difference]
    assert len({one.key, other.key}) == len({compute_family_key(one), compute_family_key(other)}) == 2


@pytest.fixture(scope="session")
def text() -> Corpus:
    return make_corpus("toy.txt", sorted({s for pair in make_toy_task().all_pairs() for s in pair}))
