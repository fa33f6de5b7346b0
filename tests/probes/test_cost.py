"""Multiply-accumulates as the papers count them, and what else an encoder costs."""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from bench.errors import BenchError, InputError
from bench.nn.backbone import TransformerEncoder
from bench.nn.observer import ObservedTower
from bench.probes import cost as module
from bench.probes.cost import count_gmacs, count_parameters, encoder_cost, measure_speed


def small(**other: Any) -> BertModel:
    shape = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    return BertModel(BertConfig(**{**shape, "vocab_size": 60, **other}))


def test_bert_base_and_a_twin_as_the_papers_have_them() -> None:
    with torch.device("meta"):  # its shape alone: thop reads no value
        towers = [ObservedTower(BertModel(BertConfig()), None, "cls", True) for _ in range(2)]
    assert encoder_cost(towers[:1])["gmac"] == pytest.approx(5.441, abs=5e-4)
    twin = encoder_cost(towers)
    assert twin["gmac"] == pytest.approx(10.88, abs=5e-3)
    assert twin["towers"] == [twin["gmac"] / 2] * 2
    assert (twin["parameters"], twin["length"]) == (2 * 109_482_240, 64)


@pytest.mark.parametrize("length", [5, 64])
@pytest.mark.parametrize("pooler", [True, False])
def test_gmacs_against_the_closed_formula(length: int, pooler: bool) -> None:
    model = small()
    if not pooler:
        model.pooler = None
    layers, h, i = 2, 32, 48
    dense = layers * (4 * h * h + 2 * h * i) * length + pooler * h * h
    norms = 4 * (2 * layers + 1) * length * h
    assert count_gmacs(model, length) == pytest.approx((dense + norms) / 1e9, rel=1e-12)


def test_counting_leaves_the_model_as_it_was() -> None:
    model = small().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = count_gmacs(model)
    assert count_gmacs(model) == first  # nothing is counted on top
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.training
    assert not any(m._forward_hooks for m in model.modules())


def test_gmacs_of_another_architecture() -> None:
    config = DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=60)
    norms = 4 * 5 * 64 * 32
    dense = 2 * (4 * 32 * 32 + 2 * 32 * 48) * 64
    assert count_gmacs(DistilBertModel(config)) == pytest.approx((dense + norms) / 1e9)
    with pytest.raises(BenchError, match="40 tokens at most, not 64"):
        count_gmacs(small(max_position_embeddings=40))


def test_shared_parameters_count_once() -> None:
    model = small()
    one = sum(weight.numel() for weight in model.parameters())
    assert count_parameters([model, model]) == one
    assert count_parameters([model, small()]) == 2 * one


def test_the_other_thop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = lambda model, inputs, stride=1: pytest.fail("called")  # noqa: E731
    monkeypatch.setattr(importlib.import_module("thop"), "profile", profile)
    with pytest.raises(InputError) as caught:
        count_gmacs(small())
    assert "ultralytics-thop" in caught.value.what
    assert caught.value.hint == "pip uninstall ultralytics-thop thop && pip install thop"


def test_sentences_a_second_by_the_clock(tiny_bert: Path) -> None:
    times: Iterator[float] = iter([10.0, 12.5])
    found = measure_speed(TransformerEncoder(tiny_bert), ["two children"] * 5, lambda: next(times))
    assert (found["sentences"], found["sentences_per_second"]) == (5, 2.0)
    assert found["peak_memory_mb"] > 50
    assert found["peak_of"] in ("resident set", "process so far", "cuda tensors")


def test_peak_memory_sees_what_was_held_meanwhile() -> None:
    def peak(megabytes: int) -> float:
        read, _ = module._peak_meter()
        held = mmap.mmap(-1, megabytes * 2**20)  # not from the heap, which may have as much to give
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1  # written to, so it is resident
        held.close()
        return (read() or 0) / 2**20

    assert peak(300) - peak(1) > 250


def test_without_a_resettable_peak_the_process_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=PermissionError(1, "not permitted")))
    read, what = module._peak_meter()
    assert what == "process so far"
    assert (read() or 0) > 50 * 2**20
