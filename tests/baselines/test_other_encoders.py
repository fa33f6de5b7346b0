"""DiffCSE's, InfoCSE's and DenoSent's auxiliary networks on today's encoders: what their losses reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.steps import objective_of
from tests.support.training import SENTENCES

BACKBONES = ("albert", "deberta-v2", "distilbert", "eurobert", "modernbert", "mpnet", "nomic", "xlm-roberta")
Zoo = Callable[[str], Path]


def made_on(zoo: Zoo, backbone: str, method: str, option: str) -> tuple[Any, list[Any]]:
    given = {"auxiliaries": {option: zoo(backbone)}}
    made, batch, _ = objective_of(method, zoo(backbone), SENTENCES, given, max_length=16)
    return made, batch


def reached(module: nn.Module) -> set[str]:
    """Names of the parameters with a gradient other than 0."""
    named = module.named_parameters()
    return {name for name, weight in named if weight.grad is not None and bool(weight.grad.any())}


@pytest.mark.parametrize("backbone", BACKBONES)
def test_restoration_reaches_the_encoder_by_the_vectors_alone(zoo: Zoo, backbone: str) -> None:
    made, batch = made_on(zoo, backbone, "infocse", "mlm_head")
    _, gaps = made.prepare(batch)
    vectors = torch.randn(2 * len(batch), 32, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(made.restoration(gaps, vectors))
    assert vectors.grad is not None
    assert bool(vectors.grad.any(1).all())  # attention carries each vector to its sentence's gaps
    assert not reached(made.encoder)
    assert not reached(made.frozen)
    assert {name.split(".")[0] for name in reached(made.decoder)} == {"0", "1"}
    assert reached(made.lm_head)
    assert bool(reached(made.decoder_norm)) == (backbone in ("eurobert", "modernbert"))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_detection_reaches_the_encoder_by_the_vectors_alone(zoo: Zoo, backbone: str) -> None:
    made, batch = made_on(zoo, backbone, "diffcse", "generator")
    _, edits = made.prepare(batch)
    vectors = torch.randn(2 * len(batch), 32, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(made.detection(edits, vectors))
    assert vectors.grad is not None
    assert bool(vectors.grad.any(1).all())
    assert not reached(made.encoder)
    assert not reached(made.generator)
    assert len(reached(made.discriminator)) > 10


@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "eurobert"])
def test_denoising_reads_constant_embeddings_and_ties_the_words(zoo: Zoo, backbone: str) -> None:
    made, batch = made_on(zoo, backbone, "denosent", "mlm_head")
    _, gaps = made.prepare(batch)
    vectors = torch.randn(len(batch), 32, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(made.restoration(gaps, vectors))
    assert vectors.grad is not None
    assert bool(vectors.grad.any(1).all())
    table = made.encoder.get_input_embeddings().weight
    (word,) = reached(made.encoder)
    assert made.encoder.get_parameter(word) is table
    assert {"transform", "bias"} == {name.split(".")[0] for name in reached(made.lm_head)}
