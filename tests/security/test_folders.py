"""Hostile model folders: damaged, endless or leading elsewhere are refused in a line, and give no number."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.model_folder import hash_model, read_layer_count, resolve_folder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.cli import Cli
from tests.support.hostile import Edit, as_pickle, put, settings


def weights_of(content: bytes) -> Edit:
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def shards(name: str) -> Edit:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return edit


def change_weights(change: Callable[[dict[str, Any]], object]) -> Edit:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    as_pickle(folder, "tokenizer.pkl")


def hardly_a_word(folder: Path) -> None:
    """As transformers saves a tokenizer whose vocabulary it made up."""
    file = folder / "tokenizer.json"
    made = json.loads(file.read_text())
    special = {token["content"] for token in made["added_tokens"]}
    made["model"]["vocab"] = {word: at for word, at in made["model"]["vocab"].items() if word in special}
    file.write_text(json.dumps(made))


OVERFLOW = b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}'
WEIGHT = "encoder.layer.1.output.dense.weight"
SHAPES = "m: this model can't be loaded: the shapes of its weights aren't those that config.json gives"
MISSING = f"m: 1 weight(s) are missing from the checkpoint, the first is {WEIGHT}"
CODE = "is code from elsewhere, which is not executed; expected eager, sdpa or another of transformers' own"
INDEX = "m/model.safetensors.index.json: it names the weights file '{}'"
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
FEW_TOKENS = "the tokenizer knows 5 tokens, the model"
LOAD = "m: this model can't be loaded: "
HOSTILE_FOLDERS: list[tuple[Edit, str]] = [
    (settings(CONFIG, attn_implementation="e/k"), f"m/config.json: attn_implementation = 'e/k' {CODE}"),
    (settings(CONFIG, text={"_attn_implementation": "e/k"}), f"_attn_implementation = 'e/k' {CODE}"),
    (settings(CONFIG, num_hidden_layers=10**9), "m/config.json: num_hidden_layers = 1000000000; expected at"),
    (settings(CONFIG, model_type="x", auto_map={"AutoModel": "evil.M"}), LOAD),
    (settings(CONFIG, hidden_size=10**9), SHAPES),
    (lambda folder: (folder / CONFIG).write_text("[" * 100_000), "m: config.json is damaged; expected JSON"),
    (settings(TOKENIZER, model_max_length=-5), "m: its longest input is -5 tokens"),
    (settings(TOKENIZER, model_max_length="x"), "m: its longest input is 'x' tokens"),
    (settings("adapter_config.json", base="evil/x"), "m/adapter_config.json: this is an adapter"),
    (shards("../outside.safetensors"), INDEX.format("../outside.safetensors")),
    (shards("/etc/hostname"), INDEX.format("/etc/hostname")),
    (no_tokenizer, "m: the tokenizer's vocabulary is missing; expected tokenizer.json"),
    (hardly_a_word, f"m: {FEW_TOKENS}"),
    (lambda folder: as_pickle(folder, "tokenizer.json"), LOAD),
    (weights_of(struct.pack("<Q", 2**63) + b"{}"), f"{LOAD}Error while deserializing header"),
    (weights_of(struct.pack("<Q", 90 << 20) + b"{}"), f"{LOAD}Error while deserializing header"),
    (weights_of(struct.pack("<Q", len(OVERFLOW)) + OVERFLOW), "overflow computing buffer size"),
    (weights_of(b""), f"{LOAD}Error while deserializing header"),
    (change_weights(lambda weights: weights.update({WEIGHT: torch.zeros(3, 3)})), SHAPES),
    (change_weights(lambda weights: weights.pop(WEIGHT)), MISSING),
]


@pytest.mark.parametrize(("edit", "message"), HOSTILE_FOLDERS)
def test_folders_that_are_not_what_they_say(model: Path, edit: Edit, message: str) -> None:
    edit(model)
    with pytest.raises(InputError) as caught:
        TransformerEncoder(model, "avg")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change_weights(lambda weights: weights.pop(WEIGHT)), MISSING),
        (no_tokenizer, "the tokenizer's vocabulary is missing"),
        (hardly_a_word, FEW_TOKENS),
        (settings("1_Pooling/config.json", word_embedding_dimension=10**12), LOAD),
        (settings("1_Pooling/config.json", word_embedding_dimension=-1), LOAD),
        (settings("1_Pooling/config.json", word_embedding_dimension=8), "8 components"),
        (settings("1_Pooling/config.json", pooling_mode="evil.X"), LOAD),
        (settings("sentence_bert_config.json", max_seq_length=-1), "longest input is -1 tokens"),
        (settings("sentence_bert_config.json", max_seq_length=[]), "longest input is [] tokens"),
    ],
)
def test_sentence_transformers_folders_that_are_not_whole(model: Path, edit: Edit, message: str) -> None:
    edit(model)
    with pytest.raises(InputError) as caught:
        SentenceTransformerEncoder(model)
    assert message in str(caught.value)


@pytest.mark.parametrize("option", ["hf", "st"])
def test_weights_that_are_no_numbers_give_no_number(cli: Cli, model: Path, option: str) -> None:
    change_weights(lambda weights: weights[WEIGHT].fill_(float("nan")))(model)
    code, out, err = cli("run", "--suite", "toy", "--methods", f"{option}:{model}")
    assert (code, "finite" in err, "Traceback" in err) == (1, True, False)
    assert not any(character.isdigit() for character in out.splitlines()[4].split("0 of 1")[1])


def test_code_beside_a_known_architecture_stays_text(model: Path) -> None:
    plain = TransformerEncoder(model, "avg").encode(["the doctor"])
    put(model, CONFIG, auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    put(model, "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.X", "evil.X"]}, tokenizer_class="X")
    assert (TransformerEncoder(model, "avg").encode(["the doctor"]) == plain).all()


def test_another_tokenizer_is_not_taken(model: Path) -> None:
    plain = TransformerEncoder(model, "avg").encode(["the doctor"])
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["the"], words["doctor"] = words["doctor"], words["the"]
    (model.parent / "other.json").write_text(json.dumps(tokenizer))
    other = str(model.parent / "other.json")
    put(model, TOKENIZER, tokenizer_file=other, vocab_file="/etc/hostname", name_or_path="evil/x")
    assert (TransformerEncoder(model, "avg").encode(["the doctor"]) == plain).all()


def test_a_hash_holds_what_links_lead_to(model: Path) -> None:
    outside = model.parent / "outside"
    outside.mkdir()
    (model / "model.safetensors").rename(outside / "w")
    (model / "model.safetensors").symlink_to(outside / "w")  # as the hub's own cache has it
    before = hash_model(model)
    with (outside / "w").open("ab") as stream:
        stream.write(b" ")
    assert hash_model(model) != before
    (model / "1_Pooling").rename(outside / "pooling")
    (model / "1_Pooling").symlink_to(outside / "pooling")
    with pytest.raises(InputError, match=r"m: the folder '1_Pooling' is a link, .*; put a copy there"):
        resolve_folder(str(model), where="--methods")


def test_damaged_weights_have_no_shape(model: Path) -> None:
    assert read_layer_count(model) == (3, True)
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 2**63))
    with pytest.raises(InputError, match=r"m: model\.safetensors can't be read: "):
        read_layer_count(model)


def test_a_pipe_in_a_folder_is_no_endless_file(model: Path) -> None:
    os.mkfifo(model / "vocab.txt")
    with pytest.raises(InputError, match=r"m: 'vocab\.txt' is not a plain file"):
        resolve_folder(str(model), where="--methods")


@pytest.mark.parametrize("kind", ["detr", "dpt", "upernet"])
def test_settings_that_name_another_model_ask_no_network(
    model: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked: list[object] = []

    def look_up(*arguments: object, **_: object) -> object:
        asked.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as where the user's environment doesn't say so
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    elsewhere = {"backbone": "evil/x", "use_timm_backbone": False, "use_pretrained_backbone": True}
    (model / CONFIG).write_text(json.dumps({"model_type": kind, **elsewhere}))
    with pytest.raises(InputError, match="m: this model can't be loaded"):
        TransformerEncoder(model)
    assert asked == []
    assert constants.HF_HUB_OFFLINE is False
