"""Both halves of a step, of every method that trains: what each of them may not do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves

from bench.registry import discover
from bench.stages import TrainedMethod
from bench.training.randomness import own_random_state
from bench.training.two_phase_step import Objective, prepare_steps
from tests.support.on_device import NO_STEPS
from tests.support.rank_work import Gradients, Stop, in_float64
from tests.support.ranks import CASES

Case = tuple[str, Mapping[str, Any], str]
READ_BACK = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim")
"""Operations whose result the host waits for."""
BATCHES = ((0, 1, 2, 3, 4), (5, 6, 0, 1, 2), (3, 4, 5, 6, 0))


def cases() -> dict[str, Case]:
    """Every method of encoders by the last of its stages, and options with steps of their own."""
    found: dict[str, Case] = {}
    for name, method in discover():
        if method.card.needs_decoder:
            continue
        if isinstance(method, TrainedMethod) and name not in NO_STEPS:
            options = {option.name: option.default for option in method.card.options}
            small = {"layers": 1} if name.startswith("unsee") else {}
            found[name] = CASES.get(name) or (name, small, method.stages(options)[-1].role)
    return found | {
        "arccse, no row is long enough": ("arccse", {}, "arccse"),
        "bsl, pairs": ("bsl", {}, "bsl"),
        "crop, tokens": ("crop", {"unit": "token"}, "crop"),
        "crop, dropout": ("crop", {"views": "dropout"}, "crop"),
        "esimcse, no queue": ("esimcse", {"queue": 0}, "esimcse"),
        "esimcse, per epoch": ("esimcse", {"repetition_resample": "per_epoch", "queue": 6}, "esimcse"),
        "promptbert, plain": ("promptbert", {"denoising": False}, "promptbert"),
        "unsee, online": ("unsee_vicreg", {"layers": 1, "architecture": "online_projection"}, "unsee_vicreg"),
        "unsee, no target": ("unsee_byol", {"layers": 1, "architecture": "projection"}, "unsee_byol"),
        "whitenedcse, repeated": ("whitenedcse", {"groups": 8, "repetition_rate": 0.5}, "whitenedcse"),
    }


ALL = cases()
every_method = pytest.mark.parametrize("case", ALL.values(), ids=ALL)


@pytest.fixture
def made(objectives: Gradients, tmp_path: Path) -> Callable[[Case], tuple[Objective, list[Any]]]:
    """From a case to its objective, in float64 with dropout, and its rows: the same at every call."""

    def make(case: Case) -> tuple[Objective, list[Any]]:
        name, changes, role = case
        taken: list[Any] = []

        def take(objective: nn.Module, _: Any, rows: Sequence[Any], *__: Any, **___: Any) -> None:
            taken.extend((objective, [rows[number] for number in range(len(rows))]))
            raise Stop

        with in_float64():
            objectives.of(name, {**changes, "dropout": 0.3}, role, tmp_path, take)
        objective, rows = taken
        assert isinstance(objective, Objective)
        return objective.double().train(), rows

    return make


def chosen(rows: Sequence[Any], step: int) -> list[Any]:
    return [rows[number] for number in BATCHES[step]]


class Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block every operation is noted: its name, and whether it takes a parameter."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.with_parameters: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        masks = [each for each in tree_leaves(args[1:2]) if isinstance(each, Tensor)]
        if name.startswith("index") and any(each.dtype in (torch.bool, torch.uint8) for each in masks):
            name = "nonzero"
        self.names.append(name)
        if any(isinstance(each, nn.Parameter) for each in tree_leaves((args, kwargs or {}))):
            self.with_parameters.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("read", "waits"),
    [
        (lambda: float(torch.ones(2).sum()), True),
        (lambda: torch.arange(2)[torch.arange(2) > 0], True),
        (lambda: bool((torch.arange(2) > 0).any()), True),
        (lambda: torch.arange(2).nonzero(), True),
        (lambda: torch.equal(torch.ones(2), torch.ones(2)), True),
        (lambda: torch.ones(2)[torch.arange(2).flip(0)] + 1, False),
        (lambda: nn.Linear(2, 2)(torch.tensor([[1.0, 2.0]])), False),
    ],
)
def test_what_is_watched_is_seen(read: Callable[[], object], waits: bool) -> None:
    with Watched() as watched:
        read()
    assert bool(set(watched.names) & set(READ_BACK)) is waits
    assert ("lift_fresh" in watched.names) is bool(watched.with_parameters)  # both in the last one alone


@pytest.mark.slow
@every_method
def test_the_hosts_half_reads_no_parameter_and_draws_of_its_own(made: Any, case: Case) -> None:
    (plain, rows), (empty, _) = made(case), made(case)
    empty.to("meta")
    for step in range(3):
        before = (torch.get_rng_state(), str(np.random.get_state()), random.getstate())  # noqa: NPY002
        with Watched() as watched:
            prepared, form = tree_flatten(plain.prepare(chosen(rows, step)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (str(np.random.get_state()), random.getstate()) == before[1:]  # noqa: NPY002
        assert not watched.with_parameters
        again, same_form = tree_flatten(empty.prepare(chosen(rows, step)))
        assert form == same_form
        for one, two in zip(prepared, again, strict=True):
            assert one.dtype == two.dtype and torch.equal(one, two) if isinstance(one, Tensor) else one == two
        found = [each for each in prepared if isinstance(each, Tensor)]
        assert found
        assert {each.device.type for each in found} == {"cpu"}
        assert not any(each.requires_grad for each in found)


def generators(thing: Any, seen: set[int]) -> Iterator[torch.Generator]:
    """Those that an object holds, or one of the package's that it holds."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Generator):
        yield thing
    elif isinstance(thing, nn.Module) or type(thing).__module__.startswith("bench."):
        thing = getattr(thing, "__dict__", {})
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
    for part in list(parts):
        yield from generators(part, seen)


def test_generators_are_found(made: Any) -> None:
    found = {
        name: len(list(generators(made(ALL[name])[0], set()))) for name in ("arccse", "whitenedcse", "jtcse")
    }
    assert found == {"arccse": 1, "whitenedcse": 2, "jtcse": 1}


@pytest.mark.slow
@every_method
def test_the_devices_half_draws_nothing_of_its_own_and_reads_nothing_back(made: Any, case: Case) -> None:
    objective, rows = made(case)
    for step in range(3):
        prepared = objective.prepare(chosen(rows, step))
        before = [each.get_state() for each in generators(objective, set())]
        with own_random_state(1, "dropout"), Watched() as watched:
            objective.compute(prepared)
        after = [each.get_state() for each in generators(objective, set())]
        assert all(map(torch.equal, before, after))
        assert not set(watched.names) & {*READ_BACK, "lift_fresh"}


@pytest.mark.slow
@every_method
def test_a_step_prepared_ahead_in_a_thread_is_the_same(made: Any, case: Case) -> None:
    losses, ahead = (losses_of(*made(case), ahead=ahead) for ahead in (False, True))
    assert losses == ahead
    assert len(set(losses)) == 3


def losses_of(objective: Objective, rows: list[Any], *, ahead: bool) -> list[float]:
    batches = (chosen(rows, step) for step in range(3))
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    losses: list[float] = []
    with own_random_state(1, "dropout"):
        for sentences, prepared in prepare_steps(objective, lambda: next(batches), 3, ahead=ahead):
            assert sentences == len(BATCHES[0])
            loss = objective.compute(prepared)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    if gradient is not None:
                        parameter.sub_(0.01 * gradient)
            losses.append(float(loss.detach()))
    return losses
