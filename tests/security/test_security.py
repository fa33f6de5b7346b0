"""Hostile checkpoints: no pickle is loaded and no foreign class imported; the error names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bench
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.nn.masked_lm import load_masked_lm
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.cli import Cli
from tests.support.hostile import PICKLE, Edit, as_legacy, as_pickle, as_zip, put, settings
from tests.support.messages import missing_facts

LOADERS: dict[str, Callable[[Path], object]] = {
    "hf": TransformerEncoder,
    "st": SentenceTransformerEncoder,
    "masked_lm": load_masked_lm,
}


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


def edit_modules(change: Callable[[list[Any]], object]) -> Edit:
    """Change sentence-transformers' list of modules."""

    def edit(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text())
        change(modules)
        (folder / "modules.json").write_text(json.dumps(modules))

    return edit


def pooling(**values: object) -> Edit:
    return edit_modules(lambda modules: modules[1].update(values))


def new_module(kind: str, file: str, **settings: object) -> Edit:
    """Put another of sentence-transformers' modules behind the pooling."""
    new = {"idx": 2, "name": "2", "path": "2_New", "type": f"sentence_transformers.models.{kind}"}

    def edit(folder: Path) -> None:
        edit_modules(lambda modules: modules.append(new))(folder)
        put(folder, f"2_New/{file}", **settings)

    return edit


BERT = "sentence_bert_config.json"
KINDS = (
    *("os.system", "evil.X", "m.evil.X", "sentence_transformers_evil.X", "sentence_transformers."),
    *("sentence_transformers.base.model.torch", "sentence_transformers.util.misc.importlib.X()"),
)
FOREIGN = "m/modules.json: it names the foreign class '{}', which is not executed"
HOSTILE_MODULES: list[tuple[Edit, str]] = [
    *((pooling(type=kind), FOREIGN.format(kind)) for kind in KINDS),
    (pooling(path="../other"), "m/modules.json: the module's path '../other' leads out of the folder"),
    (pooling(path="/etc"), "m/modules.json: the module's path '/etc' leads out of the folder"),
    (pooling(path=7), "m/modules.json: module 2 has no path"),
    (
        new_module("WordEmbeddings", "wordembedding_config.json", tokenizer_class="evil.X"),
        "m/2_New/wordembedding_config.json: it names the foreign class 'evil.X'",
    ),
    (
        new_module("Router", "router_config.json", types={"a": "evil.X"}, structure={}, parameters={}),
        "m/2_New/router_config.json: it names the foreign class 'evil.X'",
    ),
    (
        new_module("Dense", "config.json", activation_function="evil.X", in_features=1, out_features=1),
        "m/2_New/config.json: it names the foreign class 'evil.X'",
    ),
    *(
        (
            settings(BERT, **{name: {argument: value}}),
            f"m/{BERT}: {name} holds '{argument}', which decides how the files are loaded",
        )
        for name, argument, value in (
            ("model_args", "weights_only", False),
            ("model_kwargs", "weights_only", False),
            ("model_args", "use_kernels", True),
            ("model_args", "state_dict", {}),
            ("tokenizer_args", "tokenizer_file", "/etc/hostname"),
            ("config_args", "name_or_path", "evil/x"),
        )
    ),
    (settings(BERT, model_args={"attn_implementation": "evil/k"}), "'evil/k' is code from elsewhere"),
    (settings(BERT, tokenizer_name_or_path="evil/x"), f"m/{BERT}: it names another model's tokenizer"),
]


@pytest.mark.parametrize(("edit", "message"), HOSTILE_MODULES)
def test_modules_that_would_load_something_else(model: Path, edit: Edit, message: str) -> None:
    edit(model)
    with pytest.raises(InputError) as caught:
        SentenceTransformerEncoder(model)
    assert message in str(caught.value)
