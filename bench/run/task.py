"""What a worker gets, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.data.mini.world import DEFAULT_SEED
from bench.data.training import TrainingData
from bench.errors import NotComparableError
from bench.plan.job import Job
from bench.records.record import RunRecord
from bench.request.spec import RunSpec


@dataclass(frozen=True)
class CellTask:
    """What a worker gets (it must pickle).

    Args:
        jobs: One cell on its pending suites.
        spec: What the user asked for; paths in it are looked up where the cell runs.
        training: Training text and dev set, None where no method trains.
        world_seed: Which world the mini suites are drawn from.
        wait: Wait for a process that computes the same cell instead of answering "busy".
        running: Folder of the run's events, None for none.
    """

    jobs: tuple[Job, ...]
    spec: RunSpec
    training: TrainingData | None
    world_seed: int = DEFAULT_SEED
    wait: bool = False
    running: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    "ran", "probed" (it was there already), "failed", "done" (by another process), "busy" (another has it) or
    "conflict" (another process finished another specification there; why is in ``conflict``).
    """

    job: Job
    state: str
    record: RunRecord | None = None
    conflict: NotComparableError | None = None
