"""Parameters, memory and hours by arithmetic, against torch's own counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from bench.config.profiles import load_profile, profile_names
from bench.nn.dropout import set_dropout
from bench.nn.lora import add_lora
from bench.nn.lora_settings import LoraSettings
from bench.papers import paper_compute
from bench.plan import profile_costs
from bench.plan.cost_arithmetic import (
    KINDS,
    Architecture,
    StepMemory,
    activation_bytes,
    count_adapters,
    count_parameters,
    count_trained,
    read_architecture,
    weight_bytes,
)
from bench.training.loop import TrainSettings, make_optimizer

STATED = [name for name in profile_names() if load_profile(name).architecture]
MILLIONS = {
    "bert-base": 109.5, "bert-large": 335.1, "deberta-v3-base": 183.8, "llama-3.2-1b": 1235.8,
    "modernbert-base": 149.0, "qwen3-0.6b": 596.0, "roberta-base": 124.6, "roberta-large": 355.4,
}  # fmt: skip
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6, "intermediate_size": 192}
ROWS, LENGTH = 8, 32
TOLERANCE = 0.05
ADAPTED = 0.1
"""Share by which memory may differ, of whole models and of those with adapters."""


def sized(profile: str, **changes: Any) -> tuple[Any, Architecture]:
    """The configuration of a profile's backbone with other sizes, and what is read of it."""
    config = {**load_profile(profile).architecture, **changes}
    if "head_dim" in config and changes:
        config |= {"num_key_value_heads": 2, "head_dim": 32}
    architecture = read_architecture(config)
    assert architecture is not None
    return AutoConfig.for_model(**config), architecture


def test_every_profile_of_the_papers_size_states_its_architecture() -> None:
    assert set(STATED) == MILLIONS.keys()
    assert {load_profile(name).architecture["model_type"] for name in STATED} == set(KINDS)


@pytest.mark.parametrize("profile", STATED)
def test_parameters_are_those_of_the_model(profile: str) -> None:
    config, architecture = sized(profile)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(architecture) == count
    assert round(count / 1e6, 1) == MILLIONS[profile]


def saved_bytes(model: Any) -> int:
    """Bytes that a pass of 8 rows of 32 tokens keeps for its backward pass, weights aside."""
    ids = torch.randint(5, 90, (ROWS, LENGTH))
    mask = torch.ones_like(ids)
    mask[0, LENGTH // 2 :] = 0
    owned = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}
    held = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            sizes[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=mask)
    return sum(sizes.values())


STEP = StepMemory(LENGTH, ROWS)


@pytest.mark.parametrize("profile", sorted(MILLIONS.keys() - {"bert-base", "roberta-base"}))
def test_memory_is_what_torch_keeps(profile: str) -> None:
    config, architecture = sized(profile, vocab_size=100, pad_token_id=0, **SIZES)
    model = AutoModel.from_config(config)
    set_dropout(model.train(), 0.1)
    assert saved_bytes(model) == pytest.approx(activation_bytes(architecture, STEP), rel=TOLERANCE)
    optimizer = make_optimizer(model, TrainSettings(1e-4, ROWS, 1, 1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    numbers = sum(tensor.numel() for tensor in [*states, *model.parameters(), *model.parameters()])
    assert weight_bytes(architecture, STEP) == 4 * numbers
    adapted = replace(STEP, lora_rank=16, lora_dropout=True)
    add_lora(model, LoraSettings(16, 16.0, 0.05))
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trained == count_adapters(architecture, 16) == count_trained(architecture, adapted)
    assert saved_bytes(model) == pytest.approx(activation_bytes(architecture, adapted), rel=ADAPTED)


def test_options_that_save_memory() -> None:
    _, architecture = sized("bert-large")
    whole = StepMemory(32, 1024)
    few = activation_bytes(architecture, replace(whole, chunk=64))
    assert few == activation_bytes(architecture, replace(whole, rows=64))
    assert few == pytest.approx(activation_bytes(architecture, whole) / 16)
    again = replace(whole, checkpoint_layers=True)
    one_layer = activation_bytes(replace(architecture, layers=1), whole)
    assert activation_bytes(architecture, again) == 4 * 24 * 1024 * 32 * 1024 + one_layer
    adapters = replace(whole, lora_rank=8)
    halved = weight_bytes(architecture, adapters) - weight_bytes(
        architecture, replace(adapters, lora_bf16=True)
    )
    assert halved == 2 * count_parameters(architecture)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "mamba"},
        {"model_type": "bert"},
        {**load_profile("bert-base").architecture, "hidden_size": "x"},
    ],
)
def test_other_architectures_have_no_formula(config: Mapping[str, Any]) -> None:
    assert read_architecture(config) is None


