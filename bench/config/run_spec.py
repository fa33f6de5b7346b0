"""Parsed requests of a user: methods, overrides, plug-ins and the whole run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bench.method_card import ALL_METHODS as ALL_METHODS
from bench.method_card import NAME as NAME


@dataclass(frozen=True)
class MethodRequest:
    """One entry of ``--methods``: ``[ALIAS=]NAME[:ARGUMENT][[OPTION=VALUE,...]]``."""

    text: str
    name: str
    argument: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    alias: str | None = None
    in_quotes: bool = False  # the argument begins with a path in double quotes


@dataclass(frozen=True)
class Override:
    """One ``--set METHOD[.STAGE].OPTION=VALUE``."""

    text: str
    method: str
    stage: str | None
    option: str
    value: str
    forced: bool = False  # set by bench: wins over a method's brackets and stays out of row names


@dataclass(frozen=True)
class Plugin:
    """One ``--plugin``: a package by its import name, or a file with the content that every process runs."""

    name: str
    path: str = ""
    source: bytes = field(default=b"", repr=False)
    session: bool = False  # a class of a session: a run keeps its text below the campaign


@dataclass(frozen=True)
class RunSpec:
    """A whole ``bench run``, parsed, before it is resolved against the registry and the profile.

    ``data``, ``results``, ``executor``, ``ray_address``, ``workers``, ``per_gpu``, ``force``, ``probes``,
    ``precision_effect`` and ``keep_vectors`` never change a score; everything else is part of the cells'
    identity. ``workers`` is 0 for as many as a Ray cluster or a GPU has room for, ``per_gpu`` for as many as
    its memory holds.
    """

    methods: tuple[MethodRequest, ...]
    seeds: tuple[int, ...]
    profile: str
    suites: tuple[str, ...] = ()
    backbone: str | None = None
    overrides: tuple[Override, ...] = ()
    device: str = "cpu"
    threads: int = 1
    ranks: int = 1
    train_precision: str = "fp32"
    compiled: str = "none"
    corpus: Path | None = None
    text_column: str | None = None
    copies: tuple[tuple[str, Path], ...] = ()
    pairs: Path | None = None
    dev: str | None = None
    world_seed: int | None = None
    data: Path | None = None
    accept_data: bool = False
    results: Path = field(default_factory=lambda: Path("results"))
    campaign: str = "local"
    executor: str = "local"
    ray_address: str = ""
    workers: int = 1
    per_gpu: int = 0
    force: bool = False
    probes: tuple[str, ...] = ()
    transfer_solver: str = "exact"
    precision: str = "fp32"
    precision_effect: bool = False
    keep_vectors: bool = False
    plugins: tuple[Plugin, ...] = ()
    whole_files: tuple[str, ...] = ()  # plug-in methods that their whole file identifies


METHOD_NAME = re.compile(NAME)
"""Names of methods, aliases and options."""
