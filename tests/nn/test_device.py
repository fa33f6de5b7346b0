"""Where float64 is computed, and what is sent to a device without it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.device import check_available, float64_device, move_module, to_float64
from bench.nn.tokens import (
    CPU_BATCH_TOKENS,
    CUDA_BATCH_TOKENS,
    MPS_BATCH_TOKENS,
    default_batch_tokens,
    move_to_device,
    send_tensor,
)
from bench.training.randomness import own_random_state, stream_seed


def test_float64_of_mps_is_the_cpus() -> None:
    for device in ("cpu", "cuda", "cuda:1", torch.device("cuda")):
        assert float64_device(device) is device
    for device in ("mps", "mps:0", torch.device("mps")):
        assert float64_device(device) == "cpu"


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
    assert send_tensor(wide, "mps") is wide
    move_to_device({"narrow": narrow, "wide": (wide, 3)}, "mps")
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


def test_each_kind_of_device_has_its_batches() -> None:
    found = [default_batch_tokens(device) for device in ("cpu", "cuda:0", "mps", "mps:0")]
    assert found == [CPU_BATCH_TOKENS, CUDA_BATCH_TOKENS, MPS_BATCH_TOKENS, MPS_BATCH_TOKENS]


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
