"""Training in less than float32: the transformers alone; losses, optimiser and what it steps keep float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bench.errors import InputError
from bench.nn.hidden_states import is_layered

LOWERED = "bf16-weights"
_asked: list[str] = []  # innermost last; a plain list, which a compiled step can read


@contextmanager
def train_at_precision(precision: str) -> Iterator[None]:
    """Train at a precision within the block.

    Args:
        precision: "fp32"; "bf16", autocast to bfloat16 in what :func:`lowered` encloses;
            "bf16-weights", the towers' weights in bfloat16 (:class:`Masters`) without autocast;
            "tf32", float32 whose products round their factors to 10 bits, on CUDA devices.
    """
    _asked.append(precision)
    try:
        with _set_matmul_precision("high") if precision == "tf32" else nullcontext():
            yield
    finally:
        _asked.pop()


def use_full_float32() -> AbstractContextManager[object]:
    """Evaluate within a training: products take float32 as it is."""
    return _set_matmul_precision("highest")


@contextmanager
def _set_matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast_towers(device: torch.device | str) -> AbstractContextManager[object]:
    """Where a transformer is called in training; its results may be bfloat16, see :func:`widened`."""
    if _asked[-1:] != ["bf16"]:
        return nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def uses_bf16_weights() -> bool:
    """True where towers step in bfloat16 weights."""
    return _asked[-1:] == [LOWERED]


def to_float32(states: Tensor) -> Tensor:
    """What came out of :func:`lowered`, for a loss: bfloat16 as float32, others as they are."""
    return states.float() if states.dtype == torch.bfloat16 else states


_MASTER = "_float32_master"


class MasterWeights:
    """The float32 weights of towers, which step in bfloat16.

    Within :meth:`lowered` the parameters hold bfloat16 copies, so neither weights nor activations are cast;
    outside of it they are the float32 ones, and so are their gradients. What clips, steps, evaluates or saves
    does so outside and sees no bfloat16. AdamW's small steps add up in float32; bfloat16, which has 8 bits,
    would lose each that is below 1/256 of its weight.

    Poolers stay float32: losses call them, on float32 vectors.

    Args:
        towers: The transformers; nothing is lowered unless this is asked for, see
            :func:`bench.training.mixed_precision.train_at_precision`.

    Raises:
        InputError: a tower with a pooler whose layers can't be called without it.
    """

    def __init__(self, towers: nn.Module) -> None:
        spared = {
            id(parameter)
            for name, module in towers.named_modules()
            if name.rpartition(".")[2] == "pooler"
            for parameter in module.parameters()
        }
        for model in towers.modules() if uses_bf16_weights() else ():
            if getattr(model, "pooler", None) is not None and isinstance(model, PreTrainedModel):
                _check_layered(model)
        self._weights = [
            parameter
            for parameter in (towers.parameters() if uses_bf16_weights() else ())
            if parameter.dtype == torch.float32 and id(parameter) not in spared
        ]
        self._low = [torch.empty_like(each, dtype=torch.bfloat16) for each in self._weights]

    @contextmanager
    def lowered(self) -> Iterator[None]:
        """Compute a loss and its gradient in the block."""
        if not self._weights:
            yield
            return
        full = [parameter.data for parameter in self._weights]
        torch._foreach_copy_(self._low, full)
        for parameter, low, master in zip(self._weights, self._low, full, strict=True):
            parameter.data = low
            setattr(parameter, _MASTER, master)
        try:
            yield
        finally:
            found = [parameter.grad for parameter in self._weights]
            for parameter, master in zip(self._weights, full, strict=True):
                parameter.grad = None  # a gradient has its parameter's type
                parameter.data = master
                delattr(parameter, _MASTER)
            _set_gradients(self._weights, found)


def get_master(parameter: Tensor) -> Tensor:
    """The float32 weights of a parameter that holds bfloat16 at the moment, else the parameter."""
    master: Tensor = getattr(parameter, _MASTER, parameter)
    return master


def _check_layered(model: Any) -> None:
    """Raise InputError for a model that would call its pooler, which is float32, on bfloat16 states."""
    if not is_layered(model):
        raise InputError(
            f"a {type(model).__name__} can't train in bfloat16 weights",
            where=f"--train-precision {LOWERED}",
            expected="BERT or RoBERTa, or --train-precision bf16",
        )


def _set_gradients(weights: list[nn.Parameter], gradients: list[Tensor | None]) -> None:
    """Give weights their gradients, in float32."""
    pairs = [(one, low) for one, low in zip(weights, gradients, strict=True) if low is not None]
    if not pairs:
        return
    wide = [torch.empty_like(low, dtype=torch.float32) for _, low in pairs]
    torch._foreach_copy_(wide, [low for _, low in pairs])
    for (parameter, _), gradient in zip(pairs, wide, strict=True):
        parameter.grad = gradient
