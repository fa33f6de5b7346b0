"""Cells in parallel in worker processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, TypeVar

from bench.config.plugins import load_plugins
from bench.config.run_spec import Plugin
from bench.errors import CellFailedError
from bench.training.child_processes import FreshContext, exit_on_interrupt, hold_interrupts, wait_for_sigterm

Task = TypeVar("Task")
Result = TypeVar("Result")
Needs = Callable[[Any], frozenset[str]]
"""Returns the stages that a task makes; a second task that makes one of them would have to wait."""
Begins = Callable[[Any], bool]  # called with a task just before it begins; False leaves it out


def need_nothing(task: object) -> frozenset[str]:
    """Make all tasks independent."""
    return frozenset()


def begin_always(task: object) -> bool:
    """Let every task begin."""
    return True


def take_task(waiting: list[Task], running: Iterable[frozenset[str]], needs: Needs) -> Task:
    """Remove and return the first task that is independent of running ones, otherwise the first."""
    taken = frozenset().union(*running)
    free = (i for i, task in enumerate(waiting) if not taken & needs(task))
    return waiting.pop(next(free, 0))


class WorkerProcesses:
    """``workers`` fresh (spawned) processes; function, tasks and results must pickle."""

    def __init__(self, workers: int, plugins: tuple[Plugin, ...] = ()) -> None:
        self.workers, self.plugins = workers, plugins

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        needs: Needs = need_nothing,
        begins: Begins = begin_always,
    ) -> Iterator[Result]:
        """Yield results in the order of completion; raises CellFailedError if a worker dies."""
        context = FreshContext()
        count = min(self.workers, len(tasks))
        start = partial(_start_worker, self.plugins)
        with ProcessPoolExecutor(count, mp_context=context, initializer=start) as pool:
            waiting, running = list(tasks), dict[Future[Result], frozenset[str]]()
            try:
                while waiting or running:
                    while waiting and len(running) < count:
                        task = take_task(waiting, running.values(), needs)
                        if begins(task):
                            with hold_interrupts():
                                future = pool.submit(function, task)
                            running[future] = needs(task)
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[future]
                        yield future.result()
            except BrokenProcessPool as error:
                wait_for_sigterm()
                what = "a worker process died (killed, or out of memory?)"
                hint = "finished cells are kept: run the same command again, with fewer --workers"
                raise CellFailedError(what, hint=hint) from error
            except (KeyboardInterrupt, GeneratorExit):
                for child in multiprocessing.active_children():
                    child.terminate()  # its work is lost; finished results are on disk
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(plugins: tuple[Plugin, ...]) -> None:
    """Prepare a worker for tasks whose functions may come from plug-ins."""
    exit_on_interrupt()
    load_plugins(plugins)
