"""Training transformers in less than float32; losses, optimiser and its weights keep float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bench.errors import InputError
from bench.nn.hidden_states import is_layered

LOWERED = "bf16-weights"
_asked: list[str] = []  # innermost last; a plain list, which a compiled step can read


@contextmanager
def train_at_precision(precision: str) -> Iterator[None]:
    """Train at a precision within the block: "fp32"; "bf16", autocast within :func:`autocast_towers`.

    "bf16-weights" steps the towers in bfloat16 (:class:`MasterWeights`); "tf32" rounds the factors of float32
    products to 10 bits, on CUDA devices.
    """
    _asked.append(precision)
    try:
        with _set_matmul_precision("high") if precision == "tf32" else nullcontext():
            yield
    finally:
        _asked.pop()


def get_precision() -> str:
    """Return the precision of the present training."""
    return _asked[-1] if _asked else "fp32"


def use_full_float32() -> AbstractContextManager[object]:
    """Evaluate within a training: products take unrounded float32."""
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
    """Call a transformer in training within the block; results may be bfloat16, see :func:`to_float32`."""
    if _asked[-1:] != ["bf16"]:
        return nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def to_float32(states: Tensor) -> Tensor:
    """Return bfloat16 results as float32, for a loss; others unchanged."""
    return states.float() if states.dtype == torch.bfloat16 else states


_MASTER = "_float32_master"


class MasterWeights:
    """The float32 weights of towers that step in bfloat16, under :func:`train_at_precision` "bf16-weights".

    Within :meth:`lowered` the parameters hold bfloat16 copies, so that casts of weights and activations are
    unnecessary. Outside they and their gradients are float32, for clipping, stepping, evaluating and saving:
    bfloat16, which has 8 bits, would lose each of AdamW's steps below 1/256 of its weight. Poolers stay
    float32: losses call them, on float32 vectors. InputError for a model that calls its pooler on bfloat16.
    """

    def __init__(self, towers: nn.Module) -> None:
        self._weights: list[nn.Parameter] = []
        if _asked[-1:] == [LOWERED]:
            spared: set[int] = set()
            for name, module in towers.named_modules():
                if name.rpartition(".")[2] == "pooler":
                    spared.update(map(id, module.parameters()))
                pooled = isinstance(module, PreTrainedModel) and getattr(module, "pooler", None) is not None
                if pooled and not is_layered(module):
                    what = f"a {type(module).__name__} can't train in bfloat16 weights"
                    expected = "BERT or RoBERTa, or --train-precision bf16"
                    raise InputError(what, where=f"--train-precision {LOWERED}", expected=expected)
            full = [parameter for parameter in towers.parameters() if parameter.dtype == torch.float32]
            self._weights = [parameter for parameter in full if id(parameter) not in spared]
        self._low = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in self._weights]

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
            lowered = {parameter: parameter.grad for parameter in self._weights if parameter.grad is not None}
            for parameter, master in zip(self._weights, full, strict=True):
                parameter.grad = None  # a gradient has its parameter's type
                parameter.data = master
                delattr(parameter, _MASTER)
            if lowered:
                wide = [torch.empty_like(low, dtype=torch.float32) for low in lowered.values()]
                torch._foreach_copy_(wide, list(lowered.values()))
                for parameter, gradient in zip(lowered, wide, strict=True):
                    parameter.grad = gradient


def get_master(parameter: Tensor) -> Tensor:
    """Return the float32 weights of a parameter that holds bfloat16 now, otherwise the parameter."""
    master: Tensor = getattr(parameter, _MASTER, parameter)
    return master
