"""Hostile model folders: damaged, endless, pickled or leading elsewhere are refused, nothing in them runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import bench
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.nn.masked_lm import load_masked_lm
from bench.nn.model_folder import hash_model, read_layer_count, resolve_folder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.cli import Cli
from tests.support.hostile import PICKLE, Edit, as_legacy, as_pickle, as_zip, put, settings
from tests.support.messages import missing_facts


def weights_of(content: bytes) -> Edit:
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def shards(name: str) -> Edit:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return edit


def edit_file(name: str, change: Callable[[Any], object]) -> Edit:
    """Change a JSON file in place."""

    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

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


def keep_special_tokens(tokenizer: dict[str, Any]) -> None:
    """As transformers saves a tokenizer whose vocabulary it made up."""
    special = [token["content"] for token in tokenizer["added_tokens"]]
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: words[word] for word in special if word in words}


def pooling(**values: object) -> Edit:
    return edit_file("modules.json", lambda modules: modules[1].update(values))


def new_module(kind: str, file: str, **settings: object) -> Edit:
    """Put another of sentence-transformers' modules behind the pooling."""
    new = {"idx": 2, "name": "2", "path": "2_New", "type": f"sentence_transformers.models.{kind}"}

    def edit(folder: Path) -> None:
        edit_file("modules.json", lambda modules: modules.append(new))(folder)
        put(folder, f"2_New/{file}", **settings)

    return edit


