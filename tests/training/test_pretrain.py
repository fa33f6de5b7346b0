"""Pretraining: training, text, watch, the shipped backbone, the command."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from ast import literal_eval
from collections import Counter
from dataclasses import asdict, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save
from transformers import configuration_utils

from bench.config import profiles
from bench.data.corpus import Corpus, make_corpus
from bench.data.data_source import World
from bench.data.mini import world_text
from bench.data.mini.generator import draw_customs, sample_event
from bench.data.mini.grammar import Draw, realise
from bench.data.mini.world_text import pretraining_text
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import TransformerEncoder, load_backbone, tokenize_rows
from bench.nn.masked_lm import load_masked_lm
from bench.nn.model_folder import hash_model
from bench.training import masked_lm_training, pretraining
from bench.training.masked_lm_training import length_pooled_batches, rate_by_time, warmup_rate
from bench.training.masking import mask_tokens
from bench.training.mixed_precision import train_at_precision
from bench.training.prepared_text import (
    compute_spectral_embeddings,
    count_cut_tokens,
    load_prepared_text,
    prepare_text,
    save_prepared_text,
    train_wordpiece,
)
from bench.training.pretraining import PretrainSettings, pretrain
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in
from tests.training.conftest import SETTINGS

HOW: dict[str, Any] = {"seed": 1, "command": "bench pretrain"}
Made = tuple[dict[str, Any], list[int], Path]


def cut_at(folder: Path) -> int:
    settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return int(settings["truncation"]["max_length"])


@pytest.fixture(scope="module")
def made(text: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Made:
    seen: list[int] = []
    folder = tmp_path_factory.mktemp("made") / "m"
    return pretrain(text, SETTINGS, out=folder, progress=seen.append, **HOW), seen, folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "pretraining.json"}


def test_same_seed_same_bytes_and_the_state_is_left_alone(text: Corpus, tmp_path: Path, made: Made) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    for seed in (1, 2):
        pretrain(text, SETTINGS, seed=seed, out=tmp_path / str(seed), command="c")
    assert torch.equal(torch.random.get_rng_state(), before)
    one, two, other = (files(folder) for folder in (made[2], tmp_path / "1", tmp_path / "2"))
    assert one == two
    assert other["tokenizer.json"] == one["tokenizer.json"]
    assert other["model.safetensors"] != one["model.safetensors"]


def test_what_it_leaves(text: Corpus, made: Made) -> None:
    facts, seen, folder = made
    assert json.loads((folder / "pretraining.json").read_text()) == facts
    known = {"name": "toy.txt", "sha256": text.sha256, "sentences": len(text.sentences), "world": None}
    assert facts["text"] == known
    assert (facts["command"], facts["loss_curve"][-1][0], sum(seen)) == ("bench pretrain", 12, 96)
    assert (facts["seed"], facts["rows"]) == (1, len(text.sentences))
    whole, _ = load_masked_lm(folder)
    assert facts["parameters"] == sum(weight.numel() for weight in whole.parameters()) > 3000
    model, tokenizer = load_backbone(folder)
    tokens = [token for row in tokenize_rows(tokenizer, text.sentences, 24) for token in row[1:-1]]
    shares = np.unique_counts(tokens).counts / len(tokens)
    assert facts["frequency_loss"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-4)
    tensors = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float16)}
    assert any(name.startswith("cls.predictions") for name in tensors)  # the MLM head is kept
    assert model.pooler is None
    assert next(model.parameters()).dtype == torch.float32


def test_its_hash_is_not_the_library_version_s(
    text: Corpus, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration_utils, "__version__", "99.0.0")
    pretrain(text, SETTINGS, out=tmp_path / "m", **HOW)
    assert hash_model(tmp_path / "m") == hash_model(made[2])


def test_a_model_without_pooler_encodes_the_same_after_every_load(text: Corpus, made: Made) -> None:
    first, second = (TransformerEncoder(made[2], "cls").encode(text.sentences[:5]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    states = [load_backbone(made[2])[0].state_dict() for _ in range(2)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_split_lines(text: Corpus, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, kept = load_backbone(made[2])[1], 7
    seen: list[list[int]] = []

    def train(_model: Any, _tokenizer: Any, rows: list[list[int]], *_: Any, **__: Any) -> list[list[float]]:
        seen.extend(rows)
        return [[1, 2.0]]

    monkeypatch.setattr("bench.training.pretraining.train_mlm", train)
    facts = pretrain(text, replace(SETTINGS, max_length=kept, steps=1), out=tmp_path / "m", split=True, **HOW)
    lines = tokenizer(list(text.sentences), add_special_tokens=False)["input_ids"]
    assert max(map(len, seen)) == kept < max(map(len, lines))
    assert {(row[0], row[-1]) for row in seen} == {(tokenizer.cls_token_id, tokenizer.sep_token_id)}
    assert [token for row in seen for token in row[1:-1]] == [token for line in lines for token in line]
    assert facts["rows"] == len(seen) == sum(-(-len(line) // (kept - 2)) for line in lines)
    assert facts["cut"] == {}
    facts = pretrain(text, replace(SETTINGS, max_length=kept, steps=1), out=tmp_path / "cut", **HOW)
    assert facts["cut"]["lines"] > 0
    folders = (tmp_path / "m", tmp_path / "cut", made[2])
    assert [cut_at(folder) for folder in folders] == [7, 7, 24]  # whatever the tokenizer's last call was


def test_lines_that_are_cut_are_counted_and_said() -> None:
    lines, said = ["a b c d e f", "a b", "a b c d"], list[str]()
    text, tokenizer = make_corpus("toy.txt", lines), train_wordpiece(lines, 40, max_length=5)
    for kept, counts in ((5, {"lines": 2, "of": 3, "tokens": 4}), (9, {"lines": 0, "of": 3, "tokens": 0})):
        rows = tokenize_rows(tokenizer, lines, kept)
        assert count_cut_tokens(tokenizer, text, lines, rows, kept, said.append) == counts
    (line,) = said
    assert numbers_in(line)[:3] == [2, 3, 5]
    assert not missing_facts(line, "toy.txt", "22.2%")


def test_divergence_is_an_error(text: Corpus, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="the loss is nan"):
        pretrain(text, replace(SETTINGS, lr=1e30, warmup=0.0), out=tmp_path / "m", **HOW)
    assert not (tmp_path / "m").exists()


def test_rates() -> None:
    rates = [warmup_rate(SETTINGS, step) for step in range(1, 13)]
    assert rates[2] == max(rates) == SETTINGS.lr
    assert all(a < b for a, b in pairwise(rates[:3]))
    assert all(a > b > 0 for a, b in pairwise(rates[2:]))
    timed = [rate_by_time(SETTINGS, share) for share in (0.0, 0.125, 0.25, 0.625, 1.0, 1.5)]
    assert timed == pytest.approx([0.0, 5e-4, 1e-3, 5e-4, 0.0, 0.0])
    assert rate_by_time(replace(SETTINGS, warmup=1.0), 1.0) == 0


def test_batches() -> None:
    lengths = [5 + i % 17 for i in range(300)]
    order = length_pooled_batches(lengths, 8, 1)
    epoch = [next(order) for _ in range(38)]
    assert Counter(index for batch in epoch for index in batch) == Counter(range(300))
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in epoch)
    assert padded < 1.2 * sum(lengths)
    assert epoch != [next(order) for _ in range(38)]
    assert epoch == [batch for batch, _ in zip(length_pooled_batches(lengths, 8, 1), range(38), strict=False)]


@pytest.mark.slow
def test_a_training_by_time_ends_in_time_and_says_how_far_it_came(text: Corpus, tmp_path: Path) -> None:
    begin = time.monotonic()
    facts = pretrain(text, SETTINGS, out=tmp_path / "m", minutes=0.05, **HOW)
    assert time.monotonic() - begin < 3 + 5  # saving comes after
    assert facts["settings"]["steps"] == facts["loss_curve"][-1][0] > SETTINGS.steps
    assert facts["minutes"] == 0.05
    ends: list[dict[str, Any]] = [{"minutes": 1e-6}, {"minutes": 1, "began": begin - 60}]
    for times in ends:
        with pytest.raises(BenchError, match="before the first step"):
            pretrain(text, SETTINGS, out=tmp_path / "n", **times, **HOW)
    assert not (tmp_path / "n").exists()


def test_losses_that_are_read_later_name_their_step() -> None:
    losses = masked_lm_training._LossCurve(3)
    for loss in (4.0, 2.0, 3.0, 1.0):
        losses.add(torch.tensor(loss))
    assert losses.curve() == [[4, 2.5]]
    losses.add(torch.tensor(math.nan))
    losses.add(torch.tensor(1.0))
    with pytest.raises(BenchError, match="the loss is nan at step 5"):
        losses.add(torch.tensor(1.0))


def test_spectral_embeddings_by_hand() -> None:
    """Two pairs of words, each pair in company of its own: PPMI is block-diagonal with log 2 per cell."""
    rows = [[0, 1], [0, 1], [2, 3], [3, 2, 3]]
    found = compute_spectral_embeddings(rows, 5, 2, 0.5)
    assert found.shape == (5, 2)
    np.testing.assert_allclose(np.linalg.norm(found[:4], axis=1), 0.5 * np.sqrt(2), rtol=1e-6)
    cosine = found[:4] @ found[:4].T / 0.5
    expected = np.kron(np.eye(2), np.ones((2, 2)))
    np.testing.assert_allclose(np.abs(cosine), expected, atol=1e-6)
    assert not found[4].any()


@pytest.mark.slow
@pytest.mark.long
def test_wordpiece_is_the_same_in_every_process(text: Corpus, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(text.sentences))
    code = (
        "import sys; from bench.training.prepared_text import train_wordpiece; "
        "print(train_wordpiece(open('text').read().split('\\n'), 150, max_length=24).get_vocab())"
    )
    how: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "PYTHONHASHSEED": "1"}, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **how)
    vocabulary = train_wordpiece(text.sentences, 150, max_length=24).get_vocab()
    assert literal_eval(done.stdout) == vocabulary, done.stderr
    assert len(vocabulary) <= 150
    assert vocabulary["[PAD]"] == 0


def test_wordpiece_tokens_are_ordinary_and_lower_case(text: Corpus) -> None:
    tokenizer = train_wordpiece(text.sentences, 300, max_length=24)
    assert tokenizer.tokenize("The DOCTOR is.") == ["the", "doctor", "is", "."]
    assert tokenizer.tokenize("##a") != ["##a"]  # a continuation in a text is no token of its own
    assert len(tokenizer("word " * 50, truncation=True)["input_ids"]) == 24


SHIPPED = Path(str(resources.files("bench.data.mini").joinpath("backbone")))


def test_the_shipped_backbone_names_its_making() -> None:
    facts: dict[str, Any] = json.loads((SHIPPED / "pretraining.json").read_text())
    text = pretraining_text(World(1))
    known = {"name": text.name, "sha256": text.sha256, "sentences": len(text.sentences)}
    assert facts["text"] == {**known, "world": World(1).facts}
    assert facts["settings"] == profiles.load_profile("mini").pretrain
    assert facts["command"] == "bench pretrain --profile mini --world-seed 1 --seed 1 --out DIR"
    assert facts["cpu_seconds"] < 15 * 60
    assert facts["loss_curve"][-1][1] < 0.3 * facts["loss_curve"][0][1]
    assert sum(path.stat().st_size for path in SHIPPED.glob("*.safetensors")) <= 4e6


def test_the_shipped_backbone_predicts_masked_words_of_unseen_events() -> None:
    model, tokenizer = load_masked_lm(SHIPPED)
    world, draw = draw_customs(1), Draw("masked")
    sentences = [realise(sample_event(world, draw, "test"), world.lexicon, draw) for _ in range(200)]
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    assert tokenizer.unk_token_id not in batch["input_ids"]
    inputs, chosen = mask_tokens(batch["input_ids"], tokenizer, 0.15, torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = model.eval()(input_ids=inputs, attention_mask=batch["attention_mask"]).logits
    accuracy = (logits.argmax(-1) == batch["input_ids"])[chosen].float().mean()
    assert float(accuracy) > 0.5


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("--profile", "minilm"), ("'minilm'", "[pretrain]", "mini")),
        (("--profile", "mini", "--out", "full"), ("--out full", "not empty")),
        *((("--out", out), (f"--out {out}", "can't be written")) for out in ("full/file/made", "/proc/made")),
        (("--profile", "mni"), ("'mini'",)),
        (("--hidden", "96", "--heads", "5"), ("--heads 5", "width of 96")),
        (("--heads", "3"), ("--heads 3", "width of 128")),
        *((option, (f"'{option[0]}'",)) for option in (("--layers", "0"), ("--max-length", "2"))),
        *((("--minutes", value), ("'--minutes'",)) for value in ("0", "nan")),
        (("--corpus", "none.txt"), ("none.txt", "can't be read")),
        (("--corpus", "full/file"), ("full/file", ".txt or .txt.xz")),
        (("--corpus", "full/file", "--world-seed", "2"), ("not synthetic",)),
        (("--profile", "minilm-mlm", "--layers", "2"), ("--layers 2", "--profile mini")),
        (("--profile", "minilm-mlm", "--split"), ("--split", "--profile mini")),
        (("--profile", "minilm-mlm", "--max-length", "64"), ("--max-length 64", "--profile mini")),
        (("--profile", "minilm-mlm", "--prepare"), ("--prepare",)),
        (("--profile", "minilm-mlm", "--prepared", "b"), ("--prepared",)),
    ],
)
def test_bad_requests(
    cli: Cli, tmp_path: Path, arguments: Any, facts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.setattr("bench.training.pretraining.train_mlm", None)  # refused before
    code, _, err = cli("pretrain", "--out", "new", *arguments)
    assert code == 2
    assert not missing_facts(err, *facts)


def small_profile(monkeypatch: pytest.MonkeyPatch, settings: PretrainSettings) -> None:
    mini = replace(profiles.load_profile("mini"), pretrain=asdict(settings))
    monkeypatch.setattr(profiles, "load_profile", lambda name: mini)


@pytest.mark.slow
def test_sizes_text_and_time(cli: Cli, tmp_path: Path, text: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    small_profile(monkeypatch, replace(SETTINGS, steps=10**9))
    (tmp_path / "own.txt").write_text("\n".join(text.sentences))
    own = ("--corpus", "own.txt", "--layers", "1", "--hidden", "40", "--max-length", "8", "--split")
    code, out, err = cli("pretrain", "--out", "made", *own, "--minutes", "0.05")
    assert code == 0, err
    facts = json.loads((tmp_path / "made" / "pretraining.json").read_text())
    ran = facts["settings"]
    assert 1 <= ran["steps"] == facts["loss_curve"][-1][0] < 10**9
    assert f"{ran['steps']:,} steps" in out
    left = re.search(r"^the text is prepared: (\d) s", err, re.M)
    assert left is not None
    assert int(left[1]) <= 3
    assert ("token frequencies" in err) == (facts["loss_curve"][-1][1] > 0.95 * facts["frequency_loss"])
    assert (ran["layers"], ran["hidden"], ran["heads"], facts["minutes"]) == (1, 40, 1, 0.05)
    assert (facts["text"]["name"], facts["text"]["sha256"]) == ("own.txt", text.sha256)
    sizes = "--layers 1 --max-length 8 --hidden 40 --heads 1"
    named = f"--corpus own.txt {sizes} --split --minutes 0.05 --seed 1 --out DIR"
    assert facts["command"] == f"bench pretrain --profile mini {named}"
    model, _ = load_backbone(tmp_path / "made")
    assert (len(model.encoder.layer), model.config.hidden_size) == (1, 40)
    assert (model.config.max_position_embeddings, ran["max_length"]) == (8, 8)
    assert facts["rows"] > len(text.sentences)  # of at most eight tokens
    code, _, err = cli("pretrain", "--out", "wide", "--corpus", "own.txt", "--hidden", "512")
    assert (code, "own.txt: a width of 512" in err) == (2, True), err


@pytest.mark.long
def test_a_backbone_for_another_world(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_profile(monkeypatch, replace(SETTINGS, vocabulary=400))
    text = world_text.pretraining_text(World(2))
    short = make_corpus(text.name, text.sentences[:2000], text.world)
    monkeypatch.setattr(world_text, "pretraining_text", lambda _world: short)
    code, out, err = cli("pretrain", "--world-seed", "2", "--out", "made")
    assert code == 0, err
    assert "made: " in out
    arguments = ("run", "--methods", "untrained", "--world-seed", "2")
    code, _, err = cli(*arguments)
    assert (code, "world seed 1" in err) == (2, True)
    code, out, err = cli(*arguments, "--backbone", "made")
    assert code == 0, err
    assert "no benchmark" in out


def test_bfloat16_learns_about_the_same(text: Corpus, tmp_path: Path, made: Made) -> None:
    with train_at_precision("bf16"):
        low = pretrain(text, SETTINGS, out=tmp_path, **HOW)
    curves = [[loss for _, loss in facts["loss_curve"]] for facts in (made[0], low)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.05)
    stored = [load_backbone(folder)[0].state_dict() for folder in (made[2], tmp_path)]
    assert not all(torch.equal(a, b) for a, b in zip(*(s.values() for s in stored), strict=True))


def test_killed_trainings(text: Corpus, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, kept = tmp_path / "m", tmp_path / "m-unfinished"
    monkeypatch.setattr(pretraining, "_SECONDS", 0.0)
    said: list[str] = []
    steps: list[int] = []

    def stop(_: int) -> None:
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(text, SETTINGS, out=out, progress=stop, say=said.append, **HOW)
    assert not out.exists()
    facts = json.loads((kept / "pretraining.json").read_text())
    assert (facts["unfinished"], facts["loss_curve"][-1][0]) == (True, 3)
    assert numbers_in(said[-1]) == [round(facts["loss_curve"][-1][1], 3), 3]
    load_masked_lm(kept)
    pretrain(text, SETTINGS, out=out, **HOW)
    assert hash_model(out) == hash_model(made[2])  # keeping it changed nothing
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_training_in_vain_is_given_up(text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "TRIAL", 5)
    still = replace(SETTINGS, lr=1e-9)
    with pytest.raises(BenchError, match="after 5 steps"):
        pretrain(text, still, out=tmp_path / "m", give_up=True, **HOW)
    assert not (tmp_path / "m").exists()
    assert pretrain(text, still, out=tmp_path / "m", **HOW)["loss_curve"][-1][0] == 12
    pretraining.check_learned(6.64, 7.0)
    with pytest.raises(BenchError):
        pretraining.check_learned(6.66, 7.0)


SMALL = replace(SETTINGS, layers=1, max_length=8, steps=6)
SIZES: dict[str, Any] = {"max_length": 8, "vocabulary": 150, "hidden": 16}


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


def test_a_damaged_folder_is_named(folder: Path) -> None:
    rows, facts = folder / "rows.safetensors", folder / "prepared.json"
    arrays, good, text = load_file(rows), rows.read_bytes(), facts.read_text()
    for content, described in (
        (save({**arrays, "ids": np.full_like(arrays["ids"], 60_000)}), text),
        (save({**arrays, "lengths": arrays["lengths"][1:].copy()}), text),
        *((b"cut", text), (good, "[]"), (good, '{"text": {}, "cut": {}, "sizes": {"split": true}}')),
    ):
        rows.write_bytes(content)
        facts.write_text(described)
        with pytest.raises(DataError, match="prepared text"):
            load_prepared_text(folder)


@pytest.mark.slow
def test_the_command(cli: Cli, text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_profile(monkeypatch, SMALL)
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


def test_a_large_vocabulary_keeps_its_ids(text: Corpus, tmp_path: Path) -> None:
    small, many = prepare_text(text, **SIZES, split=True), 70_000
    embeddings = np.zeros((many, 16), dtype=np.float32)
    small.tokenizer.add_tokens([f"w{i}" for i in range(many - len(small.tokenizer))])
    wide = replace(small, rows=[[2, many - 1, 3]], embeddings=embeddings)
    save_prepared_text(wide, tmp_path / "wide")
    assert load_file(tmp_path / "wide" / "rows.safetensors")["ids"].tolist() == [2, many - 1, 3]
