"""Sources of evaluation data and texts: a folder, or the synthetic world of a seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.config.run_spec import RunSpec

GENERATOR = 1
SPLIT = 1
DEFAULT_SEED = 1
COPIES = ("a", "b")
"""Paraphrased copies of the training text, in the role of round-trip translations."""
FURTHER_COPIES = ("c", "d", "e", "f")
"""Copies outside the backbone's pretraining text; each has a stream of its own."""
ALL_COPIES = (*COPIES, *FURTHER_COPIES)


@dataclass(frozen=True)
class World:
    """One world, determined by its seed."""

    seed: int = DEFAULT_SEED

    @property
    def facts(self) -> dict[str, int]:
        """Facts for every record."""
        return {"generator": GENERATOR, "split": SPLIT, "seed": self.seed}


@dataclass(frozen=True)
class DataSource:
    """Source of evaluation data and texts."""

    folder: Path | None = None  # data folder; embedded suites and texts need none
    accept_changed: bool = False  # accept data that differ from the reference; records mark them
    world_seed: int = DEFAULT_SEED  # of the mini suites and texts

    @classmethod
    def of_run(cls, spec: RunSpec) -> DataSource:
        """Return the source of a run, see :func:`data_folder`."""
        world_seed = DEFAULT_SEED if spec.world_seed is None else spec.world_seed
        return cls(data_folder(spec.data), spec.accept_data, world_seed)

    @property
    def world(self) -> World:
        """The world of the mini suites and texts."""
        return World(self.world_seed)


NO_FOLDER = DataSource()
"""World 1 without a data folder, for embedded suites and files with a path."""


def data_folder(given: Path | None) -> Path | None:
    """Return ``--data`` if given, then ``BENCH_DATA``, then an existing ``./data``, otherwise None."""
    if given is not None:
        return given
    if os.environ.get("BENCH_DATA"):
        return Path(os.environ["BENCH_DATA"])
    return Path("data") if Path("data").is_dir() else None
