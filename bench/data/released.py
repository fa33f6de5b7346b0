"""Checkpoints that authors published: where they are, and how they are evaluated (``released.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bench.errors import DataError, unknown
from bench.schema import Block, Each, Rows, fault, flag, label, number


@dataclass(frozen=True)
class Tower:
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
class Checkpoint:
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
    towers: tuple[Tower, ...]
    pooling: str = "cls"
    template: str = ""
    sick: bool = False


_TOWER = Block(optional={"folder": label, "hub": label, "revision": label, "weight": number}, closed=True)
_TABLE = Each(
    Block(
        {"method": label, "backbone": label, "towers": Rows(_TOWER, least=1)},
        {"pooling": label, "template": label, "sick": flag},
        closed=True,
    )
)


@cache
def checkpoints() -> dict[str, Checkpoint]:
    """All checkpoints by name; raises DataError for a damaged table."""
    file = resources.files(__package__).joinpath("released.toml")
    try:
        table: dict[str, dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))
        if place := fault(table, _TABLE):
            raise ValueError(f"'{place}' is missing, unknown or of another type")
    except (ValueError, RecursionError) as error:  # no UTF-8 and no TOML among them
        raise DataError(f"no table of checkpoints: {error}", where="bench/data/released.toml") from error
    return {
        name: Checkpoint(name, **{**entry, "towers": tuple(Tower(**tower) for tower in entry["towers"])})
        for name, entry in table.items()
    }


def checkpoint(name: str, *, where: str | None = None) -> Checkpoint:
    """Return a checkpoint; raises InputError with the names there are."""
    found = checkpoints().get(name)
    if found is None:
        raise unknown("released checkpoint", name, checkpoints(), where=where)
    return found
