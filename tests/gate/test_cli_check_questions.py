"""``bench check`` on real cells: its three questions, strict, plug-ins, kept encoders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.baselines.word_overlap import WordOverlapScorer
from bench.encoder import FloatArray
from bench.registry import METHODS
from tests.support.cli import Cli, records, refusal
from tests.support.forge import forge
from tests.support.messages import missing_facts

RUN = ("run", "--suite", "toy", "--seeds", "1-3", "--methods")
REFERENCE = (*RUN, "noise,word_overlap", "--campaign", "reference")
UPDATE = ("check", "--update", "--yes", "--why")
overlap = WordOverlapScorer.score_pairs
METHOD = """
from bench.card import MethodCard, Option
from bench.registry import add_method
import numpy as np


@add_method
class Mine:
    card = MethodCard(name="mine", kind="test", summary="s", version=1, needs_backbone=False)

    def build(self, context):
        class Encoder:
            dim, facts = 4, {}

            def encode(self, sentences, batch_tokens=None, progress=None):
                rng = np.random.default_rng(context.seed)
                return np.stack([[len(s), len(s.split()), SIGN * s.count("e"), 1 + rng.random()]
                                 for s in sentences]).astype("float32")

        return Encoder()
"""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def verdicts(tmp_path: Path) -> dict[str, dict[str, Any]]:
    data = json.loads((tmp_path / "verdict.json").read_text())
    return {cell["method"]: cell for cell in data["cells"]}


def test_a_changed_metric_is_caught_before_anything_runs(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    assert "4 records" in cli("check", "--methods", "noise,word_overlap")[1]

    def pearson(one: FloatArray, other: FloatArray) -> float:
        return float(np.corrcoef(one, other)[0, 1])

    monkeypatch.setattr("bench.eval.sts.spearman", pearson)
    code, _, err = cli("check", "--json", "verdict.json")
    assert (code, "[1/" in err) == (1, False)  # nothing ran
    assert not missing_facts(err, "recompute and retrain", "not asked")
    for cell in verdicts(tmp_path).values():
        assert (cell["question"], cell["status"], cell["stage"]) == ("rescore", "changed", "scores")
        assert not missing_facts(cell["reasons"][0], "own predictions", "TOY all")
    encoder = ("--encoder", "x", "--name", "y", "--why", "z", "--reference", "v1:x")
    assert "git revision" in refusal(cli, "check", "--update", *encoder)
    code, _, err = cli(*UPDATE, "Pearson from now on")
    assert code == 0, err
    assert cli("check", "--strict")[0] == 0


def test_seeds_are_not_trained_again_where_a_deterministic_cell_fails(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    monkeypatch.setattr(WordOverlapScorer, "score_pairs", lambda self, a, b: -overlap(self, a, b))
    code, _, err = cli("check", "--json", "verdict.json")
    assert (code, "noise seed" in err) == (1, False)
    assert list(verdicts(tmp_path)) == ["word_overlap"]
    assert not missing_facts(err, "warning: retrain", "not asked")


def test_strict_fails_for_any_changed_byte_and_says_which_stage(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    assert cli("check", "--strict")[0] == 0

    def plant(change: Callable[[FloatArray], FloatArray]) -> None:
        def score_pairs(self: Any, first: Any, second: Any) -> FloatArray:
            return change(overlap(self, first, second))

        monkeypatch.setattr(WordOverlapScorer, "score_pairs", score_pairs)

    plant(lambda scores: scores * np.float32(1 + 1e-6))
    code, out, _ = cli("check", "--json", "verdict.json")
    assert (code, verdicts(tmp_path)["word_overlap"]["stage"]) == (0, "similarities")
    code, out, _ = cli("check", "--strict", "--json", "verdict.json")
    found = verdicts(tmp_path)["word_overlap"]
    assert (code, found["status"], found["stage"]) == (1, "changed", "similarities")
    assert not missing_facts(out, "numbers changed", "first in similarities")
    assert cli(*UPDATE, "scaled")[0] == 0
    assert cli("check", "--strict")[0] == 0

    for path in (tmp_path / "results" / "reference" / "mini" / "word_overlap").rglob("toy.json"):
        forge(path, lambda record: record["timing"].update(processor="another"))
    plant(lambda scores: scores)
    assert cli("check", "--strict")[0] == 0  # a millionth is what another CPU may move
    plant(lambda scores: scores + np.float32(0.001))
    code, out, _ = cli("check", "--strict")
    assert (code, missing_facts(out, "than another CPU")) == (1, [])


def test_a_method_from_a_file_is_gated(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD.replace("SIGN", "1"))
    plugin = ("--plugin", str(file))
    assert cli(*RUN, "mine", "--campaign", "reference", *plugin)[0] == 0
    for comment in ("", "# a comment\n"):
        file.write_text(comment + METHOD.replace("SIGN", "1"))
        code, out, err = cli("check", "--strict", *plugin)
        assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal"), err
    file.write_text(METHOD.replace("SIGN", "50"))
    code, out, err = cli("check", "--strict", *plugin)
    assert (code, out.splitlines()[-1].startswith("FAILED, 1 of")) == (1, True), err
    assert cli(*UPDATE, "counts more", *plugin)[0] == 0
    assert cli("check", "--strict", *plugin)[0] == 0


def test_seeds_that_are_ignored_fail(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli(*REFERENCE)
    noise = METHODS.get("noise")
    build = noise.build
    monkeypatch.setattr(noise, "build", lambda context: build(replace(context, seed=1)))
    code, out, _ = cli("check", "--methods", "noise")
    assert code == 1
    assert not missing_facts(out, "failed: seed 2", "seed 1 and", "seed is ignored", "seed 3:")


@pytest.mark.long
def test_a_kept_encoder_is_computed_again(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = "short=simcse[steps=2,eval_every=2,batch_size=16,lr=1e-3]"
    assert cli(*RUN, short, "--seeds", "1-2", "--dev", "toy", "--campaign", "reference")[0] == 0
    code, out, err = cli(*UPDATE, "keep it", "--keep-encoders")
    assert code == 0, err
    assert not missing_facts(out, "short seed 1", "short.kept")
    reference = tmp_path / "results" / "reference"
    weights = reference / "mini" / "short.kept" / "no-seed" / "encoder"
    trained, kept = (
        records(tmp_path, "reference")[f"mini/{name}/toy.json"].score("avg") or 0
        for name in ("short/seed-1", "short.kept/no-seed")
    )
    assert trained == pytest.approx(kept, abs=0.01)  # of weights with two bytes
    for methods in ((), ("--methods", "short")):
        assert "nothing to update" in cli(*UPDATE, "again", "--keep-encoders", *methods)[1]

    check = ("check", "--strict", "--methods", "short.kept")
    code, out, err = cli(*check)
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal"), err
    shutil.copytree(reference / "mini" / "short", tmp_path / "results" / "local" / "mini" / "short")
    code, out, err = cli("check", "--results", "results")  # records of a run hold no kept encoder
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal"), err
    from bench.nn import backbone
    from bench.nn.hidden_states import pool_states

    monkeypatch.setattr(
        backbone, "pool_states", lambda states, mask, how, *a, **k: pool_states(states, mask, "avg", *a, **k)
    )
    code, out, _ = cli(*check)
    assert (code, "short.kept on toy" in out.splitlines()[-1]) == (1, True)
    monkeypatch.setattr(backbone, "pool_states", pool_states)

    config = json.loads((weights / "config.json").read_text())
    (weights / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    code, _, err = cli(*check)
    assert (code, missing_facts(err, "short.kept on toy", "weights then encoder")) == (3, [])
