"""The command line in tests: its type, and what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import click

from bench.cli.strict_options import StrictOption
from bench.records.record import RunRecord, parse_record, record_to_json

Cli = Callable[..., tuple[int, str, str]]


def every_option() -> Iterator[click.Option]:
    """The options of every command."""
    from bench.cli.main import cli

    commands: list[click.Command] = [cli]
    for command in commands:
        yield from (option for option in command.params if isinstance(option, click.Option))
        commands += command.commands.values() if isinstance(command, click.Group) else ()


@cache
def given_once() -> frozenset[str]:
    """Names of options that have one value in every command."""
    options = [option for option in every_option() if isinstance(option, StrictOption)]
    once, other = ({n for o in options if o.has_one_value is one for n in o.opts} for one in (True, False))
    return frozenset(once - other)


def last_of_each(words: Sequence[str]) -> list[str]:
    """Leave out all but the last of an option that may be given once: most calls add to a base."""
    found: dict[str, int] = {}
    before: set[int] = set()
    for i, word in enumerate(words[:-1]):
        key = f"--set {words[i + 1].partition('=')[0]}" if word == "--set" else word
        if word == "--set" or word in given_once():
            before |= {found[key], found[key] + 1} if key in found else set()
            found[key] = i
    return [word for i, word in enumerate(words) if i not in before]


def records(folder: Path, campaign: str = "local") -> dict[str, RunRecord]:
    """All records of a campaign by their path below it."""
    root = folder / "results" / campaign
    return {
        str(p.relative_to(root)): parse_record(p.read_text(), str(p))
        for p in sorted(root.glob("*/*/*/*.json"))
    }


def stable_bytes(folder: Path, campaign: str = "local") -> dict[str, bytes]:
    """Everything in a campaign that must repeat: records without timing, predictions as they are."""
    root = folder / "results" / campaign
    found = {
        name: record_to_json(record, timing=False).encode()
        for name, record in records(folder, campaign).items()
    }
    return found | {str(p.relative_to(root)): p.read_bytes() for p in root.glob("*/*/*/*.npz")}


def refusal(cli: Cli, *arguments: str, code: int = 2) -> str:
    """What a command that is refused says: one line that no terminal obeys."""
    found, _, err = cli(*arguments)
    assert (found, err.count("\n"), err.rstrip("\n").isprintable()) == (code, 1, True), err
    return err


def show(cli: Cli, *arguments: str) -> dict[str, list[str]]:
    """The facts of ``bench show`` by their label; "method": its first line, "option": NAME=VALUE  (FROM)."""
    code, out, err = cli("show", *arguments)
    assert (code, err) == (0, "")
    heading, *blocks = out.strip("\n").split("\n\n")
    facts: dict[str, list[str]] = {"method": [heading]}
    for block in blocks:
        title, *lines = block.splitlines()
        rows = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines]
        if title.startswith("Options"):
            cells = [(name, *re.split(r" {2,}", rest)) for name, rest in rows[1:]]
            named = [f"{name}={value}  ({source})" for name, value, source in cells]
            facts.setdefault("option", []).extend(named)
        elif title == "Stages":
            facts["stage"] = [f"{name}: {text}" for name, text in rows]
        else:
            for name, text in rows:
                facts.setdefault(name, []).append(text)
    return facts
