"""Large batches on small memory: chunks that are encoded twice give the loss and gradient of one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from bench.errors import InputError
from bench.losses.contrastive import info_nce, queue_nce
from bench.losses.similarity_blocks import split_similarities
from bench.losses.twin_losses import tower_nce
from bench.nn.backbone import load_backbone
from bench.nn.layer_checkpointing import count_saved_bytes
from bench.nn.tokens import length_sorted_batches
from bench.plan.memory_options import check_memory_options
from bench.training import batch_encoding
from bench.training.batch_encoding import batch_states, token_batch
from bench.training.gradient_caching import cache_gradients, check_second_pass, encode_without_graph
from bench.training.two_phase_step import compile_steps
from tests.support.rank_work import Found, Gradients, alone
from tests.support.ranks import CASES
from tests.support.training import plan_on_toy, random, train_alone
from tests.training.conftest import check_equal

CHUNK = 3


def chunked(objectives: Gradients, names: tuple[str, ...], **changes: Any) -> dict[str, list[Found]]:
    """Loss and gradients of the first steps in chunks."""
    cases = {
        name: (method, {**given, "chunk": CHUNK, **changes}, role)
        for name, (method, given, role) in objectives.cases.items()
        if name in names
    }
    found: dict[str, list[Found]] = alone(replace(objectives, cases=cases))
    return found


def keep_graph(encode: Any, chunk: Any) -> Tensor:
    """The same chunks, encoded once."""
    vectors: Tensor = encode(chunk)
    return vectors


FEW = ("simcse", "esimcse", "pcl", "unsee_barlow", "jtcse")
"""One tower, a queue, a learning peer, batch norm in a head, two towers with a cross stream."""
some_or_all = pytest.mark.parametrize(
    "names", [FEW, pytest.param(tuple(CASES), marks=pytest.mark.long)], ids=["some", "all"]
)


@some_or_all
def test_without_dropout_a_step_in_chunks_is_the_plain_step(
    objectives: Gradients, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    calls: list[int] = []

    def note(encode: Any, chunk: Any) -> Tensor:
        calls.append(len(chunk.ids))
        return encode_without_graph(encode, chunk)

    plain = chunked(objectives, names, chunk=0)
    monkeypatch.setattr(batch_encoding, "encode_without_graph", note)
    check_equal(chunked(objectives, names), plain)
    assert max(calls) == CHUNK
    assert len(calls) > 3 * len(names)


@some_or_all
def test_with_dropout_it_is_the_same_chunks_with_their_graph(
    objectives: Gradients, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    twice = chunked(objectives, names, dropout=0.3)
    monkeypatch.setattr(batch_encoding, "encode_without_graph", keep_graph)
    check_equal(twice, chunked(objectives, names, dropout=0.3))


def test_a_chunk_of_the_batchs_rows_or_more_is_the_plain_step(objectives: Gradients) -> None:
    plain, whole, layers = (
        chunked(objectives, ("simcse",), dropout=0.3, **given)["simcse"]
        for given in ({"chunk": 0}, {"chunk": 10}, {"chunk": 0, "checkpoint_layers": True})
    )
    for steps in (whole, layers):
        for (loss, gradients), (again, others) in zip(plain, steps, strict=True):
            assert loss == again
            assert all(np.array_equal(gradients[name], others[name]) for name in gradients)


def test_only_ids_and_random_states_wait_for_the_backward_pass(tiny_bert: Path) -> None:
    model = load_backbone(tiny_bert)[0].train()
    rows = [[2, *range(5, 5 + number % 7), 3] for number in range(64)]
    whole = count_saved_bytes(lambda: batch_states(model, token_batch(rows, 0, model)))
    with cache_gradients(8):
        batch = token_batch(rows, 0, model)
        kept = count_saved_bytes(lambda: batch_states(model, batch))
    assert max(len(chunk.ids) for chunk in batch.chunks) == 8
    assert kept < whole / 100


def test_chunks_have_so_many_rows_at_most() -> None:
    lengths = [3, 1, 2, 2, 9, 1]
    assert [*length_sorted_batches(lengths, 100, most=2)] == [[1, 5], [2, 3], [0, 4]]
    assert [*length_sorted_batches(lengths, 9, most=2)] == [[1, 5], [2, 3], [0], [4]]


@pytest.mark.parametrize("rows", [1, 3, 5, 7])
def test_blocks_of_similarities_give_the_same_loss_and_gradient(rows: int) -> None:
    one, two = views = [random(8, 6, seed=number).requires_grad_() for number in range(2)]
    queue = random(5, 6, seed=2)
    ways: list[Callable[[], Tensor]] = [
        lambda: info_nce(one, two, 0.1),
        lambda: 3 * queue_nce(one, two, queue, 0.1),
        lambda: tower_nce(one, 0.1) + tower_nce(two, 0.1, "paper"),
    ]
    for compute in ways:
        plain, gradients = compute(), torch.autograd.grad(compute(), views)
        with split_similarities(rows):
            assert torch.allclose(compute(), plain, rtol=1e-12)
            for found, expected in zip(torch.autograd.grad(compute(), views), gradients, strict=True):
                assert torch.allclose(found, expected, rtol=1e-9, atol=1e-14)


class _WithBatchNorm(BertModel):  # type: ignore[misc]
    """A backbone whose states pass a batch norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.norm = nn.BatchNorm1d(config.hidden_size)

    def forward(self, **given: Any) -> Any:
        found = super().forward(**given)
        states = self.norm(found.last_hidden_state.transpose(1, 2)).transpose(1, 2)
        return type(found)(last_hidden_state=states)


