"""How many cells share a GPU: a formula of memory and size, and what Ray is asked for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.execution import sharing
from bench.execution.executors.local import WorkerProcesses
from bench.execution.executors.ray import RayTasks
from bench.execution.runner import InProcess, choose_executor
from bench.nn.model_folder import ModelFolder
from bench.plan.plan import Plan, make_plan
from tests.support.executors import FakeRay

GIB = 2**30
MINILM, BERT = sharing.ModelSize(22_713_216, 6, 384, 12), sharing.ModelSize(109_482_240, 12, 768, 12)


def planned(methods: str = "simcse", **given: Any) -> Plan:
    return make_plan(RunSpec(parse_methods(methods), (1, 2, 3), "mini", suites=("toy",), **given))


def test_the_formula() -> None:
    assert sharing.activation_bytes(MINILM, 32) == 6 * (68 * 384 + 10 * 12 * 32)
    trained = sharing.estimate_gpu_bytes(MINILM, frozen=1000, batch=64, length=32)
    tokens = 2 * 2 * 64 * 32
    weights = 2 * sharing.ADAMW * MINILM.parameters + sharing.FROZEN * 1000
    assert sharing.encoding_bytes(MINILM) == 2 * 65_536 * 4 * 20 * 384
    assert trained == sharing.CONTEXT + weights + tokens * sharing.activation_bytes(
        MINILM, 32
    ) + sharing.encoding_bytes(MINILM)
    assert sharing.estimate_gpu_bytes(
        MINILM, 0, 0, 0
    ) == sharing.CONTEXT + 3 * sharing.FROZEN * MINILM.parameters + sharing.encoding_bytes(MINILM)
    assert sharing.estimate_gpu_bytes(BERT, 0, 64, 32) > 2 * sharing.estimate_gpu_bytes(MINILM, 0, 64, 32)


def test_the_campaign_on_one_h100() -> None:
    """Fifteen MiniLM cells side by side ran out of 79 GiB, with 4.1 to 7.6 GiB each; twelve did not."""
    need = sharing.estimate_gpu_bytes(MINILM, 0, 64, 32)
    assert 5 * GIB < need < 7.6 * GIB
    assert 8 <= sharing.count_parallel_cells(int(78.7 * GIB), need, cores=16, cells=53) <= 12


@pytest.mark.parametrize(
    ("free", "need", "cores", "cells", "found"),
    [
        (140, 10, 99, 99, 12),  # nine tenths of the memory
        (140, 10, 8, 99, 8),
        (140, 10, 99, 3, 3),
        (5, 10, 8, 8, 1),
        (0, 10, 8, 8, 1),
        (140, 10, 0, 8, 1),
    ],
)
def test_memory_cores_and_cells_each_limit(free: int, need: int, cores: int, cells: int, found: int) -> None:
    assert sharing.count_parallel_cells(free, need, cores, cells) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"device": "cpu"}, 1),
        ({"device": "cuda"}, 4),
        ({"device": "mps"}, 1),
        ({"device": "cuda", "threads": 4}, 2),
        ({"device": "cuda", "ranks": 2}, 1),
        ({"device": "cuda", "per_gpu": 7}, 7),
    ],
)
def test_the_largest_cell_decides(given: dict[str, Any], found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("simcse,untrained")
    plan = replace(plan, spec=replace(plan.spec, **given))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    most = max(sharing.estimate_cell_bytes(job.cell) for job in plan.jobs)
    assert most == sharing.estimate_cell_bytes(next(job.cell for job in plan.jobs if job.cell.trains))
    assert sharing.choose_cells_per_gpu(plan, 20, free=lambda: int(4.5 * most / 0.9)) == found


def test_a_machine_without_a_gpu_runs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    plan = planned()
    assert sharing.choose_cells_per_gpu(replace(plan, spec=replace(plan.spec, device="cuda")), 9) == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (40 * GIB, 140 * GIB))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert sharing.choose_cells_per_gpu(replace(plan, spec=replace(plan.spec, device="cuda")), 9) == 8


def test_the_size_is_read_from_the_folder(tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    save_file({"a": np.ones((3, 4), np.float16), "b": np.ones(5, np.float32)}, tmp_path / "model.safetensors")
    assert sharing._read_model_size(tmp_path) == sharing.ModelSize(17, 3, 8, 2)
    (tmp_path / "vectors").write_bytes(b"x" * 400)
    assert sharing._read_model_size(tmp_path / "vectors") == sharing.ModelSize(100, 12, 768, 12)


def test_teachers_and_members_count() -> None:
    plan = planned()
    cell = plan.jobs[0].cell
    assert cell.model is not None
    taught = replace(cell, auxiliaries=(("teacher", ModelFolder(cell.model.path, "t", "0")),))
    parameters = sharing._read_model_size(cell.model.path).parameters
    added = sharing.estimate_cell_bytes(taught) - sharing.estimate_cell_bytes(cell)
    assert added == sharing.FROZEN * parameters


def test_workers_follow_and_torch_is_asked_only_then() -> None:
    spec = RunSpec(parse_methods("noise"), (1,), "mini", device="cuda", workers=0)
    executor = choose_executor(spec, lambda: 5)
    assert isinstance(executor, WorkerProcesses)
    assert executor.workers == 5
    assert isinstance(choose_executor(spec, lambda: 1), InProcess)
    assert isinstance(choose_executor(replace(spec, workers=1), lambda: pytest.fail("asked")), InProcess)


@pytest.mark.parametrize(("share", "gpus"), [(1, 1), (2, 0.5), (3, 0.3333), (6, 0.1666), (7, 0.1428)])
def test_ray_is_asked_for_a_share_that_leaves_room_for_all(tmp_path: Path, share: int, gpus: float) -> None:
    ray = FakeRay(CPU=64, GPU=2)
    spec = RunSpec(parse_methods("noise"), (1,), "mini", device="cuda", workers=0, executor="ray")
    executor = choose_executor(replace(spec, results=tmp_path), lambda: share)
    assert isinstance(executor, RayTasks)
    done = ray.submit(executor, 20)
    first = next(done)
    assert ray.asked["num_gpus"] == gpus
    assert gpus * share <= 1
    assert len(ray.given) == 2 * share  # both GPUs are full
    assert sorted([first, *done]) == list(range(20))
    given = choose_executor(replace(spec, per_gpu=4), lambda: pytest.fail("asked"))
    assert given == RayTasks(spec.results, gpus=1, sharing=4)


def test_cells_of_several_ranks_take_whole_gpus() -> None:
    spec = RunSpec(parse_methods("noise"), (1,), "mini", device="cuda", executor="ray", ranks=2, workers=0)
    assert choose_executor(spec, lambda: 3) == RayTasks(spec.results, cpus=2, gpus=2)