LOADERS: dict[str, Callable[[Path], object]] = {
    "hf": TransformerEncoder,
    "st": SentenceTransformerEncoder,
    "masked_lm": load_masked_lm,
}
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
BERT, POOLING = "sentence_bert_config.json", "1_Pooling/config.json"
hardly_a_word = edit_file("tokenizer.json", keep_special_tokens)
OVERFLOW = b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}'
WEIGHT = "encoder.layer.1.output.dense.weight"
SHAPES = "m: this model can't be loaded: the shapes of its weights aren't those that config.json gives"
MISSING = f"m: 1 weight(s) are missing from the checkpoint, the first is {WEIGHT}"
CODE = "is code from elsewhere, which is not executed; expected eager, sdpa or another of transformers' own"
INDEX = "m/model.safetensors.index.json: it names the weights file '{}'"
ADAPTER = "m/adapter_config.json: the folder has an adapter and a whole model"
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
    (settings("adapter_config.json", base="evil/x"), ADAPTER),
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
KINDS = (
    *("os.system", "evil.X", "m.evil.X", "sentence_transformers_evil.X", "sentence_transformers."),
    *("sentence_transformers.base.model.torch", "sentence_transformers.util.misc.importlib.X()"),
)
FOREIGN = "m/modules.json: it names the foreign class '{}', which is not executed"
ANOTHER = "m/2_New/{}: it names the foreign class 'evil.X'"
ROUTES = {"types": {"a": "evil.X"}, "structure": {}, "parameters": {}}
LOADING: tuple[tuple[str, str, object], ...] = (
    ("model_args", "weights_only", False),
    ("model_kwargs", "weights_only", False),
    ("model_args", "use_kernels", True),
    ("model_args", "state_dict", {}),
    ("tokenizer_args", "tokenizer_file", "/etc/hostname"),
    ("config_args", "name_or_path", "evil/x"),
)
LOADED = "holds '{}', which decides how the files are loaded"
HOSTILE_MODULES: list[tuple[Edit, str]] = [
    (change_weights(lambda weights: weights.pop(WEIGHT)), MISSING),
    (no_tokenizer, "the tokenizer's vocabulary is missing"),
    (hardly_a_word, FEW_TOKENS),
    (settings(POOLING, word_embedding_dimension=10**12), LOAD),
    (settings(POOLING, word_embedding_dimension=-1), LOAD),
    (settings(POOLING, word_embedding_dimension=8), "8 components"),
    (settings(POOLING, pooling_mode="evil.X"), LOAD),
    (settings(BERT, max_seq_length=-1), "longest input is -1 tokens"),
    (settings(BERT, max_seq_length=[]), "longest input is [] tokens"),
    *((pooling(type=kind), FOREIGN.format(kind)) for kind in KINDS),
    (pooling(path="../other"), "m/modules.json: the module's path '../other' leads out of the folder"),
    (pooling(path="/etc"), "m/modules.json: the module's path '/etc' leads out of the folder"),
    (pooling(path=7), "m/modules.json: module 2 has no path"),
    (new_module("WordEmbeddings", "wordembedding_config.json", tokenizer_class="evil.X"),
     ANOTHER.format("wordembedding_config.json")),
    (new_module("Router", "router_config.json", **ROUTES), ANOTHER.format("router_config.json")),
    (new_module("Dense", "config.json", activation_function="evil.X", in_features=1, out_features=1),
     ANOTHER.format("config.json")),
    *((settings(BERT, **{of: {name: value}}), f"m/{BERT}: {of} {LOADED.format(name)}")
      for of, name, value in LOADING),
    (settings(BERT, model_args={"attn_implementation": "evil/k"}), "'evil/k' is code from elsewhere"),
    (settings(BERT, tokenizer_name_or_path="evil/x"), f"m/{BERT}: it names another model's tokenizer"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loader", "edit", "message"),
    [*(("hf", *row) for row in HOSTILE_FOLDERS), *(("st", *row) for row in HOSTILE_MODULES)],
)
def test_folders_that_are_not_what_they_say(model: Path, loader: str, edit: Edit, message: str) -> None:
    edit(model)
    with pytest.raises(InputError) as caught:
        LOADERS[loader](model)
    assert message in str(caught.value)


def test_code_beside_a_known_architecture_stays_text_and_another_tokenizer_is_not_taken(model: Path) -> None:
    plain = TransformerEncoder(model, "avg").encode(["the doctor"])
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["the"], words["doctor"] = words["doctor"], words["the"]
    other = model.parent / "other.json"
    other.write_text(json.dumps(tokenizer))
    put(model, TOKENIZER, tokenizer_file=str(other), vocab_file="/etc/hostname", name_or_path="evil/x")
    assert (TransformerEncoder(model, "avg").encode(["the doctor"]) == plain).all()
    put(model, CONFIG, auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    put(model, TOKENIZER, auto_map={"AutoTokenizer": ["evil.X", "evil.X"]}, tokenizer_class="X")
    assert (TransformerEncoder(model, "avg").encode(["the doctor"]) == plain).all()


@pytest.mark.parametrize("option", ["hf", "st"])
def test_weights_that_are_no_numbers_give_no_number(cli: Cli, model: Path, option: str) -> None:
    change_weights(lambda weights: weights[WEIGHT].fill_(float("nan")))(model)
    code, out, err = cli("run", "--suite", "toy", "--methods", f"{option}:{model}")
    assert (code, "finite" in err, "Traceback" in err) == (1, True, False)
    (row,) = (line for line in out.splitlines() if " 0 of 1 " in f"{line} ")
    assert not any(character.isdigit() for character in row.split("0 of 1")[1])


def test_a_hash_holds_what_links_lead_to(model: Path) -> None:
    assert read_layer_count(model) == (3, True)
    os.mkfifo(model / "vocab.txt")
    with pytest.raises(InputError, match=r"m: 'vocab\.txt' is not a plain file"):
        resolve_folder(str(model), where="--methods")
    (model / "vocab.txt").unlink()
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
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 2**63))
    with pytest.raises(InputError, match=r"m: model\.safetensors can't be read: "):
        read_layer_count(model)


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


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("payload", [as_zip, as_legacy, as_pickle])
@pytest.mark.parametrize("loader", LOADERS)
def test_a_pickle_is_never_run(model: Path, loader: str, payload: Callable[[Path], None]) -> None:
    (model / "model.safetensors").unlink()
    payload(model)
    with pytest.raises(InputError) as caught:
        LOADERS[loader](model)
    assert PICKLE in str(caught.value)
    assert str(caught.value).startswith("m: ")


@pytest.mark.parametrize("option", ["hf", "st", "--backbone"])
def test_a_pickle_fails_its_cell_in_one_line(cli: Cli, model: Path, option: str) -> None:
    (model / "model.safetensors").unlink()
    as_zip(model)
    given = ("untrained", "--backbone", str(model)) if option == "--backbone" else (f"{option}:{model}",)
    code, out, err = cli("run", "--suite", "toy", "--methods", *given)
    assert (code, PICKLE in err, "Traceback" in err) == (1, True, False)
    assert "0.00" not in out


def test_exported_folders_hold_no_pickle(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_encoder(TransformerEncoder(model, "avg"), out, "# card\n")
    as_zip(out)
    assert bench.load(out).dim == 16  # safetensors, whatever lies beside
    (out / "model.safetensors").unlink()
    twin = tmp_path / "twin"
    twin.mkdir()
    shutil.copytree(out, twin / "part-1")
    shutil.copytree(out, twin / "part-2")
    put(twin, "twin.json", schema=1, kind="sum", parts=["part-1", "part-2"], weights=[1, 1])
    for folder, where in ((out, "out"), (twin, "part-1")):
        with pytest.raises(InputError) as caught:
            bench.load(folder)
        assert missing_facts(caught.value, f"{where}: ", "expected model.safetensors") == []
