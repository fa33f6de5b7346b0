"""A text prepared beforehand trains the same model, and is refused where it doesn't fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bench.config import profiles
from bench.data.corpus import Corpus
from bench.errors import DataError, InputError
from bench.nn.model_folder import hash_model
from bench.training.prepared_text import load_prepared_text, prepare_text, save_prepared_text
from bench.training.pretraining import pretrain
from tests.support.cli import Cli
from tests.training.conftest import SETTINGS

SMALL = replace(SETTINGS, layers=1, max_length=8, steps=6)
SIZES: dict[str, Any] = {"max_length": 8, "vocabulary": 150, "hidden": 16}
HOW: dict[str, Any] = {"seed": 3, "command": "c"}


@pytest.fixture
def folder(text: Corpus, tmp_path: Path) -> Path:
    save_prepared_text(prepare_text(text, **SIZES, split=True), tmp_path / "prepared")
    return tmp_path / "prepared"


def test_it_makes_the_same_weights_and_facts(text: Corpus, folder: Path, tmp_path: Path) -> None:
    facts = []
    for name, source in (("at once", text), ("again", load_prepared_text(folder))):
        facts.append(pretrain(source, SMALL, out=tmp_path / name, split=True, **HOW))
        del facts[-1]["cpu_seconds"]
    assert facts[0] == facts[1]
    assert hash_model(tmp_path / "at once") == hash_model(tmp_path / "again")


def test_a_cut_text_keeps_what_was_cut(text: Corpus, tmp_path: Path) -> None:
    prepared = prepare_text(text, **SIZES)
    save_prepared_text(prepared, tmp_path / "cut")
    again = load_prepared_text(tmp_path / "cut")
    assert again.cut == prepared.cut
    assert again.cut["lines"] > 0
    assert [row.tolist() for row in again.rows] == prepared.rows
    np.testing.assert_array_equal(again.embeddings, prepared.embeddings)


@pytest.mark.parametrize(("size", "other"), [("max_length", 9), ("vocabulary", 160), ("hidden", 12)])
def test_other_sizes_are_refused(folder: Path, tmp_path: Path, size: str, other: int) -> None:
    prepared = load_prepared_text(folder)
    with pytest.raises(InputError, match=f"prepared for {size} {SIZES[size]}, not {other}"):
        pretrain(prepared, replace(SMALL, **{size: other}), out=tmp_path / "m", split=True, **HOW)
    with pytest.raises(InputError, match="split True, not False"):
        pretrain(prepared, SMALL, out=tmp_path / "m", **HOW)


def spoil_arrays(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    save_file(change(load_file(folder / "rows.safetensors")), folder / "rows.safetensors")


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: spoil_arrays(place, lambda a: {**a, "ids": np.full_like(a["ids"], 60_000)}),
        lambda place: spoil_arrays(place, lambda a: {**a, "lengths": a["lengths"][1:].copy()}),
        lambda place: (place / "rows.safetensors").write_bytes(b"cut"),
        lambda place: (place / "prepared.json").write_text("[]"),
        lambda place: (place / "prepared.json").write_text(
            '{"text": {}, "cut": {}, "sizes": {"split": true}}'
        ),
    ],
)
def test_a_damaged_folder_is_named(folder: Path, damage: Callable[[Path], object]) -> None:
    damage(folder)
    with pytest.raises(DataError, match="prepared text"):
        load_prepared_text(folder)


@pytest.fixture
def small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    mini = replace(profiles.load_profile("mini"), pretrain=asdict(SMALL))
    monkeypatch.setattr(profiles, "load_profile", lambda name: mini)


@pytest.mark.slow
@pytest.mark.usefixtures("small_profile")
def test_the_command(cli: Cli, text: Corpus, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("\n".join(text.sentences))
    own = ("--corpus", "own.txt", "--split")
    for arguments in (("a", *own), ("b", "--prepare", *own), ("c", "--prepared", "b")):
        code, out, err = cli("pretrain", "--out", *arguments)
        assert code == 0, err
    assert "c: " in out
    facts = [json.loads((tmp_path / name / "pretraining.json").read_text()) for name in ("a", "c")]
    assert facts[0]["command"] == facts[1]["command"]
    assert facts[0]["loss_curve"] == facts[1]["loss_curve"]
    assert hash_model(tmp_path / "a") == hash_model(tmp_path / "c")
    assert not list(tmp_path.glob("*-unfinished"))
    refused = {
        ("--prepared", "b", "--split"): "text is prepared",
        ("--prepared", "b", "--hidden", "12"): "hidden 16, not 12",
        ("--prepared", "a"): "not a prepared text",
        ("--prepared", "b", "--prepare"): "prepared already",
    }
    for options, message in refused.items():
        code, _, err = cli("pretrain", "--out", "d", *options)
        assert (code, message in err) == (2, True), err


@pytest.mark.parametrize("option", [("--prepare",), ("--prepared", "b")])
def test_a_finished_model_s_head_takes_none(cli: Cli, option: tuple[str, ...]) -> None:
    code, _, err = cli("pretrain", "--profile", "minilm-mlm", "--out", "new", *option)
    assert (code, option[0] in err) == (2, True), err


def test_a_large_vocabulary_keeps_its_ids(text: Corpus, tmp_path: Path) -> None:
    small, many = prepare_text(text, **SIZES, split=True), 70_000
    embeddings = np.zeros((many, 16), dtype=np.float32)
    small.tokenizer.add_tokens([f"w{i}" for i in range(many - len(small.tokenizer))])
    wide = replace(small, rows=[[2, many - 1, 3]], embeddings=embeddings)
    save_prepared_text(wide, tmp_path / "wide")
    assert load_file(tmp_path / "wide" / "rows.safetensors")["ids"].tolist() == [2, many - 1, 3]
