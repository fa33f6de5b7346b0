"""What is trained: a step in two halves, the host's and the device's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ClassVar, Self

from bench import nn
from bench.lazy import torch


class Objective:
    """What turns a batch of token rows into a loss, in two halves.

    A plain object. What is trained are the torch modules and parameters among its attributes, and those of
    the objectives among these, under the attributes' names; :attr:`module` has them all. They are set when
    the object is made.

    :meth:`prepare` is the host's half: everything that is Python, or random from the run's own generators.
    It never reads a parameter, and may run one step ahead. :meth:`compute` is the device's half, a function
    of tensors and of the modules' state: it reads no value back, so the host can queue the next step.
    """

    least: ClassVar[int] = 1
    """Sentences that a batch has to have."""

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Tensors of a step on the CPU, in nested tuples, lists and dictionaries, beside Python values.

        Args:
            batch: Token rows, or (sentence number, token row) pairs.
        """
        raise NotImplementedError

    def compute(self, prepared: Any) -> torch.Tensor:
        """The loss of what :meth:`prepare` made, with its tensors on :attr:`device`; a scalar."""
        raise NotImplementedError

    def __call__(self, batch: Sequence[Any]) -> torch.Tensor:
        """Both halves, one after the other."""
        return self.compute(nn.on_device(self.prepare(batch), self.device))

    @cached_property
    def module(self) -> torch.nn.Module:
        """All modules of this object as one: for the optimiser, devices, modes and copies of the weights."""
        whole = torch.nn.Module()
        for name, value in vars(self).items():
            part = value.module if isinstance(value, Objective) else value
            if isinstance(part, torch.nn.Parameter):
                whole.register_parameter(name, part)
            elif isinstance(part, torch.nn.Module):
                whole.add_module(name, part)
        return whole

    def to(self, device: str | torch.device) -> Self:
        """Send the modules to a device."""
        self.module.to(device)
        return self

    def double(self) -> Self:
        """Compute in float64, as tests do."""
        self.module.double()
        return self

    def train(self) -> Self:
        """Set the modules to training."""
        self.module.train()
        return self

    def eval(self) -> Self:
        """Set the modules to evaluation."""
        self.module.eval()
        return self

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Yield what is trained."""
        return self.module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield it with its names."""
        return self.module.named_parameters()

    def why_not_finite(self) -> str | None:
        """What made a loss infinite or not a number, where the objective knows it."""
        return None

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.module.parameters()).device


class WholeStep(Objective):
    """A torch module that maps token rows to a loss, as an objective: all of its step is the second half.

    Args:
        step: The module.
    """

    def __init__(self, step: torch.nn.Module) -> None:
        self.step = step

    def prepare(self, batch: Sequence[Any]) -> list[Any]:
        """The rows themselves."""
        return list(batch)

    def compute(self, prepared: list[Any]) -> torch.Tensor:
        """The module's loss."""
        loss: torch.Tensor = self.step(prepared)
        return loss


def in_halves(objective: Objective | torch.nn.Module) -> Objective:
    """The objective, or a module as :class:`WholeStep`."""
    return objective if isinstance(objective, Objective) else WholeStep(objective)


def prepared_steps(
    objective: Objective, batches: Callable[[], Sequence[Any]], steps: int, *, ahead: bool
) -> Generator[tuple[int, Any], None, None]:
    """Yield each step's sentences, counted, and what the objective prepared, on its device.

    Args:
        objective: The objective.
        batches: Makes the next batch.
        steps: How many.
        ahead: Prepare a step in a thread while the one before it is computed. What is prepared is the same:
            the order of the draws doesn't change.
    """
    device = objective.device

    def make() -> tuple[int, Any]:
        batch = batches()
        return len(batch), nn.on_device(objective.prepare(batch), device)

    if not ahead:
        yield from (make() for _ in range(steps))
        return
    here = torch.cuda.current_device() if device.type == "cuda" else None
    start = None if here is None else lambda: torch.cuda.set_device(here)
    with ThreadPoolExecutor(1, "bench-prepare", initializer=start) as thread:
        coming = thread.submit(make)
        for step in range(1, steps + 1):
            ready = coming.result()
            if step < steps:
                coming = thread.submit(make)
            yield ready
