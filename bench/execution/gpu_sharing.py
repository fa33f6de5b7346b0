"""Number of cells that share one GPU, from its free memory and the size of the models; torch loads late."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from bench.nn.adapter_view import open_plain_folder
from bench.nn.tokens import CUDA_BATCH_TOKENS
from bench.plan.cell import Cell
from bench.plan.plan import Plan

CONTEXT = 700 * 2**20  # bytes of an empty process on a GPU: CUDA's context, cuBLAS' workspace
ADAMW = 16  # bytes per trained float32 parameter: the weight, its gradient, AdamW's two states
FROZEN = 4  # bytes per untrained parameter, or per number
TOWERS, VIEWS = 2, 2
"""Most models that a cell trains at once, and most encodings of a sentence with each."""
ENCODED = 20
"""Numbers that a layer holds per token and hidden unit: 8 of the hidden width, 3 of four times it."""
KEPT = 0.9  # share of the free memory that is given out; the rest is for fragments


@dataclass(frozen=True)
class ModelSize:
    """The size of a transformer."""

    parameters: int
    layers: int
    hidden: int
    heads: int


def activation_bytes(size: ModelSize, length: int) -> int:
    """Bytes of activations per token in float32: 68 per layer and unit, 10 per layer, head and position."""
    # Twice Korthikanti et al. (2022), who count 34 and 5 for 16 bits.
    return size.layers * (68 * size.hidden + 10 * size.heads * length)


def encoding_bytes(size: ModelSize) -> int:
    """Bytes of the largest evaluation batch: one layer's, as the next layer takes over its memory."""
    return TOWERS * CUDA_BATCH_TOKENS * FROZEN * ENCODED * size.hidden


def estimate_gpu_bytes(size: ModelSize, frozen: int, batch: int, length: int) -> int:
    """Estimate a cell's bytes on a GPU; torch keeps the memory of the training during evaluation."""
    # ``frozen`` counts parameters, ``batch`` sentences (0: evaluation only), ``length`` tokens.
    if not batch:
        weights = FROZEN * (size.parameters + frozen) + TOWERS * FROZEN * size.parameters
        return CONTEXT + weights + encoding_bytes(size)
    tokens = TOWERS * VIEWS * batch * length
    weights = TOWERS * ADAMW * size.parameters + FROZEN * frozen
    return CONTEXT + weights + tokens * activation_bytes(size, length) + encoding_bytes(size)


def count_parallel_cells(free: int, need: int, cores: int, cells: int) -> int:
    """Count the cells that fit the memory, at most one per core, at least one."""
    return max(1, min(int(KEPT * free) // max(1, need), cores, cells))


def choose_cells_per_gpu(plan: Plan, cells: int, free: Callable[[], int] | None = None) -> int:
    """Return how many of a plan's ``cells`` share a CUDA GPU, by the plan's largest cell."""
    # It is 1 on a CPU, or where a cell takes several. ``free`` returns the free bytes; default asks torch.
    spec = plan.spec
    if spec.device != "cuda" or spec.ranks > 1:
        return 1
    if spec.per_gpu:
        return spec.per_gpu
    need = max((estimate_cell_bytes(job.cell) for job in plan.jobs), default=1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count_parallel_cells((free or _free_gpu_bytes)(), need, cores // spec.threads, cells)


def estimate_cell_bytes(cell: Cell) -> int:
    """Estimate a cell's bytes on a GPU, by its largest stage."""
    sizes = [_read_model_size(model.path) for part in cell.walk() for model in part.models]
    if not sizes:
        return CONTEXT
    size, *others = sorted(sizes, key=lambda s: -s.parameters)
    frozen, stages = sum(other.parameters for other in others), list[int]()
    for stage in cell.all_stages:
        config = dict(stage.spec.config)
        batch, length = int(config["batch_size"]), int(config.get("max_length", 64))
        stages.append(estimate_gpu_bytes(size, frozen, batch, length))
    return max(stages, default=estimate_gpu_bytes(size, frozen, 0, 0))


@cache
def _read_model_size(path: Path) -> ModelSize:
    """Read a model's size, with BERT-base's shape for what the folder lacks."""
    with open_plain_folder(path) as plain:
        return _read_plain_size(plain)


def _read_plain_size(path: Path) -> ModelSize:
    config: dict[str, object] = {}
    for file in sorted(path.rglob("config.json")):
        try:
            config = {**json.loads(file.read_text(encoding="utf-8")), **config}
        except (OSError, ValueError):
            continue
    shape = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    for name in shape:
        if isinstance(value := config.get(name), int):
            shape[name] = value
    parameters = sum(map(_count_parameters, path.rglob("*.safetensors")))
    parameters = parameters or sum(file.stat().st_size // 4 for file in path.rglob("pytorch_model*.bin"))
    return ModelSize(parameters or path.stat().st_size // 4, *shape.values())


def _count_parameters(file: Path) -> int:
    """Count the numbers in a safetensors file by its header."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(prod(facts["shape"]) for name, facts in header.items() if name != "__metadata__")


def _free_gpu_bytes() -> int:
    """Return the free bytes of the GPU, 0 if there is only a CPU."""
    import torch

    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0
