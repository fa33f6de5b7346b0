"""Economies of a training step leave its loss and its gradients as they are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Namespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DistilBertConfig, DistilBertModel

from bench.nn.backbone import pad_rows
from bench.nn.dropout import set_dropout
from bench.nn.hidden_states import compute_last_states, is_layered
from bench.nn.tokens import share_embedding_lookup, wrap_chunk
from bench.training.batch_encoding import batch_twin_states, pooled_states, token_batch
from bench.training.loop import TrainSettings, make_optimizer
from bench.training.randomness import own_random_state
from tests.support.rank_work import Found, Gradients, alone
from tests.support.ranks import CASES
from tests.support.twins import KINDS, PAD, Kind, batch, tower
from tests.support.whole import plainly
from tests.training.conftest import check_equal

ROWS = [[2, 9, 7, 4], [2, 5], [2, 9, 9, 9, 8, 6], [2, 11, 5]]


@pytest.mark.long
@pytest.mark.slow
def test_every_objective_is_the_whole_one(objectives: Gradients, found_alone: dict[str, list[Found]]) -> None:
    with plainly():
        found: dict[str, list[Found]] = alone(objectives)
        assert found.keys() == CASES.keys()
        check_equal(found_alone, found)


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("masked", [True, False])
def test_states_are_the_plain_models(kind: Kind, masked: bool) -> None:
    model = tower(kind, 1, dropout=0.1).double().train()
    ids, mask = batch() if masked else (torch.tensor([[2, 4, 5], [2, 8, 9]]), None)
    weights = torch.linspace(-1, 1, model.config.hidden_size, dtype=torch.float64)
    widths: list[int] = []
    hook = model.encoder.layer[-1].intermediate.register_forward_hook(
        lambda _module, args, _output: widths.append(args[0].shape[1])
    )

    def run(compute: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        with own_random_state(1, "test"):
            states = compute()
        torch.autograd.backward(states[:, 0].tanh().mul(weights).sum())
        return states, gradients(model)

    def plain() -> Tensor:
        states: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states

    chunk = wrap_chunk(ids, mask)
    expected, gradient = run(plain)
    found, same = run(lambda: compute_last_states(model, chunk))
    assert torch.equal(found, expected)
    assert same.keys() == gradient.keys()
    assert all(torch.equal(same[name], each) for name, each in gradient.items())
    set_dropout(model, 0.0)
    whole, gradient = run(plain)
    alone, found_gradient = run(lambda: compute_last_states(model, chunk, cls_only=True))
    hook.remove()
    assert widths == [ids.shape[1]] * 3 + [1]
    assert alone.shape == (len(ids), 1, model.config.hidden_size)
    torch.testing.assert_close(alone[:, 0], whole[:, 0])
    assert found_gradient.keys() == gradient.keys()
    for name, each in gradient.items():
        torch.testing.assert_close(found_gradient[name], each, rtol=1e-9, atol=1e-12)


def test_cls_alone_has_the_distribution_of_the_whole_layer_under_dropout() -> None:
    model = tower(("bert", "sdpa"), 1, dropout=0.3).train()
    ids, mask = (tensor[:1].expand(3000, -1) for tensor in batch())

    def draws(seed: int, *, cls_only: bool) -> Tensor:
        with own_random_state(seed, "test"):
            chunk = wrap_chunk(ids, mask)
            return torch.cat([compute_last_states(model, chunk, cls_only=cls_only)[:, 0] for _ in range(4)])

    with torch.no_grad():
        whole, alone = draws(1, cls_only=False), draws(2, cls_only=True)
    error = (whole.var(0) * 2 / len(whole)).sqrt()
    assert float(((whole - alone).mean(0) / error).abs().max()) < 4
    torch.testing.assert_close(whole.std(0) / alone.std(0), torch.ones(whole.shape[1]), rtol=0.03, atol=0)


def test_cls_alone_draws_dropout_for_what_it_computes() -> None:
    """At dropout 0.5, by hand: attention, output block and feed-forward block of the last layer."""
    model = tower(("bert", "sdpa"), 1, dropout=0.5).double().train()
    layer = model.encoder.layer[-1]
    drawn: list[tuple[int, ...]] = []
    for block in (layer.attention.output, layer.output):
        block.dropout.register_forward_hook(lambda _m, args, _o: drawn.append(tuple(args[0].shape)))
    ids, mask = batch()
    first, second = (compute_last_states(model, wrap_chunk(ids, mask), cls_only=True) for _ in range(2))
    assert drawn == [(len(ids), 1, model.config.hidden_size)] * 4
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("what", ["another architecture", "a decoder", "another attention"])
def test_other_models_are_called_whole(what: str) -> None:
    config = DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    model: Any = DistilBertModel(config)
    if what != "another architecture":
        model = tower(("bert", "sdpa"), 1, is_decoder=what == "a decoder")
        assert is_layered(model) is (what == "another attention")
    if what == "another attention":
        model.config._attn_implementation = "flex_attention"
        assert not is_layered(model)
        return
    ids, mask = batch()
    expected = model.eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.equal(compute_last_states(model, wrap_chunk(ids, mask), cls_only=True), expected)


def lookups_of(loss: Tensor, weight: Tensor) -> int:
    """Go back through the graph; return how often it reaches a table of this size."""
    edges, seen, todo = 0, set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        for following, _ in node.next_functions if node is not None else ():
            edges += getattr(following, "variable", None) is weight
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    torch.autograd.backward(loss)
    return edges


def test_a_batch_looks_its_embeddings_up_once() -> None:
    model = tower(("bert", "sdpa"), 1).double()
    embeddings = model.get_input_embeddings()
    states: list[Tensor] = []
    found: list[Tensor] = []
    lookups: list[int] = []
    for known in (None, token_batch(ROWS, PAD, model).known):
        model.zero_grad()
        with share_embedding_lookup(model, known):
            inputs = (pad_rows(rows, PAD, "cpu") for rows in (ROWS[:2], ROWS[2:]))
            outputs = [model(input_ids=ids, attention_mask=mask) for ids, mask in inputs]
        states.append(torch.cat([output.last_hidden_state[:, 0] for output in outputs]))
        lookups.append(lookups_of(states[-1].tanh().square().sum(), embeddings.weight))
        found.append(embeddings.weight.grad.clone())
    assert torch.equal(states[0], states[1])
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-14)
    assert lookups == [2, 1]
    assert not found[1][PAD].any()  # as torch's embedding has it for padding
    assert "forward" not in vars(embeddings)


def test_what_is_not_in_the_batch_is_not_found_in_its_table() -> None:
    table = nn.Embedding(20, 1)
    model = Namespace(get_input_embeddings=lambda: table)
    with torch.no_grad():
        table.weight.copy_(torch.arange(20.0)[:, None])
    with share_embedding_lookup(model, torch.tensor([0, 3, 7, 19])):
        assert table(torch.tensor([[3, 0], [19, 7]])).flatten().tolist() == [3, 0, 19, 7]
    with share_embedding_lookup(nn.Linear(1, 1), torch.tensor([1])):
        pass


def test_both_towers_may_be_one_model() -> None:
    model = tower(("bert", "sdpa"), 1).double()
    tokens = token_batch(ROWS, PAD, model, budget=8)
    states = batch_twin_states(model, model, tokens, caels=(1, 3))
    with plainly():
        expected = batch_twin_states(model, model, tokens, caels=(1, 3))
    for one, two in zip(states, expected, strict=True):
        torch.testing.assert_close(one, two)


def test_a_loss_that_reads_cls_alone_computes_the_last_layer_for_cls_alone() -> None:
    model = tower(("bert", "sdpa"), 1)
    widths: list[int] = []
    model.encoder.layer[-1].output.register_forward_hook(lambda _m, _a, out: widths.append(out.shape[1]))
    pooled_states(model, ROWS, PAD, budget=0)
    pooled_states(model, ROWS, PAD, "avg", budget=0)
    with plainly():
        pooled_states(model, ROWS, PAD, budget=0)
    assert widths == [1, 6, 6]


def test_fused_adamw_steps_as_the_plain_one() -> None:
    start, weights = torch.linspace(-1, 1, 50), []
    for fused in (True, False):
        model = nn.Linear(50, 1, bias=False)
        model.weight.data = start[None].clone()
        optimizer = make_optimizer(model, TrainSettings(0.1, 1, 3, 3, weight_decay=0.01))
        assert optimizer.defaults["fused"] is True
        if not fused:
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01, fused=False)
        for _ in range(3):
            optimizer.zero_grad()
            model(start.square()).square().sum().backward()
            optimizer.step()
        weights.append(model.weight.detach().clone())
    assert torch.allclose(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    assert (weights[0] - start).abs().max() > 0.1
