"""What a folder's files say of its architecture is what the loaded model shows."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM
from transformers.models.auto import modeling_auto

from bench.errors import InputError
from bench.nn.architecture import find_special_ids
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.folder_facts import list_model_types, read_folder_facts
from bench.nn.layer_streams import find_adapter
from tests.support.layered_encoders import ENCODERS, LAYERS, encoder
from tests.support.zoo import ZOO


@pytest.mark.parametrize("name", [*ZOO])
def test_facts_are_those_of_the_loaded_model(name: str, zoo: Callable[[str], Path]) -> None:
    facts, encoder = read_folder_facts(zoo(name)), TransformerEncoder(zoo(name), "avg")
    model, tokenizer = encoder.model, encoder.tokenizer
    assert facts.kind == model.config.model_type
    assert facts.layered == (find_adapter(model) is not None)
    assert facts.causal in (None, encoder.causal)
    assert encoder.causal is (facts.causal is True) or name == "bart"  # whose states are its decoder's
    assert facts.mask_token in (None, tokenizer.mask_token is not None)
    assert facts.end_token is bool(find_special_ids(tokenizer)[1])
    assert facts.pooler in (None, getattr(model, "pooler", None) is not None)
    dense = isinstance(getattr(getattr(type(model)(model.config), "pooler", None), "dense", None), nn.Linear)
    assert facts.pooler_layer in (None, dense)
    assert facts.position_ids in (None, "position_ids" in inspect.signature(model.forward).parameters)
    part = getattr(model, "embeddings", getattr(model, "embed_tokens", None))
    assert facts.causal or facts.embeddings in (None, isinstance(part, nn.Module))


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_positions_that_count_from_a_missing_padding_id_are_refused(
    name: str, zoo: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(zoo(name), tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    with pytest.raises(InputError, match="pad_token_id"):
        load_backbone(folder)


def test_decoders_are_known_to_the_installed_library() -> None:
    both = {*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    decoders = {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    assert not list_model_types("causal") & both
    assert list_model_types("causal") <= decoders
    assert {"llama", "gpt2", "qwen3", "gemma2", "opt"} <= list_model_types("causal")
    every = {*modeling_auto.MODEL_MAPPING_NAMES}
    for name in ("layered", "shared_layers", "dropout_in_modules", "no_position_ids", "no_pooler_layer"):
        assert list_model_types(name) <= every, name


def test_a_bidirectional_decoder_is_not_called_causal(zoo: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("llama"), tmp_path / "llama")
    config = json.loads((folder / "config.json").read_text())
    assert read_folder_facts(folder).causal is True
    (folder / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    assert read_folder_facts(folder).causal is None


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff" * 64, b'{"model_type": 3, "cls_token": []}'])
def test_a_damaged_file_is_ok(file: str, content: bytes, zoo: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "bert")
    (folder / file).write_bytes(content)
    assert read_folder_facts(folder) is not None


def test_facts_are_read_without_torch(zoo: Callable[[str], Path]) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom bench.nn.folder_facts import read_folder_facts\n"
        "print(read_folder_facts(Path(sys.argv[1])).kind, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(zoo("bert"))], capture_output=True, text=True)
    assert done.stdout.split() == ["bert", "False"]


@pytest.mark.parametrize("name", ENCODERS)
def test_a_layered_encoder_and_its_head_are_seen_in_its_files(name: str, tmp_path: Path) -> None:
    for head, has_head in ((AutoModelForMaskedLM, True), (AutoModel, False)):
        folder = tmp_path / head.__name__
        encoder(name, head=head).save_pretrained(folder)
        facts = read_folder_facts(folder)
        assert facts.layered
        assert facts.layers == LAYERS
        assert (facts.masked_lm, facts.mlm_head) == (has_head, has_head)
        assert facts.mlm_transform == (has_head and not name.startswith("eurobert"))
        assert facts.position_ids is (False if name == "deberta-v3" else None)


def test_listed_encoders_are_the_tested_ones_and_variants_are_refused(tmp_path: Path) -> None:
    assert {kind for kind, _ in ENCODERS.values()} == list_model_types("layered")
    assert list_model_types("masked_lm_heads") == list_model_types("layered")
    variants = (("deberta-v2", {"conv_kernel_size": 3}), ("albert", {"inner_group_num": 2}))
    for name, changes in (*variants, ("electra", {"is_decoder": True})):
        model = encoder(name, **changes)
        model.save_pretrained(tmp_path / name)
        assert find_adapter(model) is None
        assert not read_folder_facts(tmp_path / name).layered
    tied = encoder("eurobert", head=AutoModelForMaskedLM, tie_word_embeddings=True)
    tied.save_pretrained(tmp_path / "tied")
    assert read_folder_facts(tmp_path / "tied").masked_lm
