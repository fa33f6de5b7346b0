"""Model folders are read whole or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as st_modules
from tokenizers import processors

from bench.baselines.external import HuggingFace
from bench.errors import InputError
from bench.method_card import BuildContext
from bench.nn.backbone import TransformerEncoder, load_backbone, silence_libraries
from bench.nn.folder_checks import describe_unread_settings
from bench.nn.model_files import list_hashed_files
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.cli import Cli, refusal
from tests.support.folders import sentence_transformers_folder
from tests.support.messages import missing_facts

Dense, Normalize, Pooling = st_modules.Dense, st_modules.Normalize, st_modules.Pooling
StaticEmbedding, Transformer = st_modules.StaticEmbedding, st_modules.Transformer
Zoo = Callable[[str], Path]
TEXTS = ["A child plays.", "The doctor reads a long book in the garden.", "It rains."]
WEIGHTS = "model.safetensors"


def change(folder: Path, new: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(new(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def refuse(folder: Path, message: str, *, st: bool = False, pooling: str = "cls") -> None:
    """Check that a folder is refused, as st:PATH or as hf:PATH:POOLING."""
    with pytest.raises(InputError, match=message):
        SentenceTransformerEncoder(folder) if st else TransformerEncoder(folder, pooling)


@pytest.fixture
def bert(zoo: Zoo, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo("bert"), tmp_path / "bert"))


@pytest.fixture
def mean(zoo: Zoo, tmp_path: Path) -> Path:
    folder = sentence_transformers_folder(zoo("bert"), tmp_path / "mean", mean=True)
    settings(folder / "1_Pooling" / "config.json", word_embedding_dimension=32)
    return folder


def settings(file: Path, **new: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **new}))


@pytest.fixture
def plain(tiny_bert: Path, tmp_path: Path) -> Path:
    return sentence_transformers_folder(tiny_bert, tmp_path / "plain", mean=True)


@pytest.fixture
def routed(zoo: Zoo, tmp_path: Path) -> Path:
    with silence_libraries():
        query, document = (Transformer(str(zoo(name))) for name in ("bert", "distilbert"))
        size = query.get_embedding_dimension()
        router = Router.for_query_document([query, Pooling(size, "mean")], [document, Pooling(size, "cls")])
        SentenceTransformer(modules=[router, Normalize()]).save(str(tmp_path / "routed"))
    return tmp_path / "routed"


def route_folder(folder: Path, kind: str) -> Path:
    """The folder of a route's transformer, by its architecture."""
    found = [file.parent for file in folder.rglob("config.json") if f'"{kind}"' in file.read_text()]
    return next(place for place in found if (place / WEIGHTS).exists())


def test_every_route_of_a_router_is_checked_and_named(routed: Path) -> None:
    encoder = SentenceTransformerEncoder(routed)
    assert encoder.facts["routes"] == "query: Transformer+Pooling mean; document: Transformer+Pooling cls"
    broken = shutil.copytree(routed, routed.with_name("weights"))
    change(route_folder(broken, "distilbert"), lambda tensors: dict(list(tensors.items())[::2]))
    refuse(broken, "missing", st=True)
    broken = shutil.copytree(routed, routed.with_name("vocabulary"))
    place = route_folder(broken, "distilbert")
    for file in (*place.glob("tokenizer*"), *place.glob("vocab*")):
        file.unlink()
    refuse(broken, "vocabulary|can't be loaded", st=True)
    place = route_folder(routed, "distilbert")
    name = next(key for key in load_file(place / WEIGHTS) if key.endswith("ffn.lin1.weight"))
    broken = shutil.copytree(routed, routed.with_name("int8"))
    change(route_folder(broken, "distilbert"), lambda t: {**t, name: QUANTISED["int8"](t[name])})
    refuse(broken, "is quantised", st=True)
    index = json.dumps({"weight_map": {name: "../../x.safetensors"}})
    (place / "model.safetensors.index.json").write_text(index)
    refuse(routed, r"'../../x.safetensors'", st=True)


