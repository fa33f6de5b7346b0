"""Two towers and their cross stream, against plain models and a slow transcription from the weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import DistilBertConfig, DistilBertModel

from bench.errors import InputError
from bench.nn.cael_layers import list_cael_layers
from bench.nn.cross_attention import (
    TwinStates,
    check_towers,
    compute_cross_cls,
    compute_twin_states,
    record_layer_states,
)
from bench.nn.layer_adapters import compute_attention
from bench.nn.tokens import wrap_chunk
from bench.training.randomness import own_random_state
from tests.support.messages import numbers_in
from tests.support.twins import HEADS, HIDDEN, KINDS, LAYERS, LENGTHS, Kind, batch, tower


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def slow_context(own: Any, other: Any, layer: int, states: Tensor, other_states: Tensor) -> Tensor:
    """softmax(Q_a K_a^T / sqrt(d)) V_b of one sentence (T, H), head by head from the weights."""
    a, b = own.encoder.layer[layer - 1].attention.self, other.encoder.layer[layer - 1].attention.self
    size = HIDDEN // HEADS
    heads = []
    for head in range(HEADS):
        rows = slice(head * size, (head + 1) * size)
        query = states @ a.query.weight[rows].T + a.query.bias[rows]
        key = states @ a.key.weight[rows].T + a.key.bias[rows]
        value = other_states @ b.value.weight[rows].T + b.value.bias[rows]
        heads.append(torch.softmax(query @ key.T / math.sqrt(size), dim=1) @ value)
    return torch.cat(heads, dim=1)


def slow_rest(model: Any, layer: int, context: Tensor, residual: Tensor) -> Tensor:
    """What a layer does behind its attention, without dropout, from the weights."""
    part = model.encoder.layer[layer - 1]

    def linear(module: Any, x: Tensor) -> Tensor:
        return functional.linear(x, module.weight, module.bias)

    def norm(module: Any, x: Tensor) -> Tensor:
        spread = x.var(dim=1, correction=0, keepdim=True) + module.eps
        scaled: Tensor = (x - x.mean(dim=1, keepdim=True)) / spread.sqrt() * module.weight + module.bias
        return scaled

    attended = norm(part.attention.output.LayerNorm, linear(part.attention.output.dense, context) + residual)
    inner = functional.gelu(linear(part.intermediate.dense, attended))
    return norm(part.output.LayerNorm, linear(part.output.dense, inner) + attended)


def slow_sentence(first: Any, second: Any, ids: Tensor, caels: tuple[int, ...], carry: bool) -> list[Tensor]:
    """One unpadded sentence: last states and whole cross streams of both towers, layer by layer."""
    towers = (first, second)
    states = [model.embeddings(input_ids=ids[None])[0] for model in towers]
    cross: list[Tensor | None] = [None, None]
    for layer in range(1, LAYERS + 1):
        if layer in caels:
            for side, (own, other) in enumerate(((0, 1), (1, 0))):
                mixed = slow_context(towers[own], towers[other], layer, states[own], states[other])
                stream = cross[side]
                residual = states[own] if stream is None or not carry else stream
                cross[side] = slow_rest(towers[own], layer, mixed, residual)
        contexts = [slow_context(m, m, layer, h, h) for m, h in zip(towers, states, strict=True)]
        states = [slow_rest(towers[i], layer, contexts[i], states[i]) for i in (0, 1)]
    return [*states, *(stream for stream in cross if stream is not None)]


def cross_of(states: TwinStates) -> tuple[Tensor, Tensor]:
    assert states.cross_first is not None
    assert states.cross_second is not None
    return states.cross_first, states.cross_second


def test_positions() -> None:
    assert [list_cael_layers(12, n) for n in (0, 1, 2, 3)] == [(), (12,), (6, 12), (4, 8, 12)]
    assert [list_cael_layers(12, n) for n in (4, 6)] == [(3, 6, 9, 12), (2, 4, 6, 8, 10, 12)]
    assert list_cael_layers(12, 12) == tuple(range(1, 13))
    assert list_cael_layers(6, 3) == (2, 4, 6)
    for count in (5, 24, -1, -3):
        with pytest.raises(InputError) as caught:
            list_cael_layers(12, count)
        assert numbers_in(str(caught.value)) == [count, 12, 0, 1, 2, 3, 4, 6, 12]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "stream"), [(1, "carry"), (2, "carry"), (4, "carry"), (2, "last")])
def test_whole_forward_is_the_slow_transcription(kind: Kind, count: int, stream: str) -> None:
    first, second = tower(kind, 0).double(), tower(kind, 1).double()
    ids, mask = batch()
    caels = list_cael_layers(LAYERS, count)
    with torch.no_grad():
        out = compute_twin_states(first, second, wrap_chunk(ids, mask), caels, stream)
        for row, length in enumerate(LENGTHS):
            slow = slow_sentence(first, second, ids[row, :length], caels, stream == "carry")
            fast = (out.first[row, :length], out.second[row, :length], *(c[row] for c in cross_of(out)))
            for got, expected in zip(fast, (slow[0], slow[1], slow[2][0], slow[3][0]), strict=True):
                torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
        alone = ids[:1, : LENGTHS[0]]
        unpadded = compute_twin_states(first, second, wrap_chunk(alone, None), caels, stream)
    for got, expected in zip(cross_of(unpadded), cross_of(out), strict=True):
        torch.testing.assert_close(got[0], expected[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padded", [True, False])
def test_tied_towers_give_the_own_context(kind: Kind, padded: bool) -> None:
    model = tower(kind, 0)
    ids, mask = batch()
    chunk = wrap_chunk(ids, mask if padded else None)
    with torch.no_grad():
        last = model(ids, attention_mask=mask if padded else None).last_hidden_state
        assert torch.equal(record_layer_states(model, chunk, range(1, LAYERS + 1))[0], last)
        for caels, stream in (((1, 2, 3, 4), "carry"), ((4,), "carry"), ((2, 4), "last")):
            out = compute_twin_states(model, model, chunk, caels, stream)
            for cross in cross_of(out):
                torch.testing.assert_close(cross, last[:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("mode", "dropout"), [("eval", 0.1), ("train", 0.0), ("train", 0.1)])
def test_primitive_streams_are_the_plain_models(kind: Kind, mode: str, dropout: float) -> None:
    towers = [tower(kind, seed, dropout).train(mode == "train") for seed in (0, 1)]
    ids, mask = batch()
    for given in (mask, None):
        with own_random_state(0, "dropout"):
            plain = [model(ids, attention_mask=given).last_hidden_state for model in towers]
        for count, stream in itertools.product((0, 1, 2, 4), ("carry", "last")):
            with own_random_state(0, "dropout"):
                caels = list_cael_layers(LAYERS, count)
                out = compute_twin_states(towers[0], towers[1], wrap_chunk(ids, given), caels, stream)
            assert torch.equal(out.first, plain[0])
            assert torch.equal(out.second, plain[1])
            assert (out.cross_first is None) == (out.cross_second is None) == (count == 0)


def test_without_caels_nothing_is_drawn_and_any_model_will_do() -> None:
    config = DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    with torch.random.fork_rng(devices=[]):
        model: Any = DistilBertModel(config)
    model.eval()
    ids, mask = batch()
    before = torch.get_rng_state()
    out = compute_twin_states(model, model, wrap_chunk(ids, mask))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(out.first, model(ids, attention_mask=mask).last_hidden_state)
    assert out.cross_first is None


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_gradient_is_that_of_the_slow_transcription(attention: str) -> None:
    first, second = tower(("bert", attention), 0).double(), tower(("bert", attention), 1).double()
    ids = batch()[0][:1, : LENGTHS[0]]
    probe = torch.linspace(-1, 1, HIDDEN, dtype=torch.float64)
    weights = [*first.encoder.parameters(), *second.encoder.parameters()]
    fast = cross_of(compute_twin_states(first, second, wrap_chunk(ids, None), (2, 4)))
    slow = slow_sentence(first, second, ids[0], (2, 4), True)[2:]
    gradients, expected = (
        torch.autograd.grad(cross[0][0] @ probe + cross[1][0] @ probe.exp(), weights)
        for cross in (fast, slow)
    )
    for one, two in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9)
    assert sum(bool(gradient.abs().max() > 1e-9) for gradient in expected) > 100


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_cross_context_has_the_layers_own_attention_dropout(attention: str) -> None:
    first, second = tower(("bert", attention), 0).train(), tower(("bert", attention), 1).train()
    ids = torch.tensor([[2, 9, 4, 17, 3]]).expand(4000, 5)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        (_, own), (_, other) = (record_layer_states(m, wrap_chunk(ids, None), [1]) for m in (first, second))
        plain = compute_cross_cls(own, other)
        own[0].layer.attention.self.dropout.p = 0.5
        dropped, swapped = compute_cross_cls(own, other), compute_cross_cls(other, own)
        assert float((plain - plain[:1]).abs().max()) < 1e-5
        assert float((swapped - swapped[:1]).abs().max()) < 1e-5  # tower b's layer has none
        assert float(dropped.std(dim=0).mean()) > 0.1
        a, b = own[0].heads, other[0].heads
        attention = own[0].layer.attention.self
        contexts = compute_attention(attention, a.query[:, :1], a.key, b.value, a.mask)
        first.eval()
        kept = compute_attention(attention, a.query[:, :1], a.key, b.value, a.mask)[0]
        error = (contexts.mean(dim=0) - kept).abs() / contexts.std(dim=0) * math.sqrt(len(ids))
        assert float(error.max()) < 5  # kept weights are scaled up: the mean stays
        torch.testing.assert_close(compute_cross_cls(own, other), plain, rtol=0, atol=1e-6)


def test_towers_that_dont_fit() -> None:
    base, flex, chunk = tower(("bert", "sdpa"), 0), tower(("bert", "sdpa"), 0), wrap_chunk(*batch())
    for text, kind, changes in (
        ("layers: 4 and 2", "sdpa", {"num_hidden_layers": 2}),
        ("attention heads: 2 and 4", "sdpa", {"num_attention_heads": 4}),
        ("hidden size: 16 and 8", "sdpa", {"hidden_size": 8}),
        ("attention implementation: sdpa and eager", "eager", {}),
    ):
        with pytest.raises(InputError, match=text):
            compute_twin_states(base, tower(("bert", kind), 0, **changes), chunk, (2,))
    flex.config._attn_implementation = "flex_attention"
    for pair, named in (
        ((base, tower(("roberta", "sdpa"), 0)), "BertModel and RobertaModel; expected two encoders of one"),
        ((torch.nn.Identity(), base), "Identity and BertModel; expected two encoders of one"),
        ((flex, flex), "'flex_attention'.*eager, sdpa"),
    ):
        with pytest.raises(InputError, match=named):
            check_towers(*pair)


def test_bad_caels_and_streams() -> None:
    model = tower(KINDS[0], 0)
    ids, mask = batch()
    for caels in ((0,), (5,), (4, 2), (2, 2)):
        with pytest.raises(InputError) as caught:
            compute_twin_states(model, model, wrap_chunk(ids, mask), caels)
        assert numbers_in(str(caught.value)) == [*caels, 1, 4]
    with pytest.raises(InputError, match="'first'; expected one of carry, last"):
        compute_twin_states(model, model, wrap_chunk(ids, mask), (4,), "first")
