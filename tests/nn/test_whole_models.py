"""Model folders are read whole or refused: what loads in silence and gives another number is the worst."""

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
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
)
from tokenizers import processors

from bench.baselines.external import HuggingFace
from bench.card import BuildContext
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone, silence_libraries
from bench.nn.folder_checks import describe_unread_settings
from bench.nn.model_folder import hash_model, list_hashed_files
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.cli import Cli, refusal
from tests.support.folders import sentence_transformers_folder

Zoo = Callable[[str], Path]
TEXTS = ["A child plays.", "The doctor reads a long book in the garden.", "It rains."]
WEIGHTS = "model.safetensors"


def change(folder: Path, new: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Rewrite a folder's weights."""
    save_file(new(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def sized(folder: Path) -> Path:
    """The folder with the width of the zoo's models in its pooling."""
    settings(folder / "1_Pooling" / "config.json", word_embedding_dimension=32)
    return folder


def settings(file: Path, **new: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **new}))


@pytest.fixture
def plain(tiny_bert: Path, tmp_path: Path) -> Path:
    return sentence_transformers_folder(tiny_bert, tmp_path / "plain", mean=True)


@pytest.fixture
def routed(zoo: Zoo, tmp_path: Path) -> Path:
    """A model of two routes, of which documents have another encoder."""
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
    assert encoder.facts["routes"] == ("query: Transformer+Pooling mean; document: Transformer+Pooling cls")
    lose = {"vocabulary": "tokenizer.json", "weights": None}
    for what, name in lose.items():
        broken = shutil.copytree(routed, routed.with_name(what))
        place = route_folder(broken, "distilbert")
        if name is None:
            change(place, lambda tensors: dict(list(tensors.items())[::2]))
        else:
            for file in place.glob("tokenizer*"):
                file.unlink()
            for file in place.glob("vocab*"):
                file.unlink()
        with pytest.raises(InputError, match=r"missing|vocabulary|can't be loaded"):
            SentenceTransformerEncoder(broken)


def test_a_pooler_is_no_random_one(zoo: Zoo, tmp_path: Path) -> None:
    folder = sized(sentence_transformers_folder(zoo("bert"), tmp_path / "pooled", mean=True))
    change(folder, lambda tensors: {n: t for n, t in tensors.items() if "pooler" not in n})
    SentenceTransformerEncoder(folder)  # nothing reads it
    way = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    settings(
        folder / "sentence_bert_config.json", modality_config=way, module_output_name="sentence_embedding"
    )
    modules = json.loads((folder / "modules.json").read_text())[:1]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"weight\(s\) are missing from the checkpoint, the first is pooler"):
        SentenceTransformerEncoder(folder)


@pytest.mark.parametrize("st", [False, True])
def test_layers_that_config_json_does_not_count_are_no_rest(zoo: Zoo, tmp_path: Path, st: bool) -> None:
    make = sentence_transformers_folder(zoo("bert"), tmp_path / "m", mean=True)
    settings(make / "config.json", num_hidden_layers=1)
    with pytest.raises(InputError, match=r"nothing reads \S*encoder.layer.1.*config.json doesn't count"):
        SentenceTransformerEncoder(make) if st else TransformerEncoder(make)


def test_a_trained_projection_is_not_left_out_where_its_pooler_is_asked_for(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "simcse")
    extra = {"mlp.dense.weight": torch.eye(32), "mlp.dense.bias": torch.zeros(32)}
    pooler = {"bert.pooler.dense.weight": torch.eye(32), "bert.pooler.dense.bias": torch.zeros(32)}
    change(folder, lambda tensors: {**tensors, **extra, **pooler})
    assert TransformerEncoder(folder, "cls").facts["unread"] == "mlp.dense.weight"
    with pytest.raises(InputError, match=r"from before the training that made mlp.dense.weight.*pooling cls"):
        TransformerEncoder(folder, "pooler")


def test_heads_may_be_left_out(zoo: Zoo) -> None:
    for name in ("bert", "roberta", "electra", "modernbert", "distilbert", "qwen2", "t5"):
        load_backbone(zoo(name))


OPENED = {
    "chat_template.jinja",
    "bpe.codes",
    "dict.txt",
    "source.spm",
    "target.spm",
    "prophetnet.tokenizer",
    "sentencepiece.bpe.model",
}