@pytest.mark.parametrize("output", ["pooler_output", ["pooler_output"]])
def test_a_pooler_is_no_random_one(mean: Path, output: object) -> None:
    change(mean, lambda tensors: {n: t for n, t in tensors.items() if "pooler" not in n})
    SentenceTransformerEncoder(mean)  # nothing reads it
    way = {"text": {"method": "forward", "method_output_name": output}}
    settings(mean / "sentence_bert_config.json", modality_config=way, module_output_name="sentence_embedding")
    (mean / "modules.json").write_text(json.dumps(json.loads((mean / "modules.json").read_text())[:1]))
    refuse(mean, r"the first is pooler", st=True)


@pytest.mark.parametrize("st", [False, True])
def test_layers_that_config_json_does_not_count_are_no_rest(mean: Path, st: bool) -> None:
    settings(mean / "config.json", num_hidden_layers=1)
    refuse(mean, r"encoder.layer.1.*config.json", st=st)


def test_a_trained_projection_is_not_left_out_where_its_pooler_is_asked_for(bert: Path) -> None:
    extra = {"mlp.dense.weight": torch.eye(32), "mlp.dense.bias": torch.zeros(32)}
    pooler = {"bert.pooler.dense.weight": torch.eye(32), "bert.pooler.dense.bias": torch.zeros(32)}
    change(bert, lambda tensors: {**tensors, **extra, **pooler})
    encoder = TransformerEncoder(bert, "cls")
    assert (encoder.facts["unread"], encoder.dim) == ("mlp.dense.weight", 32)
    refuse(bert, r"mlp.dense.weight.*pooling cls", pooling="pooler")


OPENED = {
    *("bpe.codes", "chat_template.jinja", "dict.txt", "prophetnet.tokenizer", "sentencepiece.bpe.model"),
    *("source.spm", "target.spm"),
}


def test_the_hash_covers_the_files_of_every_tokenizer_class(tmp_path: Path) -> None:
    names = set(OPENED)
    for name in dir(transformers):
        if name.endswith(("Tokenizer", "TokenizerFast")):
            with suppress(ImportError):  # of a library that isn't there
                names |= set((getattr(getattr(transformers, name), "vocab_files_names", None) or {}).values())
    assert len(names) > 22
    for name in (*names, "README.md", "LICENSE", "picture.png", "train_log.txt"):
        (tmp_path / name).write_text("{}")
    assert {path.name for path in list_hashed_files(tmp_path)} == names


def set_token_types(folder: Path, form: str) -> None:
    _, tokenizer = load_backbone(folder)
    marks = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    post = processors.TemplateProcessing(single=form, special_tokens=marks)
    tokenizer.backend_tokenizer.post_processor = post
    tokenizer.save_pretrained(folder)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    settings(folder / "tokenizer_config.json", model_input_names=inputs)


def test_token_types_are_those_of_the_tokenizer(bert: Path) -> None:
    set_token_types(bert, "[CLS]:2 $A:1 [SEP]:3")
    settings(bert / "config.json", type_vocab_size=4)
    name = next(key for key in load_file(bert / WEIGHTS) if key.endswith("token_type_embeddings.weight"))
    change(bert, lambda tensors: {**tensors, name: torch.randn(4, 32)})
    with silence_libraries():
        model = transformers.AutoModel.from_pretrained(bert).eval()
        batch = transformers.AutoTokenizer.from_pretrained(bert)(TEXTS, padding=True, return_tensors="pt")
        assert batch["token_type_ids"][2].tolist()[:4] == [2, 1, 1, 1]
        with torch.no_grad():
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"]
    expected = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(TransformerEncoder(bert, "avg").encode(TEXTS), expected.numpy(), atol=1e-5)


def test_training_refuses_token_types(bert: Path, cli: Cli) -> None:
    set_token_types(bert, "[CLS]:1 $A:1 [SEP]:1")
    run = ("run", "--methods", "simcse", "--seeds", "1", "--suite", "toy", "--backbone", str(bert))
    code, _, err = cli(*run, as_is=True)
    assert (code, "token types" in err) == (1, True), err


