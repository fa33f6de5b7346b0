"""Random streams: every draw of a run comes from (seed, stream); deterministic kernels; dropout checks."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bench.errors import InputError
from bench.nn.dropout import list_adapter_dropouts, set_dropout


def stream_seed(seed: int, stream: str) -> int:
    """Return a 63-bit seed for a named stream of a run's seed; streams are independent."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str) -> torch.Generator:
    """Return a CPU generator of a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, stream))


@contextmanager
def own_random_state(seed: int, stream: str, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generators within a block, for dropout."""
    kind, devices = torch.device(device).type, list[int]()
    if kind != "cpu":
        devices = [torch.cuda.current_device() if kind == "cuda" else 0]
    with torch.random.fork_rng(devices=devices, device_type=kind if devices else "cuda"):
        torch.manual_seed(stream_seed(seed, stream))
        yield


_MEMORY: Any = torch.utils.deterministic


@contextmanager
def use_deterministic_kernels(device: torch.device | str) -> Iterator[None]:
    """Train on CUDA with deterministic kernels within the block; other devices are unaffected.

    An operation without one runs with torch's warning, once. cuBLAS gets the workspace for repeatable
    products unless the environment sets one: it reads that when a process first multiplies.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = _MEMORY.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    _MEMORY.fill_uninitialized_memory = False  # bench reads only memory that it has written
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("once", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        _MEMORY.fill_uninitialized_memory = filled


_HALF = 0.5
"""The dropout of measurements: a small one may spare a few rows."""
_EQUAL = 1e-4  # of the largest component
_MOST_NAMED = 3


def check_dropout(model: nn.Module, rows: Tensor, probability: float, *, needed: bool, where: str) -> None:
    """Measure that a model draws nothing at dropout 0 and, if it is needed, something above 0.

    The model is in training mode, its dropout set to ``probability``, and stays unchanged; rows are unpadded
    token ids, (B, L). Two views of a sentence that differ only by dropout need it. Raises InputError with
    ``where``.
    """
    adapters = [(module, module.p) for module in list_adapter_dropouts(model)]
    try:
        set_dropout(model, 0.0)
        for module, _ in adapters:
            module.p = 0.0
        if kinds := _find_random_modules(model, rows):
            what = f"{type(model).__name__} draws at random although its dropout is 0, in {', '.join(kinds)}"
            raise InputError(what, where=where, expected="a backbone all of whose dropout can be set")
        set_dropout(model, _HALF)
        for module, _ in adapters:
            module.p = _HALF
        if needed and probability > 0 and not _find_random_modules(model, rows):
            stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
            names = dict.fromkeys(type(layer).__name__ for layer in chain.from_iterable(stacks))
            layer_kinds = ", ".join([*names][:_MOST_NAMED])
            raise InputError(
                f"{type(model).__name__} has no dropout in its layers ({layer_kinds}), by "
                "which the two views of a sentence would differ",
                where=where,
                expected="a backbone with dropout",
                hint="esimcse, pcl and bsl make their views otherwise; so does lora_dropout with lora_rank",
            )
    finally:
        set_dropout(model, probability)
        for module, rate in adapters:
            module.p = rate


class _ModuleCall(NamedTuple):
    """A call of a module: its class's name, number of calls around it, inputs and outputs."""

    name: str
    depth: int
    given: list[Tensor]
    result: list[Tensor]


@torch.no_grad()
def _find_random_modules(model: nn.Module, rows: Tensor) -> list[str]:
    """Return the innermost classes of modules with different outputs for equal inputs."""
    first, second = _record_calls(model, rows, 0), _record_calls(model, rows, 1)
    if [call.name for call in first] != [call.name for call in second]:
        first = _record_calls(model, rows, 0)  # the first call of all may change the model, as BigBird's does
    if [call.name for call in first] != [call.name for call in second]:
        return [type(model).__name__]  # it leaves out layers
    classes: dict[str, None] = {}
    inner: list[int] = []  # depths of calls that draw, as long as no call around them has ended
    for call, again in zip(first, second, strict=True):  # inner calls end first
        within = [depth for depth in inner if depth > call.depth]
        inner = [depth for depth in inner if depth <= call.depth]
        draws = _differ(call.result, again.result) and not _differ(call.given, again.given)
        if draws and not within:
            classes[call.name] = None
        if draws or within:
            inner.append(call.depth)
    return [*classes][:_MOST_NAMED]


def _record_calls(model: nn.Module, rows: Tensor, seed: int) -> list[_ModuleCall]:
    """Record every call of a module, inner ones first."""
    calls: list[_ModuleCall] = []
    depth = 0

    def begin(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1

    def end(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        given, result = _copy_tensors((args, kwargs)), _copy_tensors(output)
        calls.append(_ModuleCall(type(module).__name__, depth, given, result))

    with ExitStack() as hooks, own_random_state(seed, "dropout/measured", str(rows.device)):
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(begin).remove)
            hooks.callback(module.register_forward_hook(end, with_kwargs=True).remove)
        model(input_ids=rows, attention_mask=torch.ones_like(rows))
    return calls


def _copy_tensors(tree: Any) -> list[Tensor]:
    """Copy every floating-point tensor in a tree: layers may change them in place."""
    leaves = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    return [leaf.detach().clone() for leaf in leaves if leaf.is_floating_point()]


def _differ(one: list[Tensor], other: list[Tensor]) -> bool:
    """Test whether tensors differ by more than a GPU's order of summation."""
    if len(one) != len(other):
        return True
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape or (a.numel() and bool((a - b).abs().max() > _EQUAL * a.abs().max())):
            return True
    return False
