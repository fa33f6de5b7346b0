"""Profiles and tables of published checkpoints, damaged as text and as values."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.config import profiles
from bench.data import released_checkpoints
from bench.errors import BenchError
from bench.plan.cell_expansion import profile_options
from bench.registry import discover
from tests.fuzz import core
from tests.fuzz.core import ANSWER, REFUSED, Dice, RuleError, refused
from tests.fuzz.mutate import bytes_of, difference, json_of

_METHODS = ("noise", "untrained", "simcse", "untrained,simcse", "tncse", "word_overlap", "m_mhe", "esimcse")


def as_toml(value: Any) -> str:
    """Write a value as TOML, tables within tables in one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(as_toml(entry) for entry in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {as_toml(entry)}' for name, entry in value.items())}}}"
    return '""' if value is None else repr(value)


def _file(data: Any) -> bytes:
    if not isinstance(data, dict):
        return as_toml(data).encode()
    lines = [f"{json.dumps(name)} = {as_toml(value)}" for name, value in data.items()]
    return "\n".join(lines).encode()


class TomlTables:
    """The tables that come with the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "corpus.txt").write_text(200 * "A first line.\nA second line.\nA third one.\n")
        source = Path(profiles.__file__).parent
        self.profiles = {path.stem: path.read_bytes() for path in sorted(source.glob("*.toml"))}
        table = Path(released_checkpoints.__file__).with_name("released.toml").read_text(encoding="utf-8")
        self.released = _shorter(table)
        discover()

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        return self._profile(dice, steps, log) if dice.chance(0.75) else self._released(dice, steps, log)

    def _damaged(self, raw: bytes, steps: Sequence[Dice], log: list[str]) -> bytes:
        data: Any = tomllib.loads(raw.decode())
        damaged = raw
        for step in steps:
            if step.chance(0.4):
                damaged, data = bytes_of(damaged, step), None
            elif data is not None:
                data = json_of(data, step)
                damaged = _file(data)
        log.append(difference(raw, damaged))
        return damaged

    def _profile(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        name = dice.choice(sorted(self.profiles))
        folder = self.folder / "profiles"
        folder.mkdir(exist_ok=True)
        for other, raw in self.profiles.items():
            (folder / f"{other}.toml").write_bytes(raw)
        (folder / f"{name}.toml").write_bytes(self._damaged(self.profiles[name], steps, log))
        with packaged(profiles, folder):
            if dice.chance(0.4):
                return self._load(name, steps)
            methods = dice.choice(("noise", "word_overlap") if name.startswith("minilm") else _METHODS)
            run = ["run", "--dry-run", "--profile", name, "--methods", methods, "--seeds", "1"]
            text = ["--corpus", "corpus.txt", "--dev", "toy"]
            suite = [] if name != "mini" and dice.chance(0.3) else ["--suite", "toy"]
            commands = ([*run, *text, *suite], [*run, *text, *suite], ["list", "profiles"])
            arguments = dice.choice(commands)
            log.append(f"{name}: bench {' '.join(arguments)}")
            return core.bench(*arguments).kind

    def _load(self, name: str, steps: Sequence[Dice]) -> str:
        profile = refused(lambda: profiles.load_profile(name), f"{name}.toml", good=not steps)
        if isinstance(profile, BenchError):
            return REFUSED
        outcome = ANSWER
        for _, method in discover():
            card = method.card
            options = refused(lambda card=card: profile_options(card, profile))  # type: ignore[misc]
            if isinstance(options, BenchError):
                outcome = REFUSED
            elif {o.name: type(o.default) for o in card.options} != {n: type(v) for n, v in options.items()}:
                raise RuleError(f"{card.name} has options of other types: {options}")
        return outcome

    def _released(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        folder = self.folder / "data"
        folder.mkdir(exist_ok=True)
        (folder / "released.toml").write_bytes(self._damaged(self.released, steps, log))
        with packaged(released_checkpoints, folder):
            released_checkpoints.load_checkpoints.cache_clear()
            try:
                checkpoints = refused(released_checkpoints.load_checkpoints, "released.toml")
                if isinstance(checkpoints, BenchError):
                    return REFUSED
                name = dice.choice(sorted(checkpoints)) if checkpoints else "simcse"
                run = ("run", "--dry-run", "--methods", f"released:{name}", "--suite", "toy", "--seeds", "1")
                log.append(f"bench {' '.join(map(ascii, run))}")
                return core.bench(*run).kind
            finally:
                released_checkpoints.load_checkpoints.cache_clear()


def _shorter(table: str) -> bytes:
    """Keep a few of the checkpoints, of every kind."""
    data = tomllib.loads(table)
    kinds: dict[tuple[object, ...], str] = {}
    for name, entry in data.items():
        kinds.setdefault((len(entry["towers"]), *sorted(entry)), name)
    return _file({name: data[name] for name in kinds.values()})


def packaged(module: Any, folder: Path) -> AbstractContextManager[None]:
    """Let a module find its package's files in a folder."""
    return swapped(module, "resources", SimpleNamespace(files=lambda package: folder))


@contextmanager
def swapped(module: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