@pytest.mark.parametrize("method", ["simcse", "esimcse", "infocse", "tncse", "sup_simcse"])
def test_hours_are_those_of_the_papers_grid(method: str) -> None:
    cost = profile_costs.estimate_method(method, load_profile("bert-base"))
    assert cost is not None
    assert cost.hours == pytest.approx(paper_compute.training_hours(method, "bert-base"))


@pytest.mark.parametrize(
    ("method", "given", "encoders", "copies", "bytes_a_weight"),
    [
        ("simcse", {}, 1, 0, 16),
        ("ct", {}, 2, 0, 2 * 12),
        ("ct", {"optimizer": "adamw"}, 2, 0, 2 * 16),
        ("ct_batch", {}, 2, 0, 2 * 16),
        ("pcl", {}, 2, 0, 2 * 16),
        ("pcl", {"fix_peer": True}, 1, 1, 16 + 4),
        ("pcl", {"peer_coop": False}, 1, 0, 16),
        ("tsdae", {}, 1, 0, 16),
        ("tsdae", {"tied": False}, 2, 0, 2 * 16),
        ("diffcse", {}, 2, 0, 2 * 16),
        ("bsl", {}, 1, 1, 16 + 4),
        ("unsee_byol", {}, 1, 1, 16 + 4),
        ("unsee_byol", {"architecture": "projection"}, 1, 0, 16),
        ("esimcse", {}, 1, 1, 16 + 4),
        ("esimcse", {"queue": 0}, 1, 0, 16),
        ("rankcse", {}, 1, 2, 16 + 2 * 4),
        ("rankcse", {"teacher2": ""}, 1, 1, 16 + 4),
        ("dclr", {}, 1, 1, 16 + 4),
        ("dclr", {"complement": ""}, 1, 0, 16),
        ("tncse", {}, 2, 0, 2 * 16),
        ("promcse", {}, 0, 1, 4),
    ],
)
def test_a_cost_counts_every_encoder_of_a_training(
    method: str, given: Mapping[str, Any], encoders: int, copies: int, bytes_a_weight: int
) -> None:
    profile = load_profile("bert-large")
    tables = {**profile.methods, method: {**profile.methods.get(method, {}), **given}}
    cost = profile_costs.estimate_method(method, replace(profile, methods=tables))
    assert cost is not None
    assert (cost.encoders, cost.copies) == (encoders, copies)
    assert cost.state == bytes_a_weight * cost.parameters
    assert cost.trained == encoders * cost.parameters
    assert ("RMSprop" in cost.format_memory()) == (method == "ct" and not given)


def test_activations_are_those_of_all_views() -> None:
    profile = replace(load_profile("bert-large"), methods={})
    costs = {}
    for method in ("simcse", "sup_simcse", "tncse", "ct_batch"):
        table = {"batch_size": 256, "max_length": 32}
        costs[method] = profile_costs.estimate_method(method, replace(profile, methods={method: table}))
    held = {method: cost.activations for method, cost in costs.items() if cost is not None}
    ratios = {method: round(value / held["simcse"], 3) for method, value in held.items()}
    assert ratios == {"simcse": 1, "sup_simcse": 1.5, "tncse": 2, "ct_batch": 1}


def test_frozen_weights_spare_a_pass_and_layers_computed_again_add_one() -> None:
    profile = load_profile("bert-large")
    usual = profile_costs.estimate_method("simcse", profile)
    assert usual is not None
    for given, passes in (({"lora_rank": 8}, 2), ({"checkpoint_layers": True}, 4), ({"chunk": 64}, 4)):
        table = {**profile.methods["simcse"], **given}
        cost = profile_costs.estimate_method("simcse", replace(profile, methods={"simcse": table}))
        assert cost is not None
        assert cost.hours == pytest.approx(usual.hours * passes / 3, rel=0.05), given


def test_a_method_that_does_not_train_takes_nothing() -> None:
    assert profile_costs.estimate_method("untrained", load_profile("bert-large")) is None
    assert profile_costs.estimate_method("simcse", load_profile("mini")) is None
