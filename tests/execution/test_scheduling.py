"""Deadlines and shares of a GPU: which cells begin, and how many run side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.execution import gpu_sharing
from bench.execution.cell_run import CellTask
from bench.execution.dry_run import CellTimes
from bench.execution.executors.local import WorkerProcesses
from bench.execution.executors.ray import RayTasks
from bench.execution.runner import (
    Deadline,
    Executor,
    InProcess,
    choose_executor,
    count_fitting_cells,
    run_plan,
)
from bench.nn.model_folder import ModelFolder
from bench.plan.job import Job
from bench.plan.plan import Plan, make_plan
from tests.support.cli import Cli, stable_bytes
from tests.support.executors import Clock, FakeRay, log_start, needs
from tests.support.messages import missing_facts, numbers_in

RUN = ("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy")


def planned(methods: str, *seeds: int, **given: Any) -> Plan:
    return make_plan(RunSpec(parse_methods(methods), seeds or (1, 2, 3), "mini", suites=("toy",), **given))


def tasks_of(plan: Plan) -> list[CellTask]:
    return [CellTask((job,), plan.spec, None) for job in plan.jobs]


def test_a_cell_takes_what_it_is_estimated_and_then_what_those_like_it_took(tmp_path: Path) -> None:
    plan, clock, asked = planned("noise", 1, 2, 3, 4, results=tmp_path), Clock(), list[int | None]()

    def estimate(jobs: Sequence[Job]) -> float:
        asked.append(jobs[0].cell.seed)
        return 5.0

    first, second, third, fourth = tasks_of(plan)
    deadline = Deadline(plan, 30.0, clock=clock, estimate=estimate)
    assert deadline.begins(first)
    clock.now = 9.0
    deadline.end_cell(first)
    assert deadline.begins(second)  # 9 + 9 < 30
    clock.now = 13.0
    deadline.end_cell(second)  # it took 4, but the longest counts
    clock.now = 20.0
    assert deadline.begins(third)
    clock.now = 21.0
    assert not deadline.begins(fourth)
    assert asked == [1]
    assert deadline.jobs == list(fourth.jobs)


def test_an_estimate_that_takes_long_itself_counts_and_after_the_end_none_is_made(tmp_path: Path) -> None:
    plan, clock = planned("noise", 1, 2, results=tmp_path), Clock()

    def estimate(jobs: Sequence[Job]) -> float:
        clock.now += 8.0
        return 5.0

    deadline = Deadline(plan, 12.0, clock=clock, estimate=estimate)
    assert [deadline.begins(task) for task in tasks_of(plan)] == [False, False]
    assert clock.now == 16.0
    assert not deadline.begins(tasks_of(plan)[0])
    assert clock.now == 16.0


def test_methods_that_nobody_can_estimate_begin_while_there_is_time(tmp_path: Path) -> None:
    plan, clock = planned("noise", 1, results=tmp_path), Clock()
    broken = replace(plan.jobs[0], cell=replace(plan.jobs[0].cell, options=(), model=None))
    assert CellTimes(plan).seconds([broken]) >= 0
    deadline = Deadline(plan, 1.0, clock=clock, estimate=lambda _: 0.0)
    assert deadline.begins(tasks_of(plan)[0])


def test_cells_that_fit_by_their_estimates() -> None:
    assert count_fitting_cells([4, 4, 4], workers=1, end=9) == 2
    assert count_fitting_cells([4, 4, 4], workers=2, end=9) == 3
    assert count_fitting_cells([5, 5, 9, 2], workers=2, end=8) == 3
    assert count_fitting_cells([10, 4, 4], workers=1, end=9) == 2  # only the long one is left


@pytest.mark.parametrize("executor", [InProcess(), WorkerProcesses(2)])
def test_executors_leave_out_what_does_not_begin(tmp_path: Path, executor: Executor) -> None:
    log = tmp_path / "log"
    tasks = [(name, name[0], str(log)) for name in ("a1", "a2", "b1", "c1")]
    done = executor.run(log_start, tasks, needs, lambda task: task[0] in ("a1", "b1"))
    assert sorted(done) == ["a1", "b1"]
    assert sorted(log.read_text().split()) == ["a1", "b1"]


def test_ray_is_given_nothing_that_does_not_begin(tmp_path: Path) -> None:
    ray, executor = FakeRay(CPU=2), RayTasks(tmp_path)
    done = ray.submit(executor, 5, lambda index: index in (0, 3))
    assert sorted(done) == ray.given == [0, 3]
    assert list(ray.submit(executor, 2, lambda _: False)) == []


def long_seeds(*seeds: int | None) -> Any:
    return lambda self, jobs: 86_400.0 if jobs[0].cell.seed in seeds else 0.0


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_what_is_left(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str) -> None:
    assert cli(*RUN, "--campaign", "whole")[0] == 0
    run = (*RUN, "--deadline", "30", "--workers", workers)
    kinds = (Deadline._cell_kind, lambda self, task: (task.jobs[0].cell.seed,))
    monkeypatch.setattr(Deadline, "_cell_kind", kinds[1])  # else those that are done say how long others take
    monkeypatch.setattr(CellTimes, "seconds", long_seeds(2, 3))
    code, out, err = cli(*run)
    assert (code, "noise" in out) == (130, True)
    command = " ".join(("bench", *run))
    assert not missing_facts(err.splitlines()[-1], "2 of 4", "noise seeds 2,3 on toy", command)
    assert len(stable_bytes(tmp_path)) == 4  # two records, each with its predictions
    monkeypatch.setattr(CellTimes, "seconds", long_seeds())
    assert cli(*run)[0] == 0
    assert stable_bytes(tmp_path) == stable_bytes(tmp_path, "whole")
    code, _, err = cli(*run)
    assert (code, err.count("4 of 4"), len(err.splitlines())) == (0, 1, 1)


@pytest.mark.long
@pytest.mark.slow
def test_a_real_estimate_changes_no_score(cli: Cli, tmp_path: Path) -> None:
    short = ("--set", "simcse.steps=2", "--set", "simcse.eval_every=2")
    run = ("run", "--methods", "simcse", "--seeds", "1", "--suite", "toy", *short)
    assert cli(*run, "--results", "a/results")[0] == 0
    assert cli(*run, "--deadline", "600", "--results", "b/results")[0] == 0
    assert stable_bytes(tmp_path / "a") == stable_bytes(tmp_path / "b")
    code, _, err = cli(*run, "--deadline", "0.001", "--results", "c/results")
    assert (code, missing_facts(err, "1 of 1", "(simcse"), (tmp_path / "c").exists()) == (130, [], True)
    assert stable_bytes(tmp_path / "c") == {}


def test_cells_of_another_process_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("noise", 1, 2, results=tmp_path)
    plan.store.prepare()
    deadline = Deadline(plan, 60.0, clock=Clock(), estimate=lambda _: 0.0)
    with plan.store.claim(plan.jobs[0].place, wait=False) as mine:
        assert mine
        (done,) = run_plan(plan, on_outcome=lambda _: None, deadline=deadline)
    assert (done.job.cell.seed, [job.cell.seed for job in deadline.jobs]) == (2, [1])


def test_a_dry_run_says_what_a_deadline_does(cli: Cli) -> None:
    assert "deadline: 5 min" in cli(*RUN, "--deadline", "5", "--dry-run")[1]
    line = cli(*RUN, "--deadline", "5", "--estimate")[1].splitlines()[-1]
    assert numbers_in(line) == [4, 4, 5]


GIB = 2**30
MINILM, BERT = gpu_sharing.ModelSize(22_713_216, 6, 384, 12), gpu_sharing.ModelSize(109_482_240, 12, 768, 12)


def test_the_formula() -> None:
    assert gpu_sharing.activation_bytes(MINILM, 32) == 6 * (68 * 384 + 10 * 12 * 32)
    trained = gpu_sharing.estimate_gpu_bytes(MINILM, frozen=1000, batch=64, length=32)
    tokens = 2 * 2 * 64 * 32
    weights = 2 * gpu_sharing.ADAMW * MINILM.parameters + gpu_sharing.FROZEN * 1000
    assert gpu_sharing.encoding_bytes(MINILM) == 2 * 65_536 * 4 * 20 * 384
    assert trained == gpu_sharing.CONTEXT + weights + tokens * gpu_sharing.activation_bytes(
        MINILM, 32
    ) + gpu_sharing.encoding_bytes(MINILM)
    assert gpu_sharing.estimate_gpu_bytes(
        MINILM, 0, 0, 0
    ) == gpu_sharing.CONTEXT + 3 * gpu_sharing.FROZEN * MINILM.parameters + gpu_sharing.encoding_bytes(MINILM)
    assert gpu_sharing.estimate_gpu_bytes(BERT, 0, 64, 32) > 2 * gpu_sharing.estimate_gpu_bytes(
        MINILM, 0, 64, 32
    )


def test_the_campaign_on_one_h100() -> None:
    need = gpu_sharing.estimate_gpu_bytes(MINILM, 0, 64, 32)
    assert 5 * GIB < need < 7.6 * GIB
    assert 8 <= gpu_sharing.count_parallel_cells(int(78.7 * GIB), need, cores=16, cells=53) <= 12


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
    assert gpu_sharing.count_parallel_cells(free, need, cores, cells) == found


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
    most = max(gpu_sharing.estimate_cell_bytes(job.cell) for job in plan.jobs)
    assert most == gpu_sharing.estimate_cell_bytes(next(job.cell for job in plan.jobs if job.cell.trains))
    assert gpu_sharing.choose_cells_per_gpu(plan, 20, free=lambda: int(4.5 * most / 0.9)) == found


def test_a_machine_without_a_gpu_runs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    plan = planned("simcse")
    assert gpu_sharing.choose_cells_per_gpu(replace(plan, spec=replace(plan.spec, device="cuda")), 9) == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (40 * GIB, 140 * GIB))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert gpu_sharing.choose_cells_per_gpu(replace(plan, spec=replace(plan.spec, device="cuda")), 9) == 8


def test_the_size_is_read_from_the_folder(tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    save_file({"a": np.ones((3, 4), np.float16), "b": np.ones(5, np.float32)}, tmp_path / "model.safetensors")
    assert gpu_sharing._read_model_size(tmp_path) == gpu_sharing.ModelSize(17, 3, 8, 2)
    (tmp_path / "vectors").write_bytes(b"x" * 400)
    assert gpu_sharing._read_model_size(tmp_path / "vectors") == gpu_sharing.ModelSize(100, 12, 768, 12)


def test_teachers_and_members_count() -> None:
    plan = planned("simcse")
    cell = plan.jobs[0].cell
    assert cell.model is not None
    taught = replace(cell, auxiliaries=(("teacher", ModelFolder(cell.model.path, "t", "0")),))
    parameters = gpu_sharing._read_model_size(cell.model.path).parameters
    added = gpu_sharing.estimate_cell_bytes(taught) - gpu_sharing.estimate_cell_bytes(cell)
    assert added == gpu_sharing.FROZEN * parameters


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