@pytest.mark.parametrize("name", sorted(OPENED))
def test_the_hash_covers_what_tokenizers_open(tiny_bert: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / "m")
    (folder / name).write_text("one")
    before = hash_model(folder)
    (folder / name).write_text("two")
    assert hash_model(folder) != before
    (folder / name).unlink()
    assert hash_model(folder) == hash_model(tiny_bert)
    for other in ("README.md", "LICENSE", "picture.png", "train_log.txt"):
        (folder / other).write_text("x")
    assert hash_model(folder) == hash_model(tiny_bert)


def test_the_hash_covers_the_files_of_every_tokenizer_class(tmp_path: Path) -> None:
    names: set[str] = set()
    for name in dir(transformers):
        if name.endswith(("Tokenizer", "TokenizerFast")):
            with suppress(ImportError):  # of a library that isn't there
                names |= set((getattr(getattr(transformers, name), "vocab_files_names", None) or {}).values())
    assert len(names) > 15
    for name in names:
        (tmp_path / name).write_text("{}")
    assert names - {path.name for path in list_hashed_files(tmp_path)} == set()


def test_token_types_are_those_of_the_tokenizer(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "typed")
    _, tokenizer = load_backbone(folder)
    form = "[CLS]:2 $A:1 [SEP]:3"
    marks = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=form, special_tokens=marks
    )
    tokenizer.save_pretrained(folder)
    settings(
        folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )
    settings(folder / "config.json", type_vocab_size=4)
    name = next(key for key in load_file(folder / WEIGHTS) if key.endswith("token_type_embeddings.weight"))
    change(folder, lambda tensors: {**tensors, name: torch.randn(4, 32)})
    with silence_libraries():
        kind = transformers.AutoModel.from_pretrained(folder).eval()
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        batch = loaded(TEXTS, padding=True, return_tensors="pt")
        assert batch["token_type_ids"][2].tolist()[:4] == [2, 1, 1, 1]
        with torch.no_grad():
            states = kind(**batch).last_hidden_state
            expected = (states * batch["attention_mask"][..., None]).sum(1) / batch["attention_mask"].sum(
                1, keepdim=True
            )
    np.testing.assert_allclose(TransformerEncoder(folder, "avg").encode(TEXTS), expected.numpy(), atol=1e-5)


def test_a_length_beyond_the_positions_is_cut_and_said(zoo: Zoo, tmp_path: Path) -> None:
    folder = sized(sentence_transformers_folder(zoo("bert"), tmp_path / "long", mean=True))
    settings(folder / "sentence_bert_config.json", max_seq_length=512)
    encoder = SentenceTransformerEncoder(folder)
    assert encoder.max_length == 66  # its positions
    assert encoder.facts["length_from"] == "the model's positions; the folder says 512"
    long, longer = ([" ".join(["word"] * count)] for count in (100, 300))
    np.testing.assert_array_equal(encoder.encode(long), encoder.encode(longer))


def test_hf_does_not_leave_out_a_dense_layer(zoo: Zoo, tmp_path: Path, cli: Cli) -> None:
    with silence_libraries():
        bert = Transformer(str(zoo("bert")))
        modules = [bert, Pooling(32, "mean"), Dense(32, 8)]
        SentenceTransformer(modules=modules).save(str(tmp_path / "dense"))
    row = f"hf:{tmp_path / 'dense'}:avg"
    said = refusal(cli, "run", "--methods", row, "--suite", "toy", "--dry-run")
    assert "its modules.json has a Dense, which hf: leaves out; st:" in said
    context = BuildContext(options={}, seed=None, model=tmp_path / "dense", device="cpu")
    with pytest.raises(InputError, match="has a Dense"):
        HuggingFace().build(context)
    change(tmp_path / "dense" / "2_Dense", lambda tensors: {"linear.weight": tensors["linear.weight"]})
    with pytest.raises(InputError, match=r"linear.bias"):
        SentenceTransformerEncoder(tmp_path / "dense")


