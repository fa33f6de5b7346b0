"""An encoder's layers one by one, by its adapter, against transformers' own forward."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, DistilBertModel

from bench.errors import InputError
from bench.nn.cross_attention import compute_twin_states, record_layer_states
from bench.nn.dropout import set_dropout
from bench.nn.layer_adapters import LayerAdapter
from bench.nn.layer_streams import (
    check_callable_layers,
    compute_embeddings,
    find_adapter,
    init_final_norm,
    init_layers,
    keep_lower_layers,
    list_layers,
    run_encoder,
    run_given_layers,
)
from bench.nn.masked_lm import copy_mlm_head, split_mlm_head
from bench.nn.tokens import Chunk, wrap_chunk
from bench.training.randomness import own_random_state
from tests.support.layered_encoders import ENCODERS, HEADS, HIDDEN, LAYERS, PRE_NORM, batch, encoder

EXACT = 1e-6
CHUNKS = [True, False]  # with padding, and without


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def chunk_of(padded: bool) -> Chunk:
    ids, mask = batch()
    return wrap_chunk(ids, mask) if padded else wrap_chunk(ids[:1], None)


def adapter_of(model: Any) -> LayerAdapter:
    adapter = find_adapter(model)
    assert adapter is not None
    return adapter


def close(got: Tensor, expected: Tensor, mask: Tensor) -> None:
    tokens = mask.bool()
    torch.testing.assert_close(got[tokens], expected[tokens], rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("padded", CHUNKS)
@pytest.mark.parametrize("name", ENCODERS)
def test_every_layer_is_transformers_own(name: str, padded: bool) -> None:
    model, chunk = encoder(name), chunk_of(padded)
    adapter = adapter_of(model)
    with torch.no_grad():
        out = model(input_ids=chunk.ids, attention_mask=chunk.mask, output_hidden_states=True)
        states = adapter.embed(model, chunk)
        around, layers = adapter.prepare(model, states, chunk), adapter.list_layers(model)
        assert len(layers) == LAYERS
        for number, layer in enumerate(layers):
            close(states, out.hidden_states[number], chunk.mask)
            states = adapter.run_layer(layer, states, around[adapter.layer_type(layer)])
        norm = adapter.final_norm(model)
        close(states if norm is None else norm(states), out.last_hidden_state, chunk.mask)


@pytest.mark.parametrize("name", ENCODERS)
def test_dropout_is_drawn_as_transformers_draws_it(name: str) -> None:
    model, chunk = encoder(name), chunk_of(True)
    set_dropout(model.train(), 0.3)
    adapter = adapter_of(model)
    with torch.no_grad():
        with own_random_state(1, "dropout"):
            expected = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        with own_random_state(1, "dropout"):
            got = run_encoder(model, adapter.embed(model, chunk), chunk)
        assert not torch.allclose(expected, model(chunk.ids, attention_mask=chunk.mask).last_hidden_state)
    close(got, expected, chunk.mask)


def precise_towers(name: str) -> list[Any]:
    """Two towers in float64; ModernBERT's eager attention is NaN there on padding beyond a window."""
    towers = [encoder(name, seed) for seed in (0, 1)]
    return towers if name == "modernbert-eager" else [model.double() for model in towers]


