"""How many cells share one GPU, from its free memory and the size of what they train; torch loads late."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from bench.nn.model_folder import ModelFolder
from bench.nn.tokens import CUDA_BATCH_TOKENS
from bench.plan.cell import Cell
from bench.plan.plan import Plan

CONTEXT = 700 * 2**20
"""Bytes that a process takes on a GPU before it has any tensor: CUDA's context, cuBLAS' workspace."""
ADAMW = 16
"""Bytes a trained parameter in float32: the weight, its gradient, AdamW's two states."""
FROZEN = 4  # bytes a parameter that isn't trained, or a number
TOWERS, VIEWS = 2, 2
"""What a cell may train at once, and how often it encodes a sentence with each: most do less."""
ENCODED = 20
"""Numbers a token and unit of width that a layer holds: 8 of the width, 3 of four times it."""
KEPT = 0.9
"""Share of the free memory that is given out; the rest is for fragments."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a transformer."""

    parameters: int
    layers: int
    hidden: int
    heads: int


def activation_bytes(size: ModelSize, length: int) -> int:
    """Bytes a token that a float32 backward pass needs: 68 a layer and unit, 10 a layer, head and position.

    Twice Korthikanti et al. (2022), who count 34 and 5 for 16 bits.
    """
    return size.layers * (68 * size.hidden + 10 * size.heads * length)


def encoding_bytes(size: ModelSize) -> int:
    """Bytes that the largest batch takes in evaluation: one layer's, whose memory the next one takes over."""
    return TOWERS * CUDA_BATCH_TOKENS * FROZEN * ENCODED * size.hidden


def estimate_gpu_bytes(size: ModelSize, frozen: int, batch: int, length: int) -> int:
    """Bytes that a cell needs on a GPU: torch keeps what the training took while it evaluates.

    Args:
        size: Of the backbone.
        frozen: Parameters that aren't trained: teachers, generators.
        batch: Sentences a step, 0 for a cell that trains nothing.
        length: Most tokens a sentence.
    """
    if not batch:
        weights = FROZEN * (size.parameters + frozen) + TOWERS * FROZEN * size.parameters
        return CONTEXT + weights + encoding_bytes(size)
    tokens = TOWERS * VIEWS * batch * length
    weights = TOWERS * ADAMW * size.parameters + FROZEN * frozen
    return CONTEXT + weights + tokens * activation_bytes(size, length) + encoding_bytes(size)


def count_parallel_cells(free: int, need: int, cores: int, cells: int) -> int:
    """How many cells run side by side: as many as the memory holds, at most cores and cells, at least one.

    >>> count_parallel_cells(free=140 * 2**30, need=9 * 2**30, cores=16, cells=40)
    14
    """
    return max(1, min(int(KEPT * free) // max(1, need), cores, cells))


def choose_cells_per_gpu(plan: Plan, cells: int, free: Callable[[], int] | None = None) -> int:
    """How many of a plan's cells share a CUDA GPU, 1 where this machine has none or a cell takes several.

    Args:
        plan: The plan; its largest cell counts.
        cells: How many there are to run.
        free: Bytes that are free on the GPU; default asks torch.
    """
    spec = plan.spec
    if spec.device != "cuda" or spec.ranks > 1:
        return 1
    if spec.per_gpu:
        return spec.per_gpu
    need = max((estimate_cell_bytes(job.cell) for job in plan.jobs), default=1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count_parallel_cells((free or _free_gpu_bytes)(), need, cores // spec.threads, cells)


def estimate_cell_bytes(cell: Cell) -> int:
    """Bytes that a cell needs on a GPU, by its largest stage."""
    models = [*_walk_models(cell)]
    if not models:
        return CONTEXT
    size, *others = sorted((_read_model_size(model.path) for model in models), key=lambda s: -s.parameters)
    configs = [dict(stage.spec.config) for stage in cell.all_stages]
    frozen = sum(other.parameters for other in others)
    stages = [
        estimate_gpu_bytes(size, frozen, int(config["batch_size"]), int(config.get("max_length", 64)))
        for config in configs
    ]
    return max(stages, default=estimate_gpu_bytes(size, frozen, 0, 0))


def _walk_models(cell: Cell) -> Iterator[ModelFolder]:
    yield from (model for model in (cell.model, *(folder for _, folder in cell.auxiliaries)) if model)
    for _, member in cell.members:
        yield from _walk_models(member)


@cache
def _read_model_size(path: Path) -> ModelSize:
    """Read a model's size; a folder that doesn't say is taken for BERT-base's shape."""
    config: dict[str, object] = {}
    for file in sorted(path.rglob("config.json")):
        try:
            config = {**json.loads(file.read_text(encoding="utf-8")), **config}
        except (OSError, ValueError):
            continue
    shape = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    layers, hidden, heads = (
        value if isinstance(value := config.get(name), int) else default for name, default in shape.items()
    )
    parameters = sum(map(_count_parameters, path.rglob("*.safetensors")))
    parameters = parameters or sum(file.stat().st_size // 4 for file in path.rglob("pytorch_model*.bin"))
    return ModelSize(parameters or path.stat().st_size // 4, layers, hidden, heads)


def _count_parameters(file: Path) -> int:
    """Numbers in a file of safetensors, by its header."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(prod(facts["shape"]) for name, facts in header.items() if name != "__metadata__")


def _free_gpu_bytes() -> int:
    """Bytes that are free on the GPU; none where there is no GPU here."""
    import torch

    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0
