"""What the fault scripts put into a run through bench's own entry point for plug-ins: cheap methods, faults.

``fault_plain`` only encodes, ``fault_trained`` trains two stages whose files determine its vectors; sweep
``fault`` is a grid of it. A fault named in BENCH_FAULT (see bench_faults) starts in every process of the run.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.config.sweeps import Backbone, SweepPoint, add_sweep
from bench.encoder import FloatArray, Progress
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec

_FILES = 3
_BLOCK = 20_000  # bytes a file of a stage


class Dice:
    """Random vectors from a text; equal sentences get equal vectors."""

    dim = 8

    def __init__(self, text: str) -> None:
        self.text = text
        self.facts: dict[str, str | int] = {}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        rows = [np.frombuffer(_digest(f"{self.text} {s}".encode())[:8], dtype=np.uint8) for s in sentences]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dim) - 127.5


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _log(*words: object) -> None:
    """Append a line to FAULT_LOG, so that what was done can be counted over all processes."""
    if "FAULT_LOG" in os.environ:
        with open(os.environ["FAULT_LOG"], "a", encoding="utf-8") as stream:
            stream.write(" ".join(map(str, words)) + "\n")


@add_method
class PlainMethod:
    card = MethodCard(
        name="fault_plain",
        kind="test",
        summary="random vectors",
        version=1,
        needs_backbone=False,
        options=(Option("wait", 0.0, "seconds before encoding"),),
    )

    def build(self, context: BuildContext) -> Dice:
        _log("build", context.seed)
        time.sleep(float(context.options["wait"]))
        return Dice(f"plain {context.seed}")


def _train(context: StageContext) -> dict[str, Any]:
    _log("train", context.role, context.seed)
    text = f"{context.role} {context.seed} {sorted(context.config.items())}".encode()
    for folder in context.inputs.values():
        text += _content(folder)
    for number in range(_FILES):
        time.sleep(float(os.environ.get("FAULT_WAIT", "0")))
        block = _digest(text + bytes([number]))
        (context.out / f"part-{number}").write_bytes(block * (_BLOCK // len(block)))
    return {
        "steps": _FILES,
        "sentences_seen": _FILES * len(context.sentences),
        "dev_curve": [],
        "selected_step": _FILES,
        "selected_dev": None,
        "last_loss": 0.0,
        "cpu_seconds": 0.0,
    }


def _content(folder: Path) -> bytes:
    return _digest(b"".join((folder / f"part-{number}").read_bytes() for number in range(_FILES)))


@add_method
class TrainedMethod:
    card = MethodCard(
        name="fault_trained",
        kind="test",
        summary="a stage of its own on one that all share",
        version=1,
        options=(
            Option("scale", 1, "what the own stage differs in"),
            Option("steps", _FILES, "no effect", minimum=0),
            Option("batch_size", 8, "no effect", minimum=1),
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        own = tuple(sorted(options.items()))
        shared = tuple((name, value) for name, value in own if name != "scale")
        return (
            StageSpec("base", "fault_base", 1, shared, _train),
            StageSpec("top", "fault_top", 1, own, _train, inputs=("base",)),
        )

    def build(self, context: BuildContext) -> Dice:
        _log("build", context.options["scale"], context.seed)
        return Dice(_content(context.stages["top"]).hex())


@add_sweep("A grid for the fault scripts?", "nowhere", "scale", name="fault")
def fault_sweep(backbone: Backbone) -> Iterable[SweepPoint]:
    return (
        SweepPoint(f"scale {scale}", "fault_trained", f"fault_trained[scale={scale}]") for scale in (1, 2)
    )


importlib.import_module("bench_faults").begin()
