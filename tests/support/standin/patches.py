"""Put the device in the place of CUDA or MPS: the parts of torch that a CPU build answers otherwise."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from tests.support.standin.device import DEVICE, DRAWS, MPS, TALLY, OnDevice, dispatched, pin, pinned, real
from tests.support.standin.tally import READ

_MPS_IS_REAL = torch.backends.mps.is_built() and torch.backends.mps.is_available()
REAL = _MPS_IS_REAL if MPS else torch.cuda.is_available()
"""There is such a device; the guard says so of MPS too, but a build for it isn't."""


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees operations without a tensor of the device too: those that make one, and copies to it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatched(func, tuple(args), dict(kwargs or {}))


class _Functions(TorchFunctionMode):
    """What torch would do in C++ below the operations: tensors made of Python values."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and _there(given.get("device")):
            if not isinstance(args[0], OnDevice):
                given.pop("device")
                gradient = given.pop("requires_grad", False)
                return func(*args, **given).to(DEVICE).requires_grad_(gradient)
        elif func is Tensor.new_tensor and isinstance(args[0], OnDevice):
            return torch.tensor(args[1], dtype=given.get("dtype") or args[0].dtype).to(DEVICE)
        elif func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], OnDevice):
            args = (args[0], _index(args[1]), *args[2:])
        return func(*args, **given)


def _there(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _attention(*args: Any, **options: Any) -> Any:
    """As products, which MPS takes where there is dropout; a CPU build can't choose among its kernels."""
    if not isinstance(args[0], OnDevice):
        return _ATTENTION(*args, **options)
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None}
    given |= {"enable_gqa": False} | options | dict(zip(names, args, strict=False))
    query, mask = given.pop("query"), given.pop("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)
    taken = query, given.pop("key"), given.pop("value"), mask
    return torch.ops.aten._scaled_dot_product_attention_math(*taken, **given)[0]


_ATTENTION = functional.scaled_dot_product_attention


def _index(index: Any) -> Any:
    """Lists in an index become tensors of the host, as torch makes of them."""
    parts = index if isinstance(index, tuple) else (index,)
    made = tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts)
    return made if isinstance(index, tuple) else made[0]


class _Event:
    """One that has always happened; waiting for it is a read."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Nothing is queued."""

    def wait(self, *_: Any) -> None:
        """The device waits, not the host."""

    def query(self) -> bool:
        """True: it has happened."""
        return True

    def synchronize(self) -> None:
        """Wait."""
        TALLY.note(READ, "an event")

    def elapsed_time(self, _: object) -> float:
        """Some time."""
        return 1.0


class _Stream(_Event):
    """A stream in which nothing waits."""

    def wait_stream(self, _: object) -> None:
        """Nothing is queued."""

    def wait_event(self, _: object) -> None:
        """Nothing is queued."""


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _manual_seed(seed: int) -> None:
    DRAWS.seed(int(seed))


_MPS: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "synchronize": lambda: TALLY.note(READ, "synchronize"),
    "empty_cache": _nothing,
    "get_rng_state": lambda *_: DRAWS.state(),
    "set_rng_state": lambda state, *_: DRAWS.restore(state),
    "manual_seed": _manual_seed,
}
_CUDA: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "_lazy_init": _nothing,
    "init": _nothing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _nothing,
    "get_device_name": lambda *_: "a stand-in",
    "get_device_capability": lambda *_: (9, 0),
    "get_device_properties": lambda *_: SimpleNamespace(
        name="a stand-in", major=9, minor=0, total_memory=2**37, multi_processor_count=132
    ),
    "is_bf16_supported": lambda *_, **__: True,
    "is_current_stream_capturing": lambda: False,
    "synchronize": lambda *_: TALLY.note(READ, "synchronize"),
    "empty_cache": _nothing,
    "memory_allocated": lambda *_: 1,
    "max_memory_allocated": lambda *_: 1,
    "reset_peak_memory_stats": _nothing,
    "get_rng_state": lambda *_: DRAWS.state(),
    "set_rng_state": lambda state, *_: DRAWS.restore(state),
    "get_rng_state_all": lambda: [DRAWS.state()],
    "set_rng_state_all": lambda states: DRAWS.restore(states[0]),
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed,
    "Event": _Event,
    "Stream": _Stream,
    "current_stream": lambda *_: _Stream(),
}


_OF_MPS: tuple[tuple[Any, str, Any], ...] = (
    (functional, "scaled_dot_product_attention", _attention),
    (torch.backends.mps, "is_available", lambda: True),
    (torch.backends.mps, "get_name", lambda: "a stand-in"),
)
_OF_CUDA: tuple[tuple[Any, str, Any], ...] = (
    (torch.cuda.random, "manual_seed_all", _manual_seed),
    (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
    (torch._C, "_cuda_isCurrentStreamCapturing", lambda: False),
)


@contextmanager
def device() -> Iterator[None]:
    """Within the block torch has a device, in this thread and in those that begin there.

    Where there is a real one nothing is changed.
    """
    if REAL:
        yield
        return
    run, save = threading.Thread.run, PreTrainedModel.save_pretrained

    def run_on_device(thread: threading.Thread) -> None:
        with _Functions(), _Operations():  # type: ignore[no-untyped-call]
            run(thread)

    def save_from_device(model: Any, *args: Any, **kwargs: Any) -> Any:
        """The library asks where tensors are stored, which these can't say."""
        state = kwargs.pop("state_dict", None) or model.state_dict()
        kwargs["state_dict"] = {name: real(value).detach() for name, value in state.items()}
        return save(model, *args, **kwargs)

    def pin_memory(tensor: Tensor, *_: Any) -> Tensor:
        if isinstance(tensor, OnDevice):
            raise RuntimeError("cannot pin a tensor of the device: only dense CPU tensors can be pinned")
        return pin(tensor.detach().clone())

    with ExitStack() as stack:
        for name, value in (_MPS if MPS else _CUDA).items():
            stack.enter_context(patch.object(torch.mps if MPS else torch.cuda, name, value))
        for place, name, value in (
            *(_OF_MPS if MPS else _OF_CUDA),
            *(() if MPS else ((Tensor, "pin_memory", pin_memory),)),
            (Tensor, "is_pinned", lambda tensor, *_: pinned(tensor)),
            (threading.Thread, "run", run_on_device),
            (PreTrainedModel, "save_pretrained", save_from_device),
        ):
            stack.enter_context(patch.object(place, name, value, create=True))
        swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swap)
        stack.enter_context(_Functions())
        stack.enter_context(_Operations())  # type: ignore[no-untyped-call]
        yield
