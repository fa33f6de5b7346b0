"""Profiles: one TOML file each, with the backbone and every method's hyperparameters for it."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bench.errors import DataError, InputError, unknown
from bench.records.packed import packed_backbone
from bench.schema import Block, Each, Rows, Shape, anything, count, fault, label, setting

DEFAULT = "mini"


def _option(value: Any) -> bool:
    """An option's value, or a stage's table of them."""
    return setting(value) or (isinstance(value, dict) and fault(value, Each(_option)) is None)


def _one_of(*blocks: Block) -> Shape:
    return lambda value: any(fault(value, block) is None for block in blocks)


_PROFILE = Block(
    {
        "summary": label,
        "suites": Rows(label),
        "backbone": _one_of(
            Block({"name": label, "hub": label}, closed=True),
            Block({"name": label, "package": label, "folder": label}, {"extra": label}, closed=True),
        ),
        "corpus": _one_of(
            Block({"world": label}, closed=True),
            Block(
                {"file": label},
                {"sick": label, "copies": Each(label), "exclude_lines": Rows(count, least=2)},
                closed=True,
            ),
        ),
        "dev": label,
    },
    {
        "note": label,
        "methods": Each(Each(_option)),
        "pretrain": Each(setting),
        "tuning": Rows(Each(anything)),
    },
    closed=True,
)


@dataclass(frozen=True)
class Profile:
    """A setting in which methods are compared.

    Args:
        name: File name without ``.toml``.
        summary: One line.
        suites: Suites that ``bench run`` evaluates when ``--suite`` is not given.
        backbone: {"name"} and either {"package", "folder", "extra"} or {"hub"}.
        corpus: {"world"} for the mini world's text, else {"file"} below the data folder, and perhaps
            "exclude_lines" (first and last, from 1), "sick" (SICK's unlabelled sentences, below it too) and
            "copies" (file below it of every round-trip translated copy, by the copy's name).
        dev: Suite of one task on which checkpoints are selected.
        note: What every table of this profile must say, or "".
        methods: Options of every method that differ from its card's defaults; a stage's in a table of
            its name.
        pretrain: Sizes and rates of its own backbone (see :mod:`bench.train.pretrain`), or empty.
        tuning: What ``bench tune`` tried: method, option, seed and [value, dev score] rows.
    """

    name: str
    summary: str
    suites: tuple[str, ...]
    backbone: dict[str, str]
    corpus: dict[str, Any]
    dev: str
    note: str
    methods: dict[str, dict[str, Any]]
    pretrain: dict[str, Any]
    tuning: tuple[dict[str, Any], ...]


def names() -> list[str]:
    """Names of all profiles."""
    return sorted(entry.name.removesuffix(".toml") for entry in _files() if entry.name.endswith(".toml"))


def load(name: str) -> Profile:
    """Read a profile; raises InputError with a suggestion for an unknown name."""
    if name not in names():
        raise unknown("profile", name, names(), where="--profile")
    file = resources.files(__name__).joinpath(f"{name}.toml")
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        if place := fault(data, _PROFILE):
            raise ValueError(f"'{place}' is missing, unknown or of another type")
        return Profile(
            name,
            data["summary"],
            tuple(data["suites"]),
            dict(data["backbone"]),
            dict(data["corpus"]),
            data["dev"],
            data.get("note", ""),
            dict(data.get("methods", {})),
            dict(data.get("pretrain", {})),
            tuple(data.get("tuning", ())),
        )
    except (ValueError, RecursionError) as error:  # such as text that is not UTF-8 or not TOML
        raise DataError(f"not a profile: {error}", where=f"bench/request/profiles/{name}.toml") from error


def backbone_reference(profile: Profile) -> str:
    """Return the folder or hub name of a profile's backbone.

    Raises:
        InputError: its Python package isn't installed.
    """
    if (folder := packed_backbone(profile.name)) is not None:
        return folder
    source = profile.backbone
    if "hub" in source:
        return source["hub"]
    try:
        package = importlib.util.find_spec(source["package"])
    except (ImportError, ValueError):  # a package that isn't there, or a name that no package can have
        package = None
    if package is None or package.origin is None:
        install = f"pip install 'cse-bench[{source['extra']}]', or " if "extra" in source else ""
        raise InputError(
            f"the backbone of profile '{profile.name}', {source['name']}, is not installed",
            hint=f"{install}name a folder with --backbone",
        )
    return str(Path(package.origin).parent / source["folder"])


def _files() -> list[Any]:
    return list(resources.files(__name__).iterdir())
