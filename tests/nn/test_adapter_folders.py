"""Adapter folders of peft and sentence-transformers: their vectors, bases, hashes, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, PrefixTuningConfig
from safetensors.torch import load_file, save_file

from bench.config.profiles import load_profile
from bench.errors import InputError
from bench.nn.adapter_folder import BASE, find_base, find_bases, write_base
from bench.nn.adapter_view import open_plain_folder
from bench.nn.backbone import TransformerEncoder, silence_libraries
from bench.nn.folder_facts import read_folder_facts
from bench.nn.lora_settings import CONFIG, WEIGHTS
from bench.nn.model_folder import AdapterModel, hash_model, resolve_folder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.plan.backbones import profile_backbone
from tests.support.adapters import add_adapter
from tests.support.hostile import Edit, put

SENTENCES = ["A sentence.", "the doctor reads a book", "", "word " * 30]
Model = Callable[[str], Path]


def vectors(model: Any, base: Path) -> Any:
    """Vectors by a model with its adapter in place."""
    tokenizer = TransformerEncoder(base, "avg").tokenizer
    return TransformerEncoder((model.base_model.model, tokenizer), "avg").encode(SENTENCES)


def is_near(first: Any, second: Any) -> bool:
    scale = max(1.0, float(np.abs(second).max()))
    return float(np.abs(first - second).max()) <= 1e-5 * scale


CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"target_modules": ["query", "output.dense"], "lora_alpha": 12}),
    ("bert", {"target_modules": "all-linear", "use_rslora": True}),
    ("bert", {
        "target_modules": ["query", "value"],
        "rank_pattern": {"layer.0.attention.self.query": 2},
        "alpha_pattern": {"layer.1.attention.self.value": 99, "value": 24},
    }),
    ("bert", {"target_modules": r".*layer\.1\..*(key|value)", "lora_dropout": 0.5}),
    ("llama", {"target_modules": ["q_proj", "down_proj"]}),
    ("gpt2", {"target_modules": "all-linear"}),
    ("bert", {"target_modules": ["key"], "layers_to_transform": [1]}),
    ("albert", {"target_modules": ["query"]}),
    ("t5", {"target_modules": ["q", "wo"]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), CONFIGS)
def test_vectors_of_a_merged_adapter_are_those_of_peft(
    zoo: Model, tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    base = zoo(kind)
    model = add_adapter(base, tmp_path / "a", LoraConfig(r=4, **settings))
    if kind == "t5":
        model.base_model.model = model.base_model.model.encoder
    encoder = TransformerEncoder(tmp_path / "a", "avg")
    found = encoder.encode(SENTENCES)
    assert is_near(found, vectors(model, base))
    assert np.abs(found - TransformerEncoder(base, "avg").encode(SENTENCES)).max() > 0.01
    assert str(encoder.facts["adapter"]).startswith("LoRA of rank 4 on ")
    left_out = str(encoder.facts.get("unread", ""))
    has_pooler = kind == "bert" and settings["target_modules"] == "all-linear"
    assert ("pooler.dense.lora_A" in left_out) is has_pooler
    assert ("decoder." in left_out) is (kind == "t5")
    assert not any("lora" in name or "base_layer" in name for name, _ in encoder.model.named_modules())


@pytest.fixture
def base(zoo: Model, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo("bert"), tmp_path / "base"))


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    add_adapter(base, tmp_path / "a", LoraConfig(r=2, target_modules=["query", "value"]))
    return tmp_path / "a"


def test_sentence_transformers_folder_keeps_its_modules(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers.integrations.peft as integration
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import (  # type: ignore[import-not-found]  # made at run time
        Normalize,
        Pooling,
        Transformer,
    )

    monkeypatch.setattr(
        integration, "MIN_PEFT_VERSION", "0.21"
    )  # transformers 5.24 asks for an unreleased one
    with silence_libraries():
        first = Transformer(str(base))
        size = first.get_word_embedding_dimension()
        model = SentenceTransformer(modules=[first, Pooling(size, "mean"), Normalize()], device="cpu")
        model.prompts = {"query": "q: ", "document": "d: "}
        model.add_adapter(LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(0, 0.2)
        model.save(str(tmp_path / "st"))
    folder = resolve_folder(str(tmp_path / "st"), where="here")
    encoder = SentenceTransformerEncoder(tmp_path / "st")
    assert is_near(encoder.encode(SENTENCES), model.encode(SENTENCES))
    assert is_near(encoder.encode_as(SENTENCES, "query"), model.encode_query(SENTENCES))
    assert isinstance(folder, AdapterModel)
    assert encoder.facts["adapter"] == "LoRA of rank 2 on 4 modules"
    assert encoder.facts["modules"] == "Transformer+Pooling+Normalize"
    inner = tmp_path / "st" / "0_Transformer"  # where releases before 3.0 put it
    inner.mkdir()
    for file in (tmp_path / "st").glob("*.*"):
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(inner / file.name)
    modules = json.loads((tmp_path / "st" / "modules.json").read_text())
    modules[0]["path"] = inner.name
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    assert [one.place for one in find_bases(tmp_path / "st")] == ["0_Transformer"]
    monkeypatch.setattr(integration, "MIN_PEFT_VERSION", "99")  # bench itself needs no peft for it
    assert is_near(SentenceTransformerEncoder(tmp_path / "st").encode(SENTENCES), model.encode(SENTENCES))


def test_hash_covers_adapter_and_base(base: Path, adapter: Path) -> None:
    found = resolve_folder(str(adapter), where="here")
    assert isinstance(found, AdapterModel)
    assert [(one.name, one.sha256) for one in found.bases] == [("base", hash_model(base))]
    assert hash_model(adapter) == found.sha256 != hash_model(base)
    weights = load_file(base / "model.safetensors")
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 1}, base / "model.safetensors", metadata={"format": "pt"})
    assert hash_model(adapter) != found.sha256


def test_the_plan_sees_the_files_of_the_base(base: Path, adapter: Path) -> None:
    shutil.copytree(adapter, adapter.parent / "inner" / "a")
    with open_plain_folder(adapter) as plain:
        assert read_folder_facts(plain) == read_folder_facts(base)
        assert (plain.name, plain.exists()) == ("a", True)
    assert not plain.exists()
    with open_plain_folder(base) as same:
        assert same == base
    with open_plain_folder(adapter.parent) as same:  # other folders in it don't count
        assert same == adapter.parent


def test_own_tokenizer_is_read(base: Path, adapter: Path) -> None:
    before = TransformerEncoder(adapter, "avg").encode(["the boy"])
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["the"], words["a"] = words["a"], words["the"]
    shutil.copyfile(base / "tokenizer_config.json", adapter / "tokenizer_config.json")
    (adapter / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert np.abs(TransformerEncoder(adapter, "avg").encode(["the boy"]) - before).max() > 1e-4


def set_config(**values: object) -> Edit:
    return lambda folder: put(folder, CONFIG, **values)


def set_weights(change: Callable[[dict[str, Any]], object]) -> Edit:
    def edit(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        change(weights)
        save_file(weights, folder / WEIGHTS)

    return edit


def pickle_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def truncate(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 4)


def add_model(folder: Path) -> None:
    shutil.copyfile(folder.parent / "base" / "model.safetensors", folder / "model.safetensors")


def add_bases_adapter(folder: Path) -> None:
    shutil.copyfile(folder / CONFIG, folder.parent / "base" / CONFIG)


def pin(sha256: str) -> Edit:
    def edit(folder: Path) -> None:
        (folder / BASE).write_text(json.dumps({"schema": 1, "name": "base", "sha256": sha256}))

    return edit


def drop_base(folder: Path) -> None:
    shutil.rmtree(folder.parent / "base")


def copy_config(folder: Path) -> None:
    shutil.copyfile(folder.parent / "base" / "config.json", folder / "config.json")
    put(folder, "config.json", hidden_act="relu")


NAME = "encoder.layer.0.attention.self.query"
A, B = (f"base_model.model.{NAME}.lora_{part}.weight" for part in "AB")
HEAD = "cls.predictions.decoder"
WORDS = "base_model.model.embeddings.word_embeddings.weight"
NOT_PLAIN = "; expected LoRA or rsLoRA adapters of linear modules; merge it with peft"
REFUSED: list[tuple[Edit, str]] = [
    (set_config(peft_type="IA3"), f"a/adapter_config.json: it is an adapter of the kind 'IA3'{NOT_PLAIN}"),
    (set_config(use_dora=True), "it sets 'use_dora', which is not supported"),
    (set_config(modules_to_save=["pooler"]), "it sets 'modules_to_save'"),
    (set_config(trainable_token_indices=[1]), "it sets 'trainable_token_indices'"),
    (set_config(lora_bias=True), "it sets 'lora_bias'"),
    (set_config(x=1), "it sets 'x'"),
    (set_config(bias="lora_only"), "it has trained biases (bias = 'lora_only')"),
    (set_config(init_lora_weights="pissa"), "it began from changed weights of its base"),
    (set_config(r=0), "its rank r is '0'"),
    (set_config(r=True), "its rank r is 'True'"),
    (set_config(r=3), "self.query has matrices of rank 2, adapter_config.json says 3"),
    (set_config(lora_alpha="evil"), "its lora_alpha is 'evil'"),
    (set_config(lora_alpha=10**400), "its lora_alpha is"),
    (set_config(base_model_name_or_path="a" * 999), "is not on this machine"),
    (set_weights(lambda w: w.update({n.replace("model.encoder", "model.bert.encoder"): w[n].clone()
                                     for n in (A, B)})), "it has two adapters of one module"),
    (set_config(alpha_pattern={"(a+)+$": 1}), "its alpha_pattern has the regular expression '(a+)+$'"),
    (set_config(target_modules=["query", "value", "nothing"]), "its target 'nothing' has no matrices"),
    (set_config(base_model_name_or_path="https://evil.example/x"), "its base model is 'https://evil.example/x'"),
    (set_config(base_model_name_or_path="a\x1b[2Jb"), "its base model is 'a\\x1b[2Jb'"),
    (set_config(base_model_name_or_path=["a"]), "it names no base model (base_model_name_or_path = ['a'])"),
    (set_config(base_model_name_or_path=None), "it names no base model"),
    (set_config(base_model_name_or_path="org/none"),
     "its base model 'org/none' is not on this machine; expected a folder 'none' next to a, or "
     "org/none in the local model cache; download it with: hf download org/none"),
    (set_config(revision="../x y"), "its revision of the base is '../x y'"),
    (lambda folder: put(folder, CONFIG, base_model_name_or_path=str(folder)), "it is its own base model"),
    (add_bases_adapter, "its base model base is an adapter too"),
    (drop_base, "is not on this machine; expected a folder 'base' next to a"),
    (pin("0" * 64), "its base model is base of sha256 000000000000, and the one here (base)"),
    (pin("x"), "a/adapter_base.json: it names no base model"),
    (add_model, "a/adapter_config.json: the folder has an adapter and a whole model (model.safetensors)"),
    (copy_config, "a/config.json: hidden_act is 'relu' there, and 'gelu' in the base model base"),
    (pickle_weights, "a/adapter_model.bin: its weights are pickled"),
    (lambda folder: (folder / WEIGHTS).unlink(), "a: the adapter has no weights"),
    (truncate, "a/adapter_model.safetensors: 4 bytes are missing at its end"),
    (lambda folder: (folder / WEIGHTS).write_bytes(b"x"), "its header can't be read"),
    (lambda folder: save_file({}, folder / WEIGHTS), "the adapter is empty"),
    (set_weights(lambda w: w.pop(A)), "don't belong together"),
    (set_weights(lambda w: w.update({B: torch.zeros(32, 3)})), "don't belong together"),
    (set_weights(lambda w: w.update({A: w[A].int()})), f"'{A}' is 'I32' of the shape '[2, 32]'"),
    (set_weights(lambda w: w.update({A: torch.zeros(2, 8)})),
     "query is made for a matrix of 32 x 8, the base model's has 32 x 32"),
    (set_weights(lambda w: [w.pop(name) for name in (A, B)]),
     "encoder.layer.0.attention.self.query has no matrices, other layers have"),
    (set_weights(lambda w: w.update({n.replace("layer.0", "layer.7"): w[n].clone() for n in (A, B)})),
     "it changes encoder.layer.7.attention.self.query, which the base model base hasn't got"),
    (set_weights(lambda w: w.update({n.replace(NAME, HEAD): w[n].clone() for n in (A, B)})),
     "it changes cls.predictions.decoder, a head that sentence vectors bypass"),
    (set_weights(lambda w: w.update({WORDS: torch.zeros(600, 32)})),
     f"nothing reads '{WORDS}', which was trained with the adapter"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), REFUSED)
def test_refused_before_anything_loads(adapter: Path, edit: Edit, message: str) -> None:
    edit(adapter)
    for load in (lambda folder: resolve_folder(str(folder), where="--methods"), TransformerEncoder):
        with pytest.raises(InputError) as caught:
            load(adapter)
        assert message in str(caught.value).replace(str(adapter.parent) + "/", "")


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (LoraConfig(r=2, target_modules=["query"], use_dora=True), "use_dora"),
        (LoraConfig(r=2, target_modules=["query"], bias="all"), "trained biases"),
        (LoraConfig(r=2, target_modules=["query"], modules_to_save=["pooler"]), "modules_to_save"),
        (LoraConfig(r=2, target_modules=["query", "word_embeddings"]), "lora_embedding_A"),
        (IA3Config(target_modules=["query"], feedforward_modules=[]), "'IA3'"),
        (PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=2), "'PREFIX_TUNING'"),
    ],
)
def test_other_adapters_of_peft_are_refused(base: Path, tmp_path: Path, config: Any, what: str) -> None:
    add_adapter(base, tmp_path / "a", config)
    with pytest.raises(InputError, match=what):
        resolve_folder(str(tmp_path / "a"), where="here")


def test_infinite_adapter_is_refused(adapter: Path) -> None:
    set_weights(lambda w: w.update({A: torch.full_like(w[A], torch.inf)}))(adapter)
    with pytest.raises(InputError, match="infinite or not numbers"):
        TransformerEncoder(adapter)


def test_base_may_be_a_profiles_backbone(tmp_path: Path) -> None:
    """The mini backbone comes with the program: its adapter needs no folder next to it."""
    backbone = profile_backbone(load_profile("mini"), None)
    add_adapter(backbone.path, folder := tmp_path / "a", LoraConfig(r=2, target_modules=["query"]))
    put(folder, CONFIG, base_model_name_or_path=backbone.name)
    (folder / BASE).write_text(json.dumps({"schema": 1, "name": backbone.name, "sha256": backbone.sha256}))
    assert find_base(folder).sha256 == backbone.sha256
    (folder / BASE).unlink()
    with pytest.raises(InputError, match="is not on this machine"):
        find_base(folder)


def test_base_is_found_next_to_the_adapter_and_by_hash(base: Path, adapter: Path, tmp_path: Path) -> None:
    put(adapter, CONFIG, base_model_name_or_path="/elsewhere/base")
    assert find_base(adapter).path == base
    put(adapter, CONFIG, base_model_name_or_path="other")
    other = Path(shutil.copytree(base, tmp_path / "other"))
    put(other, "config.json", hidden_act="relu")
    assert find_base(adapter).name == "other"
    write_base(adapter, resolve_folder(str(base), where="here"))
    assert find_base(adapter).path == base  # the other has another hash
    put(adapter, BASE, path="/etc")
    assert find_base(adapter).path == base


def test_base_is_found_in_the_local_cache(
    base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "hub"
    snapshot = cache / "models--org--tiny" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    shutil.move(base, snapshot)
    (cache / "models--org--tiny" / "refs").mkdir()
    (cache / "models--org--tiny" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    put(adapter, CONFIG, base_model_name_or_path="org/tiny")
    found = resolve_folder(str(adapter), where="here")
    assert isinstance(found, AdapterModel)
    assert [one.name for one in found.bases] == ["org/tiny"]
    put(adapter, CONFIG, revision="1" * 40)
    with pytest.raises(InputError, match="'org/tiny' is not on this machine"):
        find_base(adapter)


def test_torch_and_peft_stay_unloaded(adapter: Path) -> None:
    code = "import sys; from bench.nn.model_folder import resolve_folder as resolve; "
    code += "resolve(sys.argv[1], where='x'); "
    code += "print([name for name in ('torch', 'peft', 'transformers') if name in sys.modules])"
    command = [sys.executable, "-c", code, str(adapter)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with silence_libraries():
        yield
