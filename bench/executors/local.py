"""Cells on this machine: one after the other in this process, or side by side in worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar

from bench.errors import CellFailedError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs a function over tasks and yields each result as soon as it is there."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield results in the order of completion."""
        ...


class InProcess:
    """One after the other, here."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield results in the order of the tasks."""
        return map(function, tasks)


class WorkerProcesses:
    """``workers`` fresh (spawned) processes; function, tasks and results must pickle."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield results in the order of completion.

        Raises:
            CellFailedError: a worker died (killed, out of memory); what was finished is kept.
        """
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.workers, len(tasks)), mp_context=context) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BrokenProcessPool as error:
                raise CellFailedError(
                    "a worker process died (killed, or out of memory?)",
                    hint="finished cells are kept: run the same command again, with fewer --workers",
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def local_executor(workers: int) -> Executor:
    """In-process for one worker, else worker processes; the number never changes a score."""
    return InProcess() if workers == 1 else WorkerProcesses(workers)
