"""What is trained: a step in two halves, the host's and the device's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bench.nn.tokens import on_device


class Objective(nn.Module):
    """A module that turns a batch of token rows into a loss, in two halves.

    :meth:`prepare` is the host's half: everything that is Python, or random from the run's own generators.
    It never reads a parameter, and may run one step ahead. :meth:`compute` is the device's half, a function
    of tensors and of the module's state: it reads no value back, so the host can queue the next step.
    """

    least: ClassVar[int] = 1
    """Sentences that a batch has to have."""

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Tensors of a step on the CPU, in nested tuples, lists and dictionaries, beside Python values.

        Args:
            batch: Token rows, or (sentence number, token row) pairs.
        """
        raise NotImplementedError

    def compute(self, prepared: Any) -> Tensor:
        """The loss of what :meth:`prepare` made, with its tensors on the module's device; a scalar."""
        raise NotImplementedError

    def forward(self, batch: Sequence[Any]) -> Tensor:
        """Both halves, one after the other."""
        return self.compute(on_device(self.prepare(batch), self.device))

    def why_not_finite(self) -> str | None:
        """What made a loss infinite or not a number, where the objective knows it."""
        return None

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.parameters()).device


class WholeStep(Objective):
    """A plain module that maps token rows to a loss, as an objective: all of its step is the second half.

    Args:
        module: The module.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def prepare(self, batch: Sequence[Any]) -> list[Any]:
        """The rows themselves."""
        return list(batch)

    def compute(self, prepared: list[Any]) -> Tensor:
        """The module's loss."""
        loss: Tensor = self.module(prepared)
        return loss


def in_halves(module: nn.Module) -> Objective:
    """The module, if its steps have two halves, else :class:`WholeStep`."""
    return module if isinstance(module, Objective) else WholeStep(module)


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
        return len(batch), on_device(objective.prepare(batch), device)

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
