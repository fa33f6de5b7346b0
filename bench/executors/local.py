"""Cells on this machine: one after the other in this process, or side by side in worker processes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from bench.errors import CellFailedError

Task = TypeVar("Task")
Result = TypeVar("Result")
Needs = Callable[[Any], frozenset[str]]
"""From a task to what only one task should make at a time: whoever needs it too would only wait."""


def needs_nothing(task: object) -> frozenset[str]:
    """No task hinders another."""
    return frozenset()


class Executor(Protocol):
    """Runs a function over tasks and yields each result as soon as it is there."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], needs: Needs = needs_nothing
    ) -> Iterator[Result]:
        """Yield results in the order of completion."""
        ...


class InProcess:
    """One after the other, here."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], needs: Needs = needs_nothing
    ) -> Iterator[Result]:
        """Yield results in the order of the tasks."""
        return map(function, tasks)


class WorkerProcesses:
    """``workers`` fresh (spawned) processes; function, tasks and results must pickle."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], needs: Needs = needs_nothing
    ) -> Iterator[Result]:
        """Yield results in the order of completion.

        A free worker takes the first task that needs nothing of what runs, or just the first.

        Raises:
            CellFailedError: a worker died (killed, out of memory); what was finished is kept.
        """
        context = multiprocessing.get_context("spawn")
        count = min(self.workers, len(tasks))
        with ProcessPoolExecutor(count, mp_context=context, initializer=_leave_on_interrupt) as pool:
            waiting, running = list(tasks), dict[Future[Result], frozenset[str]]()
            try:
                while waiting or running:
                    while waiting and len(running) < count:
                        taken = frozenset().union(*running.values())
                        free = (i for i, task in enumerate(waiting) if not taken & needs(task))
                        task = waiting.pop(next(free, 0))
                        running[pool.submit(function, task)] = needs(task)
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[future]
                        yield future.result()
            except BrokenProcessPool as error:
                raise CellFailedError(
                    "a worker process died (killed, or out of memory?)",
                    hint="finished cells are kept: run the same command again, with fewer --workers",
                ) from error
            except (KeyboardInterrupt, GeneratorExit):
                for child in multiprocessing.active_children():
                    child.terminate()  # what it was computing is lost, what was finished is on disk
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _leave_on_interrupt() -> None:
    """Ctrl-C reaches the workers too: they go without a word, the parent says it all; and with it."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: multiprocessing.process.BaseProcess) -> None:
    """A killed parent leaves no worker behind."""
    parent.join()
    os._exit(1)


def local_executor(workers: int) -> Executor:
    """In-process for one worker, else worker processes; the number never changes a score."""
    return InProcess() if workers == 1 else WorkerProcesses(workers)
