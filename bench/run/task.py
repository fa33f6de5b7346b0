"""What a worker gets, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.data.mini.world import DEFAULT_SEED
from bench.data.training import TrainingData
from bench.plan.job import Job
from bench.records.record import RunRecord


@dataclass(frozen=True)
class CellTask:
    """What a worker gets: one cell and its pending suites (it must pickle)."""

    jobs: tuple[Job, ...]
    results: Path
    campaign: str
    data: Path | None
    accept_data: bool
    device: str
    threads: int
    force: bool
    training: TrainingData | None
    world_seed: int = DEFAULT_SEED
    wait: bool = False
    probes: tuple[str, ...] = ()
    probed: str = ""
    """Suite whose sentences are probed."""
    transfer_solver: str = "exact"
    precision: str = "fp32"
    keep_vectors: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    "ran", "probed" (it was there already), "failed", "done" (by another process) or "busy" (another has it).
    """

    job: Job
    state: str
    record: RunRecord | None = None