def test_a_length_beyond_the_positions_is_cut_and_said(mean: Path) -> None:
    settings(mean / "sentence_bert_config.json", max_seq_length=512)
    encoder = SentenceTransformerEncoder(mean)
    assert encoder.max_length == 66  # its positions
    assert encoder.facts["length_from"] == "the model's positions; the folder says 512"
    long, longer = ([" ".join(["word"] * count)] for count in (100, 300))
    np.testing.assert_array_equal(encoder.encode(long), encoder.encode(longer))


def test_hf_does_not_leave_out_a_dense_layer(zoo: Zoo, tmp_path: Path, cli: Cli) -> None:
    dense = tmp_path / "dense"
    with silence_libraries():
        modules = [Transformer(str(zoo("bert"))), Pooling(32, "mean"), Dense(32, 8)]
        SentenceTransformer(modules=modules).save(str(dense))
    said = refusal(cli, "run", "--methods", f"hf:{dense}:avg", "--suite", "toy", "--dry-run")
    assert not missing_facts(said, "modules.json", "Dense", "st:")
    with pytest.raises(InputError, match="Dense"):
        HuggingFace().build(BuildContext(options={}, seed=None, model=dense, device="cpu"))
    change(dense / "2_Dense", lambda tensors: {"linear.weight": tensors["linear.weight"]})
    refuse(dense, r"linear.bias", st=True)


def test_hf_says_what_of_the_folders_settings_it_leaves_out(mean: Path, cli: Cli) -> None:
    assert describe_unread_settings(mean, "avg") == ""
    assert describe_unread_settings(mean, "cls") == "its own pooling is avg, not cls: st: reads them"
    settings(mean / "1_Pooling" / "config.json", pooling_mode="cls+max")
    assert "cls+max, not cls" in describe_unread_settings(mean, "cls")
    prompts = {"prompts": {"query": "q: ", "document": ""}}
    (mean / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert "(query)" in describe_unread_settings(mean, "cls")
    code, out, err = cli("run", "--methods", f"hf:{mean}:avg", "--suite", "toy", "--dry-run", as_is=True)
    assert code == 0, err
    assert not missing_facts(out, "cls+max, not avg", "prompts (query)")
    options = {option.name: option.default for option in HuggingFace.card.options}
    context = BuildContext(options=options, seed=None, model=mean, device="cpu")
    assert HuggingFace().build(context).facts["unread_settings"] == describe_unread_settings(mean, "cls")
    settings(mean / "config.json", sentence_transformers={"version": "5.4.0"})
    assert "CrossEncoder" in describe_unread_settings(mean, "cls")


def test_st_without_modules_is_refused_by_the_plan(zoo: Zoo, cli: Cli) -> None:
    said = refusal(cli, "run", "--methods", f"st:{zoo('bert')}", "--suite", "toy", "--dry-run")
    assert not missing_facts(said, "expected modules.json", "hf:PATH:pooling")


@pytest.mark.parametrize("kind", ["SparseEncoder", "CrossEncoder", "MultiVectorEncoder", "Anything"])
def test_another_kind_of_model_is_refused_by_its_name(plain: Path, kind: str, cli: Cli) -> None:
    (plain / "config_sentence_transformers.json").write_text(json.dumps({"model_type": kind}))
    assert f"it is a {kind}" in refusal(cli, "run", "--methods", f"st:{plain}", "--suite", "toy", "--dry-run")
    refuse(plain, f"it is a {kind}", st=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("type", "sentence_transformers.sparse_encoder.models.SpladePooling", "SpladePooling"),
        ("type", "sentence_transformers.cross_encoder.modules.LogitScore", "LogitScore"),
        ("name", "0", "it names 2 modules"),
        ("name", None, "module 2 has no name"),
        ("type", None, "module 2 has no type"),
    ],
)
def test_what_was_built_is_what_the_folder_names(plain: Path, key: str, value: str, message: str) -> None:
    modules = json.loads((plain / "modules.json").read_text())
    modules[0]["name"], modules[1][key] = "0", value
    (plain / "modules.json").write_text(json.dumps(modules))
    refuse(plain, message, st=True)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (["0"], "module 1 has no name and no path and no type"),
        ([], "missing"),
        (
            [{"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
            "a Pooling, which",
        ),
    ],
)
def test_a_broken_modules_json_says_what_is_wrong(plain: Path, modules: list[Any], said: str) -> None:
    (plain / "modules.json").write_text(json.dumps(modules))
    refuse(plain, said, st=True)


