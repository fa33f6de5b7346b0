"""Faults planted in a training step, each of which the device must show, and what it must say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bench.training.loop import TrainSettings, train
from bench.training.two_phase_step import Objective
from tests.support.standin.device import TALLY
from tests.support.standin.methods import without_copies
from tests.support.standin.patches import device
from tests.support.standin.target import played

_ROWS = [[2, 5 + i, 7, 3] for i in range(12)]
_SETTINGS = TrainSettings(lr=1e-3, batch_size=4, steps=3, eval_every=2)


class _Small(Objective):
    """A table and a layer: rows to a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(30, 4), nn.Linear(4, 4)

    def prepare(self, batch: Any) -> Any:
        return torch.tensor(batch)

    def compute(self, prepared: Any) -> Tensor:
        return self.loss(self.layer(self.table(prepared).mean(1)))

    def loss(self, states: Tensor) -> Tensor:
        """Of (B, 4)."""
        return states.square().mean()


class _Item(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states.square().mean() * states.detach().mean().item()


class _Branch(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states.mean() if states.detach().mean() > 0 else -states.mean()


class _BooleanIndex(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states[states.detach() > -9].mean()


class _Eigenvalues(_Small):
    def loss(self, states: Tensor) -> Tensor:
        values: Tensor = torch.linalg.eigvalsh(states.detach().T @ states.detach())
        return states.mean() + values.sum()


class _Mixed(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return (states * torch.ones(4)).mean()


class _Numpy(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states.mean() * float(states.detach().numpy().mean())


class _ListToDevice(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return (states * torch.tensor([1.0, 2.0, 3.0, 4.0], device=states.device)).mean()


class _Unpinned(_Small):
    def compute(self, prepared: Any) -> Tensor:
        return super().compute(prepared) + torch.arange(4.0).to(prepared.device, non_blocking=True).mean()


class _HostIndex(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states[[0, 1]].mean()


class _Blocking(_Small):
    def compute(self, prepared: Any) -> Tensor:
        more = torch.arange(4.0)
        more = more.pin_memory() if prepared.is_cuda else more
        return super().compute(prepared) + more.to(prepared.device).mean()


class _HostGenerator(_Small):
    def loss(self, states: Tensor) -> Tensor:
        draws = torch.Generator().manual_seed(0)
        return (states * torch.rand(4, device=states.device, generator=draws)).mean()


class _Dropout(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return nn.functional.dropout(states, 0.5).square().mean()


class _Wide(_Small):
    def loss(self, states: Tensor) -> Tensor:
        return states.double().square().mean()


class _PreparedWide(_Small):
    """A factor in float64 comes from the host's half, and meets the states unasked."""

    def prepare(self, batch: Any) -> Any:
        return torch.tensor(batch), torch.ones(4, dtype=torch.float64)

    def compute(self, prepared: Any) -> Tensor:
        rows, factor = prepared
        return self.loss(self.layer(self.table(rows).mean(1)) * factor)


FAULTS: dict[str, Callable[[], Objective]] = {
    "none": _Small,
    "item": _Item,
    "branch": _Branch,
    "boolean index": _BooleanIndex,
    "eigenvalues": _Eigenvalues,
    "mixed": _Mixed,
    "numpy": _Numpy,
    "list to device": _ListToDevice,
    "unpinned": _Unpinned,
    "index from a list": _HostIndex,
    "blocking": _Blocking,
    "generator": _HostGenerator,
    "dropout": _Dropout,
    "float64": _Wide,
    "prepared float64": _PreparedWide,
}


def planted() -> dict[str, Any]:
    """For each fault the losses on both sides, or the device's error, and what each step waited for."""
    found = {}
    for name, make in FAULTS.items():
        cpu = _run(make, "cpu")
        with device():
            found[name] = {"cpu": cpu, "device": _run(make, played())}
    return found


def _run(make: Callable[[], Objective], where: str) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        objective = make().to(where)
        laps: list[Any] = []
        TALLY.lap()
        try:
            with without_copies():
                result = train(
                    objective,
                    objective.module,
                    _ROWS,
                    _SETTINGS,
                    seed=1,
                    corpus="c",
                    dev_score=lambda: 0.0,
                    progress=lambda _: laps.append(TALLY.lap()),
                )
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "steps": laps}
    return {"losses": result.losses, "steps": laps}
