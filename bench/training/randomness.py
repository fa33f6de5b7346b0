"""Random streams: every draw of a run comes from (seed, stream); kernels and dropout that keep to them."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bench.errors import InputError
from bench.nn.dropout import set_dropout


def stream_seed(seed: int, stream: str) -> int:
    """A 63-bit seed for a named stream of a run's seed; streams are independent of each other."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str) -> torch.Generator:
    """A CPU generator of a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, stream))


@contextmanager
def own_random_state(seed: int, stream: str, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generators for a block and put them back: dropout takes no generator."""
    kind, devices = torch.device(device).type, list[int]()
    if kind == "cuda":
        devices = [torch.cuda.current_device()]
    elif kind == "mps":
        devices = [0]
    with torch.random.fork_rng(devices=devices, device_type=kind if devices else "cuda"):
        torch.manual_seed(stream_seed(seed, stream))
        yield


_MEMORY: Any = torch.utils.deterministic


@contextmanager
def use_deterministic_kernels(device: torch.device | str) -> Iterator[None]:
    """Train on CUDA with deterministic kernels within the block; elsewhere nothing is changed.

    An operation that has none runs as it is, and torch's warning about it is shown once. cuBLAS gets the
    workspace that its repeatable products need, unless the environment names one: it reads that when a
    process first multiplies.

    Args:
        device: Where the training is.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = _MEMORY.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    _MEMORY.fill_uninitialized_memory = False  # nothing here reads what it hasn't written
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("once", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        _MEMORY.fill_uninitialized_memory = filled


_HALF = 0.5
"""What is measured at: a small dropout may draw nothing in a few rows."""
_EQUAL = 1e-4  # of the largest component
_MOST_NAMED = 3


def check_dropout(model: nn.Module, rows: Tensor, probability: float, *, needed: bool, where: str) -> None:
    """Measure that a model draws dropout as it is set: none at 0 and, if it is needed, some above 0.

    Args:
        model: A transformer in training mode, its dropout set; it is as before afterwards.
        rows: Token ids without padding, (B, L).
        probability: What its dropout is set to.
        needed: Two views of a sentence differ by dropout alone.
        where: What the error names.

    Raises:
        InputError: something is drawn at dropout 0, or nothing although it is needed.
    """
    try:
        set_dropout(model, 0.0)
        if kinds := _find_random_modules(model, rows):
            raise InputError(
                f"{type(model).__name__} draws at random although its dropout is 0, in {', '.join(kinds)}",
                where=where,
                expected="a backbone all of whose dropout can be set",
            )
        set_dropout(model, _HALF)
        if needed and probability > 0 and not _find_random_modules(model, rows):
            layer_kinds = ", ".join(_list_layer_kinds(model))
            raise InputError(
                f"{type(model).__name__} has no dropout in its layers ({layer_kinds}), by "
                "which the two views of a sentence would differ",
                where=where,
                expected="a backbone with dropout",
                hint="esimcse, pcl and bsl make their views otherwise",
            )
    finally:
        set_dropout(model, probability)


class _ModuleCall(NamedTuple):
    """A call of a module: the name of its class, how many calls are around it, what it was given and gave."""

    name: str
    depth: int
    given: list[Tensor]
    result: list[Tensor]


@torch.no_grad()
def _find_random_modules(model: nn.Module, rows: Tensor) -> list[str]:
    """Names of classes of modules that give other outputs for equal inputs, the innermost ones."""
    first, second = _record_calls(model, rows, 0), _record_calls(model, rows, 1)
    if [call.name for call in first] != [call.name for call in second]:
        first = _record_calls(model, rows, 0)  # the first call of all may change the model, as BigBird's does
    if [call.name for call in first] != [call.name for call in second]:
        return [type(model).__name__]  # it leaves out layers
    found: dict[str, None] = {}
    inner: list[int] = []  # depths of calls that draw, as long as no call around them has ended
    for one, other in zip(first, second, strict=True):  # inner calls end first
        within = [depth for depth in inner if depth > one.depth]
        inner = [depth for depth in inner if depth <= one.depth]
        draws = _differ(one.result, other.result) and not _differ(one.given, other.given)
        if draws and not within:
            found[one.name] = None
        if draws or within:
            inner.append(one.depth)
    return [*found][:_MOST_NAMED]


def _record_calls(model: nn.Module, rows: Tensor, seed: int) -> list[_ModuleCall]:
    """Every call of a module, inner ones first."""
    calls: list[_ModuleCall] = []
    depth = 0

    def begin(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1

    def end(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        calls.append(
            _ModuleCall(type(module).__name__, depth, _copy_tensors((args, kwargs)), _copy_tensors(output))
        )

    with ExitStack() as hooks, own_random_state(seed, "dropout/measured", str(rows.device)):
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(begin).remove)
            hooks.callback(module.register_forward_hook(end, with_kwargs=True).remove)
        model(input_ids=rows, attention_mask=torch.ones_like(rows))
    return calls


def _copy_tensors(tree: Any) -> list[Tensor]:
    """Every tensor of numbers in a tree, copied: layers may change them in place."""
    leaves = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    return [leaf.detach().clone() for leaf in leaves if leaf.is_floating_point()]


def _differ(one: list[Tensor], other: list[Tensor]) -> bool:
    """True if tensors differ by more than the order in which a GPU adds up."""
    if [each.shape for each in one] != [each.shape for each in other]:
        return True
    pairs = ((a, b) for a, b in zip(one, other, strict=True) if a.numel())
    return any(bool((a - b).abs().max() > _EQUAL * a.abs().max()) for a, b in pairs)


def _list_layer_kinds(model: nn.Module) -> list[str]:
    """Names of the classes of its layers."""
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return [*dict.fromkeys(type(layer).__name__ for layers in lists for layer in layers)][:_MOST_NAMED]
