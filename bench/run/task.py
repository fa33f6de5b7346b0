"""What a worker gets, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.mini.world import DEFAULT_SEED
from bench.data.training import TrainingData
from bench.errors import NotComparableError
from bench.plan.job import Job
from bench.records.record import RunRecord
from bench.request.spec import RunSpec
from bench.run.events import steps_to_train


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
        besides: Its work but for training, for the events: see :func:`bench.run.events.all_work`.
    """

    jobs: tuple[Job, ...]
    spec: RunSpec
    training: TrainingData | None
    world_seed: int = DEFAULT_SEED
    wait: bool = False
    running: Path | None = None
    besides: Mapping[str, int] = field(default_factory=dict)

    def to_train(self, finished: Path) -> dict[str, tuple[str, int]]:
        """Name and planned steps of the cell's stages that aren't in a folder of finished ones, by key."""
        texts = self.training.texts.items() if self.training else ()
        sizes = {name: len(text.sentences) for name, text in texts}
        named = [(name, stage) for name, _, stage in self.jobs[0].cell.named_stages]
        return steps_to_train(named, sizes, finished)


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
