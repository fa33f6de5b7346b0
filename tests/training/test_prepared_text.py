"""A text prepared beforehand trains the same model, and is refused where it doesn't fit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bench.config import profiles
from bench.data.corpus import Corpus, make_corpus
from bench.data.toy import make_toy_task
from bench.errors import DataError, InputError
from bench.nn.model_folder import hash_model
from bench.training.prepared_text import PreparedText, load_prepared_text, prepare_text, save_prepared_text
from bench.training.pretraining import PretrainSettings, pretrain
from tests.support.cli import Cli

SETTINGS = PretrainSettings(
    layers=1, hidden=16, heads=2, vocabulary=150, max_length=8, steps=6, batch_size=8, lr=1e-3, warmup=0.25,
    mask=0.2, weight_decay=0.01,
)  # fmt: skip
SIZES: dict[str, Any] = {"max_length": 8, "vocabulary": 150, "hidden": 16}


@pytest.fixture(scope="module")
def text() -> Corpus:
    return make_corpus("toy.txt", sorted({s for pair in make_toy_task().all_pairs() for s in pair}))


@pytest.fixture
def folder(text: Corpus, tmp_path: Path) -> Path:
    save_prepared_text(prepare_text(text, **SIZES, split=True), tmp_path / "prepared")
    return tmp_path / "prepared"


def test_it_makes_the_same_weights_and_facts(text: Corpus, folder: Path, tmp_path: Path) -> None:
    facts = []
    for name, source in (("at once", text), ("again", load_prepared_text(folder))):
        made = pretrain(source, SETTINGS, seed=3, out=tmp_path / name, command="c", split=True)
        facts.append({key: value for key, value in made.items() if key != "cpu_seconds"})
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
    with pytest.raises(InputError, match=f"prepared for {size} {SIZES[size]}, not {other}"):
        pretrain(
            load_prepared_text(folder),
            replace(SETTINGS, **{size: other}),
            seed=1,
            out=tmp_path / "m",
            command="c",
            split=True,
        )
    with pytest.raises(InputError, match="prepared for split True, not False"):
        pretrain(load_prepared_text(folder), SETTINGS, seed=1, out=tmp_path / "m", command="c")


def spoil_ids(folder: Path) -> None:
    arrays = load_file(folder / "rows.safetensors")
    arrays["ids"][3] = 60_000
    save_file(arrays, folder / "rows.safetensors")


def shorten(folder: Path) -> None:
    arrays = load_file(folder / "rows.safetensors")
    save_file({**arrays, "lengths": arrays["lengths"][1:].copy()}, folder / "rows.safetensors")


def lose_a_key(folder: Path) -> None:
    facts = json.loads((folder / "prepared.json").read_text())
    del facts["sizes"]["hidden"]
    (folder / "prepared.json").write_text(json.dumps(facts))


def cut_file(folder: Path) -> None:
    whole = (folder / "rows.safetensors").read_bytes()
    (folder / "rows.safetensors").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    "damage",
    [spoil_ids, shorten, lose_a_key, cut_file, lambda folder: (folder / "prepared.json").write_text("[]")],
)
def test_a_damaged_folder_is_named(folder: Path, damage: Any) -> None:
    damage(folder)
    with pytest.raises(DataError, match="prepared text"):
        load_prepared_text(folder)


@pytest.fixture
def small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    mini = replace(profiles.load_profile("mini"), pretrain=asdict(SETTINGS))
    monkeypatch.setattr(profiles, "load_profile", lambda name: mini)


@pytest.mark.slow
@pytest.mark.usefixtures("small_profile")
def test_the_command(cli: Cli, text: Corpus, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("\n".join(text.sentences))
    own = ("--corpus", "own.txt", "--split")
    lines: tuple[tuple[str, ...], ...] = (
        ("--out", "a", *own),
        ("--out", "b", "--prepare", *own),
        ("--out", "c", "--prepared", "b"),
    )
    for arguments in lines:
        code, out, err = cli("pretrain", *arguments)
        assert code == 0, err
    assert "c: " in out
    facts = [json.loads((tmp_path / name / "pretraining.json").read_text()) for name in ("a", "c")]
    assert facts[0]["command"] == facts[1]["command"]
    assert facts[0]["loss_curve"] == facts[1]["loss_curve"]
    assert hash_model(tmp_path / "a") == hash_model(tmp_path / "c")
    assert not list(tmp_path.glob("*-unfinished"))
    refused = {
        ("--prepared", "b", "--split"): "the text is prepared",
        ("--prepared", "b", "--hidden", "12"): "prepared for hidden 16, not 12",
        ("--prepared", "a"): "not a prepared text",
        ("--prepared", "b", "--prepare"): "it is prepared already",
    }
    for options, message in refused.items():
        code, _, err = cli("pretrain", "--out", "d", *options)
        assert (code, message in err) == (2, True), err


@pytest.mark.parametrize("option", [("--prepare",), ("--prepared", "b")])
def test_a_finished_model_s_head_takes_none(cli: Cli, option: tuple[str, ...]) -> None:
    code, _, err = cli("pretrain", "--profile", "minilm-mlm", "--out", "new", *option)
    assert (code, option[0] in err) == (2, True), err


def test_a_large_vocabulary_keeps_its_ids(text: Corpus, tmp_path: Path) -> None:
    small = prepare_text(text, **SIZES, split=True)
    many = 70_000
    wide = PreparedText(
        tokenizer=small.tokenizer,
        rows=[[2, many - 1, 3]],
        embeddings=np.zeros((many, 16), dtype=np.float32),
        text=small.text,
        cut={},
        sizes=small.sizes,
    )
    small.tokenizer.add_tokens([f"w{i}" for i in range(many - len(small.tokenizer))])
    save_prepared_text(wide, tmp_path / "wide")
    assert load_file(tmp_path / "wide" / "rows.safetensors")["ids"].tolist() == [2, many - 1, 3]
