"""Profile mini cut short: what the commands of the documentation run on."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from bench.config import profiles
from bench.config.profiles import Budget
from bench.config.sweeps import SWEEPS, Backbone, Sweep, SweepPoint
from bench.data.mini import generator, mini_tasks, minimal_pairs, world_text
from bench.eval import rescoring
from bench.execution import runner
from bench.papers import paper_compute as scale


@contextlib.contextmanager
def shortened() -> Iterator[None]:
    """Cut what takes time: a small step a stage, 1,400 sentences and few pairs, one row of a sweep."""
    load = profiles.load_profile

    def one_step(table: dict[str, Any]) -> dict[str, Any]:
        inner = {name: one_step(value) for name, value in table.items() if isinstance(value, dict)}
        return table | inner | {"steps": 1, "eval_every": 1, "batch_size": 16}

    def short(name: str) -> profiles.Profile:
        profile = load(name)
        methods = {k: one_step(v) for k, v in profile.methods.items()}
        for name in (name for name in methods if name.startswith("unsee_")):
            methods[name]["decay"] = 0.0  # a step moves the target too, or all seeds give equal vectors
        return dataclasses.replace(profile, methods=methods, budget=profile.budget and Budget(64, 64))

    def first_row(sweep: Sweep) -> Sweep:
        def points(backbone: Backbone) -> list[SweepPoint]:
            found = list(sweep.points(backbone))
            return [point for point in found if point.row == found[0].row]

        return dataclasses.replace(sweep, points=points)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiles, "load_profile", short)
        patch.setattr(world_text, "SHIPPED", ())
        patch.setattr(generator, "TRAINING_SENTENCES", 1_400)
        patch.setattr(generator, "PAIRS", {"dev": 24, "test": 100})
        for name, sweep in SWEEPS.items():
            patch.setitem(SWEEPS, name, first_row(sweep))
        forget_worlds()
        try:
            yield
        finally:
            forget_worlds()


def forget_worlds() -> None:
    """Clear what modules keep of the world's sentences and of profiles."""
    for module in (minimal_pairs, generator, mini_tasks, world_text, rescoring, runner, scale):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
