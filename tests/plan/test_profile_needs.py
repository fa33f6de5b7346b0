"""What a profile's backbone lacks for a method, and what its weights cost, without the weights."""

from __future__ import annotations

import pytest

from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.method_card import NEEDS
from bench.plan.method_explanation import explain_method

LACKS = {
    ("llm2vec", "bert-large"): ("causal",),
    ("prompteol_cse", "deberta-v3-base"): ("causal",),
    ("tsdae", "llama-3.2-1b"): ("first token", "decoding layers"),
    ("tsdae", "modernbert-base"): ("decoding layers",),
    ("sup_simcse", "qwen3-0.6b"): ("pooler layer",),
}


def explain(method: str, profile: str) -> dict[str, str]:
    """Facts of ``bench show METHOD --profile PROFILE`` by name."""
    requests = parse_methods(method)
    return dict(explain_method(requests[0], RunSpec(requests, (1,), profile)).facts)


@pytest.mark.parametrize(("method", "profile"), LACKS)
def test_a_method_that_cannot_run_has_needs_in_place_of_costs(method: str, profile: str) -> None:
    facts = explain(method, profile)
    assert all(NEEDS[need] in facts["can't run"] for need in LACKS[method, profile])
    assert "does without" not in facts["can't run"]
    assert not {"rate", "weights", "memory", "hours"} & facts.keys()


def test_options_that_meet_the_needs_are_named() -> None:
    text = explain("scd", "llama-3.2-1b")["can't run"]
    assert "train_pooling=last,pooling=last does without" in text
    facts = explain("scd[train_pooling=last,pooling=last]", "llama-3.2-1b")
    assert {"weights", "memory", "hours"} <= facts.keys() - {"can't run"}


def test_a_methods_own_check_of_the_backbone_counts() -> None:
    assert "deberta-v2" in explain("promcse", "deberta-v3-base")["can't run"]
    assert "weights" in explain("promcse", "bert-large")


@pytest.mark.parametrize(
    ("method", "profile", "trained"),
    [
        ("consert", "llama-3.2-1b", 45),
        ("ct_batch", "llama-3.2-1b", 90),
        ("crop", "qwen3-0.6b", 40),
        ("simcse", "qwen3-0.6b", 0),
        ("consert", "bert-large", 0),
    ],
)
def test_what_adapters_would_train_of_a_decoder(method: str, profile: str, trained: int) -> None:
    weights = explain(method, profile)["weights"]
    assert ("lora_rank" in weights) == bool(trained)
    assert f"lora_rank=64 trains {trained} M" in weights or not trained
