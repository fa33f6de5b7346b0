"""x"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.execution.executors.local import WorkerProcesses
from bench.execution.runner import Executor, InProcess
from tests.support.executors import log_start, needs


@pytest.mark.parametrize(
    ("executor", "order"),
    [(InProcess(), ["a1", "a2", "b1", "b2"]), (WorkerProcesses(2), ["a1", "b1", "a2", "b2"])],
)
def test_workers_take_what_others_don_t_make(tmp_path: Path, executor: Executor, order: list[str]) -> None:
    log = tmp_path / "log"
    tasks = [(name, name[0], str(log)) for name in ("a1", "a2", "b1", "b2")]
    assert sorted(executor.run(log_start, tasks, needs)) == ["a1", "a2", "b1", "b2"]
    started = log.read_text().split()
    # two that run together start in either order
    assert [set(started[:2]), set(started[2:])] == [set(order[:2]), set(order[2:])]


def test_where_all_wait_for_the_same_the_order_is_kept(tmp_path: Path) -> None:
    tasks = [(name, "x", str(tmp_path / "log")) for name in ("a", "b", "c")]
    assert set(WorkerProcesses(2).run(log_start, tasks, needs)) == {"a", "b", "c"}
    assert (tmp_path / "log").read_text().split()[2] == "c"