def test_hf_says_what_of_the_folders_settings_it_leaves_out(zoo: Zoo, tmp_path: Path, cli: Cli) -> None:
    folder = sentence_transformers_folder(zoo("bert"), tmp_path / "mean", mean=True)
    assert describe_unread_settings(folder, "avg") == ""
    assert describe_unread_settings(folder, "cls") == "its own pooling is avg, not cls: st: reads them"
    settings(folder / "1_Pooling" / "config.json", pooling_mode="cls+max")
    assert describe_unread_settings(folder, "cls").startswith("its own pooling is cls+max, not cls")
    prompts = {"prompts": {"query": "q: ", "document": ""}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert "its prompts (query) are not read" in describe_unread_settings(folder, "cls")
    code, out, err = cli("run", "--methods", f"hf:{folder}:avg", "--suite", "toy", "--dry-run", as_is=True)
    assert (code, "its own pooling is cls+max, not avg and its prompts (query)" in out) == (0, True), err
    context = BuildContext(
        options={option.name: option.default for option in HuggingFace.card.options},
        seed=None,
        model=folder,
        device="cpu",
    )
    assert HuggingFace().build(context).facts["unread_settings"] == describe_unread_settings(folder, "cls")
    settings(folder / "config.json", sentence_transformers={"version": "5.4.0"})
    assert "CrossEncoder" in describe_unread_settings(folder, "cls")


def test_st_without_modules_is_refused_by_the_plan(zoo: Zoo, cli: Cli) -> None:
    said = refusal(cli, "run", "--methods", f"st:{zoo('bert')}", "--suite", "toy", "--dry-run")
    assert "expected modules.json in it; use hf:PATH:pooling" in said


@pytest.mark.parametrize("kind", ["SparseEncoder", "CrossEncoder", "MultiVectorEncoder", "Anything"])
def test_another_kind_of_model_is_refused_by_its_name(plain: Path, kind: str, cli: Cli) -> None:
    (plain / "config_sentence_transformers.json").write_text(json.dumps({"model_type": kind}))
    said = refusal(cli, "run", "--methods", f"st:{plain}", "--suite", "toy", "--dry-run")
    assert f"it is a {kind}" in said
    with pytest.raises(InputError, match=f"it is a {kind}"):
        SentenceTransformerEncoder(plain)


@pytest.mark.parametrize("kind", ["sparse_encoder.models.SpladePooling", "cross_encoder.modules.LogitScore"])
def test_modules_of_another_kind_are_refused_by_their_names(plain: Path, kind: str) -> None:
    modules = json.loads((plain / "modules.json").read_text())
    modules[1]["type"] = f"sentence_transformers.{kind}"
    (plain / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=kind.rpartition(".")[2]):
        SentenceTransformerEncoder(plain)


def test_what_was_built_is_what_the_folder_names(plain: Path) -> None:
    modules = json.loads((plain / "modules.json").read_text())
    same_name = [modules[0], {**modules[1], "name": modules[0]["name"]}]
    (plain / "modules.json").write_text(json.dumps(same_name))
    with pytest.raises(InputError, match="it names 2 modules"):
        SentenceTransformerEncoder(plain)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (
            [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}],
            "module 1 has no name",
        ),
        ([{"idx": 0, "name": "0", "path": ""}], "module 1 has no type"),
        (["0"], "module 1 has no name and no path and no type"),
        ([], "its first module is missing"),
        (
            [{"idx": 0, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
            "its first module is a Pooling, which reads no text",
        ),
    ],
)
def test_a_broken_modules_json_says_what_is_wrong(plain: Path, modules: list[Any], said: str) -> None:
    (plain / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=said):
        SentenceTransformerEncoder(plain)


QUANTISED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "int8": lambda tensor: tensor.mul(100).clamp(-127, 127).to(torch.int8),
    "fp8": lambda tensor: tensor.to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", [*QUANTISED, "scale"])
@pytest.mark.parametrize("st", [False, True])
def test_quantised_tensors_are_no_numbers(zoo: Zoo, tmp_path: Path, kind: str, st: bool) -> None:
    folder = sentence_transformers_folder(zoo("bert"), tmp_path / "q", mean=True)
    name = next(key for key in load_file(folder / WEIGHTS) if key.endswith("layer.0.output.dense.weight"))
    if kind == "scale":
        change(folder, lambda t: {**t, f"{name.removesuffix('weight')}weight_scale": torch.ones(1)})
    else:
        change(folder, lambda t: {**t, name: QUANTISED[kind](t[name])})
    with pytest.raises(InputError, match="is quantised"):
        SentenceTransformerEncoder(folder) if st else TransformerEncoder(folder)


def test_a_pickle_of_integers_is_quantised_too(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "bin")
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    TransformerEncoder(folder)
    name = next(key for key in tensors if key.endswith("layer.0.output.dense.weight"))
    torch.save({**tensors, name: QUANTISED["int8"](tensors[name])}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="is quantised"):
        TransformerEncoder(folder)


