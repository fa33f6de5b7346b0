"""A record repeats from itself, and a changed digit is found."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli, records
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts, numbers_in
from tests.support.training import arguments


def record_path(tmp_path: Path, part: str) -> Path:
    return tmp_path / "results" / "local" / next(name for name in records(tmp_path) if part in name)


def test_equal_or_the_digit_that_differs(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise[scale=2.5],word_overlap", "--seeds", "3", "--suite", "toy")
    for part in ("noise", "word_overlap"):
        code, out, _ = cli("rerun", str(record_path(tmp_path, part)))
        assert (code, out.partition(":")[0]) == (0, "equal")
    path = record_path(tmp_path, "noise")
    was = json.loads(path.read_text())["scores"][0]["value"]
    forge(path, lambda record: record["scores"][0].update(value=was + 1e-15))
    code, out, _ = cli("rerun", str(path))
    assert (code, out.count("\n")) == (1, 1)
    assert not missing_facts(out, "TOY all spearman:", repr(was + 1e-15), repr(was))
    forge(path, lambda record: record["timing"].update(processor="another one"))
    code, out, _ = cli("rerun", str(path))
    assert (code, out.count("\n")) == (1, 2)
    assert "CPU then another one" in out
    forge(path, lambda record: record.update(version=0))
    code, _, err = cli("rerun", str(path))
    assert (code, missing_facts(err, "version then 0,", "now 1")) == (3, [])
    forge(path, lambda record: record.update(version=1), "kept")
    code, _, err = cli("rerun", str(path))
    assert (code, "changed since" in err) == (2, True)
    assert "nowhere.json:" in cli("rerun", "nowhere.json")[2]


def test_training_is_repeated(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    assert cli(*arguments(tiny_bert, corpus))[0] == 0
    path = record_path(tmp_path, "simcse")
    code, _, err = cli("rerun", str(path))
    assert (code, missing_facts(err, "'tiny-bert'", "--model FOLDER")) == (2, [])
    code, out, err = cli("rerun", str(path), "--model", str(tiny_bert), "--corpus", str(corpus))
    assert (code, out.partition(":")[0]) == (0, "equal"), err


@pytest.mark.slow
def test_predictions_and_training_compared(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    """On equal versions and CPU; on another a digit of theirs may differ where no score does."""
    assert cli(*arguments(tiny_bert, corpus))[0] == 0
    path, given = record_path(tmp_path, "simcse"), ("--model", str(tiny_bert), "--corpus", str(corpus))
    whole = {file: file.read_bytes() for file in (path, path.with_suffix(".npz"))}

    def stage(record: dict[str, Any], **facts: Any) -> None:
        record["training"]["stages"]["simcse"] |= facts

    step = json.loads(whole[path])["training"]["stages"]["simcse"]["steps"]
    forge(path, partial(stage, steps=step + 1))
    code, out, err = cli("rerun", str(path), *given)
    assert (code, out.partition(":")[0], numbers_in(out)) == (1, "simcse steps", [step + 1, step]), err
    path.write_bytes(whole[path])
    forge(path, partial(stage, dev_curve=[[0, 0.5]]))
    assert cli("rerun", str(path), *given)[1].startswith("simcse dev_curve: ")
    path.write_bytes(whole[path])
    forge_predictions(path, lambda values: values * np.float32(1.001))  # in the same order
    assert json.loads(path.read_text())["scores"][:2] == json.loads(whole[path])["scores"][:2]
    code, out, _ = cli("rerun", str(path), *given)
    assert (code, "predictions: then '" in out) == (1, True)
    forge(path, lambda record: record["timing"].update(processor="another one"))
    assert "predictions" not in cli("rerun", str(path), *given)[1]


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
        code, out, err = cli("rerun", str(path), "--model", str(tiny_bert), "--corpus", str(corpus))
        assert (code, out.partition(":")[0]) == (0, "equal"), err


def test_a_failed_record_is_not_repeated(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "broken", "--seeds", "2", "--suite", "toy")
    code, _, err = cli("rerun", str(record_path(tmp_path, "broken")))
    assert (code, missing_facts(err, "failed", "(RuntimeError")) == (2, [])
