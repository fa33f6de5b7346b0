"""Profiles: one TOML file each, with the backbone and every method's hyperparameters for it."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bench.errors import DataError, InputError, unknown

DEFAULT = "mini"


@dataclass(frozen=True)
class Profile:
    """A setting in which methods are compared.

    Args:
        name: File name without ``.toml``.
        summary: One line.
        suites: Suites that ``bench run`` evaluates when ``--suite`` is not given.
        backbone: {"name"} and either {"package", "folder", "extra"} or {"hub"}.
        corpus: {"world"} for the mini world's text, else {"file"} below the data folder, and perhaps
            "exclude_lines" (first and last, from 1) and "sick" (SICK's unlabelled sentences, below it too).
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
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    try:
        data = tomllib.loads(text)
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
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a profile: {error}", where=f"bench/profiles/{name}.toml") from error


def backbone_reference(profile: Profile) -> str:
    """Return the folder or hub name of a profile's backbone.

    Raises:
        InputError: its Python package isn't installed.
    """
    source = profile.backbone
    if "hub" in source:
        return source["hub"]
    package = importlib.util.find_spec(source["package"])
    if package is None or package.origin is None:
        raise InputError(
            f"the backbone of profile '{profile.name}', {source['name']}, is not installed",
            hint=f"pip install 'cse-bench[{source['extra']}]', or name a folder with --backbone",
        )
    return str(Path(package.origin).parent / source["folder"])


def _files() -> list[Any]:
    return list(resources.files(__name__).iterdir())
