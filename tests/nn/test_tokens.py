"""Token rows as tensors, and devices: padding, chunks, float64, copies."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn import tokens
from bench.nn.device import check_available, float64_device, move_module, to_float64
from bench.training.randomness import own_random_state, stream_seed

ROWS = [[2, 9, 7, 4], [2, 5], [2, 9, 9, 9, 8, 6]]


def test_rows_are_padded_on_the_right() -> None:
    ids, mask, attention, zeros = tokens.pad_chunk(ROWS[:2], 0)
    assert zeros is None
    assert ids.tolist() == [[2, 9, 7, 4], [2, 5, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert attention is not None
    assert attention.shape == (2, 1, 1, 4)
    assert attention[:, 0, 0].tolist() == [[True] * 4, [True, True, False, False]]


def test_nothing_is_masked_where_nothing_is_padded_unless_a_mask_is_asked_for() -> None:
    assert tokens.pad_chunk([[2, 3], [4, 5]], 0).attention is None
    masked = tokens.pad_chunk([[2, 3], [4, 5]], 0, masked=True).attention
    assert masked is not None
    assert bool(masked.all())
    assert tokens.wrap_chunk(torch.tensor([[2, 3]]), None).attention is None
    assert tokens.wrap_chunk(torch.tensor([[2, 3]]), None).mask.tolist() == [[1, 1]]
    assert tokens.pad_chunk([[2, 3], [4, 5]], 0, multiple=8).ids.shape == (2, 8)
    assert tokens.pad_chunk([[2] * 8], 0, multiple=8).attention is None
    assert tokens.pad_chunk([[2] * 17], 0, multiple=8, room=20).ids.shape == (1, 20)
    assert tokens.pad_chunk([[2] * 21], 0, multiple=8, room=20).ids.shape == (1, 21)  # the model says so


def test_chunks_hold_at_most_their_budget_and_say_whose_rows_they_have() -> None:
    chunks, order = tokens.split_into_chunks(ROWS, 0, 8)
    assert order == [1, 0, 2]
    assert [chunk.ids.shape for chunk in chunks] == [(2, 4), (1, 6)]
    rows = [row for chunk in chunks for row in chunk.ids.tolist()]
    places = tokens.invert_order(order).tolist()
    assert [rows[place][: len(row)] for place, row in zip(places, ROWS, strict=True)] == ROWS
    whole, order = tokens.split_into_chunks(ROWS, 0, 0)
    assert order == [0, 1, 2]
    assert whole[0].ids.shape == (3, 6)


class Pair(NamedTuple):
    tensor: Tensor
    name: str


def test_nested_tensors_are_sent_and_all_else_stays() -> None:
    tree: dict[str, Any] = {"pair": Pair(torch.ones(2), "x"), "no": (True,)}
    tree["list"] = [torch.zeros(1), None, 3]
    assert tokens.move_to_device(tree, "cpu")["pair"].tensor is tree["pair"].tensor
    found = tokens.move_to_device(tree, "meta")
    assert found["pair"].tensor.is_meta
    assert found["list"][0].is_meta
    assert isinstance(found["pair"], Pair)
    assert found["list"][1:] == [None, 3]
    assert found["no"] == (True,)


def test_what_each_kind_of_device_takes() -> None:
    found = [float64_device(device) for device in ("cpu", "cuda:1", "mps", "mps:0")]
    assert found == ["cpu", "cuda:1", "cpu", "cpu"]
    assert float64_device(torch.device("mps")) == "cpu"
    budgets = [tokens.default_batch_tokens(device) for device in ("cpu", "cuda:0", "mps", "mps:0")]
    assert budgets == [1024, 65_536, 16_384, 16_384]


def test_gradient_flows_through_the_wider_copy() -> None:
    given = torch.tensor([0.1, 0.2], requires_grad=True)
    wide = to_float64(given)
    assert wide.dtype == torch.float64
    assert torch.equal(wide, given.double())
    torch.autograd.backward((wide**2).sum())
    assert given.grad is not None
    assert torch.equal(given.grad, (2 * given).detach())


def test_float64_stays_on_the_host_where_the_device_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []

    def to(tensor: Tensor, device: str) -> Tensor:
        copied.append((tensor.dtype, device))
        return tensor

    monkeypatch.setattr(Tensor, "to", to)
    narrow, wide = torch.ones(2), torch.ones(2, dtype=torch.float64)
    assert tokens.send_tensor(wide, "mps") is wide
    tokens.move_to_device({"narrow": narrow, "wide": (wide, 3)}, "mps")
    assert copied == [(torch.float32, "mps")]


def test_a_modules_float64_goes_where_float64_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.nn.device.has_float64", lambda device: torch.device(device).type != "meta")
    module = nn.Linear(2, 2)
    module.register_buffer("wide", torch.ones(2, dtype=torch.float64))
    assert move_module(module, "meta") is module
    kinds = {name: tensor.device.type for name, tensor in module.state_dict().items()}
    assert kinds == {"weight": "meta", "bias": "meta", "wide": "cpu"}


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    check_available("cpu", "x")
    for device, name in (("cuda:1", "CUDA"), ("mps", "MPS")):
        with pytest.raises(InputError, match=f"here: torch sees no {name} device"):
            check_available(device, "here")


def test_a_stream_seeds_mps_and_restores_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    before = torch.arange(4)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda *_: before)
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state, *_: done.append(state))
    monkeypatch.setattr(torch.mps, "manual_seed", done.append)
    cpu = torch.get_rng_state()
    with own_random_state(3, "dropout", "mps"):
        assert done == [stream_seed(3, "dropout")]
        torch.rand(1)
    assert done[1:] == [before]
    assert torch.equal(torch.get_rng_state(), cpu)