def read_heads(name: str, layer: Any, states: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Queries, keys and values of a sentence (heads, T, d) from the weights, unrotated, and the scale."""
    part: Any = layer.attn if name.startswith("modernbert") else getattr(layer, "self_attn", None)
    if name.startswith("modernbert"):
        normed = layer.attn_norm(states)
        rows = [normed @ weight.T for weight in part.Wqkv.weight.chunk(3)]
    else:
        if part is None:
            part = getattr(layer.attention, "self", getattr(layer.attention, "attn", layer.attention))
        normed = layer.input_layernorm(states) if hasattr(layer, "input_layernorm") else states
        spellings = [("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v")]
        spellings += [("query_proj", "key_proj", "value_proj"), ("q_proj", "k_proj", "v_proj")]
        names = next(names for names in spellings if hasattr(part, names[0]))
        projections = [getattr(part, name) for name in names]
        rows = [normed @ p.weight.T + (0 if p.bias is None else p.bias) for p in projections]
    size = HIDDEN // HEADS
    query, key, value = (row.view(len(states), -1, size).transpose(0, 1) for row in rows)
    more = HEADS // len(key)
    return query, key.repeat_interleave(more, 0), value.repeat_interleave(more, 0), size**-0.5


def rotate(heads: Tensor, base: float) -> Tensor:
    """Rotate (heads, T, d): the pairs (x_i, x_{i + d/2}) by the angle t / base^(2 i / d) at place t."""
    half = heads.shape[-1] // 2
    places = torch.arange(heads.shape[1], dtype=heads.dtype)
    angles = places[:, None] / base ** (torch.arange(half) / half)
    x, y = heads[..., :half], heads[..., half:]
    turned = (x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin())
    return torch.cat(turned, dim=-1)


def rotary_base(model: Any, number: int) -> float:
    """The base of a layer's angles."""
    parameters = model.config.rope_parameters
    if "rope_theta" in parameters:
        return float(parameters["rope_theta"])
    return float(parameters[model.config.layer_types[number]]["rope_theta"])


def position_scores(name: str, model: Any, layer: Any, query: Tensor, key: Tensor) -> Tensor:
    """What an architecture adds to the scores of a sentence for relative positions, (heads, T, T)."""
    count = query.shape[1]
    if name == "mpnet":
        found: Tensor = model.encoder.compute_position_bias(torch.zeros(1, count, HIDDEN))[0]
        return found
    part, scale = layer.attention.self, math.sqrt(3 * HIDDEN / HEADS)
    scores: Tensor = query @ key.transpose(1, 2) * (1 / scale - (HIDDEN / HEADS) ** -0.5)
    table, span = model.encoder.get_rel_embedding(), part.pos_ebd_size
    shared = part.share_att_key
    keys = (part.key_proj if shared else part.pos_key_proj)(table).view(-1, HEADS, HIDDEN // HEADS)
    queries = (part.query_proj if shared else part.pos_query_proj)(table).view(-1, HEADS, HIDDEN // HEADS)
    apart = model.encoder.get_rel_pos(torch.zeros(1, count, HIDDEN))[0]
    for i in range(count):
        for j in range(count):
            to = int((apart[i, j] + span).clamp(0, 2 * span - 1))
            back = int((-apart[j, i] + span).clamp(0, 2 * span - 1))
            terms = (query[:, i] * keys[to]).sum(-1) + (key[:, j] * queries[back]).sum(-1)
            scores[:, i, j] += terms / scale
    return scores


def slow_context(name: str, own: Any, other: Any, number: int, states: tuple[Tensor, Tensor]) -> Tensor:
    """softmax(scores of tower a) V_b of a sentence, (T, H), by einsum over the heads."""
    layers = [adapter_of(model).list_layers(model)[number] for model in (own, other)]
    query, key, _, scale = read_heads(name, layers[0], states[0])
    value = read_heads(name, layers[1], states[1])[2]
    if hasattr(own, "rotary_emb"):
        query, key = (rotate(part, rotary_base(own, number)) for part in (query, key))
    scores = torch.einsum("hid,hjd->hij", query, key) * scale
    if name in ("mpnet", "deberta-v2", "deberta-v3"):
        scores = scores + position_scores(name, own, layers[0], query, key)
    if getattr(own.config, "layer_types", None) and own.config.layer_types[number] == "sliding_attention":
        places = torch.arange(scores.shape[1])
        far = (places[:, None] - places[None]).abs() > own.config.sliding_window
        scores = scores.masked_fill(far, -torch.inf)
    mixed = torch.einsum("hij,hjd->ihd", scores.softmax(-1), value)
    return mixed.reshape(len(mixed), -1)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_cross_context_is_an_independent_einsum(name: str) -> None:
    towers = precise_towers(name)
    ids, mask = batch()
    positions = range(1, LAYERS + 1)
    with torch.no_grad():
        records = [record_layer_states(model, wrap_chunk(ids, mask), positions)[1] for model in towers]
        for number, (own, other) in enumerate(zip(*records, strict=True)):
            mixed = own.heads._replace(value=other.heads.value)
            got = own.adapter.attend(own.layer, mixed)
            first = own.adapter.attend_from_cls(own.layer, mixed)
            for row, length in enumerate(mask.sum(1).tolist()):
                states = own.heads.states[row, :length], other.heads.states[row, :length]
                expected = slow_context(name, towers[0], towers[1], number, states)
                torch.testing.assert_close(got[row, :length], expected, rtol=EXACT, atol=EXACT)
                torch.testing.assert_close(first[row, 0], expected[0], rtol=EXACT, atol=EXACT)
            assert (first - own.adapter.attend(own.layer, own.heads)[:, :1]).abs().max() > 0.01


@pytest.mark.parametrize("padded", CHUNKS)
@pytest.mark.parametrize("name", ENCODERS)
def test_equal_towers_give_the_primitive_stream(name: str, padded: bool) -> None:
    model, chunk = encoder(name), chunk_of(padded)
    with torch.no_grad():
        last = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        for caels, stream in (((1, 2, 3, 4), "carry"), ((4,), "carry"), ((2, 4), "last")):
            out = compute_twin_states(model, model, chunk, caels, stream, cls_only=True)
            assert out.cross_first is not None
            for got in (out.first[:, 0], out.cross_first):
                torch.testing.assert_close(got, last[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PRE_NORM)
def test_the_cross_stream_of_norms_before_blocks_ends_with_the_final_norm(name: str) -> None:
    """Residual: the stream without its norm; queries and keys of tower a's norm, values of tower b's."""
    first, second = precise_towers(name)
    ids, mask = batch()
    with torch.no_grad():
        out = compute_twin_states(first, second, wrap_chunk(ids, mask), (2, 4))
        (_, own), (_, other) = (
            record_layer_states(m, wrap_chunk(ids, mask), (2, 4)) for m in (first, second)
        )
        for row, length in enumerate(mask.sum(1).tolist()):
            stream = own[0].heads.states[row, 0]
            for number, a, b in zip((1, 3), own, other, strict=True):
                states = a.heads.states[row, :length], b.heads.states[row, :length]
                context = slow_context(name, first, second, number, states)[0]
                part = a.layer.attn.Wo if name.startswith("modern") else a.layer.self_attn.o_proj
                stream = stream + part(context)
                norm = getattr(a.layer, "mlp_norm", None) or a.layer.post_attention_layernorm
                stream = stream + a.layer.mlp(norm(stream))
            final = first.final_norm if name.startswith("modern") else first.norm
            assert out.cross_first is not None
            torch.testing.assert_close(out.cross_first[row], final(stream), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", ENCODERS)
def test_gradient_reaches_both_towers(name: str) -> None:
    towers = [encoder(name, seed).train() for seed in (0, 1)]
    set_dropout(torch.nn.ModuleList(towers), 0.1)
    cross = compute_twin_states(towers[0], towers[1], chunk_of(True), (2, 4), cls_only=True).cross_first
    assert cross is not None
    torch.autograd.backward(cross.pow(3).sum())
    for model in towers:
        table = model.get_input_embeddings().weight
        assert table.grad is not None
        assert bool(table.grad.isfinite().all())
        assert bool(table.grad.abs().max() > 0)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_masked_lm_head_is_copied_untied(name: str) -> None:
    model = encoder(name, head=AutoModelForMaskedLM)
    ids, mask = batch()
    with torch.no_grad():
        states = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
        logits = model(input_ids=ids, attention_mask=mask).logits
        head = copy_mlm_head(model)
        torch.testing.assert_close(head(states), logits, rtol=EXACT, atol=EXACT)
        transform, decoder = split_mlm_head(head)
        torch.testing.assert_close(decoder(transform(states)), logits, rtol=EXACT, atol=EXACT)
        table = model.get_input_embeddings().weight
        assert decoder.weight.shape == table.shape
        table.add_(1.0)
        torch.testing.assert_close(head(states), logits, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_replaced_first_state_runs_through_the_layers_as_in_transformers(name: str) -> None:
    """DiffCSE puts the sentence's vector in the place of the first layer's first input."""
    model, chunk = encoder(name), chunk_of(True)
    vectors = torch.linspace(-1, 1, len(chunk.ids) * HIDDEN).view(-1, 1, HIDDEN)
    first, calls = list_layers(model)[0], list[int]()

    def replace(_layer: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        calls.append(1)  # ALBERT calls the layer again
        return args if len(calls) > 1 else (torch.cat([vectors, args[0][:, 1:]], dim=1), *args[1:])

    with torch.no_grad():
        states = torch.cat([vectors, compute_embeddings(model, chunk)[:, 1:]], dim=1)
        got = run_encoder(model, states, chunk)
        hook = first.register_forward_pre_hook(replace)
        expected = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        hook.remove()
    assert calls
    close(got, expected, chunk.mask)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_lower_half_and_fresh_layers_above_it(name: str) -> None:
    """InfoCSE's frozen half has no final norm; its fresh layers have the kind and place of the upper ones."""
    model, chunk, half = encoder(name), chunk_of(True), LAYERS // 2
    with torch.no_grad():
        out = model(input_ids=chunk.ids, attention_mask=chunk.mask, output_hidden_states=True)
        frozen = copy.deepcopy(model)
        keep_lower_layers(frozen, half)
        lower = list_layers(frozen)[:half]
        states = run_given_layers(frozen, lower, compute_embeddings(frozen, chunk), chunk)
        close(states, out.hidden_states[half], chunk.mask)
        with own_random_state(1, "head"):
            fresh, norm = init_layers(model, 3), init_final_norm(model)
        upper = [*list_layers(model)[half:], list_layers(model)[-1]]
        for drawn, own in zip(fresh, upper, strict=True):
            assert adapter_of(model).layer_type(drawn) == adapter_of(model).layer_type(own)
            shapes = [(key, value.shape) for key, value in own.state_dict().items()]
            assert [(key, value.shape) for key, value in drawn.state_dict().items()] == shapes
        for drawn, own in zip(fresh, upper, strict=True):
            drawn.load_state_dict(own.state_dict())
        above = run_given_layers(frozen, fresh.eval()[:half], states, chunk)
        final = adapter_of(model).final_norm(model) or torch.nn.Identity()
        close(final(above), out.last_hidden_state, chunk.mask)
    assert {float(weight.detach().std(correction=0)) for weight in norm.parameters()} <= {0.0}
    assert bool(list(norm.parameters())) == (name in PRE_NORM)
    shared = name.startswith("albert")
    assert len(list_layers(frozen)) == (LAYERS if shared else half)
    assert len(list_layers(model)) == LAYERS


def test_what_is_no_listed_encoder_with_exactly_those_modules_has_no_adapter() -> None:
    class Doubled(DistilBertModel):  # type: ignore[misc]
        def forward(self, *args: Any, **options: Any) -> Any:
            out = super().forward(*args, **options)
            out.last_hidden_state = 2 * out.last_hidden_state
            return out

    known, more, odd = encoder("distilbert"), encoder("distilbert"), encoder("electra")
    for layer in (more.transformer.layer[0], odd.encoder.layer[0]):
        layer.adapter = torch.nn.Linear(2, 2)
    changed = Doubled(known.config).eval()
    decoder = encoder("electra", is_decoder=True)
    kinds = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}
    small = {**kinds, "intermediate_size": 24, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
    others = [AutoModel.from_config(AutoConfig.for_model(kind, **small)) for kind in ("llama", "roformer")]
    assert find_adapter(known) is not None
    for model in (more, odd, changed, decoder, *others, torch.nn.Linear(2, 2), None):
        assert find_adapter(model) is None
        with pytest.raises(InputError, match=f"made from {type(model).__name__}; expected an encoder"):
            check_callable_layers(model)


def test_the_comparison_leaves_modes_and_random_states() -> None:
    model = encoder("mpnet").train()
    model.encoder.layer[1].eval()
    before = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        assert find_adapter(model) is not None
    assert [module.training for module in model.modules()] == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.long) for one in ("eurobert", "mpnet", "deberta-v3", "modernbert")],
)
def test_streams_are_one_graph(name: str) -> None:
    first, second = (encoder(name, seed) for seed in (0, 1))
    for model in (first, second):
        check_callable_layers(model)

    def cross(chunk: Chunk) -> Tensor:
        out = compute_twin_states(first, second, chunk, (2, 4), cls_only=True)
        assert out.cross_first is not None
        return out.cross_first + run_encoder(first, compute_embeddings(first, chunk), chunk)[:, 0]

    torch._dynamo.reset()
    compiled = torch.compile(cross, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(chunk_of(True)), cross(chunk_of(True)))
    torch._dynamo.reset()
