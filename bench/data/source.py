"""Where evaluation data and texts come from: a folder, or the made-up world of a seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.config.spec import RunSpec

GENERATOR = 1
SPLIT = 1
DEFAULT_SEED = 1
COPIES = ("a", "b")
"""Names of the paraphrased copies of the training text: what round-trip translations are elsewhere."""
FURTHER_COPIES = ("c", "d", "e", "f")
"""More of them, which the backbone's pretraining has not seen; each has a stream of its own."""
ALL_COPIES = (*COPIES, *FURTHER_COPIES)


@dataclass(frozen=True)
class World:
    """One world; everything in it follows from its seed."""

    seed: int = DEFAULT_SEED

    @property
    def facts(self) -> dict[str, int]:
        """What every record names."""
        return {"generator": GENERATOR, "split": SPLIT, "seed": self.seed}


@dataclass(frozen=True)
class DataSource:
    """Where evaluation data and texts come from.

    Args:
        folder: Data folder; embedded suites and texts need none.
        accept_changed: Accept data that differ from the reference; each record marks them.
        world_seed: Seed of the world from which the mini suites and texts are drawn.
    """

    folder: Path | None = None
    accept_changed: bool = False
    world_seed: int = DEFAULT_SEED

    @classmethod
    def of_run(cls, spec: RunSpec) -> DataSource:
        """Return the source of a run; :func:`data_folder` finds its folder in this process."""
        world_seed = DEFAULT_SEED if spec.world_seed is None else spec.world_seed
        return cls(data_folder(spec.data), spec.accept_data, world_seed)

    @property
    def world(self) -> World:
        """The world from which the mini suites and texts are drawn."""
        return World(self.world_seed)


NO_FOLDER = DataSource()
"""World 1 without a data folder: enough for the embedded suites and for files with a path."""


def data_folder(given: Path | None) -> Path | None:
    """Return ``--data`` if given, then ``BENCH_DATA``, then an existing ``./data``, otherwise None."""
    if given is not None:
        return given
    if os.environ.get("BENCH_DATA"):
        return Path(os.environ["BENCH_DATA"])
    return Path("data") if Path("data").is_dir() else None
