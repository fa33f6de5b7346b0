"""A long training keeps its model each minute, and one that learns nothing can be given up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.corpus import Corpus, make_corpus
from bench.data.toy import make_toy_task
from bench.errors import BenchError
from bench.nn.masked_lm import load_masked_lm
from bench.nn.model_folder import hash_model
from bench.training import pretraining
from bench.training.pretraining import PretrainSettings, pretrain

SETTINGS = PretrainSettings(
    layers=1, hidden=16, heads=2, vocabulary=150, max_length=24, steps=6, batch_size=8, lr=1e-3, warmup=0.25,
    mask=0.2, weight_decay=0.01,
)  # fmt: skip


@pytest.fixture(scope="module")
def text() -> Corpus:
    return make_corpus("toy.txt", sorted({s for pair in make_toy_task().all_pairs() for s in pair}))


def test_a_killed_training_leaves_a_model_and_a_finished_one_none(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "m", tmp_path / "m-unfinished"
    pretrain(text, SETTINGS, seed=1, out=tmp_path / "whole", command="c")
    monkeypatch.setattr(pretraining, "_SECONDS", 0.0)
    said: list[str] = []
    steps: list[int] = []

    def stop(_: int) -> None:
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(text, SETTINGS, seed=1, out=out, command="c", progress=stop, say=said.append)
    assert not out.exists()
    facts = json.loads((kept / "pretraining.json").read_text())
    assert (facts["unfinished"], facts["loss_curve"][-1][0]) == (True, 3)
    assert [line for line in said if line.startswith("loss ")][-1].startswith(
        f"loss {facts['loss_curve'][-1][1]:.3f} after 3 steps"
    )
    load_masked_lm(kept)
    pretrain(text, SETTINGS, seed=1, out=out, command="c")
    assert hash_model(out) == hash_model(tmp_path / "whole")  # keeping it changed nothing
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "whole"]


def test_a_training_that_learns_nothing_is_given_up(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "TRIAL", 5)
    still = replace(SETTINGS, lr=1e-9)
    with pytest.raises(BenchError, match="after 5 steps, and token frequencies"):
        pretrain(text, still, seed=1, out=tmp_path / "m", command="c", give_up=True)
    assert not (tmp_path / "m").exists()
    facts = pretrain(text, still, seed=1, out=tmp_path / "m", command="c")
    assert facts["loss_curve"][-1][0] == 6


def test_what_is_learned() -> None:
    pretraining.check_learned(6.64, 7.0)
    with pytest.raises(BenchError):
        pretraining.check_learned(6.66, 7.0)
