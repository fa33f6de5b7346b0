"""Run everything on the stand-in for a device, or on a real one, and compare it with the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.registry import discover
from bench.stages import TrainedMethod
from tests.support.transfer_data import write_transfer

ROOT = Path(__file__).parents[2]
NO_STEPS = {"bert_flow", "static", "vectors", "whitening"}
"""Trained without the loop: word vectors never see a device, the others encode there."""


def run_parts(folder: Path, bert: Path, mlm: Path, *arguments: str) -> list[Any]:
    """Run parts in a process, after options of ``python -m tests.support.standin``; return their results."""
    command = [sys.executable, "-m", "tests.support.standin", "--bert", str(bert), "--mlm", str(mlm)]
    command += ["--transfer", str(write_transfer(folder / "transfer")), str(folder), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for part in arguments if (path := folder / f"{part}.json").is_file()]


def ours() -> set[str]:
    """Registered methods that train an encoder by steps."""
    registry = discover()
    of_encoders = ((name, method) for name, method in registry if not method.card.needs_decoder)
    trained = {name for name, method in of_encoders if isinstance(method, TrainedMethod)}
    return {name for name in trained if registry.origin(name).startswith("bench.")} - NO_STEPS


def names_of(found: Sequence[Any]) -> set[str]:
    """The methods of all entries."""
    return {name for entry in found for name in entry["methods"]}


def flat(value: Any) -> Iterator[Any]:
    """The leaves of nested dictionaries and lists."""
    if isinstance(value, dict):
        for name in sorted(value):
            yield from flat(value[name])
    elif isinstance(value, list):
        for one in value:
            yield from flat(one)
    else:
        yield value


def differ(one: Any, other: Any) -> float:
    """Largest difference of two results, as a share of their largest number; infinite for other shapes."""
    a, b = list(flat(one)), list(flat(other))
    numbers = [isinstance(value, int | float) for value in a]
    others = [(x, y) for x, y, number in zip(a, b, numbers, strict=False) if not number and x != y]
    if len(a) != len(b) or others:
        return float("inf")
    x, y = (
        np.array([v for v, number in zip(side, numbers, strict=True) if number], float) for side in (a, b)
    )
    return float(np.abs(x - y).max() / np.abs(x).max())
