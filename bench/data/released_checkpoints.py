"""Checkpoints that authors published, from ``released.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bench.errors import DataError, unknown_name
from bench.schema import Block, ListOf, MapOf, find_fault, is_boolean, is_label, is_number


@dataclass(frozen=True)
class ReleasedTower:
    """One encoder of a checkpoint."""

    folder: str = ""  # in the authors' download
    hub: str = ""  # hub id
    revision: str = ""  # begin of the commit, "" if unknown
    weight: float = 1.0  # in the sum

    @property
    def name(self) -> str:
        """Hub id with its revision, otherwise the folder."""
        return f"{self.hub}@{self.revision}" if self.revision else self.hub or self.folder


@dataclass(frozen=True)
class ReleasedCheckpoint:
    """A published checkpoint; method and backbone as in the published tables."""

    name: str
    method: str
    backbone: str
    towers: tuple[ReleasedTower, ...]
    pooling: str = "cls"  # at inference
    template: str = ""  # for the pooling "mask"
    sick: bool = False  # its training text held SICK's unlabelled sentences


_TOWER = Block(
    optional={"folder": is_label, "hub": is_label, "revision": is_label, "weight": is_number}, closed=True
)
_TABLE = MapOf(
    Block(
        {"method": is_label, "backbone": is_label, "towers": ListOf(_TOWER, least=1)},
        {"pooling": is_label, "template": is_label, "sick": is_boolean},
        closed=True,
    )
)


@cache
def load_checkpoints() -> dict[str, ReleasedCheckpoint]:
    """Return all checkpoints by name; raises DataError for a damaged table."""
    file = resources.files(__package__).joinpath("released.toml")
    try:
        table: dict[str, dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))
        if place := find_fault(table, _TABLE):
            raise ValueError(f"'{place}' is missing, unknown or of another type")
    except (ValueError, RecursionError) as error:
        raise DataError(f"no table of checkpoints: {error}", where="bench/data/released.toml") from error
    checkpoints = {}
    for name, entry in table.items():
        towers = tuple(ReleasedTower(**tower) for tower in entry.pop("towers"))
        checkpoints[name] = ReleasedCheckpoint(name, towers=towers, **entry)
    return checkpoints


def find_checkpoint(name: str, *, where: str | None = None) -> ReleasedCheckpoint:
    """Return a checkpoint; raises InputError with suggestions."""
    checkpoints = load_checkpoints()
    if name not in checkpoints:
        raise unknown_name("released checkpoint", name, checkpoints, where=where)
    return checkpoints[name]