QUANTISED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "int8": lambda tensor: tensor.mul(100).clamp(-127, 127).to(torch.int8),
    "fp8": lambda tensor: tensor.to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", [*QUANTISED, "scale", "pickle"])
@pytest.mark.parametrize("st", [False, True])
def test_quantised_tensors_are_no_numbers(mean: Path, kind: str, st: bool) -> None:
    tensors = load_file(mean / WEIGHTS)
    name = next(key for key in tensors if key.endswith("layer.0.output.dense.weight"))
    if kind == "scale":
        change(mean, lambda t: {**t, f"{name.removesuffix('weight')}weight_scale": torch.ones(1)})
    elif kind != "pickle":
        change(mean, lambda t: {**t, name: QUANTISED[kind](t[name])})
    else:
        (mean / WEIGHTS).unlink()
        torch.save(tensors, mean / "pytorch_model.bin")
        TransformerEncoder(mean)
        torch.save({**tensors, name: QUANTISED["int8"](tensors[name])}, mean / "pytorch_model.bin")
    refuse(mean, "is quantised", st=st)


def test_static_tables_compute_in_float32(zoo: Zoo, tmp_path: Path) -> None:
    _, tokenizer = load_backbone(zoo("bert"))
    table = torch.randn(len(tokenizer), 16, generator=torch.Generator().manual_seed(0)).half()
    vectors = []
    for kind in (torch.float16, torch.float32):
        with silence_libraries():
            module = StaticEmbedding(tokenizer, embedding_weights=table.to(kind))
            SentenceTransformer(modules=[module]).save(str(tmp_path / str(kind)))
        encoder = SentenceTransformerEncoder(tmp_path / str(kind))
        assert encoder.facts["folder_dtype"] == str(kind).removeprefix("torch.")
        vectors.append(encoder.encode(TEXTS))
    assert np.array_equal(vectors[0], vectors[1])
    assert vectors[0].shape == (3, 16)


@pytest.mark.parametrize("extra", ["attention.self.query.lora_A.weight", "attention.self.new_bias"])
def test_tensors_of_a_layer_that_nothing_reads_are_refused(bert: Path, extra: str) -> None:
    change(bert, lambda t: {**t, f"bert.encoder.layer.0.{extra}": torch.ones(4)})
    refuse(bert, "trained with the encoder")


def test_other_settings_of_config_json(zoo: Zoo, bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("llama"), tmp_path / "llama")
    settings(folder / "config.json", auto_map={"AutoModel": "modeling.BiLlama"})
    assert TransformerEncoder(folder, "avg").facts["own_code"] == "modeling.BiLlama, not executed"
    settings(folder / "config.json", num_hidden_layers=0)
    refuse(folder, r"config\.json doesn't count", pooling="avg")
    settings(bert / "config.json", transformers_weights="adapter_model.bin")
    refuse(bert, "another file of weights")


def test_files_that_nobody_opens_may_be_quantised(bert: Path) -> None:
    tensors = {name: tensor for name, tensor in load_file(bert / WEIGHTS).items() if tensor.dim() > 1}
    quantised = {name: QUANTISED["int8"](tensor) for name, tensor in tensors.items()}
    save_file(quantised, bert / "model.int8.safetensors", metadata={"format": "pt"})
    TransformerEncoder(bert)
    (bert / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refuse(bert, "git-lfs")
