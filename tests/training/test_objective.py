"""Steps in two halves: what the host prepares, in the loop's thread or in one of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.errors import BenchError
from bench.training.loop import TrainSettings, train
from bench.training.two_phase_step import Objective, WholeStep, as_objective, prepare_steps

SETTINGS = TrainSettings(lr=0.1, batch_size=2, steps=4, eval_every=9)


class Noisy(Objective):
    """One weight against numbers and noise of its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.draws = torch.Generator().manual_seed(1)
        self.threads: set[str] = set()
        self.reason: str | None = None

    def prepare(self, batch: Sequence[float]) -> dict[str, Tensor]:
        self.threads.add(threading.current_thread().name)
        return {"x": torch.tensor(batch) + torch.rand((), generator=self.draws)}

    def compute(self, prepared: dict[str, Tensor]) -> Tensor:
        return ((self.weight - prepared["x"]) ** 2).mean()

    def why_not_finite(self) -> str | None:
        return self.reason


class Rows:
    def __init__(self, *numbers: float) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> float:
        return self.numbers[index]


def run(objective: Any, *numbers: float) -> tuple[float, ...]:
    rows, encoder = Rows(*numbers), as_objective(objective).module
    return train(objective, encoder, rows, SETTINGS, seed=1, corpus="x", dev_score=lambda: 0.0).losses


def steps(objective: Objective, *, ahead: bool) -> list[tuple[int, float]]:
    batches = iter([[1.0, 2.0], [3.0], [4.0, 5.0]])
    found = prepare_steps(objective, lambda: next(batches), 3, ahead=ahead)
    return [(count, float(objective.compute(prepared).detach())) for count, prepared in found]


def test_a_step_ahead_prepares_the_same() -> None:
    here, ahead = Noisy(), Noisy()
    assert steps(here, ahead=False) == steps(ahead, ahead=True)
    assert here.threads == {threading.current_thread().name}
    assert ahead.threads != here.threads


@pytest.mark.parametrize("ahead", [False, True])
def test_an_error_of_the_hosts_half_ends_the_training(ahead: bool) -> None:
    class Broken(Noisy):
        def prepare(self, batch: Sequence[float]) -> dict[str, Tensor]:
            if batch == [3.0]:
                raise BenchError("no second batch")
            return super().prepare(batch)

    with pytest.raises(BenchError, match="no second batch"):
        steps(Broken(), ahead=ahead)


def test_both_halves_in_one_call() -> None:
    one, two = Noisy(), Noisy()
    assert float(one([1.0, 2.0]).detach()) == float(two.compute(two.prepare([1.0, 2.0])).detach())


def test_a_plain_module_trains_as_one_half() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = Noisy()
            self.trained = self.whole.module

        def forward(self, batch: list[float]) -> Tensor:
            loss: Tensor = self.whole(batch)
            return loss

    assert isinstance(as_objective(Plain()), WholeStep)
    assert run(Plain(), 1.0, 2.0, 3.0) == run(Noisy(), 1.0, 2.0, 3.0)


def test_an_objective_says_what_its_loss_is_not_a_number_from() -> None:
    objective = Noisy()
    with pytest.raises(BenchError, match="the loss is nan at step 1"):
        run(objective, float("nan"), float("nan"))
    objective.reason = "the teacher is broken"
    with pytest.raises(BenchError, match=r"^the teacher is broken$"):
        run(objective, float("nan"), float("nan"))
