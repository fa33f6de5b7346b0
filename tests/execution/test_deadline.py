"""A run with a deadline begins nothing that would end too late, and says what goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.execution.cell_run import CellTask
from bench.execution.dry_run import CellTimes
from bench.execution.executors.local import WorkerProcesses
from bench.execution.executors.ray import RayTasks
from bench.execution.runner import Deadline, Executor, InProcess, count_fitting_cells, run_plan
from bench.plan.job import Job
from bench.plan.plan import Plan, make_plan
from tests.support.cli import Cli, stable_bytes
from tests.support.executors import FakeRay, log_start, needs
from tests.support.messages import missing_facts, numbers_in

RUN = ("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy")


def planned(results: Path, methods: str = "noise,word_overlap", seeds: tuple[int, ...] = (1, 2)) -> Plan:
    return make_plan(RunSpec(parse_methods(methods), seeds, "mini", suites=("toy",), results=results))


def tasks_of(plan: Plan) -> list[CellTask]:
    return [CellTask((job,), plan.spec, None) for job in plan.jobs]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_cell_takes_what_it_is_estimated_and_then_what_those_like_it_took(tmp_path: Path) -> None:
    plan, clock, asked = planned(tmp_path, "noise", (1, 2, 3, 4)), Clock(), list[int | None]()

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
    plan, clock = planned(tmp_path, "noise", (1, 2)), Clock()

    def estimate(jobs: Sequence[Job]) -> float:
        clock.now += 8.0
        return 5.0

    deadline = Deadline(plan, 12.0, clock=clock, estimate=estimate)
    assert [deadline.begins(task) for task in tasks_of(plan)] == [False, False]
    assert clock.now == 16.0
    assert not deadline.begins(tasks_of(plan)[0])
    assert clock.now == 16.0


def test_methods_that_nobody_can_estimate_begin_while_there_is_time(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, "noise", (1,)), Clock()
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


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
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
    plan = planned(tmp_path, "noise", (1, 2))
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
