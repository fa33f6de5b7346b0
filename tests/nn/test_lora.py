"""LoRA adapters: states, merging, and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel

from bench.errors import InputError
from bench.nn.dropout import list_adapter_dropouts, set_dropout
from bench.nn.hidden_states import compute_last_states
from bench.nn.layer_streams import compute_embeddings, run_encoder
from bench.nn.lora import (
    add_lora,
    has_lora,
    list_linear_modules,
    lora_state,
    lower_base,
    merge_lora,
    read_lora,
    write_lora,
)
from bench.nn.lora_settings import CONFIG, WEIGHTS, LoraSettings
from bench.nn.tokens import wrap_chunk
from bench.training import randomness
from bench.training.randomness import check_dropout
from tests.support.layered_encoders import ENCODERS, batch, encoder

SETTINGS = LoraSettings(2, 6.0)
_DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
    "llama": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24},
}
_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 2)


def make(name: str) -> Any:
    if name in ENCODERS:
        return encoder(name)
    config = AutoConfig.for_model(name, vocab_size=40, **_TOKENS, **_DECODERS[name])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModel.from_config(config).eval()


def states(model: Any) -> Tensor:
    ids = torch.arange(3, 17).view(2, 7)
    with torch.no_grad():
        result: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return result


def adapted(name: str, settings: LoraSettings = SETTINGS) -> Any:
    """Make a model whose adapters are far from their start."""
    model = make(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        add_lora(model, settings)
        for tensor in lora_state(model).values():
            tensor.normal_(0, 0.3)
    return model


@pytest.mark.parametrize("name", ["bert", "albert", "deberta-v3", "modernbert", "llama", "gpt2"])
def test_merged_model_has_equal_states_and_its_own_modules(name: str) -> None:
    plain, model = make(name), adapted(name)
    before = states(model)
    assert not torch.allclose(before, states(plain), atol=0.1)
    merge_lora(model)
    assert not has_lora(model)
    assert [type(part) for part in model.modules()] == [type(part) for part in plain.modules()]
    assert (states(model) - before).abs().max() <= 1e-5 * before.abs().max()
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_adapters_start_at_the_model_and_are_all_that_trains() -> None:
    plain, model = make("bert"), make("bert")
    add_lora(model, SETTINGS)
    assert torch.equal(states(model), states(plain))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if ".lora_" in name}
    assert len(lora_state(model)) == 2 * 6 * len(plain.encoder.layer)
    assert not any("pooler" in name for name in trained)


def test_base_in_bfloat16_keeps_adapters_in_float32() -> None:
    model = make("bert")
    add_lora(model, LoraSettings(2, 6.0, base="bf16"))
    for name, parameter in model.named_parameters():
        wide = ".lora_" in name or name.startswith("pooler.")  # losses call poolers on float32 vectors
        assert parameter.dtype == (torch.float32 if wide else torch.bfloat16), name
    assert (states(model).float() - states(make("bert"))).abs().max() < 0.2


def test_targets_are_last_parts_of_names() -> None:
    model = adapted("bert", LoraSettings(2, 6.0, targets="query+output.dense"))
    assert len(lora_state(model)) == 2 * 3 * len(model.encoder.layer)  # query and two called output.dense
    with pytest.raises(InputError, match="'quer'") as error:
        add_lora(make("bert"), LoraSettings(2, 6.0, targets="query+quer"))
    assert "all-linear, or of query, key, value, dense, joined by +" in str(error.value.expected)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_folder_gives_the_adapters_back(name: str, tmp_path: Path) -> None:
    model, again = adapted(name), make(name)
    write_lora(model, tmp_path, "tiny")
    read_lora(again, tmp_path)
    assert torch.equal(states(again), states(model))
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_lora(again, tmp_path, "tiny")
    assert first == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_peft_reads_the_folder(tmp_path: Path) -> None:
    from peft import PeftModel

    for name in ("bert", "gpt2"):
        model = adapted(name)
        write_lora(model, tmp_path / name, "tiny")
        other = PeftModel.from_pretrained(make(name), tmp_path / name).eval()
        assert torch.equal(states(other), states(model))


def refuse(folder: Path, match: str) -> None:
    model = make("bert")
    names = list_linear_modules(model)
    with pytest.raises(InputError, match=match):
        read_lora(model, folder)
    assert list_linear_modules(model) == names


def test_other_weights_are_refused(tmp_path: Path) -> None:
    write_lora(adapted("bert"), tmp_path, "tiny")
    state, first = (
        load_file(tmp_path / WEIGHTS),
        "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight",
    )

    def save(tensors: dict[str, Tensor]) -> None:
        save_file(tensors, tmp_path / WEIGHTS)

    save({name: tensor for name, tensor in state.items() if name != first})
    refuse(tmp_path, "only one of its matrices")
    save({name: tensor for name, tensor in state.items() if ".layer.0." not in name})
    refuse(tmp_path, "lacks encoder.layer.0")
    save(state | {first.replace("layer.0", "layer.9"): state[first].clone()})
    refuse(tmp_path, "nothing reads .*layer.9")
    save(state | {first: state[first][:1].contiguous()})
    refuse(tmp_path, "has the shape 1x16")
    save({})
    refuse(tmp_path, "no adapter")


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"peft_type": "IA3"}, "'IA3'"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "biases"),
        ({"modules_to_save": ["pooler"]}, "modules_to_save"),
        ({"r": 0}, "rank r is 0"),
        ({"lora_alpha": "16"}, "lora_alpha is '16'"),
    ],
)
def test_other_adapters_are_refused(setting: dict[str, Any], match: str, tmp_path: Path) -> None:
    write_lora(adapted("bert"), tmp_path, "tiny")
    facts = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(facts | setting))
    refuse(tmp_path, match)


@pytest.mark.parametrize("name", ENCODERS)
def test_streams_go_through_the_adapters(name: str) -> None:
    """A layer's modules called one by one, as CAELs and DiffCSE do, read W + (alpha / r) B A."""
    model = adapted(name)
    ids, mask = batch()
    chunk = wrap_chunk(ids, mask)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        states = run_encoder(model, compute_embeddings(model, chunk), chunk)
        fast = compute_last_states(model, chunk)
    tokens = mask.bool()
    torch.testing.assert_close(states[tokens], expected[tokens], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fast[tokens], expected[tokens], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta-v3", "mpnet", "eurobert"])
def test_streams_and_poolers_of_a_base_in_bfloat16(name: str) -> None:
    model = adapted(name)
    ids, mask = batch()
    chunk = wrap_chunk(ids, mask)
    with torch.no_grad():
        exact = run_encoder(model, compute_embeddings(model, chunk), chunk)
        lower_base(model)
        del vars(model)["_bench_layers"]  # the adapter is chosen and compared again
        lowered = run_encoder(model, compute_embeddings(model, chunk), chunk)
        whole = model(input_ids=ids, attention_mask=mask)
    assert lowered.dtype == torch.bfloat16
    apart = (lowered.float() - exact)[mask.bool()].norm() / exact[mask.bool()].norm()
    assert 0 < apart < 0.15
    if getattr(model, "pooler", None) is not None:
        assert whole.pooler_output.dtype == torch.float32


def test_dropout_of_adapters_is_their_own() -> None:
    model = adapted("bert", LoraSettings(2, 6.0, dropout=0.25))
    set_dropout(model, 0.1)
    own = list_adapter_dropouts(model)
    rates = {id(part): part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)}
    assert [rates.pop(id(part)) for part in own] == [0.25] * 24
    assert set(rates.values()) == {0.1}
    check_dropout(model.train(), torch.arange(3, 17).view(2, 7), 0.1, needed=True, where="tiny")
    assert {part.p for part in own} == {0.25}


def test_dropout_of_adapters_makes_two_views(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make("llama").train(), torch.arange(3, 17).view(2, 7)

    def keep(model: Any, probability: float) -> None:
        """Set no dropout, as in an architecture without any."""

    monkeypatch.setattr(randomness, "set_dropout", keep)
    with pytest.raises(InputError, match="no dropout in its layers") as error:
        check_dropout(model, rows, 0.1, needed=True, where="tiny")
    assert "lora_dropout" in str(error.value.hint)
    add_lora(model, LoraSettings(2, 6.0, dropout=0.1))
    check_dropout(model, rows, 0.1, needed=True, where="tiny")
