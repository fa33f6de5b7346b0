"""Backbones of other kinds than BERT train as they say, or the plan refuses them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.errors import InputError
from bench.nn.architecture import inspect_model, state_size
from bench.nn.backbone import load_backbone
from bench.nn.dropout import configured_dropout, set_dropout
from bench.nn.folder_checks import check_model_files
from bench.nn.folder_facts import read_folder_facts
from bench.plan import backbones as backbone_needs
from bench.training.randomness import check_dropout
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts
from tests.support.shortened import shortened

Zoo = Callable[[str], Path]
ROWS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [12, 11, 10, 9, 8, 7, 6, 5]])
RUN = ("run", "--seeds", "1", "--suite", "toy", "--backbone")


@pytest.mark.parametrize("name", ["fnet", "convbert"])
def test_padding_that_moves_states_is_refused(
    cli: Cli, zoo: Zoo, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = zoo(name)
    assert inspect_model(load_backbone(folder)[0].eval(), name).sees_padding
    assert "masked padding" in refusal(cli, *RUN, str(folder), "--methods", "esimcse", "--dry-run")
    # a kind that no list names is refused when its model is looked at, before its first step
    monkeypatch.setattr(backbone_needs, "fulfils_need", lambda *_: True)
    with shortened():
        code, _, err = cli(*RUN, str(folder), "--methods", "esimcse", as_is=True)
    assert (code, "padding changes" in err) == (1, True), err


def test_a_model_that_its_first_call_changes_is_no_model_that_leaves_out_layers(zoo: Zoo) -> None:
    model = load_backbone(zoo("big_bird"))[0]
    set_dropout(model, 0.1)
    check_dropout(model.train(), ROWS, 0.1, needed=True, where="big_bird")


@pytest.mark.parametrize("method", ["bsl", "unsee_vicreg", "vascl", "crop"])
def test_heads_have_the_width_of_the_states(cli: Cli, zoo: Zoo, method: str) -> None:
    folder = zoo("opt-narrow")
    model = load_backbone(folder)[0]
    assert (state_size(model), model.config.hidden_size) == (16, 32)
    with shortened():
        code, _, err = cli(*RUN, str(folder), "--methods", method, as_is=True)
    assert code == 0, err


def test_a_dropout_of_null_is_one_of_0_that_training_sets(cli: Cli, zoo: Zoo, tmp_path: Path) -> None:
    folder = zoo("llama-null")
    assert json.loads((folder / "config.json").read_text())["attention_dropout"] is None
    model = load_backbone(folder)[0]
    set_dropout(model, 0.25)
    assert {layer.self_attn.attention_dropout for layer in model.layers} == {0.25}
    with configured_dropout(model):
        assert model.config.attention_dropout is None
    with shortened():
        code, _, err = cli(*RUN, str(folder), "--methods", "vascl", as_is=True)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    assert record.training["dropout"] == "architecture"
    assert record.training["stages"]["vascl"]["sentences_seen"] > 0


DROPOUT, STATES = "needs dropout", "needs states of"


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        *(("falcon_mamba", "vascl", DROPOUT), ("diffllama", "unsee_barlow", DROPOUT)),
        *(("longt5", "simcse", STATES), ("canine", "simcse", STATES)),
    ],
)
def test_the_plan_refuses_the_untrainable(cli: Cli, zoo: Zoo, name: str, method: str, said: str) -> None:
    assert said in refusal(cli, *RUN, str(zoo(name)), "--methods", method, "--dry-run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("diffllama", "4 times in 2"),
        ("squeezebert", "no"),
        *(pytest.param(*row, marks=pytest.mark.long) for row in (("ibert", "no"), ("bart", "6 times in 2"))),
    ],
)
def test_probes_name_hidden_attention(cli: Cli, zoo: Zoo, name: str, said: str, tmp_path: Path) -> None:
    run = ("run", "--suite", "toy", "--methods", f"x=hf:{zoo(name)}:avg")
    code, _, err = cli(*run, "--probes", "attention_sink,cls_energy", as_is=True)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    for probe in ("attention_sink", "cls_energy"):
        assert said in record.probes[probe]["missing"].partition(": ")[2]


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def weights(folder: Path) -> Path:
    return folder / "model.safetensors"


def lose_a_layer(folder: Path) -> None:
    tensors = {n: tensor for n, tensor in load_file(weights(folder)).items() if ".layer.1." not in n}
    save_file(tensors, weights(folder), metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: os.truncate(weights(folder), weights(folder).stat().st_size - 100), "100 bytes are"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer's vocabulary"),
        (lose_a_layer, "have 1 layers, its config.json names 2"),
        (lambda folder: change_json(folder / "config.json", model_type=["bert"]), "model_type is ['bert']"),
    ],
)
def test_the_plan_refuses_a_folder_that_isn_t_whole(
    cli: Cli, zoo: Zoo, tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "damaged")
    check_model_files(folder)
    damage(folder)
    with pytest.raises(InputError, match="damaged"):
        check_model_files(folder)
    assert said in refusal(cli, *RUN, str(folder), "--methods", "simcse", "--dry-run")


def test_the_plan_names_a_sentence_without_positions(cli: Cli, zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "short")
    change_json(folder / "config.json", max_position_embeddings=8)
    said = refusal(cli, *RUN, str(folder), "--methods", "simcse", "--dry-run")
    assert not missing_facts(said, "32 tokens", "positions for 8", "--set simcse.max_length=8")
    code, out, err = cli(*RUN, str(folder), "--methods", "simcse[max_length=8]", "--dry-run")
    assert (code, "to do" in out) == (0, True), err


def test_tokenizers_without_a_mask_token_are_known_by_their_class(zoo: Zoo, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("qwen2"), tmp_path / "st")
    for kind, known in (("Qwen2Tokenizer", False), ("Qwen2TokenizerFast", False), ("BertTokenizer", None)):
        change_json(folder / "tokenizer_config.json", tokenizer_class=kind)
        assert read_folder_facts(folder).mask_token is known
