"""Activation checkpointing: the same loss and gradient to the bit, and fewer bytes kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.cross_attention import compute_twin_states
from bench.nn.dropout import set_dropout
from bench.nn.hidden_states import compute_last_states
from bench.nn.layer_checkpointing import checkpoint_layers, count_saved_bytes
from bench.nn.layer_streams import compute_embeddings, run_encoder
from bench.nn.tokens import wrap_chunk
from bench.training.randomness import own_random_state
from tests.support.layered_encoders import batch, encoder

Encode = Callable[[], Tensor]
CHUNK = wrap_chunk(*batch())


def step(models: list[Any], encode: Encode) -> tuple[Tensor, list[Tensor | None]]:
    """A loss with dropout, and its gradients."""
    for model in models:
        model.zero_grad()
    with own_random_state(3, "dropout"):
        loss = encode().square().sum()
        torch.autograd.backward(loss)
    gradients = []
    for model in models:
        gradients += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return loss.detach(), gradients


def check_checkpointing(models: list[Any], encode: Encode) -> float:
    """Check that a step stays the same; return the share of the bytes that it then keeps."""
    for model in models:
        set_dropout(model.train(), 0.1)
    loss, gradients = step(models, encode)
    before = count_saved_bytes(encode)
    for model in models:
        checkpoint_layers(model, partial(compute_last_states, model, CHUNK), "here")
    again, others = step(models, encode)
    assert torch.equal(loss, again)
    for one, other in zip(gradients, others, strict=True):
        assert one is other is None or (one is not None and other is not None and torch.equal(one, other))
    return count_saved_bytes(encode) / before


@pytest.mark.parametrize(
    "name", ["bert", "bert-eager", "roberta", "distilbert", "deberta-v3", "modernbert", "nomic", "eurobert"]
)
def test_layers_are_computed_again(name: str) -> None:
    model = encoder(name)
    assert check_checkpointing([model], lambda: compute_last_states(model, CHUNK, cls_only=True)) < 0.1


@pytest.mark.parametrize("name", ["bert", "distilbert", "deberta-v3", "eurobert"])
def test_so_are_layers_that_are_called_in_parts(name: str) -> None:
    model = encoder(name)
    assert (
        check_checkpointing([model], lambda: run_encoder(model, compute_embeddings(model, CHUNK), CHUNK))
        < 0.1
    )


@pytest.mark.parametrize("name", ["bert", "deberta-v3"])
def test_so_are_two_towers_with_a_cross_stream_of_one_layer(name: str) -> None:
    towers = [encoder(name, seed) for seed in (0, 1)]

    def encode() -> Tensor:
        twin = compute_twin_states(towers[0], towers[1], CHUNK, (2,), cls_only=True)
        assert twin.cross_first is not None
        assert twin.cross_second is not None
        return twin.first[:, 0] + twin.second[:, 0] + twin.cross_first * twin.cross_second

    assert check_checkpointing(towers, encode) < 0.4


def test_a_frozen_embedding_layer_changes_nothing() -> None:
    model = encoder("bert")
    model.embeddings.requires_grad_(False)
    assert check_checkpointing([model], lambda: compute_last_states(model, CHUNK)) < 0.1
    assert model.embeddings.word_embeddings.weight.grad is None


def test_without_gradient_and_in_evaluation_nothing_is_computed_twice() -> None:
    model, calls = encoder("bert"), []
    checkpoint_layers(model.train(), lambda: compute_last_states(model, CHUNK), "here")
    model.encoder.layer[0].intermediate.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        compute_last_states(model, CHUNK)
    torch.autograd.backward(compute_last_states(model.eval(), CHUNK).sum())
    assert len(calls) == 2
    torch.autograd.backward(compute_last_states(model.train(), CHUNK).sum())
    assert len(calls) == 4


@pytest.mark.parametrize("name", ["albert", "mpnet"])
def test_an_architecture_without_it_is_refused(name: str) -> None:
    model = encoder(name).train()
    with pytest.raises(InputError, match=rf"saves no memory in {type(model).__name__}"):
        checkpoint_layers(model, lambda: compute_last_states(model, CHUNK), "here")
