"""Stage specifications."""

from __future__ import annotations

from typing import Any

from bench.stages import StageContext, StageSpec


def no_training(context: StageContext) -> dict[str, Any]:
    raise AssertionError("only keys are tested")


def spec(role: str = "a", **changes: Any) -> StageSpec:
    values: dict[str, Any] = {"kind": "k", "version": 1, "config": (("lr", 0.1),), "train": no_training}
    return StageSpec(role, **{**values, **changes})