class _WithCounter(BertModel):  # type: ignore[misc]
    """A backbone that counts its passes."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, **given: Any) -> Any:
        self.passes += 1
        return super().forward(**given)


@pytest.mark.parametrize(("kind", "named"), [(_WithBatchNorm, "BatchNorm1d"), (_WithCounter, "passes")])
def test_a_backbone_that_a_pass_changes_is_refused(kind: Any, named: str) -> None:
    config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
    rows = torch.tensor([[2, 5, 3], [2, 6, 3]])
    check_second_pass(BertModel(config).train(), rows, "here")
    with pytest.raises(InputError, match=rf"{named}.*chunk=0"):
        check_second_pass(kind(config).train(), rows, "here")


def test_compiled_steps_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    with compile_steps("inductor"), pytest.raises(InputError, match="chunk 8 with compiled steps"):
        train_alone("simcse", tiny_bert, tmp_path, chunk=8)


@pytest.mark.parametrize(
    ("method", "compiled", "message"),
    [
        ("simcse[chunk=8,mlm_term=0.1]", "none", "whole batch at once for mlm_term=0.1.*mlm_term=0 with it"),
        ("diffcse[chunk=8]", "none", "rtd_weight=0.005.*chunk=0, or rtd_weight=0"),
        ("infocse[chunk=8]", "none", "mlm_weight"),
        ("denosent[chunk=8,rtt=none]", "none", "generative_weight=7"),
        ("simcse[chunk=8]", "graphs", "sets chunk, and a compiled step.*--compile none"),
        ("simcse[checkpoint_layers=true]", "graphs", "sets checkpoint_layers"),
        ("simcse[chunk=8,checkpoint_layers=true]", "none", ""),
        ("diffcse[chunk=8,rtd_weight=0]", "none", ""),
        ("simcse[mlm_term=0.1]", "graphs", ""),
    ],
)
def test_what_the_plan_refuses(method: str, compiled: str, message: str, tmp_path: Path) -> None:
    cells = [replace(job.cell, compiled=compiled) for job in plan_on_toy(method, tmp_path).jobs]
    if not message:
        check_memory_options(cells)
        return
    with pytest.raises(InputError, match=message):
        check_memory_options(cells)
