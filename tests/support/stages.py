"""Stages for tests of their cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.execution.stage_cache import StageCache
from bench.stages import Stage


def ensure(cache: StageCache, stage: Stage, train: Callable[[Path], dict[str, Any]]) -> Path | None:
    """Train a stage unless it is there, and return its folder."""
    with cache.making(stage) as work:
        if work is not None:
            work.facts |= train(work.folder)
    return cache.find(stage)
