"""Cells as tasks on a Ray cluster whose nodes share the results folder; ray is imported when they run."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.config.plugins import load_plugins
from bench.config.run_spec import Plugin
from bench.errors import BenchError, CellFailedError, InputError
from bench.execution.executors.cluster import WHERE, hold_folder, join_cluster
from bench.execution.executors.local import Begins, Needs, Result, Task, begin_always, need_nothing, take_task
from bench.records.environment import collect_provenance
from bench.records.filesystem import is_locked

RETRIES = 3  # restarts of a task whose worker or node dies
_LOOK = 5.0  # seconds between looks at the nodes
_GRACE = 60.0  # seconds to wait for a node that could run a task
_BLAS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class RayTasks:
    """Runs each task on some node of a Ray cluster; function, tasks and results must pickle."""

    # ``address`` is HOST:PORT, "auto" for this machine's cluster, "local" for one that lasts for the run, or
    # "" for RAY_ADDRESS, otherwise "auto". Every node has the results folder under the same path.
    folder: Path
    address: str = ""
    workers: int = 0  # 0: as many as the cluster has room for
    plugins: tuple[Plugin, ...] = ()
    cpus: int = 1
    gpus: int = 0
    sharing: int = 1  # tasks that share one GPU

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        needs: Needs = need_nothing,
        begins: Begins = begin_always,
    ) -> Iterator[Result]:
        """Yield results in the order of completion; raises InputError, BenchError or CellFailedError."""
        if not tasks:
            return
        with join_cluster(self.address) as ray, hold_folder(self.folder) as lock:
            if not self._count_slots(ray):
                raise InputError(f"no node of the Ray cluster has {self._describe_resources()}", where=WHERE)
            packed, settings = [ray.put((function, list(tasks)))], _worker_environment()
            start = _WorkerStart(lock, Path.cwd(), settings, _library_versions(), self.plugins, packed)
            wanted = [needs(task) for task in tasks]
            for done in self._submit_tasks(ray, start, wanted, lambda index: begins(tasks[index])):
                with _convert_ray_errors(ray):
                    result: Result = ray.get(done)
                yield result

    def _submit_tasks(
        self, ray: Any, start: _WorkerStart, needs: Sequence[frozenset[str]], begins: Begins = begin_always
    ) -> Iterator[Any]:
        """Submit as many tasks at a time as there is room for; yield references when done."""
        # Ray counts in ten-thousandths of a GPU; rounded down, so that all tasks find room
        share = self.gpus if self.sharing == 1 else 10_000 * self.gpus // self.sharing / 10_000
        work = ray.remote(_run_task).options(num_cpus=self.cpus, num_gpus=share, max_retries=RETRIES)
        waiting, running = list(range(len(needs))), dict[Any, frozenset[str]]()
        alone = 0.0
        try:
            while waiting or running:
                room = self._count_slots(ray)  # nodes come and go
                while waiting and len(running) < max(1, min(self.workers or room, room)):
                    index = take_task(waiting, running.values(), needs.__getitem__)
                    if begins(index):
                        running[work.remote(start, index)] = needs[index]
                if not running:
                    break
                done, _ = ray.wait(list(running), timeout=_LOOK)
                alone = 0.0 if done or room else alone + _LOOK
                if alone >= _GRACE:
                    hint = "finished cells are kept: run the same command again when there is one"
                    raise CellFailedError(f"no node is left that has {self._describe_resources()}", hint=hint)
                for reference in done:
                    del running[reference]
                    yield reference
        finally:
            for reference in running:
                ray.cancel(reference, force=True)  # finished results are on disk

    def _count_slots(self, ray: Any) -> int:
        """Count the tasks that the living nodes can run at a time."""
        room = 0
        for node in ray.nodes():
            resources = node["Resources"] if node["Alive"] else {}
            cpus = int(resources.get("CPU", 0)) // self.cpus
            slots = int(resources.get("GPU", 0)) * self.sharing
            room += min(cpus, slots // self.gpus) if self.gpus else cpus
        return room

    def _describe_resources(self) -> str:
        return f"{self.cpus} CPU(s)" + (f" and {self.gpus} GPU(s)" if self.gpus else "")


@dataclass(frozen=True)
class _WorkerStart:
    """Preparation of a worker process for its first task."""

    lock: Path  # a locked file in the results folder
    folder: Path  # the command's working folder, for relative paths
    environment: Mapping[str, str]
    versions: Mapping[str, str | None]
    plugins: tuple[Plugin, ...]  # loaded before the tasks are unpickled
    packed: list[Any]
    """Reference of function and tasks; the list keeps Ray from fetching it early, and for every task."""


_BEGUN: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {}
"""In a worker process: its function and tasks, by their reference."""


def _run_task(start: _WorkerStart, index: int) -> Any:
    """Run one task on a node."""
    (packed,) = start.packed
    if packed.hex() not in _BEGUN:
        _prepare_worker(start)
        _BEGUN.clear()
        _BEGUN[packed.hex()] = importlib.import_module("ray").get(packed)
    function, tasks = _BEGUN[packed.hex()]
    return function(tasks[index])


def _prepare_worker(start: _WorkerStart) -> None:
    """Make a worker process like the run's own, before heavy imports; raises BenchError."""
    node = f"node {socket.gethostname()}"
    for name, value in start.environment.items():
        if not os.environ.get(name):
            os.environ[name] = value
    os.environ.pop(_BLAS, None)  # set by Ray, read by numpy
    if _BLAS in start.environment:
        os.environ[_BLAS] = start.environment[_BLAS]
    hint = "the command and --results belong in a folder that all nodes share, under the same path"
    try:
        os.chdir(start.folder)
    except OSError as error:
        raise BenchError(f"{node} has no such folder", where=str(start.folder), hint=hint) from error
    if not is_locked(start.lock, shared=True):
        hint += ", whose locks (flock) hold on all of them"
        raise BenchError(f"{node} doesn't share this folder", where=str(start.lock.parent), hint=hint)
    versions = _library_versions()
    differing = [name for name, version in versions.items() if version != start.versions[name]]
    if differing:
        here = ", ".join(f"{name} {versions[name]}" for name in differing)
        expected = ", ".join(f"{name} {start.versions[name]}" for name in differing)
        hint = "records would differ: install the same on all nodes"
        raise BenchError(f"{node} has {here}", expected=expected, hint=hint)
    load_plugins(start.plugins)


def _worker_environment() -> dict[str, str]:
    """Return settings of this process for its workers: places of data, offline mode."""
    names = ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "PYTHONSAFEPATH", _BLAS)
    return {name: value for name, value in os.environ.items() if name in names or name.startswith("BENCH_")}


def _library_versions() -> dict[str, str | None]:
    facts = collect_provenance(device="cpu", threads=1)
    return {**{name: facts[name] for name in ("bench", "python", "platform")}, **facts["versions"]}


@contextmanager
def _convert_ray_errors(ray: Any) -> Iterator[None]:
    """Raise a task's own error; CellFailedError where its worker died."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        what = f"a worker died {1 + RETRIES} times (killed, or out of memory?): {type(error).__name__}"
        hint = "finished cells are kept: run the same command again, with fewer --workers"
        raise CellFailedError(what, hint=hint) from error
