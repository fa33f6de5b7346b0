"""Checkpoints that authors published: where they are, and how they are evaluated (``released.toml``)."""

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
    """One encoder of a checkpoint.

    Args:
        folder: Its folder in the authors' download, or "".
        hub: Hub id, or "".
        revision: Beginning of the commit, "" where it isn't known.
        weight: Its weight in the sum.
    """

    folder: str = ""
    hub: str = ""
    revision: str = ""
    weight: float = 1.0

    @property
    def name(self) -> str:
        """Hub id with its revision, else the folder."""
        return f"{self.hub}@{self.revision}" if self.revision else self.hub or self.folder


@dataclass(frozen=True)
class ReleasedCheckpoint:
    """A published checkpoint.

    Args:
        name: Its name here.
        method: Method of the published tables.
        backbone: Backbone of the published tables.
        towers: Its encoders.
        pooling: Pooling at inference.
        template: Template for the pooling "mask", else "".
        sick: Its training text held SICK's unlabelled sentences.
    """

    name: str
    method: str
    backbone: str
    towers: tuple[ReleasedTower, ...]
    pooling: str = "cls"
    template: str = ""
    sick: bool = False


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
    """All checkpoints by name; raises DataError for a damaged table."""
    file = resources.files(__package__).joinpath("released.toml")
    try:
        table: dict[str, dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))
        if place := find_fault(table, _TABLE):
            raise ValueError(f"'{place}' is missing, unknown or of another type")
    except (ValueError, RecursionError) as error:  # no UTF-8 and no TOML among them
        raise DataError(f"no table of checkpoints: {error}", where="bench/data/released.toml") from error
    return {
        name: ReleasedCheckpoint(
            name, **{**entry, "towers": tuple(ReleasedTower(**tower) for tower in entry["towers"])}
        )
        for name, entry in table.items()
    }


def find_checkpoint(name: str, *, where: str | None = None) -> ReleasedCheckpoint:
    """Return a checkpoint; raises InputError with the names there are."""
    found = load_checkpoints().get(name)
    if found is None:
        raise unknown_name("released checkpoint", name, load_checkpoints(), where=where)
    return found