def test_static_tables_compute_in_float32(zoo: Zoo, tmp_path: Path) -> None:
    _, tokenizer = load_backbone(zoo("bert"))
    table = torch.randn(len(tokenizer), 16, generator=torch.Generator().manual_seed(0))
    found = {}
    for name, kind in (("half", torch.float16), ("whole", torch.float32)):
        rounded = table.half().to(kind)
        with silence_libraries():
            module = StaticEmbedding(tokenizer, embedding_weights=rounded)
            SentenceTransformer(modules=[module]).save(str(tmp_path / name))
        found[name] = SentenceTransformerEncoder(tmp_path / name)
    assert found["half"].facts["folder_dtype"] == "float16"
    np.testing.assert_array_equal(found["half"].encode(TEXTS), found["whole"].encode(TEXTS))


def test_training_refuses_token_types(zoo: Zoo, tmp_path: Path, cli: Cli) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "typed")
    _, tokenizer = load_backbone(folder)
    marks = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    form = processors.TemplateProcessing(single="[CLS]:1 $A:1 [SEP]:1", special_tokens=marks)
    tokenizer.backend_tokenizer.post_processor = form
    tokenizer.save_pretrained(folder)
    settings(
        folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )
    code, _, err = cli(
        "run", "--methods", "simcse", "--seeds", "1", "--suite", "toy", "--backbone", str(folder), as_is=True
    )
    assert (code, "its tokenizer gives token types" in err) == (1, True), err


def test_routes_are_checked_as_the_top_is(routed: Path) -> None:
    place = route_folder(routed, "distilbert")
    name = next(key for key in load_file(place / WEIGHTS) if key.endswith("ffn.lin1.weight"))
    broken = shutil.copytree(routed, routed.with_name("int8"))
    change(route_folder(broken, "distilbert"), lambda t: {**t, name: QUANTISED["int8"](t[name])})
    with pytest.raises(InputError, match="is quantised"):
        SentenceTransformerEncoder(broken)
    (place / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {name: "../../x.safetensors"}})
    )
    with pytest.raises(InputError, match=r"it names the weights file '../../x.safetensors'"):
        SentenceTransformerEncoder(routed)


@pytest.mark.parametrize("extra", ["attention.self.query.lora_A.weight", "attention.self.new_bias"])
def test_tensors_of_a_layer_that_nothing_reads_are_refused(zoo: Zoo, tmp_path: Path, extra: str) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "more")
    change(folder, lambda t: {**t, f"bert.encoder.layer.0.{extra}": torch.ones(4)})
    with pytest.raises(InputError, match="which is trained with the encoder"):
        TransformerEncoder(folder)


def test_no_layer_at_all_is_no_layer_less(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("llama"), tmp_path / "none")
    settings(folder / "config.json", num_hidden_layers=0)
    with pytest.raises(InputError, match=r"config\.json doesn't count"):
        TransformerEncoder(folder, "avg")


def test_other_names_of_weights_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "named")
    settings(folder / "config.json", transformers_weights="adapter_model.bin")
    with pytest.raises(InputError, match="names another file of weights"):
        TransformerEncoder(folder)


def test_files_that_nobody_opens_may_be_quantised(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "beside")
    linear = [name for name, tensor in load_file(folder / WEIGHTS).items() if tensor.dim() > 1]
    tensors = {name: QUANTISED["int8"](load_file(folder / WEIGHTS)[name]) for name in linear}
    save_file(tensors, folder / "model.int8.safetensors", metadata={"format": "pt"})
    TransformerEncoder(folder)
    (folder / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(InputError, match="a pointer of git-lfs"):
        TransformerEncoder(folder)


def test_code_of_the_folder_s_own_is_named(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("llama"), tmp_path / "own")
    settings(folder / "config.json", auto_map={"AutoModel": "modeling.BiLlama"})
    assert TransformerEncoder(folder, "avg").facts["own_code"] == "modeling.BiLlama, not executed"


def test_a_pooler_in_a_list_of_outputs_is_read_too(zoo: Zoo, tmp_path: Path) -> None:
    folder = sized(sentence_transformers_folder(zoo("bert"), tmp_path / "listed", mean=True))
    change(folder, lambda tensors: {n: t for n, t in tensors.items() if "pooler" not in n})
    way = {"text": {"method": "forward", "method_output_name": ["pooler_output"]}}
    settings(
        folder / "sentence_bert_config.json", modality_config=way, module_output_name="sentence_embedding"
    )
    (folder / "modules.json").write_text(json.dumps(json.loads((folder / "modules.json").read_text())[:1]))
    with pytest.raises(InputError, match="the first is pooler"):
        SentenceTransformerEncoder(folder)
