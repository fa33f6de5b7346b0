"""When a run has to end: which cells it still begins, and which it leaves."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence

from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.run.preview import CellTimes
from bench.run.task import CellTask

Kind = tuple[object, ...]


def fitting(seconds: Sequence[float], workers: int, end: float) -> int:
    """How many cells of these times, taken in their order by so many workers, end in time.

    >>> fitting([5, 5, 9, 2], workers=2, end=8)
    3
    """
    free, fit = [0.0] * workers, 0
    for each in seconds:
        begin = heapq.heappop(free)
        ends = begin + each < end
        heapq.heappush(free, begin + each if ends else begin)
        fit += ends
    return fit


class Deadline:
    """Says of each cell whether it is begun, and keeps those that aren't.

    A cell takes as long as the longest like it in this run took: same method, same suites, the same kinds of
    stages still to train. Before there is one, it takes what ``--estimate`` says.

    Args:
        plan: The plan.
        end: By the clock.
        clock: Seconds.
        estimate: From a cell's jobs to seconds; 0 where nobody knows, and it is begun while there is time.
    """

    def __init__(
        self,
        plan: Plan,
        end: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        estimate: Callable[[Sequence[Job]], float] | None = None,
    ) -> None:
        self._times = CellTimes(plan)
        self._end, self._clock, self._estimate = end, clock, estimate or self._times.seconds
        self._begun: dict[object, tuple[Kind, float]] = {}
        self._took: dict[Kind, float] = {}
        self.left: list[CellTask] = []

    def begins(self, task: CellTask) -> bool:
        """True if a cell would be finished in time; then it begins now."""
        kind = self._kind(task)
        if self._clock() < self._end:  # else nobody has to measure anything
            needed = self._took[kind] if kind in self._took else self._estimate(task.jobs)
            if (now := self._clock()) + needed < self._end:
                self._begun[task.jobs[0].place] = kind, now
                return True
        self.left.append(task)
        return False

    def ended(self, task: CellTask) -> None:
        """Note how long a cell took."""
        kind, begun = self._begun.pop(task.jobs[0].place)
        self._took[kind] = max(self._took.get(kind, 0.0), self._clock() - begun)

    def leave(self, tasks: Sequence[CellTask]) -> None:
        """Leave cells that another process computes: nobody knows when it ends."""
        self.left += tasks

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are left."""
        return [job for task in self.left for job in task.jobs]

    def _kind(self, task: CellTask) -> Kind:
        suites = tuple(job.suite for job in task.jobs)
        return task.jobs[0].cell.method, suites, self._times.to_train(task.jobs)
